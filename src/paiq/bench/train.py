"""Training speed beside a plain loop on the same samples, in the same process, taking turns.

The plain loop is what one writes first: open the pictures, run both towers, put the padded batch
through the language model with logits at every position, mean loss, AdamW, cosine schedule.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn.functional import cross_entropy
from transformers import get_cosine_schedule_with_warmup

from paiq.bench.outcome import Outcome, markdown, short
from paiq.bench.timing import machine
from paiq.errors import ConfigError
from paiq.model import load_renderer
from paiq.model.prompts import collate
from paiq.progress import Report, silent
from paiq.training import Run, Work, find_run, open_run
from paiq.training.feed import IGNORED
from paiq.training.interrupt import Stop
from paiq.training.loop import take
from paiq.training.prepare import Opened, fresh_model

L = TypeVar("L")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `paiq bench train` measures."""

    recipe: str = "world/paiq"
    """A recipe, a run folder or a run.yaml."""
    changes: tuple[str, ...] = ("data.world.size=256",)
    """`path.to.field=value` words for it."""
    turn: int = 6
    """Steps of each loop before the other takes its turn."""
    turns: int = 3

    def __post_init__(self) -> None:
        if self.turn < 1 or self.turns < 1:
            raise ConfigError(f"turn and turns must be at least 1, got {self.turn}, {self.turns}")

    @property
    def steps(self) -> int:
        """How many pieces of work are reported."""
        return 1 + self.turns


QUICK = Settings(
    changes=("data.world.size=16", "batch.size=8", "batch.micro=8", "features.batch=8"),
    turn=1,
    turns=1,
)


@dataclass(frozen=True, kw_only=True)
class TrainSpeed:
    """Samples per second of both loops, a number for each turn."""

    run: str
    batch: int
    machine: Mapping[str, Any]
    images: int
    store_seconds: float
    """What the towers took for the whole store, once."""
    ours: tuple[float, ...]
    plain: tuple[float, ...]
    losses: tuple[tuple[float, float], ...]
    """Ours and the plain loop's, step by step."""

    @property
    def speedup(self) -> float:
        """Of neighbouring turns, which see the same load of the machine; the median."""
        return statistics.median(a / b for a, b in zip(self.ours, self.plain, strict=True))

    @property
    def pays_after(self) -> float:
        """Steps after which the store has paid for itself."""
        ours, plain = (self.batch / statistics.median(side) for side in (self.ours, self.plain))
        return self.store_seconds / (plain - ours) if plain > ours else float("inf")


class PlainLoop:
    """The loop that one writes first."""

    def __init__(self, opened: Opened, work: Work) -> None:
        self.opened, self.plan = opened, work.plan
        self.device = work.processes.device
        self.model: Any = fresh_model(opened.run).to(self.device).train()
        self.renderer = load_renderer(self.model.config)
        settings = opened.run.optimizer
        self.adam = torch.optim.AdamW(
            self.model.interface.parameters(),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
        )
        self.schedule = get_cosine_schedule_with_warmup(
            self.adam, self.plan.warmup_steps, self.plan.steps
        )

    def step(self, step: int) -> float:
        """The loss of this step."""
        indices = self.plan.indices(step)
        source = self.opened.features.samples.source
        texts = [self.renderer.for_training(source[index]) for index in indices]
        inputs = {**collate(texts, self.renderer.pad_id), **self.opened.features.pixels(indices)}
        inputs = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        labels = inputs.pop("labels")
        logits = self.model(**inputs).logits.float()
        loss = cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
        )
        loss.backward()
        self.adam.step()
        self.schedule.step()
        self.adam.zero_grad()
        return loss.item()


def run(settings: Settings, report: Report = silent) -> Outcome:
    speed = measure(find_run(settings.recipe, settings.changes), settings, report)
    return Outcome(name="train", table=table_of(speed), numbers=asdict(speed))


def measure(run: Run, settings: Settings, report: Report = silent) -> TrainSpeed:
    """Both loops over the same samples, turn by turn, after one step each to warm up."""
    steps = settings.turn
    with tempfile.TemporaryDirectory() as folder:
        run = replace(run, features=replace(run.features, store=True, folder=f"{folder}/features"))
        opened = open_run(run, Path(folder) / "run")
        started = time.perf_counter()
        opened.features.build(opened.processes)
        stored = time.perf_counter() - started
        report(1, "features stored")
        work = opened.load()
        plain = PlainLoop(opened, work)
        losses = [(_ours(work, range(1))[0], plain.step(0))]
        speeds: tuple[list[float], list[float]] = ([], [])
        for turn in range(settings.turns):
            part = range(1 + turn * steps, 1 + (turn + 1) * steps)
            timed = [_timed(_ours, work, part), _timed(_plain, plain, part)]
            losses += zip(timed[0][1], timed[1][1], strict=True)
            for side, (seconds, _) in zip(speeds, timed, strict=True):
                side.append(steps * run.batch.size / seconds)
            report(2 + turn, f"turn {turn + 1}")
    return TrainSpeed(
        run=run.name,
        batch=run.batch.size,
        machine=machine(work.processes.device),
        images=len(opened.features.catalogue.images),
        store_seconds=stored,
        ours=tuple(speeds[0]),
        plain=tuple(speeds[1]),
        losses=tuple(losses),
    )


def _ours(work: Work, part: range) -> list[float]:
    steps = work.feed.steps(part.start, part.stop)
    return [take(work, step, batches, Stop())[0].mean for step, batches in steps]


def _plain(loop: PlainLoop, part: range) -> list[float]:
    return [loop.step(step) for step in part]


def _timed(
    steps: Callable[[L, range], list[float]], loop: L, part: range
) -> tuple[float, list[float]]:
    started = time.perf_counter()
    losses = steps(loop, part)
    return time.perf_counter() - started, losses


def table_of(result: TrainSpeed) -> str:
    """The result for people, in Markdown."""
    apart = max(abs(a - b) / b for a, b in result.losses)
    rows = [
        [name, *map(short, side)]
        for name, side in (("ours", result.ours), ("plain loop", result.plain))
    ]
    turns = [f"turn {number}" for number in range(1, 1 + len(result.ours))]
    return (
        f"{result.run}, steps of {result.batch} samples, on {result.machine['name']} "
        f"({result.machine['device']}), torch {result.machine['torch']}, "
        f"{result.machine['threads']} threads.\n\n"
        f"{markdown(['samples per second', *turns], rows)}\n"
        f"Ours is {result.speedup:.2f} times as fast (median of the turns). The store took "
        f"{result.store_seconds:.1f} s for {result.images} images and pays for itself after "
        f"{result.pays_after:.0f} steps. Over {len(result.losses)} steps the losses differ by at "
        f"most {apart:.2%}: the store keeps bfloat16.\n"
    )
