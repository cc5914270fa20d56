"""A self-contained folder: every weight, the processor, and the code's address.

transformers loads it with `import paiq` before, or with `trust_remote_code=True` where paiq is
installed: the code beside the weights only says where the classes are.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from paiq.errors import ConfigError
from paiq.files import write_atomically
from paiq.model.build import load_processor
from paiq.model.card import write_card
from paiq.model.modeling import PaiqForConditionalGeneration

SHARD_BYTES = 4 * 2**30
MODULE = "modeling_paiq"
AUTO_MAP = {
    "AutoConfig": "PaiqConfig",
    "AutoModel": "PaiqModel",
    "AutoModelForImageTextToText": "PaiqForConditionalGeneration",
    "AutoProcessor": "PaiqProcessor",
    "AutoImageProcessor": "PaiqImageProcessor",
}
CODE = '''"""The classes of this model live in the package `paiq`."""

from paiq.model import (
    PaiqConfig,
    PaiqForConditionalGeneration,
    PaiqImageProcessor,
    PaiqModel,
    PaiqProcessor,
)
'''


@torch.no_grad()
def export_merged(
    model: PaiqForConditionalGeneration,
    folder: Path,
    *,
    folded: bool = False,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Writes interface, towers and language model into one folder that refers to nothing else."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another folder for the export")
    folder.mkdir(parents=True, exist_ok=True)
    processor = load_processor(model.config, sources)
    interface = model.interface.fold() if folded else model.interface
    config = model.config.to_dict() | {
        "architectures": [type(model).__name__],
        "auto_map": {auto: f"{MODULE}.{name}" for auto, name in AUTO_MAP.items()},
        "folded": folded,
        "merged": True,
    }
    for part in ("spatial", "semantic", "language"):
        config[f"{part}_source"] = _origin(config[f"{part}_source"])
    _write_weights(_tensors(model, interface), folder)
    processor.save_pretrained(folder)
    write_atomically(folder / f"{MODULE}.py", CODE.encode())
    write_atomically(folder / "config.json", _json(config))
    write_atomically(folder / "generation_config.json", _json(model.generation_config.to_dict()))
    write_card(folder)


def _origin(source: Mapping[str, Any]) -> dict[str, Any]:
    """Where a part came from, without the path of this machine."""
    return {
        **source,
        "name": Path(source["name"]).name if Path(source["name"]).is_absolute() else source["name"],
    }


def _tensors(
    model: PaiqForConditionalGeneration, interface: torch.nn.Module
) -> dict[str, torch.Tensor]:
    prefix = "model.interface."
    tensors = {
        name: tensor for name, tensor in model.state_dict().items() if not name.startswith(prefix)
    }
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]  # the loader ties it to the embedding again
    tensors |= {prefix + name: tensor for name, tensor in interface.state_dict().items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _write_weights(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    names = ["model.safetensors"] if len(shards) == 1 else names
    for file, shard in zip(names, shards, strict=True):
        save_file(shard, folder / file, metadata={"format": "pt"})
    if len(shards) > 1:
        where = {name: file for file, s in zip(names, shards, strict=True) for name in s}
        total = sum(tensor.nbytes for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": where}
        write_atomically(folder / "model.safetensors.index.json", _json(index))


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, default=str, sort_keys=True) + "\n").encode()
