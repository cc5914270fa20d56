"""How many steps, at which rate, with which samples: all of it from seed and step alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch

from paiq.errors import ConfigError
from paiq.training.config import Batch, Schedule


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The samples of every step; the number of processes has no say in it."""

    samples: int
    batch: Batch
    schedule: Schedule
    seed: int

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError("the source of the training samples is empty")

    @property
    def steps_per_epoch(self) -> int:
        """The last, partial batch counts."""
        return -(-self.samples // self.batch.size)

    @property
    def steps(self) -> int:
        if self.schedule.steps is not None:
            return self.schedule.steps
        assert self.schedule.epochs is not None  # Schedule holds one of the two
        return self.schedule.epochs * self.steps_per_epoch

    @property
    def warmup_steps(self) -> int:
        """Rounded up; exact for decimal shares, so 5 % of 100 steps is 5 and not 6."""
        return math.ceil(Fraction(str(self.schedule.warmup)) * self.steps)

    def rate(self, step: int) -> float:
        """The share of the peak learning rate in this step, counted from 0."""
        warmup = self.warmup_steps
        if step < warmup:
            return step / warmup
        if self.schedule.decay == "constant":
            return 1.0
        done = (step - warmup) / max(1, self.steps - warmup)
        return 0.5 * (1.0 + math.cos(math.pi * done))

    def indices(self, step: int) -> list[int]:
        """The samples of this step: every pass goes through all of them once, in a new order."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = _order(self.seed, epoch, self.samples)
        start = position * self.batch.size
        return order[start : start + self.batch.size].tolist()


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, samples: int) -> torch.Tensor:
    # Seed and pass are spread over the 64 bits, so that seed 1, pass 0 is not seed 0, pass 1.
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(samples, generator=generator)


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one process does in one step."""

    batches: tuple[tuple[int, ...], ...]
    """Positions within the step's samples, one tuple per forward pass."""
    idle: int
    """Passes the other processes do more; sharded layers must be passed through together."""


def share(lengths: Sequence[int], micro: int, rank: int, processes: int) -> Share:
    """This process's part of a step, samples of like length together.

    Sorting stays within the step, so it saves padding and changes no step's samples. Shorter and
    longer samples are dealt out in turn: every process has the same work, give or take one.
    """
    order = sorted(range(len(lengths)), key=lambda position: (lengths[position], position))
    mine = order[rank::processes]
    most = -(-len(order) // processes)
    rounds = -(-most // micro)
    batches = tuple(tuple(mine[start : start + micro]) for start in range(0, len(mine), micro))
    return Share(batches=batches, idle=rounds - len(batches))
