"""The features an interface connects: their sizes, and what is checked before they are touched."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paiq.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What an interface connects; the defaults are the paper's (sec. 3.1)."""

    hidden_size: int
    """Width of the language model's embeddings."""
    spatial_size: int = 1024
    """Channels of the spatial features."""
    semantic_size: int = 1024
    """Channels of the semantic features."""
    spatial_tokens: int = 196
    """Patches of the spatial stream."""
    semantic_tokens: int = 576
    """Patches of the semantic stream."""

    def __post_init__(self) -> None:
        wrong = {name: value for name, value in vars(self).items() if value < 1}
        if wrong:
            raise ConfigError(f"sizes must be positive, got {wrong}")


def check_features(
    sizes: Sizes, spatial: Tensor, semantic: Tensor, device: torch.device | None
) -> None:
    """Stops at features that do not fit the sizes, each other, or the weights' device."""
    expected = {
        "spatial": (spatial, sizes.spatial_tokens, sizes.spatial_size),
        "semantic": (semantic, sizes.semantic_tokens, sizes.semantic_size),
    }
    for stream, (features, tokens, width) in expected.items():
        if features.dim() != 3 or features.shape[1:] != (tokens, width):
            raise ConfigError(
                f"{stream} features must be (batch, {tokens}, {width}), got {tuple(features.shape)}"
            )
        if not features.is_floating_point():
            raise ConfigError(f"{stream} features must be floating point, got {features.dtype}")
        if device is not None and features.device != device:
            raise ConfigError(
                f"{stream} features are on {features.device}, the interface is on {device}; "
                f"move one of them"
            )
    if spatial.shape[0] != semantic.shape[0]:
        raise ConfigError(
            f"both streams must hold the same images, got {spatial.shape[0]} spatial "
            f"and {semantic.shape[0]} semantic"
        )
    if spatial.dtype != semantic.dtype:
        raise ConfigError(
            f"both streams must have one dtype, got {spatial.dtype} spatial and "
            f"{semantic.dtype} semantic; convert one of them"
        )


def refuse_nonfinite(spatial: Tensor, semantic: Tensor) -> None:
    """Stops at NaN or infinity and names the stream and the first place.

    While a CUDA graph is recorded nothing can be read back; the check is then left out.
    """
    if spatial.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    for stream, features in {"spatial": spatial, "semantic": semantic}.items():
        # One pass without a temporary; a sum of finite numbers can only overflow, never be NaN.
        total = features.sum(dtype=torch.promote_types(features.dtype, torch.float32))
        if torch.isfinite(total):
            continue
        bad = (~torch.isfinite(features)).nonzero()
        if len(bad):
            image, token, channel = bad[0].tolist()
            raise DataError(
                f"{stream} features hold {len(bad)} values that are NaN or infinite, the first at "
                f"image {image}, token {token}, channel {channel}; look at what made these features"
            )
