"""What a step's line says."""

import resource
import sys
import time

import torch

from paiq.towers.store import readable
from paiq.training.log import Line
from paiq.training.schedule import Plan
from paiq.training.step import Totals


class Meter:
    """Loss, rate, speed and memory of each step."""

    def __init__(self, plan: Plan, learning_rate: float) -> None:
        self.plan = plan
        self.learning_rate = learning_rate
        self.samples = 0
        self.started = self.before = time.perf_counter()

    def line(self, done: int, totals: Totals, norm: float) -> Line:
        """The log line of the step that made it `done` steps."""
        now = time.perf_counter()
        seconds, self.before = now - self.before, now
        self.samples += totals.samples
        return {
            "step": done,
            "epoch": done / self.plan.steps_per_epoch,
            "loss": totals.mean,
            "tokens": totals.tokens,
            "samples": totals.samples,
            "learning_rate": self.plan.rate(done - 1) * self.learning_rate,
            "gradient_norm": norm,
            "seconds": seconds,
            "samples_per_second": self.samples / (now - self.started),
            "memory_bytes": peak_memory(),
        }

    def note(self, line: Line) -> str:
        """The same for the progress line; the bar itself knows the time left."""
        return (
            f"loss {line['loss']:.4f}, {line['samples_per_second']:.1f} samples/s, "
            f"{readable(int(line['memory_bytes']))}"
        )


def peak_memory() -> int:
    """The most bytes this process held: on its GPU where there is one, else in main memory."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
