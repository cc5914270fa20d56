"""Interface checkpoints: exactly what is trained, and references to what is not."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn
from transformers import PreTrainedModel

from paiq.errors import ConfigError, DataError
from paiq.files import sha256_of, write_atomically
from paiq.interfaces import create
from paiq.model.build import PARTS, assemble, part_config
from paiq.model.configuration import PaiqConfig
from paiq.model.language import load_language
from paiq.model.modeling import PaiqForConditionalGeneration
from paiq.towers import load_tower, weights_digest
from paiq.towers.folder import checkpoint_folder, resolve

WEIGHTS = "interface.safetensors"


def save_interface(model: PaiqForConditionalGeneration, folder: Path) -> None:
    """Writes the interface's tensors and the config; each file is whole or not there."""
    tensors = {
        name: t.detach().cpu().contiguous() for name, t in model.interface.state_dict().items()
    }
    data = save(tensors, metadata={"format": "pt"})
    write_atomically(folder / WEIGHTS, data)
    config = model.config.to_dict() | {
        "architectures": [type(model).__name__],
        "interface_digest": hashlib.sha256(data).hexdigest(),
    }
    write_atomically(folder / "config.json", _json(config))
    write_atomically(folder / "generation_config.json", _json(model.generation_config.to_dict()))


def load_interface(interface: nn.Module, path: Path) -> None:
    """Fills an interface from a file; every missing, extra or misshapen tensor is named."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read the interface in {path}: {error}") from error
    wanted = interface.state_dict()
    problems = [f"missing {name}" for name in sorted(wanted.keys() - found.keys())]
    problems += [f"extra {name}" for name in sorted(found.keys() - wanted.keys())]
    problems += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name].shape != found[name].shape
    ]
    if problems:
        raise DataError(f"{path} does not fit the interface: {'; '.join(problems)}")
    interface.load_state_dict(found, strict=True)


def load_model(cls: type[Any], name: str | Path, *args: Any, **kwargs: Any) -> Any:
    """What `from_pretrained` returns, for both kinds of folders."""
    folder = checkpoint_folder(name, kwargs.pop("revision", None))
    config = kwargs.pop("config", None)
    if not isinstance(config, PaiqConfig):
        config = PaiqConfig.from_pretrained(folder)
    if config.merged:
        return _load_merged(cls, folder, config, kwargs)
    model = _load_referenced(folder, config, kwargs)
    return model if cls is PaiqForConditionalGeneration else model.model


def _load_referenced(
    folder: Path, config: PaiqConfig, kwargs: Mapping[str, Any]
) -> PaiqForConditionalGeneration:
    dtype = _dtype(kwargs.get("dtype", kwargs.get("torch_dtype")), config)
    sources = kwargs.get("sources")
    parts = {part: part_config(config, part, sources) for part in PARTS}
    for part, chosen in parts.items():
        check_unchanged(part, chosen, getattr(config, f"{part}_source")["digest"])
    interface = create(config.interface, **config.interface_settings())
    load_interface(interface, folder / WEIGHTS)
    if config.interface_digest not in (None, sha256_of(folder / WEIGHTS)):
        raise DataError(
            f"{folder / WEIGHTS} is damaged: its contents do not match the digest in config.json; "
            "copy it again, or train again from the run's checkpoints"
        )
    towers = {stream: load_tower(parts[stream], dtype) for stream in ("spatial", "semantic")}
    language = load_language(parts["language"], dtype)
    model = assemble(config, towers, language, interface)
    return model.to(_device(kwargs.get("device_map")))


def check_unchanged(part: str, config: Any, expected: str) -> None:
    """Refuses a frozen part that is not the one the interface was trained with."""
    found = weights_digest(resolve(config.name, config.revision))
    if found != expected:
        raise ConfigError(
            f"the {part} weights of {config.name} are not those this interface was trained with: "
            f"expected {expected}, found {found}; "
            f"point sources={{'{part}': folder}} at the right ones"
        )


def _load_merged(cls: type[Any], folder: Path, config: PaiqConfig, kwargs: dict[str, Any]) -> Any:
    wants_info = kwargs.pop("output_loading_info", False)
    plain = PreTrainedModel.from_pretrained.__func__
    model, info = plain(cls, folder, config=config, output_loading_info=True, **kwargs)
    extra = {key for key in info["unexpected_keys"] if cls is PaiqForConditionalGeneration}
    problems = [f"missing {key}" for key in sorted(info["missing_keys"])]
    problems += [f"extra {key}" for key in sorted(extra)]
    if problems:
        raise DataError(f"{folder} is no whole merged model: {'; '.join(problems[:8])}")
    model.freeze()
    return (model, info) if wants_info else model


def _dtype(given: Any, config: PaiqConfig) -> torch.dtype:
    if given is None or given == "auto":
        given = config.dtype or torch.float32
    return getattr(torch, given.removeprefix("torch.")) if isinstance(given, str) else given


def _device(device_map: Any) -> torch.device:
    if device_map in (None, "cpu"):
        return torch.device("cpu")
    if device_map == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if isinstance(device_map, dict) and list(device_map) == [""]:
        return torch.device(device_map[""])
    if isinstance(device_map, (str, int, torch.device)):
        return torch.device(device_map)
    raise ConfigError(
        "an interface checkpoint goes to one device; for a device map over several, "
        "`paiq export` a merged folder first"
    )


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, default=str, sort_keys=True) + "\n").encode()
