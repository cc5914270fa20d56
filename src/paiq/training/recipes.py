"""Recipes: functions that return a complete run, found by name.

    paper/BACKBONE/INTERFACE    the paper's recipe on one language backbone
    world/INTERFACE             the same experiment in the generated world, in minutes on two cores

A row of the paper's table is a recipe; an ablation is a recipe with one setting changed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from paiq.config import load_yaml, override
from paiq.errors import ConfigError, suggest
from paiq.interfaces import available
from paiq.model import LanguageConfig
from paiq.registry import Registry
from paiq.towers import TowerConfig
from paiq.towers.folder import portable_name
from paiq.training.config import (
    Batch,
    Data,
    Features,
    Generation,
    InterfaceChoice,
    Memory,
    Optimizer,
    Run,
    Saving,
    Schedule,
    World,
)
from paiq.world import backbones

RECIPES: Registry[Callable[[], Run]] = Registry("recipe")

# The two encoders of the paper (sec. 3.1), 196 and 576 tokens of width 1,024.
SPATIAL = "facebook/dinov3-vitl16-pretrain-lvd1689m"
SEMANTIC = "google/siglip-large-patch16-384"
# What it trains on: 200K examples of FLUX-Reason (app. Language backbones, training, generation).
TRAINING = "flux:data/flux[0:200000]"


@dataclass(frozen=True, kw_only=True)
class PaperBackbone:
    """One of the paper's frozen language models."""

    hub: str
    limit: int = 128
    """New tokens when generating; the 27B predictions were made with 512."""
    shard: bool = False
    """Whether one copy per device is too much."""


PAPER_BACKBONES: Mapping[str, PaperBackbone] = {
    "qwen3.5-2b": PaperBackbone(hub="Qwen/Qwen3.5-2B"),
    "qwen3.5-9b": PaperBackbone(hub="Qwen/Qwen3.5-9B"),
    "qwen3.5-27b": PaperBackbone(hub="Qwen/Qwen3.5-27B", limit=512, shard=True),
    "internvl3.5-8b": PaperBackbone(hub="OpenGVLab/InternVL3_5-8B"),
    "llama-3.1-8b": PaperBackbone(hub="meta-llama/Llama-3.1-8B-Instruct"),
}


def paper(backbone: str = "qwen3.5-9b", interface: str = "paiq") -> Run:
    """The recipe of every row: 200K examples, two epochs, 3,126 steps of 128.

    AdamW at 1e-4 without weight decay, cosine after 5 % warm-up, seed 42; the settings not named
    here are the defaults of `Run`, which are the paper's.
    """
    if backbone not in PAPER_BACKBONES:
        raise ConfigError(
            f"no paper backbone {backbone!r}; have {', '.join(PAPER_BACKBONES)}."
            f"{suggest(backbone, PAPER_BACKBONES)}"
        )
    language = PAPER_BACKBONES[backbone]
    return Run(
        name=f"paper/{backbone}/{interface}",
        data=Data(source=TRAINING),
        spatial=TowerConfig(name=SPATIAL),
        semantic=TowerConfig(name=SEMANTIC),
        language=LanguageConfig(name=language.hub),
        interface=InterfaceChoice.named(interface),
        memory=Memory(gradient_checkpointing=True, shard=language.shard),
        generation=Generation(limit=language.limit),
    )


def world(interface: str = "paiq") -> Run:
    """The demo's recipe, the same for every interface.

    Rate and batch were chosen by the held-out loss of `spatial` and `semantic` together;
    docs/results/world-recipe.md has the tables. No other interface had a say.
    """
    folders = {part: portable_name(str(folder)) for part, folder in backbones().items()}
    return Run(
        name=f"world/{interface}",
        data=Data(source="world", world=World(split="train", size=4000, seed=0)),
        spatial=TowerConfig(name=folders["spatial"]),
        semantic=TowerConfig(name=folders["semantic"]),
        language=LanguageConfig(name=folders["language"]),
        interface=InterfaceChoice.named(interface),
        optimizer=Optimizer(learning_rate=4e-3),
        schedule=Schedule(epochs=None, steps=400),
        batch=Batch(size=16, micro=8),
        features=Features(batch=32),
        generation=Generation(limit=64),
        saving=Saving(every=100),
        dtype="float32",
    )


for _interface in available():
    RECIPES.register(f"world/{_interface}")(partial(world, _interface))
    for _backbone in PAPER_BACKBONES:
        RECIPES.register(f"paper/{_backbone}/{_interface}")(partial(paper, _backbone, _interface))


def find_run(name: str, words: Iterable[str] = ()) -> Run:
    """The run of a recipe, a run folder or a YAML file, with `path.to.field=value` applied."""
    path = Path(name)
    if name in RECIPES:
        run = RECIPES[name]()
    elif path.is_dir():
        run = load_yaml(Run, path / "run.yaml")
    elif path.suffix in (".yaml", ".yml"):
        run = load_yaml(Run, path)
    else:
        raise ConfigError(
            f"no recipe, run folder or .yaml file {name!r}; `paiq train --list` shows the recipes."
            f"{suggest(name, RECIPES)}"
        )
    return change(run, words)


def change(run: Run, words: Iterable[str]) -> Run:
    """The run with the words applied; another interface comes with its own default options."""
    rest = []
    for word in words:
        path, equals, value = word.partition("=")
        if path == "interface.name" and equals:
            run = replace(run, interface=InterfaceChoice.named(value))
        else:
            rest.append(word)
    return override(run, rest)


def describe(run: Run) -> Mapping[str, Any]:
    """A run in the few numbers that tell it from others."""
    length = (
        f"{run.schedule.epochs} epochs" if run.schedule.epochs else f"{run.schedule.steps} steps"
    )
    return {
        "data": run.data.source,
        "language": run.language.name,
        "length": length,
        "batch": run.batch.size,
        "rate": run.optimizer.learning_rate,
    }
