"""LLaVA's `chat.json`: a list of `{id, image, conversations: [{from, value}, ...]}`.

CC3M-595K, FLUX and SEED-Bench cuts of the paper's predecessors come in this form. The marker
`<image>` may stand anywhere in the first human turn and is taken out; the model's own prompt
decides where the picture goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paiq.data.json_file import read_json, the_file
from paiq.data.prompts import take_apart
from paiq.data.reader import KINDS, FolderReader, Kind, Place, require
from paiq.errors import DataError
from paiq.records import Family, Sample, Turn

MARKER = "<image>"


@dataclass(frozen=True, kw_only=True)
class LlavaOptions:
    family: Family = "description"
    """What the records are; with `vqa` the first prompt is read as a question with its options."""
    prompt: str | None = None
    """Asked instead of each record's first prompt (descriptions only)."""

    def __post_init__(self) -> None:
        if self.prompt is not None and self.family == "vqa":
            raise DataError("option prompt is for descriptions; a vqa record asks its own question")


class LlavaReader(FolderReader):
    def __init__(self, place: Place, options: LlavaOptions) -> None:
        path = the_file(place.path, "chat.json")
        super().__init__(place.image_folder("images"))
        self.files = (path,)
        self.options = options
        self.records = read_json(path)
        if not isinstance(self.records, list):
            raise DataError(f"{path} must hold a list of records")

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, row: int) -> Sample:
        where = f"{self.files[0]} row {row}"
        record = _mapping(self.records[row], where)
        turns = turns_of(require(record, "conversations", list, where), where)
        sample_id, image = (require(record, key, str, where) for key in ("id", "image"))
        if self.options.family == "vqa":
            return _question(sample_id, image, turns, where)
        if self.options.prompt is not None:
            turns = (Turn(prompt=self.options.prompt, answer=turns[0].answer), *turns[1:])
        return Sample(id=sample_id, image=image, family="description", turns=turns)


def _question(sample_id: str, image: str, turns: tuple[Turn, ...], where: str) -> Sample:
    if len(turns) > 1:
        raise DataError(f"{where} has {len(turns)} turns; a question has one")
    question, options = take_apart(turns[0].prompt)
    return Sample(
        id=sample_id,
        image=image,
        family="vqa",
        turns=turns,
        question=question,
        options=options,
        reference=turns[0].answer,
    )


def turns_of(messages: list[Any], where: str) -> tuple[Turn, ...]:
    """Pairs of human and gpt messages; only the last answer may be missing."""
    says = [_message(message, number, where) for number, message in enumerate(messages)]
    if not says:
        raise DataError(f"{where} has no conversation")
    markers = [text.count(MARKER) for text in says]
    if markers[0] != 1 or any(markers[1:]):
        raise DataError(
            f"{where} must have one {MARKER}, in the first human turn; has {sum(markers)}"
        )
    says[0] = without_marker(says[0])
    answers = [*says[1::2], None] if len(says) % 2 else says[1::2]
    return tuple(
        Turn(prompt=prompt, answer=answer)
        for prompt, answer in zip(says[::2], answers, strict=True)
    )


def _message(message: Any, number: int, where: str) -> str:
    place = f"{where}, message {number}"
    values = _mapping(message, place)
    speaker = ("human", "gpt")[number % 2]
    if require(values, "from", str, place) != speaker:
        raise DataError(f"{place} must be from {speaker!r}, is from {values['from']!r}")
    return str(require(values, "value", str, place))


def without_marker(text: str) -> str:
    """The text around the marker, joined by the line break that stood on one side of it."""
    before, _, after = text.partition(MARKER)
    before, after = before.rstrip(), after.lstrip()
    return f"{before}\n{after}" if before and after else before + after


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"{where} must be an object, got {value!r:.80}")
    return value


KINDS.register("llava")(
    Kind(LlavaReader, LlavaOptions, "chat.json of LLaVA: CC3M-595K and cuts made in its form")
)
