"""Means and percentile bootstrap intervals (paper, Aggregation and paired uncertainty).

A mean stands never without its n and its interval; scores that are no integers in [0, 100] raise.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from paiq.errors import DataError
from paiq.records import Family

CONFIDENCE = 0.95
DESCRIPTION_SEED_BASE = 20260810
REPLICATES: dict[Family, int] = {"description": 10_000, "vqa": 2_000}
DEDICATED_REPLICATES = 10_000
"""The dedicated question archive and our own reports; the count changes Monte Carlo error only."""
BATCH = 250
"""Replicates held in memory at a time; the drawn samples do not depend on it."""

Vector = Float[np.ndarray, " n"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over n records, with the percentile interval of its bootstrap."""

    mean: float
    low: float | None
    """None where fewer than two records leave nothing to resample."""
    high: float | None
    n: int
    replicates: int

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def seed_of(label: str, base: int = 0) -> int:
    """A seed that depends on the group's label and the base alone."""
    digest = hashlib.sha256(f"{base}/{label}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def as_scores(values: Iterable[Any], *, of: str) -> Vector:
    """The scores as floats; anything but integers in [0, 100] raises and names the first."""
    listed = list(values)
    for index, value in enumerate(listed):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not 0 <= value <= 100:
            raise DataError(
                f"score {index} of {of} must be an integer in [0, 100], got {value!r}; "
                "a missing score is left out with its key pending or terminal, never written"
            )
    return np.asarray(listed, dtype=np.float64)


def estimate(values: Sequence[float] | Vector, *, seed: int, replicates: int) -> Estimate:
    """Mean and percentile interval; each replicate draws n records with replacement."""
    sample = _finite(values)
    n = len(sample)
    if n < 2:
        return Estimate(mean=float(sample.mean()), low=None, high=None, n=n, replicates=0)
    interval = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=replicates,
        confidence_level=CONFIDENCE,
        method="percentile",
        batch=BATCH,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return _with_interval(sample, interval, replicates)


def clustered_estimate(
    values: Sequence[float] | Vector, clusters: Sequence[str], *, seed: int, replicates: int
) -> Estimate:
    """The same mean, with whole clusters (records of one image) resampled together."""
    sample = _finite(values)
    if len(clusters) != len(sample):
        raise DataError(f"{len(sample)} values came with {len(clusters)} cluster names")
    names, where = np.unique(np.asarray(clusters, dtype=object), return_inverse=True)
    if len(names) < 2:
        return Estimate(mean=float(sample.mean()), low=None, high=None, n=len(sample), replicates=0)
    interval = stats.bootstrap(
        (np.bincount(where, weights=sample), np.bincount(where).astype(np.float64)),
        _ratio_of_sums,
        paired=True,
        vectorized=True,
        n_resamples=replicates,
        confidence_level=CONFIDENCE,
        method="percentile",
        batch=BATCH,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return _with_interval(sample, interval, replicates)


def sign_flip_p(differences: Sequence[float] | Vector, *, seed: int, replicates: int) -> float:
    """Two-sided p of a zero mean difference, by flipping signs; never below 1/(replicates + 1)."""
    sample = _finite(differences)
    if not sample.any():
        return 1.0
    result = stats.permutation_test(
        (sample,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=replicates,
        batch=BATCH,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Family-wise adjusted p-values by Holm's step-down rule, in the order given."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def share_at_least(values: Vector, threshold: float) -> tuple[int, int]:
    """How many of how many scores reach the threshold."""
    return int((values >= threshold).sum()), len(values)


def histogram(values: Vector, width: int = 10) -> list[int]:
    """Counts in bins of this width over [0, 100]; the last bin holds 100 itself."""
    edges = [*range(0, 100, width), 100]
    counts = np.histogram(values, bins=np.asarray(edges, dtype=np.float64))[0]
    assert counts.sum() == len(values)
    return [int(count) for count in counts]


def macro_mean(means: Sequence[float]) -> float:
    """Every dataset counts once, however many records it holds."""
    return math.fsum(means) / len(means)


def marks(values: Sequence[float], *, higher: bool) -> list[str]:
    """`best`, `second` or `none` for each; ties share a mark, as displayed values do."""
    ranked = sorted(set(values), reverse=higher)
    names = {ranked[0]: "best"}
    if len(ranked) > 1:
        names[ranked[1]] = "second"
    return [names.get(value, "none") for value in values]


def _finite(values: Sequence[float] | Vector) -> Vector:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0:
        raise DataError(f"need one line of values, got shape {sample.shape}")
    if not np.isfinite(sample).all():
        raise DataError("a mean over missing or infinite values was asked for")
    return sample


def _ratio_of_sums(sums: np.ndarray, counts: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.asarray(sums.sum(axis=axis) / counts.sum(axis=axis))


def _with_interval(sample: Vector, interval: Any, replicates: int) -> Estimate:
    return Estimate(
        mean=float(sample.mean()),
        low=float(interval.low),
        high=float(interval.high),
        n=len(sample),
        replicates=replicates,
    )
