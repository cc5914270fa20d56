import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from paiq.errors import DataError
from paiq.training.checkpoints import Snapshot, found, newest, read, write

SOURCE = str(Path(__file__).parents[2] / "src")


def snapshot(step, size=4):
    generator = torch.Generator().manual_seed(step)
    return Snapshot(
        step=step,
        tensors={"a": torch.randn(size, generator=generator), "b": torch.tensor(step)},
        state={"seen": step * 10, "loss": 0.1 + step},
    )


def assert_same(one, other):
    assert (one.step, dict(one.state)) == (other.step, dict(other.state))
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_a_checkpoint_goes_there_and_back_to_the_bit(tmp_path):
    path = write(tmp_path, snapshot(7), keep=2)
    assert_same(read(path), snapshot(7))
    assert path.name == "step-000007"


def test_the_newest_two_are_kept_by_number_and_not_by_spelling(tmp_path):
    for step in (999_998, 999_999, 1_000_000):
        write(tmp_path, snapshot(step), keep=2)
    assert [path.name for path in found(tmp_path)] == ["step-1000000", "step-999999"]
    assert newest(tmp_path).step == 1_000_000


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "checksums.json"])
def test_a_damaged_newest_falls_back_to_the_one_before(tmp_path, caplog, damage, name):
    for step in (1, 2):
        write(tmp_path, snapshot(step), keep=2)
    damage(tmp_path / "step-000002" / name)
    with caplog.at_level(logging.WARNING):
        assert_same(newest(tmp_path), snapshot(1))
    assert "step-000002" in caplog.text
    write(tmp_path, snapshot(2), keep=2)  # reached again: the damaged one is replaced
    assert_same(newest(tmp_path), snapshot(2))


def test_all_damaged_is_an_error_and_none_is_none(tmp_path):
    assert newest(tmp_path) is None
    write(tmp_path, snapshot(1), keep=2)
    cut(tmp_path / "step-000001" / "state.json")
    with pytest.raises(DataError, match="every checkpoint"):
        newest(tmp_path)


WRITER = """
import sys, torch
from pathlib import Path
from paiq.training.checkpoints import Snapshot, write
for step in range(1, 10_000):
    tensors = {"a": torch.full((200_000,), float(step))}
    write(Path(sys.argv[1]), Snapshot(step=step, tensors=tensors, state={}), keep=2)
    print(step, flush=True)
"""


def test_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    for attempt, delay in enumerate((0.003, 0.011)):
        folder = tmp_path / str(attempt)
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, env=environment
        )
        for _ in range(3):
            last = int(child.stdout.readline())
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        last = max([last, *map(int, child.stdout.read().split())])
        child.wait()
        kept = newest(folder)
        assert kept.step >= last
        assert torch.equal(kept.tensors["a"], torch.full((200_000,), float(kept.step)))
        assert write(folder, snapshot(99_999), keep=2)
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]


FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from paiq.errors import DataError
from paiq.training.checkpoints import Snapshot, newest, write
folder = Path(sys.argv[1])
write(folder, Snapshot(step=1, tensors={"a": torch.ones(10)}, state={}), keep=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write(folder, Snapshot(step=2, tensors={"a": torch.ones(100_000)}, state={}), keep=1)
except DataError as error:
    print(error)
"""


def test_a_disk_that_takes_no_more_leaves_the_last_good_one(tmp_path):
    shown = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=True,
    )
    assert "the last whole one is" in shown.stdout
    assert "Make room" in shown.stdout
    assert newest(tmp_path).step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_only_safetensors_and_json_are_written(tmp_path):
    path = write(tmp_path, snapshot(3), keep=2)
    assert {file.suffix for file in path.iterdir()} == {".safetensors", ".json"}
