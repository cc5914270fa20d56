import os
import signal
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import get_cosine_schedule_with_warmup

from paiq.errors import DataError
from paiq.training.checkpoints import newest
from paiq.training.config import Optimizer
from paiq.training.feed import IGNORED, pad
from paiq.training.log import read_log
from paiq.training.loop import chance, train
from training.toy import RUN, Toy, in_processes, render, train_toy, vision, with_batch, work

EXACT = ("step", "loss", "tokens", "samples", "learning_rate", "gradient_norm")


def lines(path):
    return [{key: line[key] for key in EXACT} for line in read_log(path / "log.jsonl")]


def weights(path):
    return newest(path / "checkpoints").tensors


def assert_close(path, other, tolerance=1e-5):
    ours, theirs = lines(path), lines(other)
    assert [line["tokens"] for line in ours] == [line["tokens"] for line in theirs]
    for line, same in zip(ours, theirs, strict=True):
        assert line["loss"] == pytest.approx(same["loss"], rel=tolerance)
    for name, tensor in weights(path).items():
        torch.testing.assert_close(tensor, weights(other)[name], rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in one process, one pass per step, never interrupted."""
    path = tmp_path_factory.mktemp("whole")
    outcome = train(work(path))
    assert (outcome.steps, outcome.signal) == (9, 0)
    return path


def test_the_loop_is_the_plain_loop(whole):
    """Against torch and transformers directly: one padded batch, mean over its answer tokens."""
    model, plan = Toy(RUN.seed), work(whole).plan
    parameters = list(model.interface.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, 1, 9)
    for step, line in enumerate(lines(whole)):
        indices = plan.indices(step)
        ids, mask, labels = pad([render(index) for index in indices], 0)
        visual = model.interface(**vision(indices)).tokens.mean(dim=1, keepdim=True)
        hidden = torch.tanh(model.embed(ids) * (1 + visual)) * mask.unsqueeze(-1)
        loss = cross_entropy(
            model.head(hidden).flatten(0, 1), labels.flatten(), ignore_index=IGNORED
        )
        loss.backward()
        assert line["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert line["learning_rate"] == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    for name, parameter in model.interface.named_parameters():
        torch.testing.assert_close(weights(whole)[f"interface.{name}"], parameter.data)


@pytest.mark.parametrize("micro", [1, 3, 5])
def test_micro_batches_change_nothing_but_rounding(whole, tmp_path, micro):
    train(work(tmp_path, with_batch(micro=micro)))
    assert_close(tmp_path, whole)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_change_nothing_but_rounding(whole, tmp_path, processes):
    # 21 samples in steps of 8: the last step of a pass has 5, more than 4 can share evenly.
    in_processes(processes, train_toy, tmp_path, with_batch(micro=3))
    assert_close(tmp_path, whole)


def test_a_process_without_a_sample_changes_nothing(tmp_path):
    for name, count in (("one", 1), ("four", 4)):
        # 21 samples in steps of 4: the last step of a pass has one.
        in_processes(count, train_toy, tmp_path / name, with_batch(size=4, micro=2))
    assert_close(tmp_path / "four", tmp_path / "one")


@pytest.mark.parametrize("stop", [1, 2, 5, 8])
def test_going_on_is_never_having_stopped(whole, tmp_path, stop):
    def interrupt(done, note=""):
        if done == stop:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = train(work(tmp_path), report=interrupt)
    # The signal arrives after the step was counted: one more step, then it is saved.
    assert (outcome.steps, outcome.signal) == (stop + 1, signal.SIGINT)
    again = work(tmp_path, start=outcome.steps)
    again.stepper.load_state(newest(tmp_path / "checkpoints").tensors)
    assert train(again).steps == 9
    assert lines(tmp_path) == lines(whole)
    assert all(torch.equal(t, weights(whole)[name]) for name, t in weights(tmp_path).items())


def test_a_second_signal_ends_at_once(tmp_path):
    def insist(done, note=""):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(work(tmp_path), report=insist)
    assert signal.getsignal(signal.SIGINT) is before


def test_clipping_holds_the_gradient(whole, tmp_path):
    train(work(tmp_path, replace(RUN, optimizer=Optimizer(learning_rate=0.02, clip=1e-3))))
    assert lines(tmp_path)[0] == lines(whole)[0]  # told before it is clipped
    assert lines(tmp_path)[-1]["loss"] != lines(whole)[-1]["loss"]


def test_a_loss_that_is_not_finite_stops_before_the_step(tmp_path):
    class Broken(Toy):
        def answer_loss(self, **inputs):
            loss, tokens = super().answer_loss(**inputs)
            return loss * float("nan"), tokens

    broken = Broken(3)
    before = {name: t.clone() for name, t in broken.interface.state_dict().items()}
    with pytest.raises(DataError, match="step 1 is nan; the step was not taken"):
        train(work(tmp_path, model=broken))
    assert all(torch.equal(t, before[name]) for name, t in broken.interface.state_dict().items())


def test_checkpoints_of_another_interface_are_refused(whole):
    stepper = work(whole).stepper
    tensors = dict(weights(whole))
    with pytest.raises(DataError, match="not those of this interface"):
        stepper.load_state({**tensors, "interface.extra": torch.zeros(1)})
    del tensors["interface.query.weight"]
    with pytest.raises(DataError, match="not those of this interface"):
        stepper.load_state(tensors)


def test_training_leaves_the_global_random_state_alone(tmp_path):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    train(work(tmp_path))
    assert torch.equal(torch.random.get_rng_state(), before)
    seeds = {
        chance(seed, step, rank) for seed in range(3) for step in range(9) for rank in range(4)
    }
    assert len(seeds) == 3 * 9 * 4


def test_sharded_processes_make_the_same_number_of_passes(tmp_path):
    for rank in range(4):
        made = work(tmp_path, with_batch(size=5, micro=1)).feed
        made = replace(made, rank=rank, processes=4, together=True)
        batches = made.step(0)
        assert len(batches) == 2
        assert sum(batch.samples for batch in batches) == (2 if rank == 0 else 1)
