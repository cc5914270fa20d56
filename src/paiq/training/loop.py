"""The loop: batch, loss, backward, step, report."""

import math
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from accelerate import PartialState
from torch import Tensor

from paiq.errors import DataError
from paiq.progress import Report, silent
from paiq.training import checkpoints
from paiq.training.checkpoints import Snapshot
from paiq.training.config import Run
from paiq.training.feed import Feed, MicroBatch
from paiq.training.folder import RunFolder
from paiq.training.interrupt import Stop, graceful
from paiq.training.log import sinks
from paiq.training.meter import Meter
from paiq.training.schedule import Plan
from paiq.training.step import Stepper, Totals, exchange

AnswerLoss = Callable[..., tuple[Tensor, int]]
"""From a batch's inputs by name: the loss summed over the answer tokens, and their number."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run with everything it needs in place."""

    run: Run
    folder: RunFolder
    plan: Plan
    feed: Feed
    answer_loss: AnswerLoss
    stepper: Stepper
    processes: PartialState
    finish: Callable[[], None]
    """Writes what the run was for, once all steps are done."""
    at_answers: Callable[[Tensor], AbstractContextManager[None]]
    """A block in which what these labels leave unread need not be computed."""
    start: int = 0
    """Steps that were done before."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    steps: int
    """Steps done, all of them saved."""
    signal: int = 0
    """What asked it to stop before its end; 0 where nothing did."""


def train(work: Work, *, report: Report = silent) -> Outcome:
    """Trains to the end, or until somebody asks to stop; either way the state is saved."""
    done, run, processes = work.start, work.run, work.processes
    log = sinks(run, work.folder, start=done, main=processes.is_main_process)
    with graceful() as asked, torch.random.fork_rng(), log as write:
        meter = Meter(work.plan, run.optimizer.learning_rate)
        for step, batches in work.feed.steps(done, work.plan.steps):
            totals, norm = take(work, step, batches, asked)
            done = step + 1
            line = meter.line(done, totals, norm)
            write(line)
            report(done, meter.note(line))
            if totals.stop or done % run.saving.every == 0 or done == work.plan.steps:
                save(work, done)
            if totals.stop:
                return Outcome(done, asked.signal or signal.SIGINT)
    if processes.is_main_process:
        work.finish()
    processes.wait_for_everyone()
    return Outcome(done)


def take(work: Work, step: int, batches: Sequence[MicroBatch], asked: Stop) -> tuple[Totals, float]:
    """One optimiser step over all processes: its totals, and the gradient's norm."""
    torch.manual_seed(chance(work.run.seed, step, work.processes.process_index))
    losses = [backward(work, batch) for batch in batches]
    mine = add_up(batches, losses, asked)
    totals = exchange(work.stepper.parameters, mine, work.processes.num_processes)
    must_be_finite(totals, step)
    return totals, work.stepper.step(totals.tokens, work.plan.rate(step))


def chance(seed: int, step: int, rank: int) -> int:
    """The seed of what a model leaves to chance in a step: nothing to save, nothing to restore."""
    return (seed * 2**32 + step * 2**12 + rank) % 2**63


def backward(work: Work, batch: MicroBatch) -> tuple[Tensor, int]:
    """The loss summed over the answer tokens, and their number, its gradients added to the rest."""
    inputs = batch.to(work.processes.device)
    with work.at_answers(inputs["labels"]):
        loss, tokens = work.answer_loss(**inputs)
        # A pass that only keeps the other processes company counts for nothing.
        (loss if batch.samples else loss * 0.0).backward()
    return loss.detach(), tokens


def add_up(
    batches: Sequence[MicroBatch], losses: Sequence[tuple[Tensor, int]], asked: Stop
) -> Totals:
    """This process's part of the step, in whole numbers and double precision."""
    counted = [
        (loss.item(), int(tokens))
        for batch, (loss, tokens) in zip(batches, losses, strict=True)
        if batch.samples
    ]
    return Totals(
        loss=sum(loss for loss, _ in counted),
        tokens=sum(tokens for _, tokens in counted),
        samples=sum(batch.samples for batch in batches),
        stop=int(bool(asked.signal)),
    )


def must_be_finite(totals: Totals, step: int) -> None:
    if not math.isfinite(totals.loss):
        raise DataError(
            f"the loss of step {step + 1} is {totals.loss}; the step was not taken. A smaller "
            "optimizer.learning_rate or optimizer.clip=1.0 may help"
        )


def save(work: Work, done: int) -> None:
    """Writes a checkpoint of this step, once for all processes."""
    if work.processes.is_main_process:
        epoch, position = divmod(done, work.plan.steps_per_epoch)
        state = {"seed": work.run.seed, "epoch": epoch, "batches_of_epoch": position}
        snapshot = Snapshot(step=done, tensors=work.stepper.state(), state=state)
        checkpoints.write(work.folder.checkpoints, snapshot, keep=work.run.saving.keep)
    work.processes.wait_for_everyone()
