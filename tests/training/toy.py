"""A model small enough to train in a test: a real interface before a frozen head."""

import os
import socket
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context

import torch
from accelerate import PartialState
from torch import nn
from torch.nn.functional import cross_entropy

from paiq.interfaces import create
from paiq.model import LanguageConfig
from paiq.towers import TowerConfig
from paiq.training.config import (
    Batch,
    Data,
    InterfaceChoice,
    Optimizer,
    Run,
    Saving,
    Schedule,
)
from paiq.training.feed import IGNORED, Feed
from paiq.training.folder import RunFolder
from paiq.training.loop import Work, train
from paiq.training.schedule import Plan
from paiq.training.step import Stepper

SIZES = {
    "hidden_size": 12,
    "spatial_size": 6,
    "semantic_size": 5,
    "spatial_tokens": 4,
    "semantic_tokens": 9,
}
VOCABULARY = 17
SAMPLES = 21


class Toy(nn.Module):
    """Scores each answer token from its embedding and the mean visual token."""

    def __init__(self, seed):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.interface = create("paiq", **SIZES)
            torch.manual_seed(1)
            self.embed = nn.Embedding(VOCABULARY, 12).requires_grad_(False)
            self.head = nn.Linear(12, VOCABULARY).requires_grad_(False)

    def answer_loss(self, *, input_ids, attention_mask, labels, spatial, semantic):
        visual = self.interface(spatial, semantic).tokens.mean(dim=1, keepdim=True)
        hidden = torch.tanh(self.embed(input_ids) * (1 + visual)) * attention_mask.unsqueeze(-1)
        kept = labels != IGNORED
        logits = self.head(hidden)[kept]
        return cross_entropy(logits, labels[kept], reduction="sum"), int(kept.sum())


@dataclass
class Text:
    input_ids: list[int]
    labels: list[int]


def render(index):
    generator = torch.Generator().manual_seed(1000 + index)
    length = int(torch.randint(3, 14, (), generator=generator))
    ids = torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()
    prompt = 1 + index % 2
    return Text(ids, [IGNORED] * prompt + ids[prompt:])


def vision(indices):
    def one(index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(4, 6, generator=generator), torch.randn(9, 5, generator=generator)

    spatial, semantic = zip(*map(one, indices), strict=True)
    return {"spatial": torch.stack(spatial), "semantic": torch.stack(semantic)}


RUN = Run(
    name="toy",
    data=Data(source="toy"),
    spatial=TowerConfig(name="a"),
    semantic=TowerConfig(name="b"),
    language=LanguageConfig(name="c"),
    interface=InterfaceChoice.named("paiq"),
    optimizer=Optimizer(learning_rate=0.02),
    schedule=Schedule(epochs=3),
    batch=Batch(size=8, micro=8, workers=1),
    saving=Saving(every=2),
    seed=3,
    dtype="float32",
)


def work(path, run=RUN, *, model=None, start=0, feed=Feed, **feed_options):
    processes = PartialState(cpu=True)
    plan = Plan(samples=SAMPLES, batch=run.batch, schedule=run.schedule, seed=run.seed)
    model = model or Toy(run.seed)
    return Work(
        run=run,
        folder=RunFolder(path),
        plan=plan,
        feed=feed(
            plan=plan,
            render=render,
            vision=vision,
            padding=0,
            rank=processes.process_index,
            processes=processes.num_processes,
            **feed_options,
        ),
        answer_loss=model.answer_loss,
        stepper=Stepper(model.interface, run.optimizer),
        processes=processes,
        finish=lambda: None,
        at_answers=lambda labels: nullcontext(),
        start=start,
    )


def with_batch(run=RUN, **changes):
    return replace(run, batch=replace(run.batch, **changes))


def in_processes(count, job, *arguments):
    """Runs `job(rank, *arguments)` in so many gloo processes, forked: nothing is imported."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("fork")
    children = [
        context.Process(target=_child, args=(rank, count, port, job, arguments))
        for rank in range(count)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * count


def _child(rank, count, port, job, arguments):
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    PartialState._reset_state()
    try:
        job(rank, *arguments)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def train_toy(rank, path, run):
    train(work(path, run))
