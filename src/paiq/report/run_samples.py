"""The samples of a report: picture, prompt, every answer with its scores and its history."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from paiq.analysis.runs import Ending, RunSlice
from paiq.data.images import inside, read_image
from paiq.errors import ConfigError
from paiq.records import AXES, Axis, Judgment, Sample
from paiq.report.page import picture
from paiq.world.source import WorldSource

THUMBNAIL = 240
WORLD_KEY = re.compile(r"world/(?P<split>[a-z]+)/(?P<seed>[0-9]{1,9})/(?P<index>[0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class Score:
    """What became of one key."""

    axis: str
    shown: str
    """A number, or the name of the state."""
    value: int | None
    evaluator: str
    attempts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One method's answer."""

    method: str
    text: str | None
    finish: str
    scores: tuple[Score, ...]


@dataclass(frozen=True, kw_only=True)
class SampleCard:
    """One sample with all answers of its group."""

    group: str
    dataset: str
    id: str
    image: str | None
    """The thumbnail as the address of itself; None where the picture cannot be shown."""
    trouble: str
    prompt: str
    options: tuple[str, ...]
    reference: str
    answers: tuple[Answer, ...]

    @property
    def lowest(self) -> int:
        """The lowest Accuracy on the card; -1 where one is missing."""
        values = [s.value for a in self.answers for s in a.scores if s.axis == AXES[0]]
        return min((-1 if value is None else value for value in values), default=-1)

    @property
    def short(self) -> bool:
        """Whether some score of the card is missing."""
        return any(score.value is None for a in self.answers for score in a.scores)


def sample_cards(slices: Sequence[RunSlice], most: int) -> tuple[list[SampleCard], int]:
    """At most so many cards per group and dataset, evenly spread; and the count of all samples."""
    by_place: dict[tuple[str, str], list[RunSlice]] = {}
    for part in slices:
        by_place.setdefault((part.records.group, part.records.dataset), []).append(part)
    cards, total = [], 0
    for parts in by_place.values():
        samples = list(parts[0].records.samples)
        total += len(samples)
        books = [_Book(part) for part in parts]
        cards += [_card(samples[index], parts, books) for index in _spread(len(samples), most)]
    return cards, total


def _spread(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return [index * count // most for index in range(most)]


class _Book:
    """A run slice by key."""

    def __init__(self, part: RunSlice) -> None:
        self.part = part
        self.methods = list(dict.fromkeys(p.method for p in part.records.predictions))
        self.predictions = {(p.method, p.sample_id): p for p in part.records.predictions}
        self.judgments: Mapping[tuple[str, str, Axis], Judgment] = {
            (j.method, j.sample_id, j.axis): j for j in part.records.judgments
        }

    def answers(self, sample_id: str) -> list[Answer]:
        found = []
        for method in self.methods:
            prediction = self.predictions.get((method, sample_id))
            found.append(
                Answer(
                    method=method,
                    text=prediction.text if prediction else None,
                    finish=prediction.finish_reason if prediction else "",
                    scores=tuple(self._score((method, sample_id, axis)) for axis in AXES),
                )
            )
        return found

    def _score(self, key: tuple[str, str, Axis]) -> Score:
        judgment, ending = self.judgments.get(key), self.part.endings.get(key)
        if judgment is not None:
            return Score(
                axis=key[2],
                shown=str(judgment.score),
                value=judgment.score,
                evaluator=judgment.evaluator,
                attempts=_history(judgment.attempts),
            )
        return _unscored(key[2], ending)


def _unscored(axis: Axis, ending: Ending | None) -> Score:
    return Score(
        axis=axis,
        shown=f"ended: {ending.failure}" if ending else "pending",
        value=None,
        evaluator="",
        attempts=_history(ending.attempts) if ending else (),
    )


def _history(attempts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(json.dumps(attempt, ensure_ascii=False, sort_keys=True) for attempt in attempts)


def _card(sample: Sample, parts: Sequence[RunSlice], books: Sequence[_Book]) -> SampleCard:
    image, trouble = _thumbnail(parts[0].images, sample)
    return SampleCard(
        group=parts[0].records.group,
        dataset=parts[0].records.dataset,
        id=sample.id,
        image=image,
        trouble=trouble,
        prompt=sample.question or sample.turns[0].prompt,
        options=sample.options,
        reference=sample.reference or "",
        answers=tuple(answer for book in books for answer in book.answers(sample.id)),
    )


def _thumbnail(root: Path, sample: Sample) -> tuple[str | None, str]:
    """A small JPEG; a picture that cannot be shown takes nothing from the numbers, and is named."""
    try:
        image = _picture(root, sample)
    except ConfigError as error:
        return None, str(error).replace(str(root), "the image folder")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, format="JPEG", quality=82)
    return picture(out.getvalue(), "jpeg"), ""


def _picture(root: Path, sample: Sample) -> Image.Image:
    """The kept file; a scene of the world, which keeps none, is drawn again from its key."""
    key = WORLD_KEY.fullmatch(sample.image)
    if sample.facts is None or key is None:
        return read_image(inside(root, sample.image), first_frame=True)
    return WorldSource(key["split"], int(key["index"]) + 1, int(key["seed"])).image(sample)
