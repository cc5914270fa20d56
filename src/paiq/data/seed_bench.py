"""SEED-Bench v1: `SEED-Bench.json` with the folder `SEED-Bench-image`, or its parquet mirror.

Multiple choice with four options. A video question (several frames) is refused unless
`first_frame` is set, and then its first frame is taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paiq.data.json_file import read_json, the_file
from paiq.data.parquet import TableReader, shards
from paiq.data.prompts import OPTION_CONTENT, ask, check_template
from paiq.data.reader import KINDS, FolderReader, Kind, Place, Reader, require
from paiq.errors import DataError
from paiq.records import Sample, Turn

LETTERS = "ABCD"
CHOICES = tuple(f"choice_{letter.lower()}" for letter in LETTERS)
COLUMNS = ("question_id", "question", *CHOICES, "answer")


@dataclass(frozen=True, kw_only=True)
class SeedBenchOptions:
    template: str = OPTION_CONTENT
    """The prompt, with places {question} and {options}."""
    split: str = "test"
    """Which files of a parquet folder are read: SPLIT-*.parquet."""

    def __post_init__(self) -> None:
        check_template(self.template)


class SeedBenchJson(FolderReader):
    def __init__(self, place: Place, options: SeedBenchOptions) -> None:
        path = the_file(place.path, "SEED-Bench.json")
        super().__init__(place.image_folder("SEED-Bench-image", "images"))
        self.files = (path,)
        self.options = options
        content = read_json(path)
        if not isinstance(content, Mapping):
            raise DataError(f"{path} must hold an object with 'questions'")
        self.questions = require(content, "questions", list, str(path))

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, row: int) -> Sample:
        where = f"{self.files[0]} row {row}"
        question = self.questions[row]
        if not isinstance(question, Mapping):
            raise DataError(f"{where} must be an object")
        if question.get("data_type") == "video":
            raise DataError(f"{where} is about a video; this reader has pictures only")
        return _sample(question, _data_id(question, where), where, self.options)


class SeedBenchParquet(TableReader):
    def __init__(self, place: Place, options: SeedBenchOptions) -> None:
        super().__init__(shards(place.path, f"{options.split}-*.parquet"))
        self.table.need(*COLUMNS)
        self.options = options

    def __getitem__(self, row: int) -> Sample:
        values = self.table.read(row, COLUMNS)
        return _sample(values, f"row {row}", self.table.where(row), self.options)


def _data_id(question: Mapping[str, Any], where: str) -> str:
    """The picture's name; published as a text, in later versions as a list of them."""
    value = question.get("data_id")
    names = value if isinstance(value, list) else [value]
    if len(names) != 1 or not isinstance(names[0], str):
        raise DataError(f"{where}: 'data_id' must name one picture, got {value!r:.80}")
    return names[0]


def _sample(
    question: Mapping[str, Any], image: str, where: str, options: SeedBenchOptions
) -> Sample:
    text, answer = (require(question, key, str, where) for key in ("question", "answer"))
    choices = tuple(require(question, key, str, where) for key in CHOICES)
    if answer not in LETTERS or len(answer) != 1:
        raise DataError(f"{where}: 'answer' must be one of A, B, C, D, got {answer!r}")
    reference = choices[LETTERS.index(answer)]
    # Written as a text; some tools turn it into a number on the way.
    number = question.get("question_id")
    if isinstance(number, bool) or not isinstance(number, str | int):
        raise DataError(f"{where}: 'question_id' must be a text, got {number!r:.80}")
    return Sample(
        id=str(number),
        image=image,
        family="vqa",
        turns=(Turn(prompt=ask(text, choices, options.template), answer=reference),),
        question=text,
        options=choices,
        reference=reference,
    )


def open_seed_bench(place: Place, options: SeedBenchOptions) -> Reader:
    path = place.path
    if path.suffix == ".json" or (path / "SEED-Bench.json").is_file():
        return SeedBenchJson(place, options)
    return SeedBenchParquet(place, options)


KINDS.register("seed-bench")(
    Kind(open_seed_bench, SeedBenchOptions, "SEED-Bench v1, json with images or parquet")
)
