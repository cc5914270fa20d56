"""The demo's rows and paired differences, from its raw scores.

A sample is scored once per seed; its mean over the seeds is what is averaged and resampled, so an
interval speaks of pictures, not of training runs. The spread over seeds stands beside it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from paiq.analysis.statistics import Estimate, estimate, seed_of
from paiq.errors import DataError
from paiq.records import AXES, Axis, Family
from paiq.report.demo_results import DemoScores

REPLICATES = 10_000


@dataclass(frozen=True, kw_only=True)
class DemoRow:
    """One line of the demo's table: a method on one split and family."""

    method: str
    split: str
    family: Family
    accuracy: Estimate
    hallucination: Estimate
    n: int
    """Samples; each is scored once per seed, and its mean over seeds is what is resampled."""
    seeds: int
    accuracy_by_seed: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class DemoDifference:
    """PAIQ against one other method on the same samples; positive favours PAIQ on both axes."""

    other: str
    split: str
    family: Family
    accuracy: Estimate
    hallucination: Estimate


def demo_rows(scores: tuple[DemoScores, ...]) -> tuple[DemoRow, ...]:
    """The table's rows, in the order in which method, split and family first occur."""
    rows = []
    for method, split, family in dict.fromkeys((s.method, s.split, s.family) for s in scores):
        runs = _runs(scores, method, split, family)
        label = f"demo/{split}/{family}/{method}"
        accuracy, hallucination = (
            estimate(
                _seed_mean(runs, axis),
                seed=seed_of(f"{label}/{axis}"),
                replicates=REPLICATES,
            )
            for axis in AXES
        )
        rows.append(
            DemoRow(
                method=method,
                split=split,
                family=family,
                accuracy=accuracy,
                hallucination=hallucination,
                n=len(runs[0].sample_ids),
                seeds=len(runs),
                accuracy_by_seed=tuple(float(np.mean(run.accuracy)) for run in runs),
            )
        )
    return tuple(rows)


def demo_differences(scores: tuple[DemoScores, ...]) -> tuple[DemoDifference, ...]:
    """Paired differences of `paiq` with every other method, per split and family."""
    found = []
    for method, split, family in dict.fromkeys((s.method, s.split, s.family) for s in scores):
        ours = _runs(scores, "paiq", split, family)
        if method == "paiq" or not ours:
            continue
        theirs = _runs(scores, method, split, family)
        if theirs[0].sample_ids != ours[0].sample_ids:
            raise DataError(
                f"{method} and paiq did not answer the same samples of {split}/{family}"
            )
        label = f"demo/{split}/{family}/paiq-{method}"
        paired = {}
        for axis in AXES:
            sign = 1.0 if axis == "accuracy" else -1.0
            gap = sign * (_seed_mean(ours, axis) - _seed_mean(theirs, axis))
            paired[axis] = estimate(gap, seed=seed_of(f"{label}/{axis}"), replicates=REPLICATES)
        found.append(DemoDifference(other=method, split=split, family=family, **paired))
    return tuple(found)


def _runs(
    scores: tuple[DemoScores, ...], method: str, split: str, family: Family
) -> list[DemoScores]:
    runs = [s for s in scores if (s.method, s.split, s.family) == (method, split, family)]
    for run in runs[1:]:
        if run.sample_ids != runs[0].sample_ids:
            raise DataError(f"the seeds of {method} did not answer the same samples of {split}")
    if len({run.seed for run in runs}) != len(runs):
        raise DataError(f"{method} on {split}/{family} holds one seed twice")
    return runs


def _seed_mean(runs: list[DemoScores], axis: Axis) -> Float[np.ndarray, " n"]:
    return np.mean([run.on(axis) for run in runs], axis=0)
