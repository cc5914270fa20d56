"""Records gathered into cells: one method on one dataset, its expected keys and what is scored.

A cell is complete on an axis when every expected sample has a score there. Nothing is filled in:
a score without a prediction, a second score for one key or an unknown sample raises.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paiq.analysis.statistics import Vector, as_scores
from paiq.errors import DataError
from paiq.records import AXES, Axis, Family, Judgment, Prediction, Sample


@dataclass(frozen=True, order=True, kw_only=True)
class Cell:
    """Where a mean stands in the tables."""

    group: str
    """The run or language backbone."""
    dataset: str
    method: str

    @property
    def label(self) -> str:
        """Stable words that its seed is derived from."""
        return f"{self.group}/{self.dataset}/{self.method}"


@dataclass(frozen=True, kw_only=True)
class SliceRecords:
    """All records of one slice in one group; several methods may lie in it."""

    group: str
    dataset: str
    samples: Sequence[Sample]
    predictions: Sequence[Prediction]
    judgments: Sequence[Judgment]


@dataclass(frozen=True, kw_only=True)
class CellScores:
    """The scores of one cell by axis and sample."""

    cell: Cell
    family: Family
    expected: tuple[str, ...]
    """Sample ids in the slice's order."""
    scores: Mapping[Axis, Mapping[str, int]]
    evaluators: Mapping[Axis, Counter[str]]
    images: Mapping[str, str]
    """Sample id to image; records of one image are one cluster."""
    empty: frozenset[str]
    """Samples that were answered with nothing or white space; they are scored like any other."""
    unanswered: frozenset[str]
    """Samples without a prediction; their keys are pending."""

    def is_complete(self, axis: Axis) -> bool:
        return len(self.scores[axis]) == len(self.expected)

    def values(self, axis: Axis) -> Vector:
        """The scores of a complete cell, in the slice's order."""
        if not self.is_complete(axis):
            raise DataError(
                f"{self.cell.label} is incomplete on {axis}: "
                f"{len(self.scores[axis])} of {len(self.expected)} scored"
            )
        return as_scores(
            (self.scores[axis][key] for key in self.expected), of=f"{self.cell.label} {axis}"
        )

    def clusters(self) -> list[str]:
        return [self.images[key] for key in self.expected]


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Where every expected key is; scored + terminal + pending = expected, or it cannot be made."""

    expected: int
    """Two keys, one for each axis, for every expected prediction."""
    scored: Mapping[str, int]
    """By evaluator."""
    terminal: Mapping[str, int]
    """By class of failure."""
    pending: int
    empty_candidates: int
    distinct_images: int
    """Counted in each dataset on its own."""
    records: int
    """Samples of the slices, each once per slice."""
    sends: int | None = None
    retries: int | None = None
    """Known where a ledger was kept."""

    def __post_init__(self) -> None:
        found = self.scored_total + self.terminal_total + self.pending
        if found != self.expected or self.pending < 0:
            raise DataError(
                f"coverage does not close: {self.scored_total} scored + {self.terminal_total} "
                f"terminal + {self.pending} pending = {found}, but {self.expected} are expected"
            )

    @property
    def scored_total(self) -> int:
        return sum(self.scored.values())

    @property
    def terminal_total(self) -> int:
        return sum(self.terminal.values())

    @property
    def complete(self) -> bool:
        return self.scored_total == self.expected


def collect(records: SliceRecords) -> list[CellScores]:
    """One cell for every method of the slice, in the order in which the methods first answer."""
    where = f"{records.group}/{records.dataset}"
    samples = _by_id(records.samples, where)
    families = {sample.family for sample in samples.values()}
    if len(families) != 1:
        raise DataError(f"{where} mixes the families {sorted(families)}; a slice holds one")
    answers = _answers(records.predictions, samples, where)
    methods = list(dict.fromkeys(method for method, _ in answers))
    scores, evaluators = _scores(records.judgments, answers, where)
    return [
        CellScores(
            cell=Cell(group=records.group, dataset=records.dataset, method=method),
            family=next(iter(families)),
            expected=tuple(samples),
            scores={axis: scores.get((method, axis), {}) for axis in AXES},
            evaluators={axis: evaluators.get((method, axis), Counter()) for axis in AXES},
            images={key: sample.image for key, sample in samples.items()},
            empty=frozenset(
                key for key in samples if not answers.get((method, key), "unanswered").strip()
            ),
            unanswered=frozenset(key for key in samples if (method, key) not in answers),
        )
        for method in methods
    ]


def coverage(
    cells: Iterable[CellScores],
    *,
    terminal: Mapping[str, int] | None = None,
    sends: int | None = None,
    retries: int | None = None,
) -> Coverage:
    """The coverage of these cells together; terminals and sends come from a ledger, if any."""
    listed = list(cells)
    expected = sum(2 * len(cell.expected) for cell in listed)
    scored: Counter[str] = Counter()
    for cell in listed:
        for axis in AXES:
            scored += cell.evaluators[axis]
    ended = dict(terminal or {})
    slices = {
        (cell.cell.dataset, key, cell.images[key]) for cell in listed for key in cell.expected
    }
    return Coverage(
        expected=expected,
        scored=dict(sorted(scored.items())),
        terminal=ended,
        pending=expected - scored.total() - sum(ended.values()),
        empty_candidates=sum(len(cell.empty) for cell in listed),
        distinct_images=len({(dataset, image) for dataset, _, image in slices}),
        records=len(slices),
        sends=sends,
        retries=retries,
    )


def _by_id(samples: Sequence[Sample], where: str) -> dict[str, Sample]:
    if not samples:
        raise DataError(f"{where} has no samples")
    found: dict[str, Sample] = {}
    for sample in samples:
        if sample.id in found:
            raise DataError(f"{where} holds sample {sample.id!r} twice")
        found[sample.id] = sample
    return found


def _answers(
    predictions: Sequence[Prediction], samples: Mapping[str, Sample], where: str
) -> dict[tuple[str, str], str]:
    answers: dict[tuple[str, str], str] = {}
    for prediction in predictions:
        key = prediction.method, prediction.sample_id
        if prediction.sample_id not in samples:
            raise DataError(f"{where}: a prediction for unknown sample {prediction.sample_id!r}")
        if key in answers:
            raise DataError(f"{where}: {key[0]} answers sample {key[1]!r} twice")
        answers[key] = prediction.text
    return answers


def _scores(
    judgments: Sequence[Judgment], answers: Mapping[tuple[str, str], str], where: str
) -> tuple[dict[tuple[str, Axis], dict[str, int]], dict[tuple[str, Axis], Counter[str]]]:
    scores: dict[tuple[str, Axis], dict[str, int]] = {}
    evaluators: dict[tuple[str, Axis], Counter[str]] = {}
    for judgment in judgments:
        method, key, axis = judgment.method, judgment.sample_id, judgment.axis
        if (method, key) not in answers:
            raise DataError(f"{where}: a score of {method} for {key!r}, which it did not answer")
        column = scores.setdefault((method, axis), {})
        if key in column:
            raise DataError(f"{where}: {method} has two {axis} scores for {key!r}")
        as_scores([judgment.score], of=f"{where} {method} {axis} {key!r}")
        column[key] = judgment.score
        evaluators.setdefault((method, axis), Counter())[judgment.evaluator] += 1
    return scores, evaluators
