"""What the three pretrainings share: scenes in arrays, the loop, saving."""

import copy
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor, nn

from paiq.errors import ConfigError
from paiq.files import write_atomically
from paiq.progress import Report, silent
from paiq.world.drawing import Sheet, draw, lay_out
from paiq.world.scenes import scene

R = TypeVar("R")
PRETRAINING = "pretraining.json"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast one part learns."""

    steps: int
    batch_size: int
    learning_rate: float
    scenes: int
    """How many scenes of the train split are used, again and again."""
    seconds: float | None = None
    """Ends the schedule by the clock where that comes first."""
    warmup: float = 0.03
    """Part of the schedule over which the learning rate rises."""
    weight_decay: float = 0.05
    seed: int = 0
    device: str = "cpu"
    workers: int = 1
    """Processes that make the scenes."""

    def __post_init__(self) -> None:
        if min(self.steps, self.batch_size, self.scenes) < 1:
            raise ConfigError("steps, batch_size and scenes must be at least 1")


def pick_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def gather(make: Callable[[range], R], count: int, workers: int) -> list[R]:
    """`make` of consecutive ranges that cover `count`, in order, by several processes."""
    size = math.ceil(count / max(1, 4 * workers))
    parts = [range(start, min(start + size, count)) for start in range(0, count, size)]
    if workers == 1:
        return [make(part) for part in parts]
    with multiprocessing.Pool(workers) as pool:
        return pool.map(make, parts)


class Album:
    """Many scenes in arrays, drawn in any selection."""

    def __init__(self, split: str, count: int, *, seed: int = 0, workers: int = 1) -> None:
        sheets = gather(partial(_sheet, split, seed), count, workers)
        offsets = np.cumsum([0] + [len(sheet.ground) for sheet in sheets[:-1]])
        owner = [
            sheet.owner + np.array([[offset, 0]])
            for sheet, offset in zip(sheets, offsets, strict=True)
        ]
        self.sheet = Sheet(
            np.concatenate([sheet.words for sheet in sheets]),
            np.concatenate(owner),
            np.concatenate([sheet.look for sheet in sheets]),
            np.concatenate([sheet.ground for sheet in sheets]),
            np.concatenate([sheet.grain for sheet in sheets]),
        )
        first = np.searchsorted(self.sheet.owner[:, 0], np.arange(count + 1))
        self._first, self._number = first[:-1], np.diff(first)

    def __len__(self) -> int:
        return len(self.sheet.ground)

    def pick(self, rows: Int[np.ndarray, "B"], grain: Int[np.ndarray, "B"] | None = None) -> Sheet:
        """These scenes; with other noise where `grain` is given."""
        numbers = self._number[rows]
        scene_of = np.repeat(np.arange(len(rows)), numbers)
        within = np.arange(len(scene_of)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        things = np.repeat(self._first[rows], numbers) + within
        whole = self.sheet
        return Sheet(
            whole.words[things],
            np.stack([scene_of, whole.owner[things, 1]], axis=1),
            whole.look[things],
            whole.ground[rows],
            whole.grain[rows] if grain is None else grain,
        )

    def batch(
        self, size: int, rng: np.random.Generator, device: str
    ) -> tuple[Sheet, UInt8[Tensor, "B 3 h h"]]:
        """Random scenes with fresh noise, and their pictures."""
        rows = rng.integers(len(self), size=size)
        sheet = self.pick(rows, rng.integers(1 << 20, size=size))
        return sheet, draw(sheet, device)


def _sheet(split: str, seed: int, part: range) -> Sheet:
    return lay_out([scene(split, index, seed) for index in part])


def fit(
    model: nn.Module,
    loss_of: Callable[[], Tensor],
    schedule: Schedule,
    *,
    report: Report = silent,
    every_minute: Callable[[int], str] = lambda step: "",
) -> int:
    """The number of steps taken: AdamW, warm-up and cosine over steps or seconds."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": schedule.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=schedule.learning_rate,
        betas=(0.9, 0.98),
        fused=True,
    )
    started = told = time.monotonic()
    for step in range(schedule.steps):
        done = _part_done(step, time.monotonic() - started, schedule)
        if done >= 1:
            return step
        for group in optimizer.param_groups:
            group["lr"] = schedule.learning_rate * _pace(done, schedule.warmup)
        with torch.autocast(schedule.device, torch.bfloat16):
            loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step + 1 == schedule.steps:
            report(step + 1, f"loss {loss.item():.4f}")
        if time.monotonic() - told > 60:
            told = time.monotonic()
            report(step + 1, f"loss {loss.item():.4f} {every_minute(step)}")
    return schedule.steps


def _part_done(step: int, seconds: float, schedule: Schedule) -> float:
    by_clock = seconds / schedule.seconds if schedule.seconds else 0.0
    return max(step / schedule.steps, by_clock)


def _pace(done: float, warmup: float) -> float:
    if done < warmup:
        return (done + 1e-3) / (warmup + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (done - warmup) / (1 - warmup))) + 0.005


def save_bf16(model: Any, folder: Path) -> None:
    """An ordinary transformers folder in bfloat16; the model itself stays as it is."""
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)


def note_down(folder: Path, schedule: Schedule, steps: int) -> None:
    """Writes beside the weights how they came about."""
    made = asdict(schedule) | {"steps": steps, "torch": str(torch.__version__)}
    made = {name: made[name] for name in sorted(made) if name not in ("seconds", "workers")}
    write_atomically(folder / PRETRAINING, (json.dumps(made, indent=1) + "\n").encode())
