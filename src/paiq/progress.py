"""Live progress on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PLAIN_EVERY_SECONDS = 10.0


class Report(Protocol):
    """What a long piece of work calls as it goes."""

    def __call__(self, done: int, note: str = "") -> None: ...


def silent(done: int, note: str = "") -> None:
    """The report of work that nobody watches."""


@contextmanager
def progress(title: str, total: int) -> Iterator[Report]:
    """A report that draws a bar on a terminal and prints plain lines otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain(title, total)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note="": bar.update(task, completed=done, note=note)


def _plain(title: str, total: int) -> Report:
    started = last = time.monotonic()
    shown = -1

    def report(done: int, note: str = "") -> None:
        nonlocal last, shown
        now = time.monotonic()
        if done == shown or (done < total and now - last < PLAIN_EVERY_SECONDS):
            return
        last, shown = now, done
        left = (now - started) / done * (total - done) if done else float("nan")
        line = f"{title}: {done}/{total}, {now - started:.0f} s, {left:.0f} s left {note}"
        print(line.rstrip(), file=sys.stderr, flush=True)

    return report
