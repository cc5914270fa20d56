"""The paper's experiment in small: train, predict, score, compare, show.

Every stage is an ordinary `paiq` command on ordinary run folders, so each can be repeated or
looked at alone, and a demo that was stopped goes on where it was.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from paiq.demo.children import Child, run_side_by_side
from paiq.demo.settings import SPLITS, DemoSettings
from paiq.files import write_atomically
from paiq.judging.judge_verb import EXACT, Task, go, options
from paiq.progress import Report, silent


@dataclass(frozen=True)
class Trained:
    """One method with one seed, and its run folder."""

    method: str
    seed: int
    folder: Path


@dataclass(frozen=True)
class Demo:
    """A demo and where it lies."""

    settings: DemoSettings
    out: Path

    @property
    def page(self) -> Path:
        return self.out / "report.html"

    @property
    def slices(self) -> dict[str, str]:
        """The slice of each split."""
        return {split: f"world/{split}:{self.settings.held_out}" for split in SPLITS}

    def runs(self) -> Iterator[Trained]:
        for seed in self.settings.seeds:
            for method in self.settings.methods:
                yield Trained(method, seed, self.out / f"{method}-{seed}")

    def recipe(self, run: Trained) -> tuple[str, ...]:
        """The recipe with what the demo changes in it."""
        return (
            f"world/{run.method}",
            f"seed={run.seed}",
            f"schedule.steps={self.settings.steps}",
            f"data.world.size={self.settings.train}",
            f"features.folder={self.out / 'features'}",
        )

    def store(self) -> Child:
        """Stores the features of all scenes; alone on the machine, so it takes every core."""
        recipe = self.recipe(next(self.runs()))
        held_out = (f"data.world.size={self.settings.held_out}",)
        commands = [
            ("features", *recipe, *held_out, f"data.world.split={split}") for split in SPLITS
        ]
        stored = self._child("features", *commands, ("features", *recipe))
        return replace(stored, threads=cores())

    def work(self, run: Trained) -> Child:
        """Trains a method, then answers the held-out scenes of every split."""
        slices = [word for text in self.slices.values() for word in ("--slice", text)]
        return self._child(
            run.folder.name,
            ("train", *self.recipe(run), "--out", str(run.folder)),
            ("predict", str(run.folder), "--batch", "50", *slices),
        )

    def _child(self, title: str, *commands: tuple[str, ...]) -> Child:
        return Child(title=title, commands=commands, log=self.out / "logs" / f"{title}.log")


def look(demo: Demo) -> None:
    """Runs the frozen towers over every scene, once for all methods."""
    run_side_by_side([demo.store()], at_once=1)


def train_and_answer(demo: Demo, report: Report = silent) -> None:
    """All methods, as many at once as there are cores; the report counts steps."""
    runs = list(demo.runs())

    def tick() -> None:
        done = {run: steps_done(run.folder) for run in runs}
        going = [run for run in runs if done[run] > 0 and not answered(demo, run)]
        report(sum(done.values()), ", ".join(run.folder.name for run in going))

    # The methods with the longest sequences come last in the tables and are started first, so
    # that no long one is left to run alone.
    children = [demo.work(run) for run in reversed(runs)]
    run_side_by_side(children, at_once=cores(), tick=tick)
    tick()


def answered(demo: Demo, run: Trained) -> bool:
    return len(list((run.folder / "predictions").glob("*.jsonl"))) == len(demo.slices)


def score_all(demo: Demo, report: Report = silent) -> None:
    """Exact scores through the judge's own ledger."""
    for done, run in enumerate(demo.runs(), start=1):
        plan, _ = Task(folder=run.folder, route=EXACT).plan()
        go(plan, options(None, None, None), silent)
        report(done)


def steps_done(folder: Path) -> int:
    """The last step in a run's log; 0 before there is one."""
    try:
        lines = (folder / "log.jsonl").read_bytes().split(b"\n")
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-2])["step"]) if len(lines) > 1 else 0


def cores() -> int:
    return max(1, len(os.sched_getaffinity(0)))


class Clock:
    """Seconds spent on this demo over all its starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = float(path.read_text()) if path.exists() else 0.0
        self.started = time.monotonic()

    def stop(self) -> float:
        """Adds this start to the sum and returns it."""
        total = self.before + time.monotonic() - self.started
        write_atomically(self.path, f"{total:.1f}\n".encode())
        return total
