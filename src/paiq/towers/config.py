"""Which frozen encoder a stream uses, and how its pictures are prepared."""

from dataclasses import dataclass
from typing import Literal

from paiq.errors import ConfigError

Layer = Literal["last", "pre_norm"]
Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """From an RGB picture to a tower's input; what is None in a `TowerConfig` comes from here."""

    height: int
    width: int
    resize: Literal["squash", "crop"] = "squash"
    """`squash` to (height, width), or the shorter edge to `shortest_edge` and a centre crop."""
    shortest_edge: int | None = None
    resample: Filter = "bicubic"
    rescale: float = 1 / 255
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if self.resize == "crop" and not self.shortest_edge:
            raise ConfigError("a centre crop needs shortest_edge, the length before the crop")
        if min(self.height, self.width) < 1 or min(self.std) <= 0:
            raise ConfigError(f"sizes and standard deviations must be positive, got {self}")


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """One frozen vision encoder. Only `name` is needed; the rest is read from its folder."""

    name: str
    """A hub name, or a local folder in transformers' format."""
    revision: str | None = None
    """Commit, tag or branch on the hub; a local folder has none."""
    layer: Layer = "last"
    """`last` is the library's final output; `pre_norm` the same before the last norm."""
    image_size: int | None = None
    """Another square input size, where the encoder allows it."""
    skip_tokens: int | None = None
    """Leading tokens to drop (CLS, registers) for kinds of encoders this package does not know."""
    resample: Filter | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a tower needs a name: a hub name or a local folder")
        if self.image_size is not None and self.image_size < 1:
            raise ConfigError(f"image_size must be positive, got {self.image_size}")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which part of an encoder's output is the features."""

    layer: Layer
    skip_tokens: int
    num_tokens: int
    image_size: int
