"""The three frozen parts by name: how each is made, loaded and examined."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from paiq.errors import ConfigError, DataError, suggest
from paiq.files import write_atomically
from paiq.progress import Report, silent
from paiq.world import PARTS
from paiq.world.cards import PROBES, write_card
from paiq.world.pretrain import Schedule, pick_device

_CLASSES = {
    "spatial": "DINOv3ViTModel",
    "semantic": "SiglipVisionModel",
    "language": "LlamaForCausalLM",
}


def recipe(part: str, changes: Mapping[str, Any]) -> Schedule:
    """The schedule that made the shipped weights, with changes; None changes nothing."""
    known: Schedule = _module(part).RECIPE
    given = {name: value for name, value in changes.items() if value is not None}
    if "device" in given:
        given["device"] = pick_device(given["device"])
    return replace(known, **given)


def pretrain(
    part: str,
    folder: Path,
    schedule: Schedule,
    *,
    start: Path | None = None,
    report: Report = silent,
) -> int:
    """Trains one part into `folder`, examines it and writes its card; returns the steps taken."""
    make = getattr(_module(part), f"pretrain_{part}")
    steps: int = make(folder, schedule, start=start, report=report)
    examine(part, folder, device=schedule.device)
    return steps


def load(part: str, folder: Path) -> Any:
    """The part in float32 and eval mode; a missing or left-over weight is an error."""
    import transformers

    _module(part)
    kind = getattr(transformers, _CLASSES[part])
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} is no transformers folder: it holds no config.json")
    model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {name: found for name, found in info.items() if found}
    if wrong:
        raise DataError(f"{folder} does not hold a {_CLASSES[part]}: {wrong}")
    return model.eval()


def examine(
    part: str, folder: Path, *, scenes: int = 6000, device: str = "cpu", save: bool = True
) -> dict[str, dict[str, float]]:
    """The probes of a tower or the reading of a language model; kept beside the weights."""
    module, model = _module(part), load(part, folder).to(device)
    if part == "language":
        found: dict[str, dict[str, float]] = module.reading(model, scenes=max(1, scenes // 6))
    else:
        from paiq.world.probes import probe_tower

        found = probe_tower(
            module.features, model, module.GRID, scenes=scenes, splits=("test", "shifted")
        )
    if save:
        write_atomically(folder / PROBES, (json.dumps(found, indent=1) + "\n").encode())
        write_card(folder, part)
    return found


def _module(part: str) -> ModuleType:
    if part not in PARTS:
        raise ConfigError(
            f"the world has no part {part!r}; have {', '.join(PARTS)}.{suggest(part, PARTS)}"
        )
    return importlib.import_module(f"paiq.world.pretrain_{part}")
