import dataclasses

import numpy as np
import pytest

from analysis.records import cells_of, sample, slice_records
from paiq.analysis.cells import collect
from paiq.analysis.comparisons import (
    Plan,
    Roles,
    best_of_two,
    choose_comparator,
    compare,
    empty_outputs,
    evaluator_sources,
    index,
    macro,
    paired,
    pooled_share,
    read_plan,
)
from paiq.analysis.statistics import seed_of
from paiq.errors import ConfigError, DataError

QUICK = Plan(replicates={"description": 400, "vqa": 400})
THREE = {
    "paiq": [(90, 10), (80, 20), (70, 30), (60, 40)],
    "spatial": [(50, 60), (40, 50), (70, 20), (0, 90)],
    "semantic": [(60, 50), (40, 10), (30, 80), (10, 70)],
}


def named(cells):
    return {cell.method: scores for cell, scores in cells.items()}


def test_the_comparator_is_the_encoder_with_the_higher_mean_accuracy():
    cells = named(cells_of(THREE))
    assert choose_comparator(cells["spatial"], cells["semantic"]).cell.method == "spatial"
    tied = named(cells_of({**THREE, "spatial": THREE["semantic"]}))
    assert choose_comparator(tied["spatial"], tied["semantic"]).cell.method == "spatial"


def test_paired_differences_favour_ours_when_positive():
    (found,) = compare(cells_of(THREE), Roles(), QUICK)
    assert found.comparator == "spatial"
    assert found.axes["accuracy"].by_record.mean == pytest.approx((40 + 40 + 0 + 60) / 4)
    assert found.axes["hallucination"].by_record.mean == pytest.approx((50 + 30 - 10 + 50) / 4)


def test_the_paired_interval_is_that_of_the_difference_and_not_of_the_margins():
    random = np.random.default_rng(0)
    base = random.integers(0, 90, 300)
    shifted = [(int(value) + 5, 0) for value in base]
    cells = named(cells_of({"paiq": shifted, "spatial": [(int(v), 0) for v in base]}))
    found = paired(cells["paiq"], cells["spatial"], "accuracy", QUICK).by_record
    assert (found.mean, found.low, found.high) == (5.0, 5.0, 5.0)


def test_a_missing_score_leaves_its_pair_out_and_says_so():
    scores = {**THREE, "paiq": [(None, 10), *THREE["paiq"][1:]]}
    (found,) = compare(cells_of(scores), Roles(), QUICK)
    assert (found.axes["accuracy"].dropped, found.axes["accuracy"].by_record.n) == (1, 3)
    assert (found.axes["hallucination"].dropped, found.axes["hallucination"].by_record.n) == (0, 4)


def test_an_incomplete_encoder_is_no_comparator():
    scores = {**THREE, "semantic": [(None, 50), *THREE["semantic"][1:]]}
    assert compare(cells_of(scores), Roles(), QUICK) == []


def test_the_correction_counts_every_comparison_of_the_report():
    one = collect(slice_records(THREE))
    two = collect(slice_records(THREE, dataset="birds"))
    alone = compare(index(one), Roles(), QUICK)
    both = compare(index([*one, *two]), Roles(), QUICK)
    for found in (*alone, *both):
        for pair in found.axes.values():
            assert pair.p <= pair.p_holm <= 1
    smallest = min(pair.p for found in both for pair in found.axes.values())
    assert min(pair.p_holm for found in both for pair in found.axes.values()) >= min(
        1.0, 4 * smallest
    )


def test_records_of_one_image_are_resampled_together():
    shared = [sample(f"s{i:04d}", image=f"{i // 2}.png") for i in range(4)]
    (found,) = compare(cells_of(THREE, samples=shared), Roles(), QUICK)
    pair = found.axes["accuracy"]
    assert pair.by_image.mean == pair.by_record.mean
    assert (pair.by_image.low, pair.by_image.high) == (30.0, 40.0)


def test_best_of_two_takes_one_output_and_gives_ties_to_the_spatial_encoder():
    cells = named(cells_of(THREE))
    accuracy, hallucination = best_of_two(cells["spatial"], cells["semantic"])
    assert accuracy.tolist() == [60, 40, 70, 10]
    assert hallucination.tolist() == [50, 50, 20, 70]


def test_methods_on_different_samples_are_not_paired():
    ours = named(cells_of(THREE))["paiq"]
    theirs = dataclasses.replace(ours, expected=(*ours.expected[1:], "other"))
    with pytest.raises(DataError, match="different samples"):
        paired(ours, theirs, "accuracy", QUICK)
    with pytest.raises(DataError, match="different samples"):
        best_of_two(ours, theirs)


def test_a_pooled_share_counts_scores_and_not_cells():
    cells = cells_of(THREE)
    assert pooled_share(cells.values(), "accuracy", 60) == (6, 12)


def test_empty_outputs_are_counted_by_the_scores_they_received():
    records = slice_records({"paiq": [(0, 0), (0, 100), (0, 0), (None, 0)]})
    blank = [dataclasses.replace(p, text=" ") for p in records.predictions]
    cells = collect(dataclasses.replace(records, predictions=blank))
    assert empty_outputs(cells) == {(0, 0): 2, (0, 100): 1, (None, 0): 1}


def test_evaluator_sources_name_what_is_unscored():
    scores = {"paiq": [(1, 1), (2, None)]}
    assert evaluator_sources(cells_of(scores).values()) == {"tiny": {"judge": 3, "unscored": 1}}


def test_a_macro_mean_wants_every_dataset_complete():
    one = collect(slice_records(THREE))
    two = collect(slice_records({"paiq": [(0, 0), (None, 0)]}, dataset="birds"))
    cells = index([*one, *two])
    assert macro(cells, "tiny", "paiq", "accuracy") is None
    assert macro(cells, "tiny", "paiq", "hallucination") == pytest.approx((25 + 0) / 2)
    assert macro(cells, "tiny", "spatial", "hallucination") is None


@pytest.mark.parametrize("text", ["7", "many", "-100", "1e4", ""])
def test_a_count_of_replicates_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="at least 100"):
        read_plan(text)


def test_the_papers_counts_differ_by_task_and_ours_do_not():
    assert read_plan("paper").replicates == {"description": 10_000, "vqa": 2_000}
    assert set(Plan.ours().replicates.values()) == {10_000}
    assert read_plan("500").replicates == {"description": 500, "vqa": 500}


def test_description_seeds_start_from_the_papers_base():
    assert QUICK.seed("description", "a") == seed_of("a", 20260810)
    assert QUICK.seed("vqa", "a") == seed_of("a")
