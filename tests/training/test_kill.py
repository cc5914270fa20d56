"""A run killed at any moment and started again is the run that was never killed."""

import os
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from paiq.training.checkpoints import newest
from paiq.training.log import read_log
from paiq.training.loop import train
from paiq.training.prepare import resumed
from training.toy import work

EXACT = ("step", "loss", "gradient_norm", "learning_rate", "tokens")
POINTS = (1, 2, 3, 4, 5, 6, 7, 8, 13, 20, 27)
"""At which of its file operations the child dies: within the first checkpoint, and later ones."""


def live(path, dies_at=None):
    """Trains the rest of a run; kills itself in front of the so manieth sync or rename."""
    count = 0

    def counted(call):
        def counting(*arguments, **options):
            nonlocal count
            count += 1
            if count == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counting

    os.fsync, Path.rename, Path.replace = map(counted, (os.fsync, Path.rename, Path.replace))
    train(resumed(work(path)))


def in_child(*arguments):
    child = get_context("fork").Process(target=live, args=arguments)
    child.start()
    child.join(60)
    return child.exitcode


def numbers(path):
    return [[line[key] for key in EXACT] for line in read_log(path / "log.jsonl")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    assert in_child(path) == 0
    return path


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_started_again_is_equal_to_the_bit(whole, tmp_path, point):
    assert in_child(tmp_path, point) == -signal.SIGKILL
    assert in_child(tmp_path, point) in (0, -signal.SIGKILL)  # once more, on the way back
    assert in_child(tmp_path) == 0
    assert numbers(tmp_path) == numbers(whole)
    ours, theirs = (newest(path / "checkpoints").tensors for path in (tmp_path, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_log_line_cut_by_a_kill_is_made_again(whole, tmp_path):
    assert in_child(tmp_path, POINTS[-1]) == -signal.SIGKILL
    with (tmp_path / "log.jsonl").open("ab") as log:
        log.write(b'{"step": 7, "lo')
    assert in_child(tmp_path) == 0
    assert numbers(tmp_path) == numbers(whole)


def test_a_damaged_newest_checkpoint_costs_steps_and_nothing_else(whole, tmp_path):
    assert in_child(tmp_path, POINTS[-1]) == -signal.SIGKILL
    newer = max((tmp_path / "checkpoints").glob("step-*"))
    tensors = newer / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-100])
    assert in_child(tmp_path) == 0
    assert numbers(tmp_path) == numbers(whole)
