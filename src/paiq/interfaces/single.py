"""One encoder, one projection: the matched single-encoder baselines (paper, app. C.1)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from paiq.errors import ConfigError
from paiq.interfaces.base import Fused, Interface, Sizes, Trace, affine

Head = Literal["affine", "mlp"]


@dataclass(frozen=True, kw_only=True)
class SingleOptions:
    """How one stream is projected."""

    head: Head = "affine"
    """`affine`, or `mlp` for two layers with a GELU between."""

    def __post_init__(self) -> None:
        if self.head not in ("affine", "mlp"):
            raise ConfigError(f"head must be 'affine' or 'mlp', got {self.head!r}")


class Single(Interface):
    """One stream through an affine map, or through two of them around an exact GELU."""

    Options: ClassVar[type] = SingleOptions

    def __init__(self, sizes: Sizes, options: SingleOptions) -> None:
        super().__init__(sizes, options)
        d = sizes.hidden_size
        first = nn.Linear(self.width_of(sizes), d)
        self.projection: nn.Linear | nn.Sequential = first
        if options.head == "mlp":
            self.projection = nn.Sequential(first, nn.GELU(), nn.Linear(d, d))

    @staticmethod
    def width_of(sizes: Sizes) -> int:
        """Channels of the stream that is read."""
        return sizes.spatial_size

    @classmethod
    def parameter_groups(cls, sizes: Sizes, options: Any) -> dict[str, int]:
        d = sizes.hidden_size
        groups = {"projection": (cls.width_of(sizes) + 1) * d}
        return groups | ({"second layer": (d + 1) * d} if options.head == "mlp" else {})

    def project(self, features: Tensor) -> Tensor:
        result = features
        head = self.projection
        for layer in head if isinstance(head, nn.Sequential) else [head]:
            result = affine(layer, result) if isinstance(layer, nn.Linear) else layer(result)
        return result.to(features.dtype)


class Spatial(Single):
    """The spatial stream alone."""

    name: ClassVar[str] = "spatial"
    equation: ClassVar[str] = "Z = X_d P_d^T + 1 b_d^T"

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.spatial_tokens

    def fuse(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        return Fused(self.project(spatial))

    def trace(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Trace:
        tokens = self(spatial, semantic).tokens
        return Trace(tokens=tokens, base=tokens)


class Semantic(Single):
    """The semantic stream alone."""

    name: ClassVar[str] = "semantic"
    equation: ClassVar[str] = "Z = X_s P_s^T + 1 b_s^T"

    @staticmethod
    def width_of(sizes: Sizes) -> int:
        return sizes.semantic_size

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.semantic_tokens

    def fuse(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        return Fused(self.project(semantic))

    def trace(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Trace:
        tokens = self(spatial, semantic).tokens
        return Trace(tokens=tokens, source=tokens)
