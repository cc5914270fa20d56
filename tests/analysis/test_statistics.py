import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from paiq.analysis.statistics import (
    as_scores,
    clustered_estimate,
    estimate,
    histogram,
    holm,
    macro_mean,
    marks,
    seed_of,
    share_at_least,
    sign_flip_p,
)
from paiq.errors import DataError


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, None, True, False, 85.0, "85", 101, -1, np.float64(3), np.bool_(1)]
)
def test_a_value_that_is_no_score_raises_and_is_named(bad):
    with pytest.raises(DataError, match="score 1 of the cell"):
        as_scores([1, bad, 2], of="the cell")


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [[1.0, 2.0]], [math.inf, 0.0]])
def test_no_mean_is_taken_over_missing_values(bad):
    with pytest.raises(DataError):
        estimate(bad, seed=1, replicates=10)


@pytest.mark.parametrize(("n", "hits"), [(40, 12), (200, 150), (1000, 540)])
def test_the_interval_of_zero_or_hundred_scores_is_the_binomial_one(n, hits):
    # The mean of a resample is 100/n times a binomial count, so its quantiles are known exactly.
    found = estimate([100.0] * hits + [0.0] * (n - hits), seed=5, replicates=10_000)
    assert found.mean == pytest.approx(100 * hits / n)
    step = 100 / n
    for quantile, value in ((0.025, found.low), (0.975, found.high)):
        assert value == pytest.approx(binom.ppf(quantile, n, hits / n) * step, abs=1.01 * step)


def test_equal_scores_leave_no_width_and_one_record_has_no_interval():
    flat = estimate([70.0] * 9, seed=1, replicates=200)
    assert (flat.low, flat.high) == (70.0, 70.0)
    lone = estimate([70.0], seed=1, replicates=200)
    assert (lone.mean, lone.low, lone.high, lone.n) == (70.0, None, None, 1)


def test_the_same_label_draws_the_same_interval_and_another_label_another():
    values = np.random.default_rng(0).integers(0, 101, 90).astype(float)
    draws = [estimate(values, seed=seed_of(label), replicates=500) for label in ("a", "a", "b")]
    assert draws[0] == draws[1]
    assert draws[0].low != draws[2].low
    assert seed_of("a") != seed_of("a", 20260810)


def test_records_with_an_image_each_are_clusters_of_one():
    values = np.random.default_rng(1).integers(0, 101, 60).astype(float)
    names = [f"image{i:03d}" for i in range(60)]
    alone = clustered_estimate(values, names, seed=3, replicates=800)
    assert alone == estimate(values, seed=3, replicates=800)


def test_doubling_every_record_on_its_image_does_not_narrow_the_clustered_interval():
    values = np.random.default_rng(2).integers(0, 101, 50).astype(float)
    names = [f"image{i:03d}" for i in range(50)]
    single = estimate(values, seed=4, replicates=800)
    doubled = clustered_estimate([*values, *values], [*names, *names], seed=4, replicates=800)
    assert (doubled.low, doubled.high, doubled.n) == (single.low, single.high, 100)
    naive = estimate([*values, *values], seed=4, replicates=800)
    assert naive.high - naive.low < 0.8 * (doubled.high - doubled.low)


def test_one_image_alone_has_no_clustered_interval():
    assert clustered_estimate([1.0, 2.0], ["a", "a"], seed=1, replicates=100).low is None
    with pytest.raises(DataError, match="cluster names"):
        clustered_estimate([1.0, 2.0], ["a"], seed=1, replicates=100)


def test_the_sign_flip_p_counts_the_flips_that_are_as_far_out():
    values = [4.0, 1.0, 3.0, -2.0, 5.0]
    flips = [
        sum(sign * value for sign, value in zip(signs, values, strict=True))
        for signs in np.ndindex(*(2,) * 5)
        for signs in [[2 * bit - 1 for bit in signs]]
    ]
    exact = np.mean([abs(flip) >= abs(sum(values)) for flip in flips])
    assert sign_flip_p(values, seed=1, replicates=10_000) == pytest.approx(exact)
    assert sign_flip_p([0.0, 0.0], seed=1, replicates=10) == 1.0


def holm_slowly(p_values):
    """Reject hypotheses one by one at each level; the adjusted p is the level that rejects."""
    order = sorted(p_values)
    return [
        max(min(1.0, (len(order) - j) * q) for j, q in enumerate(order) if q <= p) for p in p_values
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12, unique=True))
def test_holm_agrees_with_its_definition(p_values):
    assert holm(p_values) == pytest.approx(holm_slowly(p_values))
    assert all(adjusted >= p for adjusted, p in zip(holm(p_values), p_values, strict=True))


def test_holm_of_a_known_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_shares_and_bins_count_the_edges_once():
    values = np.asarray([0, 9, 10, 79, 80, 100, 100], dtype=float)
    assert share_at_least(values, 80) == (3, 7)
    assert histogram(values) == [2, 1, 0, 0, 0, 0, 0, 1, 1, 2]


def test_marks_follow_the_direction_and_ties_share_one():
    assert marks([1.0, 3.0, 3.0, 2.0], higher=True) == ["none", "best", "best", "second"]
    assert marks([1.0, 3.0, 2.0], higher=False) == ["best", "none", "second"]
    assert marks([5.0], higher=True) == ["best"]


def test_a_macro_mean_counts_every_dataset_once():
    assert macro_mean([89.97, 81.27, 54.02, 48.85]) == pytest.approx(68.5275)
