"""Several commands side by side, a core each; all of them end with us.

Two single-threaded processes use two cores better than two threads of one process do, and a
child that is killed can be started again where it stopped: every command here resumes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paiq.errors import ConfigError

POLL_SECONDS = 0.2
GRACE_SECONDS = 20.0
LAST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Child:
    """A process that runs `paiq` commands one after the other, and the file of its output."""

    title: str
    commands: tuple[tuple[str, ...], ...]
    log: Path
    threads: int = 1


def run_side_by_side(
    children: Sequence[Child], *, at_once: int, tick: Callable[[], None] = lambda: None
) -> None:
    """Returns when all have succeeded; the first failure stops the rest and is shown."""
    waiting = list(children)
    running: list[tuple[Child, subprocess.Popen[bytes]]] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                child = waiting.pop(0)
                running.append((child, _start(child)))
            time.sleep(POLL_SECONDS)
            tick()
            for child, process in list(running):
                if process.poll() is not None:
                    running.remove((child, process))
                    _check(child, process.returncode)
    finally:
        _stop([process for _, process in running])


def _start(child: Child) -> subprocess.Popen[bytes]:
    child.log.parent.mkdir(parents=True, exist_ok=True)
    # A session of its own: Ctrl-C reaches us alone, and we pass it on once.
    with child.log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "paiq.cli.chain", json.dumps(child.commands)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ
            | {"OMP_NUM_THREADS": str(child.threads), "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,
        )


def _check(child: Child, code: int) -> None:
    if code != 0:
        last = child.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise ConfigError(
            f"{child.title} stopped with code {code}; the end of {child.log}:\n  "
            + "\n  ".join(last)
        )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
