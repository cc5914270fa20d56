"""Everything one training run is, as data: written to the run folder, read back to repeat it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from paiq.errors import ConfigError
from paiq.interfaces import INTERFACES, split_settings
from paiq.model import LanguageConfig
from paiq.towers import TowerConfig


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError("; ".join(problems))


@dataclass(frozen=True, kw_only=True)
class World:
    """Scenes of the generated world."""

    split: str = "train"
    size: int = 4000
    """Samples."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the training samples come from."""

    source: str
    """`world`, or KIND:PATH[SLICE] such as `llava:cc3m/chat.json[0:500]`, or a YAML file of it."""
    world: World = field(default_factory=World)
    """Which scenes, where the source is the world."""


@dataclass(frozen=True, kw_only=True)
class InterfaceChoice:
    """The trainable part."""

    name: str = "paiq"
    """Its exact name; `paiq interfaces` lists them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Its own options, `interface.options.scale=0.5`; `paiq interfaces NAME` explains them."""

    def __post_init__(self) -> None:
        split_settings(self.name, {"hidden_size": 1, **self.options})

    @classmethod
    def named(cls, name: str) -> "InterfaceChoice":
        """The interface of that name with every option at its default, spelled out."""
        return cls(name=name, options=asdict(INTERFACES[name].Options()))


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW on the interface (paper, sec. Language backbones, training, and generation)."""

    learning_rate: float = 1e-4
    """The peak, reached after warm-up."""
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    clip: float | None = None
    """The gradient's norm is held to this; empty leaves it as it is."""

    def __post_init__(self) -> None:
        _refuse(
            [
                f"{name} must {rule}, got {getattr(self, name)}"
                for name, rule, holds in (
                    ("learning_rate", "be positive", self.learning_rate > 0),
                    ("weight_decay", "not be negative", self.weight_decay >= 0),
                    ("beta1", "lie in [0, 1)", 0 <= self.beta1 < 1),
                    ("beta2", "lie in [0, 1)", 0 <= self.beta2 < 1),
                    ("epsilon", "be positive", self.epsilon > 0),
                    ("clip", "be positive or empty", self.clip is None or self.clip > 0),
                )
                if not holds
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, and the learning rate's way there."""

    epochs: int | None = 2
    """Passes over the samples; the last, partial batch of each pass is stepped too."""
    steps: int | None = None
    """Optimiser steps in place of epochs; passes follow each other as needed."""
    warmup: float = 0.05
    """Share of all steps in which the rate rises linearly, rounded up to whole steps."""
    decay: Literal["cosine", "constant"] = "cosine"
    """What follows: half a cosine down to zero, or nothing."""

    def __post_init__(self) -> None:
        problems = []
        if (self.epochs is None) == (self.steps is None):
            problems.append(f"give epochs or steps, got epochs={self.epochs}, steps={self.steps}")
        problems += [
            f"{name} must be at least 1, got {count}"
            for name, count in (("epochs", self.epochs), ("steps", self.steps))
            if count is not None and count < 1
        ]
        if not 0.0 <= self.warmup < 1.0:
            problems.append(f"warmup must lie in [0, 1), got {self.warmup}")
        _refuse(problems)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one optimiser step sees."""

    size: int = 128
    """Samples per step, over all processes together."""
    micro: int = 8
    """Most samples per forward pass of one process; changes memory and rounding, nothing else."""
    workers: int = 2
    """Threads of each process that make ready what the next forward passes need."""

    def __post_init__(self) -> None:
        wrong = {name: value for name, value in vars(self).items() if value < 1}
        _refuse([f"batch.{name} must be at least 1, got {value}" for name, value in wrong.items()])


@dataclass(frozen=True, kw_only=True)
class Features:
    """What the frozen towers make of the images."""

    store: bool = True
    """Run the towers once and keep their features on disk; False runs them in every step."""
    folder: str = "features"
    """Where stores lie; each is named by towers, preprocessing and images, and shared by runs."""
    batch: int = 8
    """Images per pass of the towers."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Trades of time for memory, and the frozen language model over several devices."""

    gradient_checkpointing: bool = False
    """Recompute the language model's layers in the backward pass."""
    shard: bool = False
    """Split the frozen language model's layers over the processes (FSDP2)."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The limit `paiq predict` takes from the run."""

    limit: int = 128
    """New tokens at most; decoding is greedy."""


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Checkpoints to go on from."""

    every: int = 100
    """Steps between two checkpoints; the last step always has one."""
    keep: int = 2
    """The newest so many are kept; two let a damaged one fall back to the one before."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.keep < 1:
            raise ConfigError(
                f"saving takes positive counts, got every={self.every}, keep={self.keep}"
            )


@dataclass(frozen=True, kw_only=True)
class Logging:
    """Where the numbers go beside `log.jsonl`."""

    tensorboard: bool = False
    """Event files in the run folder."""
    wandb: str | None = None
    """A Weights & Biases project; the key comes from the environment."""
    trackio: str | None = None
    """A trackio project."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A complete training run."""

    name: str
    """Says what the run is; the default run folder is `runs/NAME`."""
    data: Data
    spatial: TowerConfig
    """The encoder of the base tokens."""
    semantic: TowerConfig
    """The encoder of the source tokens."""
    language: LanguageConfig
    """The causal language model that reads the visual tokens."""
    interface: InterfaceChoice = field(default_factory=lambda: InterfaceChoice.named("paiq"))
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    batch: Batch = field(default_factory=Batch)
    features: Features = field(default_factory=Features)
    memory: Memory = field(default_factory=Memory)
    generation: Generation = field(default_factory=Generation)
    saving: Saving = field(default_factory=Saving)
    logging: Logging = field(default_factory=Logging)
    seed: int = 42
    """Of the order of the samples and of the interface's first weights."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the frozen parts; the interface is always float32."""

    def __post_init__(self) -> None:
        problems = []
        if not self.name or Path(self.name).is_absolute() or ".." in Path(self.name).parts:
            problems.append(f"name must be a relative path without '..', got {self.name!r}")
        if self.seed < 0:
            problems.append(f"seed must not be negative, got {self.seed}")
        _refuse(problems)
