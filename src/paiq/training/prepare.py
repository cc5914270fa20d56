"""From a run to everything it needs in place: samples, features, model, and where it stood."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor

from paiq.model import Renderer, build_model, load_renderer, save_interface
from paiq.training import checkpoints
from paiq.training.config import Run
from paiq.training.features import DTYPES, FeaturePlan
from paiq.training.feed import Feed
from paiq.training.folder import RunFolder
from paiq.training.last_layer import LastLayer
from paiq.training.log import check_packages
from paiq.training.loop import Work
from paiq.training.samples import open_samples
from paiq.training.schedule import Plan
from paiq.training.sharding import shard
from paiq.training.step import Stepper

PARTS = ("spatial", "semantic", "language")


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run whose folder and samples are open; nothing large is loaded."""

    run: Run
    folder: RunFolder
    features: FeaturePlan
    processes: PartialState

    def load(self) -> Work:
        """The model, and the state of the newest checkpoint where there is one."""
        run, processes = self.run, self.processes
        model = fresh_model(run)
        if processes.is_main_process:
            sources = {part: getattr(model.config, f"{part}_source") for part in PARTS}
            self.folder.note_weights({part: source["digest"] for part, source in sources.items()})
        last = LastLayer(model.model.language_model)
        place(model, run, processes)
        plan = Plan(
            samples=len(self.features.catalogue.samples),
            batch=run.batch,
            schedule=run.schedule,
            seed=run.seed,
        )
        work = Work(
            run=run,
            folder=self.folder,
            plan=plan,
            feed=self._feed(plan, load_renderer(model.config)),
            answer_loss=(FromStore if run.features.store else OnTheFly)(model),
            stepper=Stepper(model.interface, run.optimizer),
            processes=processes,
            finish=lambda: save_interface(model, self.folder.model),
            at_answers=last.at_answers,
        )
        return resumed(work)

    def _feed(self, plan: Plan, renderer: Renderer) -> Feed:
        samples = self.features.catalogue.samples
        return Feed(
            plan=plan,
            render=lambda index: renderer.for_training(samples[index]),
            vision=self.features.stored if self.run.features.store else self.features.pixels,
            padding=renderer.pad_id,
            rank=self.processes.process_index,
            processes=self.processes.num_processes,
            together=self.run.memory.shard,
        )


@dataclass(frozen=True)
class FromStore:
    """A model that is given features.

    Padding stands to the right of every answer, where a causal model never looks: without a mask
    its attention takes the quicker, causal kernel and the loss is the same.
    """

    model: Any

    def __call__(self, attention_mask: Tensor, **inputs: Tensor) -> tuple[Tensor, int]:
        del attention_mask
        loss, tokens = self.model.answer_loss(attention_mask=None, **inputs)
        return loss, tokens


@dataclass(frozen=True)
class OnTheFly:
    """A model that is given pixels: its towers run in every step, in place of a store."""

    model: Any

    def __call__(
        self, pixel_values: Tensor, pixel_values_semantic: Tensor, **texts: Tensor
    ) -> tuple[Tensor, int]:
        spatial, semantic = self.model.model.encode(pixel_values, pixel_values_semantic)
        return FromStore(self.model)(
            spatial_features=spatial.to(torch.bfloat16),  # as a store would have kept them
            semantic_features=semantic.to(torch.bfloat16),
            **texts,
        )


def open_run(run: Run, folder: Path) -> Opened:
    """The run with its samples and folder open; what cannot work is said before anything runs."""
    check_packages(run.logging)
    processes = here()
    features = FeaturePlan.of(run, open_samples(run.data))
    opened = Opened(run=run, folder=RunFolder(folder), features=features, processes=processes)
    if processes.is_main_process:
        opened.folder.open(run)
    processes.wait_for_everyone()
    return opened


def here() -> PartialState:
    """This process among those that torchrun or accelerate started; alone where nobody did."""
    return PartialState(cpu=not torch.cuda.is_available())


def folder_for(name: str, run: Run) -> Path:
    """Where a run goes when nobody says: its own folder where it has one, else `runs/NAME`."""
    path = Path(name)
    return path if (path / "run.yaml").is_file() else Path("runs") / run.name


def fresh_model(run: Run) -> Any:
    """The model with the interface's first weights, which the seed alone decides."""
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        return build_model(
            run.spatial,
            run.semantic,
            run.language,
            run.interface.name,
            run.interface.options,
            DTYPES[run.dtype],
        )


def place(model: Any, run: Run, processes: PartialState) -> None:
    """Puts the model where it trains."""
    if run.memory.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if run.memory.shard:
        shard(model.model.language_model, processes)
    model.to(processes.device)
    model.train()


def resumed(work: Work) -> Work:
    """The work where its newest whole checkpoint left it."""
    snapshot = checkpoints.newest(work.folder.checkpoints)
    if snapshot is None:
        return work
    work.stepper.load_state(snapshot.tensors)
    return replace(work, start=snapshot.step)
