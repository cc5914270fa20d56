"""One encoder, one projection: the matched single-encoder baselines (paper, app. C.1)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from paiq.interfaces.base import Fused, Interface, Sizes

Head = Literal["affine", "mlp"]


def head_of(kind: Head, width: int, hidden_size: int) -> nn.Module:
    """An affine map, or two of them around an exact GELU (the LLaVA-1.5 projector)."""
    if kind == "affine":
        return nn.Linear(width, hidden_size)
    return nn.Sequential(
        nn.Linear(width, hidden_size), nn.GELU(), nn.Linear(hidden_size, hidden_size)
    )


def head_parameters(kind: Head, width: int, hidden_size: int) -> int:
    affine = (width + 1) * hidden_size
    return affine if kind == "affine" else affine + (hidden_size + 1) * hidden_size


@dataclass(frozen=True, kw_only=True)
class SingleOptions:
    head: Head = "affine"
    """`affine`, or `mlp` for two layers with a GELU between."""


class Spatial(Interface):
    """The spatial stream alone."""

    name: ClassVar[str] = "spatial"
    equation: ClassVar[str] = "Z = X_d P_d^T + 1 b_d^T"
    Options: ClassVar[type] = SingleOptions

    def __init__(self, sizes: Sizes, options: SingleOptions) -> None:
        super().__init__(sizes, options)
        self.projection = head_of(options.head, sizes.spatial_size, sizes.hidden_size)

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.spatial_tokens

    @classmethod
    def count_parameters(cls, sizes: Sizes, options: Any) -> int:
        return head_parameters(options.head, sizes.spatial_size, sizes.hidden_size)

    def forward(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        self.check_features(spatial, semantic)
        return Fused(self.projection(spatial))


class Semantic(Interface):
    """The semantic stream alone."""

    name: ClassVar[str] = "semantic"
    equation: ClassVar[str] = "Z = X_s P_s^T + 1 b_s^T"
    Options: ClassVar[type] = SingleOptions

    def __init__(self, sizes: Sizes, options: SingleOptions) -> None:
        super().__init__(sizes, options)
        self.projection = head_of(options.head, sizes.semantic_size, sizes.hidden_size)

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.semantic_tokens

    @classmethod
    def count_parameters(cls, sizes: Sizes, options: Any) -> int:
        return head_parameters(options.head, sizes.semantic_size, sizes.hidden_size)

    def forward(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        self.check_features(spatial, semantic)
        return Fused(self.projection(semantic))
