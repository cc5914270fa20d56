"""What the tables say of the cells: means, marks, paired differences, selectors and shares."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paiq.analysis.cells import Cell, CellScores
from paiq.analysis.statistics import (
    DEDICATED_REPLICATES,
    DESCRIPTION_SEED_BASE,
    REPLICATES,
    Estimate,
    Vector,
    as_scores,
    clustered_estimate,
    estimate,
    holm,
    macro_mean,
    seed_of,
    share_at_least,
    sign_flip_p,
)
from paiq.errors import ConfigError, DataError
from paiq.records import AXES, Axis, Family

Cells = Mapping[Cell, CellScores]


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which methods play the paper's parts."""

    ours: str = "paiq"
    spatial: str = "spatial"
    semantic: str = "semantic"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How intervals are drawn."""

    replicates: Mapping[Family, int]

    @classmethod
    def ours(cls) -> "Plan":
        return cls(replicates=dict.fromkeys(REPLICATES, DEDICATED_REPLICATES))

    @classmethod
    def paper(cls) -> "Plan":
        """The counts of the description archives and of the four-backbone question archive."""
        return cls(replicates=REPLICATES)

    def seed(self, family: Family, label: str) -> int:
        """The description archives count from the paper's base, the others from their labels."""
        base = DESCRIPTION_SEED_BASE if family == "description" else 0
        return seed_of(label, base)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """One place of the main table; without a mean where the cell is incomplete."""

    estimate: Estimate | None
    scored: int
    expected: int


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Our method against the comparator on one axis; positive favours ours on both axes."""

    by_record: Estimate
    by_image: Estimate
    """The same mean with records of one image resampled together."""
    p: float
    p_holm: float
    """Adjusted over every comparison of the report."""
    dropped: int
    """Samples left out because one of the two scores is missing; zero in a complete cell."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Our method against the better single encoder of one group and dataset."""

    group: str
    dataset: str
    comparator: str
    axes: Mapping[Axis, Paired]


def index(cells: Iterable[CellScores]) -> dict[Cell, CellScores]:
    found: dict[Cell, CellScores] = {}
    for scores in cells:
        if scores.cell in found:
            raise DataError(f"two runs give the cell {scores.cell.label}; name their groups apart")
        found[scores.cell] = scores
    return found


def cell_result(scores: CellScores, axis: Axis, plan: Plan) -> CellResult:
    counts = {"scored": len(scores.scores[axis]), "expected": len(scores.expected)}
    if not scores.is_complete(axis):
        return CellResult(estimate=None, **counts)
    seed = plan.seed(scores.family, f"{scores.cell.label}/{axis}")
    found = estimate(scores.values(axis), seed=seed, replicates=plan.replicates[scores.family])
    return CellResult(estimate=found, **counts)


def choose_comparator(spatial: CellScores, semantic: CellScores) -> CellScores:
    """The single encoder with the higher mean Accuracy, fixed before any resampling; ties: spatial.

    Both must be complete, or the choice would rest on different samples.
    """
    ahead = semantic.values("accuracy").mean() > spatial.values("accuracy").mean()
    return semantic if ahead else spatial


def compare(cells: Cells, roles: Roles, plan: Plan) -> list[Comparison]:
    """Every group and dataset that holds our method and both single encoders, Holm over all."""
    drafts = []
    for cell, ours in cells.items():
        if cell.method != roles.ours:
            continue
        singles = [cells.get(replace(cell, method=m)) for m in (roles.spatial, roles.semantic)]
        if singles[0] is None or singles[1] is None:
            continue
        if not all(single is not None and single.is_complete("accuracy") for single in singles):
            continue
        comparator = choose_comparator(singles[0], singles[1])
        drafts.append(
            Comparison(
                group=cell.group,
                dataset=cell.dataset,
                comparator=comparator.cell.method,
                axes={axis: paired(ours, comparator, axis, plan) for axis in AXES},
            )
        )
    return _adjusted(drafts)


def paired(ours: CellScores, theirs: CellScores, axis: Axis, plan: Plan) -> Paired:
    """Differences of aligned samples, resampled directly; only pairs with both scores enter."""
    if ours.expected != theirs.expected:
        raise DataError(f"{ours.cell.label} and {theirs.cell.label} hold different samples")
    keys = [key for key in ours.expected if key in ours.scores[axis] and key in theirs.scores[axis]]
    if not keys:
        raise DataError(f"{ours.cell.label} and {theirs.cell.label} share no {axis} score")
    gap = _values(ours, axis, keys) - _values(theirs, axis, keys)
    if axis == "hallucination":
        gap = -gap
    replicates = plan.replicates[ours.family]
    label = f"{ours.cell.label}-{theirs.cell.method}/{axis}"
    seed = plan.seed(ours.family, label)
    p = sign_flip_p(gap, seed=seed, replicates=replicates)
    return Paired(
        by_record=estimate(gap, seed=seed, replicates=replicates),
        by_image=clustered_estimate(
            gap, [ours.images[key] for key in keys], seed=seed, replicates=replicates
        ),
        p=p,
        p_holm=p,
        dropped=len(ours.expected) - len(keys),
    )


def best_of_two(spatial: CellScores, semantic: CellScores) -> tuple[Vector, Vector]:
    """Accuracy and Hallucination of the output with the higher Accuracy; exact ties: spatial.

    Hallucination is that of the same output, not minimised on its own (paper, Post-hoc
    best-of-two reference). An upper bound on Accuracy of choosing, not a router.
    """
    if spatial.expected != semantic.expected:
        raise DataError(f"{spatial.cell.label} and {semantic.cell.label} hold different samples")
    take = semantic.values("accuracy") > spatial.values("accuracy")
    accuracy, hallucination = (
        np.where(take, semantic.values(axis), spatial.values(axis)) for axis in AXES
    )
    return accuracy, hallucination


def pooled_share(cells: Iterable[CellScores], axis: Axis, threshold: int) -> tuple[int, int]:
    """How many of the pooled scores of complete cells reach the threshold."""
    return share_at_least(np.concatenate([cell.values(axis) for cell in cells]), threshold)


def empty_outputs(cells: Iterable[CellScores]) -> dict[tuple[int | None, int | None], int]:
    """(Accuracy, Hallucination) that empty candidates received, counted; None where unscored."""
    pairs: Counter[tuple[int | None, int | None]] = Counter()
    for cell in cells:
        for key in cell.empty:
            pairs[cell.scores["accuracy"].get(key), cell.scores["hallucination"].get(key)] += 1
    return dict(sorted(pairs.items(), key=lambda item: (-item[1], str(item[0]))))


def evaluator_sources(cells: Iterable[CellScores]) -> dict[str, Counter[str]]:
    """Scoring axes by group and evaluator, with what is `unscored`."""
    found: dict[str, Counter[str]] = {}
    for cell in cells:
        counts = found.setdefault(cell.cell.group, Counter())
        for axis in AXES:
            counts += cell.evaluators[axis]
            missing = len(cell.expected) - len(cell.scores[axis])
            if missing:
                counts["unscored"] += missing
    return found


def macro(cells: Cells, group: str, method: str, axis: Axis) -> float | None:
    """The mean of a method's dataset means; None unless it is complete on every dataset."""
    datasets = {cell.dataset for cell in cells if cell.group == group}
    means = []
    for dataset in sorted(datasets):
        scores = cells.get(Cell(group=group, dataset=dataset, method=method))
        if scores is None or not scores.is_complete(axis):
            return None
        means.append(float(scores.values(axis).mean()))
    return macro_mean(means)


def read_plan(text: str) -> Plan:
    """The plan for what the user asked for: `paper`, or a count."""
    if text == "paper":
        return Plan.paper()
    if not text.isdecimal() or int(text) < 100:
        raise ConfigError(
            f"--replicates takes a count of at least 100, or 'paper', got {text!r}; "
            f"the default is {DEDICATED_REPLICATES}"
        )
    return Plan(replicates=dict.fromkeys(REPLICATES, int(text)))


def _values(scores: CellScores, axis: Axis, keys: Sequence[str]) -> Vector:
    return as_scores((scores.scores[axis][key] for key in keys), of=scores.cell.label)


def _adjusted(drafts: Sequence[Comparison]) -> list[Comparison]:
    places = [(number, axis) for number in range(len(drafts)) for axis in AXES]
    if not places:
        return []
    adjusted = holm([drafts[number].axes[axis].p for number, axis in places])
    by_place = dict(zip(places, adjusted, strict=True))
    return [
        replace(
            draft,
            axes={axis: replace(draft.axes[axis], p_holm=by_place[number, axis]) for axis in AXES},
        )
        for number, draft in enumerate(drafts)
    ]
