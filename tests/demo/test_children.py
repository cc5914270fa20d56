import os
import subprocess
import sys
import time

import pytest

from paiq.demo.children import Child, run_side_by_side
from paiq.errors import ConfigError


def child(tmp_path, name, *words):
    return Child(title=name, commands=(words,), log=tmp_path / f"{name}.log")


def test_all_commands_run_and_their_output_is_kept(tmp_path):
    children = [child(tmp_path, name, "--version") for name in "abc"]
    run_side_by_side(children, at_once=2)
    assert all("paiq" in one.log.read_text() for one in children)


def test_one_process_runs_several_commands_and_stops_at_the_first_failure(tmp_path):
    commands = (("--version",), ("nonsense",), ("--help",))
    one = Child(title="chain", commands=commands, log=tmp_path / "chain.log")
    with pytest.raises(ConfigError, match="code 2"):
        run_side_by_side([one], at_once=1)
    assert "paiq 0" in one.log.read_text()
    assert "usage" not in one.log.read_text()


def test_a_failure_shows_the_end_of_its_output(tmp_path):
    with pytest.raises(ConfigError, match="no command 'nonsense'"):
        run_side_by_side([child(tmp_path, "bad", "nonsense")], at_once=1)


def test_the_rest_is_ended_when_one_fails(tmp_path, monkeypatch):
    started = []

    def start(one):
        code = "import sys; sys.exit(3)" if one.title == "bad" else "import time; time.sleep(600)"
        one.log.write_text(one.title)
        started.append(subprocess.Popen([sys.executable, "-c", code]))
        return started[-1]

    monkeypatch.setattr("paiq.demo.children._start", start)
    began = time.monotonic()
    with pytest.raises(ConfigError, match="code 3"):
        run_side_by_side([child(tmp_path, "slow"), child(tmp_path, "bad")], at_once=2)
    assert time.monotonic() - began < 300
    assert all(process.poll() is not None for process in started)
    for process in started:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
