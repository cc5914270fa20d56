"""From pictures to a tower's input, without torchvision.

`pil` is the reference: bit-equal to transformers' PIL processors. `torch` resizes on uint8 tensors
with antialiasing, several times faster; about one value in five hundred differs by one grey level.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from paiq.errors import ConfigError
from paiq.towers.config import Preprocessing

Backend = Literal["pil", "torch"]
TORCH_FILTERS = ("bilinear", "bicubic")
LEVELS = 256


def prepare(
    images: Sequence[Image.Image], preprocessing: Preprocessing, backend: Backend = "pil"
) -> Float[Tensor, "B 3 h w"]:
    """The normalised pixels of upright pictures of 8 bits; any mode but RGB is converted."""
    if not images:
        raise ConfigError("no images to prepare")
    levels = [_levels(_rgb(image), preprocessing, backend) for image in images]
    return _normalise(torch.stack(levels), preprocessing)


def _rgb(image: Image.Image) -> Image.Image:
    if not isinstance(image, Image.Image):
        raise ConfigError(f"expected a PIL image, got {type(image).__name__}")
    if image.mode[0] in "IF":  # 16 bits and floating point; Pillow's own conversion clips them
        raise ConfigError(
            f"a picture of mode {image.mode} must become 8 bits before it is prepared"
        )
    return image.convert("RGB")


def _levels(image: Image.Image, preprocessing: Preprocessing, backend: Backend) -> Tensor:
    height, width = _resized(image, preprocessing)
    if backend == "torch":
        pixels = _torch_resize(_tensor(image), height, width, preprocessing.resample)
    else:
        chosen = Image.Resampling[preprocessing.resample.upper()]
        pixels = _tensor(image.resize((width, height), resample=chosen))
    return _centre(pixels, preprocessing) if preprocessing.resize == "crop" else pixels


def _resized(image: Image.Image, preprocessing: Preprocessing) -> tuple[int, int]:
    edge = preprocessing.shortest_edge
    if preprocessing.resize == "squash" or edge is None:
        return preprocessing.height, preprocessing.width
    if image.width <= image.height:
        return int(edge * image.height / image.width), edge
    return edge, int(edge * image.width / image.height)


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _torch_resize(pixels: Tensor, height: int, width: int, resample: str) -> Tensor:
    if resample not in TORCH_FILTERS:
        raise ConfigError(
            f"backend 'torch' knows the filters {', '.join(TORCH_FILTERS)}, not {resample!r}; "
            "use backend 'pil'"
        )
    return interpolate(pixels[None], (height, width), mode=resample, antialias=True)[0]


def _centre(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
    height, width = preprocessing.height, preprocessing.width
    top, left = (pixels.shape[1] - height) // 2, (pixels.shape[2] - width) // 2
    if top < 0 or left < 0:
        raise ConfigError(
            f"a crop of {height}x{width} does not fit a picture resized to "
            f"{pixels.shape[1]}x{pixels.shape[2]}; raise shortest_edge"
        )
    return pixels[:, top : top + height, left : left + width]


def _normalise(levels: Tensor, preprocessing: Preprocessing) -> Tensor:
    # A picture has 256 levels: their values are worked out once, in the order of operations of
    # the reference (float64 rescale, rounded to float32, then float32 mean and deviation).
    scale = (np.arange(LEVELS, dtype=np.float64) * preprocessing.rescale).astype(np.float32)
    mean = np.asarray(preprocessing.mean, dtype=np.float32)
    std = np.asarray(preprocessing.std, dtype=np.float32)
    tables = torch.from_numpy((scale[None] - mean[:, None]) / std[:, None])
    values = [
        table.index_select(0, channel.int().flatten()).view(channel.shape)
        for table, channel in zip(tables, levels.unbind(1), strict=True)
    ]
    return torch.stack(values, dim=1)
