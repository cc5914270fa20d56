import json
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from paiq.errors import DataError
from paiq.training.config import Logging
from paiq.training.folder import RunFolder
from paiq.training.log import read_log, sinks
from training.toy import RUN


class Session:
    def __init__(self):
        self.lines, self.finished = [], False

    def log(self, values, step):
        self.lines.append((step, values))

    def finish(self):
        self.finished = True


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_a_tracker_is_told_every_line_and_closed(package, tmp_path, monkeypatch):
    session, asked = Session(), {}
    fake = ModuleType(package)
    fake.init = lambda **settings: asked.update(settings) or session
    monkeypatch.setitem(sys.modules, package, fake)
    run = replace(RUN, logging=Logging(**{package: "mine"}))
    with sinks(run, RunFolder(tmp_path), start=0) as write:
        write({"step": 1, "loss": 0.5})
    assert (asked["project"], asked["name"], asked["config"]["seed"]) == ("mine", "toy", 3)
    assert session.lines == [(1, {"loss": 0.5})]
    assert session.finished
    assert read_log(tmp_path / "log.jsonl") == [{"step": 1, "loss": 0.5}]


def test_lines_behind_the_start_are_cut_off(tmp_path):
    lines = [{"step": step, "loss": 1.0 / step} for step in (1, 2, 3)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "log.jsonl").write_text(text + '{"step": 4, "lo')
    with sinks(RUN, RunFolder(tmp_path), start=2) as write:
        write({"step": 3, "loss": 7.0})
    assert read_log(tmp_path / "log.jsonl") == [*lines[:2], {"step": 3, "loss": 7.0}]


def test_only_the_first_process_writes(tmp_path):
    with sinks(RUN, RunFolder(tmp_path), start=0, main=False) as write:
        write({"step": 1, "loss": 0.5})
    assert not (tmp_path / "log.jsonl").exists()


def test_a_damaged_log_is_named(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\nnonsense\n')
    with pytest.raises(DataError, match=r"log\.jsonl holds a line that is not JSON"):
        read_log(tmp_path / "log.jsonl")
