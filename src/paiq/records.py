"""The records that one room hands to the next, each a line of JSON on disk.

Sample      data -> everything
Prediction  generation -> judging
Judgment    judging -> analysis
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from paiq.errors import DataError
from paiq.files import write_atomically

Family = Literal["description", "vqa"]
Axis = Literal["accuracy", "hallucination"]
AXES: tuple[Axis, Axis] = ("accuracy", "hallucination")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One exchange of a conversation behind an image."""

    prompt: str
    answer: str | None = None
    """The supervised answer; None where it is to be generated."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """An image and what is said about it."""

    id: str
    image: str
    """Where the source keeps the image: a path inside the data folder, or the source's own key."""
    family: Family
    turns: tuple[Turn, ...]
    question: str | None = None
    options: tuple[str, ...] = ()
    reference: str | None = None
    """The authoritative answer text of a question; None for a description."""
    facts: Mapping[str, Any] | None = None
    """The scene graph where it is known; exact scores are computed from it."""

    def __post_init__(self) -> None:
        if not self.turns:
            raise DataError(f"sample {self.id!r} has no turns")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one method answered to one sample, unedited."""

    sample_id: str
    method: str
    text: str
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    new_tokens: int
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Judgment:
    """A score that an evaluator gave to one prediction on one axis."""

    sample_id: str
    method: str
    axis: Axis
    score: int
    evaluator: str
    attempts: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.score <= 100:
            raise DataError(f"score of {self.sample_id!r} must lie in [0, 100], got {self.score}")


R = TypeVar("R", Sample, Prediction, Judgment)


def to_line(record: Sample | Prediction | Judgment) -> str:
    return json.dumps(asdict(record), ensure_ascii=False, sort_keys=True)


def write_records(path: Path, records: Iterable[R]) -> None:
    """Replaces the file in one step: a reader sees all of the old or all of the new."""
    write_atomically(path, "".join(to_line(record) + "\n" for record in records).encode())


def read_records(path: Path, kind: type[R]) -> Iterator[R]:
    """The records of a JSONL file; a line that is not one is an error that names it."""
    adapter = TypeAdapter(kind)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if lines and lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            yield adapter.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the line"
            raise DataError(
                f"{path}:{number} is no {kind.__name__}: {where}: {first['msg']}"
            ) from error
