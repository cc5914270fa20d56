"""A frozen vision encoder that gives patch features and nothing else.

Axes     B batch, n patches, c channels
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
import transformers
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers.utils import logging

from paiq.errors import ConfigError, DataError
from paiq.towers.config import Preprocessing, Selection, TowerConfig
from paiq.towers.folder import read_json, resolve, weight_files
from paiq.towers.kinds import preprocessing, skip_tokens


class Tower(nn.Module):
    """Pixels to patch features, frozen and in eval for good.

    DINOv3 jitters its positions in train mode, so `train()` never reaches the encoder.
    """

    def __init__(self, encoder: Any, selection: Selection) -> None:
        super().__init__()
        self.encoder = encoder
        self.selection = selection
        self.requires_grad_(False)
        self.eval()

    @property
    def num_tokens(self) -> int:
        return self.selection.num_tokens

    @property
    def width(self) -> int:
        return int(self.encoder.config.hidden_size)

    @property
    def image_size(self) -> int:
        return self.selection.image_size

    def train(self, mode: bool = True) -> Self:
        return super().train(False)

    @torch.no_grad()
    def forward(self, pixel_values: Float[Tensor, "B 3 h w"]) -> Float[Tensor, "B n c"]:
        size = self.image_size
        if pixel_values.shape[1:] != (3, size, size):
            raise ConfigError(
                f"the tower takes pixels of shape (batch, 3, {size}, {size}), "
                f"got {tuple(pixel_values.shape)}"
            )
        pixels = pixel_values.to(self.encoder.dtype)
        if self.selection.layer == "pre_norm":
            features = self.encoder(pixels, output_hidden_states=True).hidden_states[-1]
        else:
            features = self.encoder(pixels).last_hidden_state
        patches = features[:, self.selection.skip_tokens :]
        if patches.shape[1] != self.num_tokens:
            raise ConfigError(
                f"the tower gave {features.shape[1]} tokens; without the first "
                f"{self.selection.skip_tokens} that is {patches.shape[1]}, not {self.num_tokens}"
            )
        return patches


@dataclass(frozen=True)
class TowerPlan:
    """What is known of a tower before its weights are read."""

    config: TowerConfig
    folder: Path
    vision: Any
    """The vision part's transformers configuration."""
    preprocessing: Preprocessing
    selection: Selection


def plan_tower(config: TowerConfig) -> TowerPlan:
    """Sizes and preprocessing of a tower, from its small files only."""
    folder = resolve(config.name, config.revision)
    vision = vision_config(folder)
    prepared = preprocessing(config, vision, folder)
    patches = (prepared.height // vision.patch_size) * (prepared.width // vision.patch_size)
    selection = Selection(
        layer=config.layer,
        skip_tokens=_skip(config, vision, prepared, patches),
        num_tokens=patches,
        image_size=prepared.height,
    )
    return TowerPlan(config, folder, vision, prepared, selection)


def load_tower(config: TowerConfig, dtype: torch.dtype = torch.float32) -> Tower:
    """The frozen tower; a weight its folder lacks is an error that names it."""
    return read_tower(plan_tower(config), dtype)


def read_tower(plan: TowerPlan, dtype: torch.dtype = torch.float32) -> Tower:
    kind = encoder_class(plan.vision)
    encoder = load_strictly(kind, plan.folder, plan.vision, dtype, **without_pooling(kind))
    return Tower(encoder, plan.selection)


def fresh_encoder(vision: Any) -> Any:
    """An encoder of this configuration whose weights are still to be filled."""
    return transformers.AutoModel.from_config(vision, **without_pooling(encoder_class(vision)))


def encoder_class(vision: Any) -> Any:
    return transformers.AutoModel._model_mapping[type(vision)]


def without_pooling(kind: Any) -> dict[str, bool]:
    """Some encoders come with a pooling head that patch features never pass."""
    takes = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    return {"add_pooling_layer": False} if takes else {}


def vision_config(folder: Path) -> Any:
    """The transformers configuration of a folder's vision part."""
    raw = read_json(folder / "config.json")
    values = raw.get("vision_config", raw)
    kind = values.get("model_type") or _vision_kind(raw)
    known = transformers.AutoConfig.for_model(
        kind, **{k: v for k, v in values.items() if k != "model_type"}
    )
    if hasattr(known, "vision_use_head"):
        known.vision_use_head = False  # the pooling head is not read, so not built
    return known


def _vision_kind(raw: dict[str, Any]) -> str:
    kind = raw.get("model_type")
    if not kind:
        raise DataError("config.json names no model_type")
    return f"{kind}_vision_model" if "vision_config" in raw else kind


def load_strictly(kind: Any, folder: Path, config: Any, dtype: torch.dtype, **options: Any) -> Any:
    """A model out of a folder, every weight from its files; what is missing is named."""
    weight_files(folder)
    try:
        with _without_load_report():
            model, info = kind.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, by name
                **options,
            )
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise DataError(f"cannot load {kind.__name__} from {folder}: {error}") from error
    missing, wrong = sorted(info["missing_keys"]), sorted(info["mismatched_keys"], key=str)
    if missing or wrong:
        raise DataError(
            f"{folder} does not hold a whole {kind.__name__}: "
            + "; ".join(_complaints(missing, wrong))
        )
    return model


@contextmanager
def _without_load_report() -> Iterator[None]:
    # The library tabulates every weight of the parts we leave out; what matters is checked below.
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


MOST_NAMED = 8


def _complaints(missing: list[str], wrong: list[Any]) -> list[str]:
    parts = []
    if missing:
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        parts.append(f"{len(missing)} missing: {', '.join(missing[:MOST_NAMED])}{more}")
    if wrong:
        name, found, expected = wrong[0]
        parts.append(f"{len(wrong)} of another shape: {name} is {found}, not {expected}")
    return parts


def _skip(config: TowerConfig, vision: Any, prepared: Preprocessing, patches: int) -> int:
    known = skip_tokens(config, vision)
    if known is not None:
        return known
    with torch.device("meta"):
        encoder = fresh_encoder(vision)
        pixels = torch.empty(1, 3, prepared.height, prepared.width)
    return int(encoder(pixels).last_hidden_state.shape[1]) - patches
