"""A-OKVQA: `aokvqa_v1p0_{split}.json` with COCO 2017 pictures, or its parquet mirror.

Multiple choice with four options. The test split has no answers; its samples have no reference.
"""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paiq.data.json_file import read_json, the_file
from paiq.data.parquet import TableReader, shards
from paiq.data.prompts import OPTION_CONTENT, ask, check_template
from paiq.data.reader import KINDS, FolderReader, Kind, Place, Reader, require, require_texts
from paiq.errors import DataError
from paiq.records import Sample, Turn

Split = Literal["train", "val", "test"]
PARQUET_SPLIT = {"train": "train", "val": "validation", "test": "test"}
COLUMNS = ("question_id", "question", "choices")
ANSWER = "correct_choice_idx"
DIRECT = "direct_answers"

# One quoted word of a printed list.
QUOTED = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")


@dataclass(frozen=True, kw_only=True)
class AOkvqaOptions:
    split: Split = "val"
    """Which split a folder is read as; a file's records must be of it."""
    template: str = OPTION_CONTENT
    """The prompt, with places {question} and {options}."""
    flat: bool = False
    """Pictures lie in the image folder itself, not in its folder SPLIT2017."""

    def __post_init__(self) -> None:
        check_template(self.template)


class AOkvqaJson(FolderReader):
    def __init__(self, place: Place, options: AOkvqaOptions) -> None:
        path = the_file(place.path, f"aokvqa_v1p0_{options.split}.json")
        super().__init__(place.image_folder("coco", "images"))
        self.files = (path,)
        self.options = options
        self.records = read_json(path)
        if not isinstance(self.records, list):
            raise DataError(f"{path} must hold a list of questions")

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, row: int) -> Sample:
        where = f"{self.files[0]} row {row}"
        record = self.records[row]
        if not isinstance(record, Mapping):
            raise DataError(f"{where} must be an object")
        split = require(record, "split", str, where)
        if split != self.options.split:
            raise DataError(f"{where} is of split {split!r}; set option split={split}")
        name = f"{require(record, 'image_id', int, where):012}.jpg"
        image = name if self.options.flat else f"{split}2017/{name}"
        return _sample(record, image, where, self.options)

    def direct_answers(self, row: int) -> tuple[str, ...]:
        where = f"{self.files[0]} row {row}"
        return parse_direct_answers(require(self.records[row], DIRECT, list, where), where)


class AOkvqaParquet(TableReader):
    def __init__(self, place: Place, options: AOkvqaOptions) -> None:
        super().__init__(shards(place.path, f"{PARQUET_SPLIT[options.split]}-*.parquet"))
        self.table.need(*COLUMNS)
        if options.split != "test":
            self.table.need(ANSWER, DIRECT)
        self.options = options
        self.wanted = [name for name in (*COLUMNS, ANSWER, DIRECT) if name in self.table.columns]

    def __getitem__(self, row: int) -> Sample:
        values = dict(self.table.read(row, self.wanted))
        if self.options.split == "test":
            values.pop(ANSWER, None)  # present and empty
            values.pop(DIRECT, None)
        return _sample(values, f"row {row}", self.table.where(row), self.options)

    def direct_answers(self, row: int) -> tuple[str, ...]:
        return parse_direct_answers(self.table.read(row, (DIRECT,))[DIRECT], self.table.where(row))


def _sample(record: Mapping[str, Any], image: str, where: str, options: AOkvqaOptions) -> Sample:
    question = require(record, "question", str, where)
    choices = require_texts(record, "choices", where)
    reference = None
    if options.split != "test" or ANSWER in record:
        index = require(record, ANSWER, int, where)
        if not 0 <= index < len(choices):
            raise DataError(f"{where}: choice {index} of {len(choices)}")
        reference = choices[index]
    if DIRECT in record:
        parse_direct_answers(record[DIRECT], where)
    return Sample(
        id=require(record, "question_id", str, where),
        image=image,
        family="vqa",
        turns=(Turn(prompt=ask(question, choices, options.template), answer=reference),),
        question=question,
        options=choices,
        reference=reference,
    )


def parse_direct_answers(value: Any, where: str) -> tuple[str, ...]:
    """The ten short answers: a list, or the printed form of one that the mirror holds.

    Only a list of quoted words is read. Python itself would take `['a' 'b']`, as numpy prints it,
    for one word.
    """
    words = _printed_list(value) if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{where}: 'direct_answers' is no list of texts: {value!r:.80}")
    return tuple(words)


def _printed_list(text: str) -> list[str] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _python_list(text)
    return found if isinstance(found, list) else None


def _python_list(text: str) -> list[str] | None:
    body = text.strip()
    if not (body.startswith("[") and body.endswith("]")):
        return None
    words, rest = [], body[1:-1].strip()
    while rest:
        match = QUOTED.match(rest)
        if not match:
            return None
        try:
            words.append(ast.literal_eval(match[0]))
        except (SyntaxError, ValueError):
            return None
        rest = rest[match.end() :].lstrip()
        if rest and not rest.startswith(","):
            return None
        rest = rest.removeprefix(",").lstrip()
    return words


def open_a_okvqa(place: Place, options: AOkvqaOptions) -> Reader:
    path = place.path
    if path.suffix == ".json" or (path / f"aokvqa_v1p0_{options.split}.json").is_file():
        return AOkvqaJson(place, options)
    return AOkvqaParquet(place, options)


KINDS.register("a-okvqa")(
    Kind(open_a_okvqa, AOkvqaOptions, "A-OKVQA, json with COCO 2017 pictures or parquet")
)
