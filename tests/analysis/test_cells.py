import dataclasses
import math

import pytest

from analysis.records import cells_of, judgment, prediction, sample, slice_records
from paiq.analysis.cells import Coverage, collect, coverage
from paiq.analysis.comparisons import Plan, cell_result, index
from paiq.errors import DataError

QUICK = Plan(replicates={"description": 200, "vqa": 200})
FULL = {"paiq": [(90, 10), (80, 20), (70, 30)]}


def only(cells):
    (scores,) = cells.values()
    return scores


def test_a_complete_cell_has_a_mean_over_all_records():
    scores = only(cells_of(FULL))
    found = cell_result(scores, "accuracy", QUICK)
    assert found.estimate.mean == 80
    assert (found.scored, found.expected, found.estimate.n) == (3, 3, 3)


def test_one_missing_score_takes_the_mean_away_and_leaves_the_other_axis():
    scores = only(cells_of({"paiq": [(90, 10), (None, 20), (70, 30)]}))
    broken = cell_result(scores, "accuracy", QUICK)
    assert broken.estimate is None
    assert (broken.scored, broken.expected) == (2, 3)
    assert cell_result(scores, "hallucination", QUICK).estimate.mean == 20
    with pytest.raises(DataError, match="2 of 3 scored"):
        scores.values("accuracy")


def test_an_empty_candidate_stays_in_the_mean():
    records = slice_records(FULL)
    answers = [dataclasses.replace(records.predictions[0], text=" \n"), *records.predictions[1:]]
    (scores,) = collect(dataclasses.replace(records, predictions=answers))
    assert scores.empty == {"s0000"}
    assert cell_result(scores, "accuracy", QUICK).estimate.n == 3


def test_an_unanswered_sample_is_pending_and_not_empty():
    records = slice_records(FULL)
    shorter = dataclasses.replace(
        records,
        predictions=records.predictions[1:],
        judgments=[j for j in records.judgments if j.sample_id != "s0000"],
    )
    cells = collect(shorter)
    assert cells[0].unanswered == {"s0000"}
    assert not cells[0].empty
    assert coverage(cells).pending == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": [sample("s0000"), sample("s0000")]}, "twice"),
        ({"samples": []}, "no samples"),
        ({"samples": [sample("s0000"), sample("s0001", "description"), sample("s0002")]}, "mixes"),
        ({"predictions": [prediction("elsewhere", "paiq")]}, "unknown sample"),
        ({"predictions": [prediction("s0000", "paiq")] * 2}, "answers sample 's0000' twice"),
        ({"judgments": [judgment("s0000", "paiq", "accuracy", 1)] * 2}, "two accuracy scores"),
        ({"judgments": [judgment("s0000", "other", "accuracy", 1)]}, "did not answer"),
    ],
)
def test_records_that_do_not_fit_raise(changes, words):
    with pytest.raises(DataError, match=words):
        collect(slice_records(FULL, **changes))


@pytest.mark.parametrize("bad", [math.nan, None, True, 50.5])
def test_a_smuggled_score_raises(bad):
    smuggled = judgment("s0000", "paiq", "accuracy", 1)
    object.__setattr__(smuggled, "score", bad)
    with pytest.raises(DataError, match="must be an integer"):
        collect(slice_records(FULL, judgments=[smuggled]))


def test_coverage_counts_every_key_once_and_closes():
    scores = {"paiq": [(90, 10), (None, None), (70, 30)], "pai": [(1, 1), (2, 2), (3, None)]}
    found = coverage(cells_of(scores).values(), terminal={"refused": 1}, sends=12, retries=3)
    assert (found.expected, found.scored_total, found.pending) == (12, 9, 2)
    assert found.scored == {"judge": 9}
    assert (found.records, found.distinct_images, found.complete) == (3, 3, False)


def test_coverage_that_does_not_close_cannot_be_made():
    with pytest.raises(DataError, match="does not close"):
        coverage(cells_of(FULL).values(), terminal={"refused": 1})
    with pytest.raises(DataError, match="does not close"):
        Coverage(
            expected=4,
            scored={"judge": 3},
            terminal={},
            pending=0,
            empty_candidates=0,
            distinct_images=1,
            records=2,
        )


def test_shared_images_are_counted_once():
    shared = [sample("s0000", image="a.png"), sample("s0001", image="a.png"), sample("s0002")]
    assert coverage(cells_of(FULL, samples=shared).values()).distinct_images == 2


def test_images_of_two_datasets_are_not_one_because_their_names_are():
    one = collect(slice_records(FULL))
    two = collect(slice_records(FULL, dataset="birds"))
    assert coverage([*one, *two]).distinct_images == 6


def test_two_runs_cannot_claim_one_cell():
    cells = collect(slice_records(FULL))
    with pytest.raises(DataError, match="two runs give the cell tiny/pets/paiq"):
        index([*cells, *cells])
