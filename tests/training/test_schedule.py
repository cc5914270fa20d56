import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import get_cosine_schedule_with_warmup

from paiq.errors import ConfigError
from paiq.training.config import Batch, Schedule
from paiq.training.recipes import paper
from paiq.training.schedule import Plan, share


def plan(samples=100, size=8, seed=42, **schedule):
    return Plan(
        samples=samples,
        batch=Batch(size=size, micro=4),
        schedule=Schedule(**(schedule or {"epochs": 2})),
        seed=seed,
    )


def test_the_paper_takes_3126_steps_with_157_of_warm_up():
    run = paper("qwen3.5-9b", "paiq")
    steps = Plan(samples=200_000, batch=run.batch, schedule=run.schedule, seed=run.seed)
    assert (steps.steps, steps.steps_per_epoch, steps.warmup_steps) == (3126, 1563, 157)
    assert len(steps.indices(1562)) == 64  # the last, partial group of each epoch is stepped


@pytest.mark.parametrize(("total", "warmup"), [(100, 5), (60, 3), (61, 4), (20, 1), (1, 1)])
def test_warm_up_is_rounded_up_exactly(total, warmup):
    assert plan(epochs=None, steps=total).warmup_steps == warmup


@pytest.mark.parametrize("total", [7, 40, 333])
def test_the_rate_is_the_librarys_cosine(total):
    ours = plan(epochs=None, steps=total)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_cosine_schedule_with_warmup(optimizer, ours.warmup_steps, total)
    for step in range(total):
        assert ours.rate(step) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        theirs.step()


def test_every_pass_sees_every_sample_once_in_a_new_order():
    steps = plan(samples=21, size=8)
    passes = [
        [index for step in range(start, start + 3) for index in steps.indices(step)]
        for start in (0, 3)
    ]
    assert [sorted(order) for order in passes] == [list(range(21))] * 2
    assert passes[0] != passes[1]


def test_seeds_and_passes_do_not_meet():
    orders = {
        tuple(plan(samples=50, size=50, seed=seed).indices(epoch))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(orders) == 9


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    micro=st.integers(1, 9),
    processes=st.integers(1, 6),
)
def test_shares_hold_each_sample_once_and_the_same_number_of_passes(lengths, micro, processes):
    shares = [share(lengths, micro, rank, processes) for rank in range(processes)]
    dealt = [position for one in shares for batch in one.batches for position in batch]
    assert sorted(dealt) == list(range(len(lengths)))
    assert len({len(one.batches) + one.idle for one in shares}) == 1
    assert all(1 <= len(batch) <= micro for one in shares for batch in one.batches)
    assert min(one.idle for one in shares) == 0


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 500), min_size=8, max_size=64), micro=st.integers(2, 8))
def test_like_lengths_share_a_pass(lengths, micro):
    def padded(batches):
        return sum(max(lengths[p] for p in batch) * len(batch) for batch in batches)

    everything = list(range(len(lengths)))
    as_they_come = [everything[i : i + micro] for i in range(0, len(lengths), micro)]
    if len(lengths) % micro == 0:  # with a smaller last pass, sorted is not always the best
        assert padded(share(lengths, micro, 0, 1).batches) <= padded(as_they_come)
    spans = [
        (min(lengths[p] for p in batch), max(lengths[p] for p in batch))
        for batch in share(lengths, micro, 0, 1).batches
    ]
    assert all(low[1] <= high[0] for low, high in itertools.pairwise(spans))


def test_an_empty_source_is_refused():
    with pytest.raises(ConfigError, match="empty"):
        plan(samples=0)
