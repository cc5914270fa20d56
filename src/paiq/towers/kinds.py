"""What each kind of encoder puts before its patches, and how its pictures are prepared.

A kind is transformers' `model_type`. Encoders of other kinds work too: their preprocessing comes
from their folder, the tokens to drop from `TowerConfig.skip_tokens` or by counting patches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from paiq.errors import ConfigError
from paiq.towers.config import Preprocessing, TowerConfig
from paiq.towers.folder import read_json

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
OPENAI = {
    "mean": (0.48145466, 0.4578275, 0.40821073),
    "std": (0.26862954, 0.26130258, 0.27577711),
}


@dataclass(frozen=True)
class Kind:
    """One `model_type`: leading tokens, default preprocessing, whether other sizes are fine."""

    skip_tokens: Callable[[Any], int]
    defaults: Mapping[str, Any]
    any_size: bool = False


def _none(vision: Any) -> int:
    return 0


def _class_token(vision: Any) -> int:
    return 1


def _class_and_registers(vision: Any) -> int:
    return 1 + int(vision.num_register_tokens)


DINOV2_CROP = {"resize": "crop", "shortest_edge": 256, "resample": "bicubic", **IMAGENET}
DINOV2_SIZE = 224  # the published crop; the config's 518 is the size of pretraining
KINDS: dict[str, Kind] = {
    "dinov3_vit": Kind(_class_and_registers, {"resample": "bilinear", **IMAGENET}, any_size=True),
    "dinov2": Kind(_class_token, {**DINOV2_CROP, "size": DINOV2_SIZE}, any_size=True),
    "dinov2_with_registers": Kind(
        _class_and_registers, {**DINOV2_CROP, "size": DINOV2_SIZE}, any_size=True
    ),
    "siglip_vision_model": Kind(_none, {"resample": "bicubic", **HALF}),
    "clip_vision_model": Kind(_class_token, {"resize": "crop", "resample": "bicubic", **OPENAI}),
    "vit": Kind(_class_token, {"resample": "bilinear", **HALF}),
}
REFUSED = {
    "siglip2_vision_model": (
        "a SigLIP 2 checkpoint of flexible resolution; use a fixed-resolution one "
        "(the same family, with a size like 384 in its name)"
    )
}


def skip_tokens(config: TowerConfig, vision: Any) -> int | None:
    """How many leading tokens are no patches; None where only the output can tell."""
    if config.skip_tokens is not None:
        return config.skip_tokens
    kind = KINDS.get(vision.model_type)
    return None if kind is None else kind.skip_tokens(vision)


def preprocessing(config: TowerConfig, vision: Any, folder: Path) -> Preprocessing:
    """The folder's own preprocessing, or the kind's; then what the config overrides."""
    if vision.model_type in REFUSED:
        raise ConfigError(f"tower {config.name} is {REFUSED[vision.model_type]}")
    values = _from_folder(folder) or _from_kind(config, vision)
    values = _resized(values, config, vision)
    for name in ("resample", "mean", "std"):
        if (chosen := getattr(config, name)) is not None:
            values[name] = chosen
    return Preprocessing(**values)


def _from_kind(config: TowerConfig, vision: Any) -> dict[str, Any]:
    if vision.model_type not in KINDS:
        raise ConfigError(
            f"tower {config.name} ({vision.model_type}) has no preprocessor_config.json and is of "
            f"no known kind ({', '.join(KINDS)}); add that file to its folder"
        )
    values = dict(KINDS[vision.model_type].defaults)
    size = values.pop("size", vision.image_size)
    if values.get("resize") == "crop":
        values.setdefault("shortest_edge", size)
    return {"height": size, "width": size, **values}


def _from_folder(folder: Path) -> dict[str, Any] | None:
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            raw = read_json(folder / name)
            return _translate(raw.get("image_processor", raw), folder / name)
    return None


def _translate(raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Our fields from transformers' image processor settings."""
    size = raw.get("size") or {}
    size = {"height": size, "width": size} if isinstance(size, int) else size
    crop = raw.get("crop_size") if raw.get("do_center_crop") else None
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
    final = crop or size
    if "height" not in final or not raw.get("do_resize", True):
        raise ConfigError(f"{path} does not lead to one input size; give the tower an image_size")
    values: dict[str, Any] = {"height": final["height"], "width": final["width"]}
    if crop:
        values |= {"resize": "crop", "shortest_edge": size.get("shortest_edge", size.get("height"))}
    if "resample" in raw:
        values["resample"] = Image.Resampling(raw["resample"]).name.lower()
    values["rescale"] = raw.get("rescale_factor", 1 / 255) if raw.get("do_rescale", True) else 1.0
    normalised = raw.get("do_normalize", True)
    values["mean"] = tuple(raw["image_mean"]) if normalised else (0.0, 0.0, 0.0)
    values["std"] = tuple(raw["image_std"]) if normalised else (1.0, 1.0, 1.0)
    return values


def _resized(values: dict[str, Any], config: TowerConfig, vision: Any) -> dict[str, Any]:
    size = config.image_size
    if size is not None:
        if values.get("resize") == "crop":
            values["shortest_edge"] = round(values["shortest_edge"] * size / values["height"])
        values["height"] = values["width"] = size
    kind = KINDS.get(vision.model_type)
    if (kind is None or not kind.any_size) and values["height"] != vision.image_size:
        raise ConfigError(
            f"tower {config.name} ({vision.model_type}) takes {vision.image_size} pixels, "
            f"not {values['height']}"
        )
    return values
