"""Both encoders side by side: spatial tokens, then semantic tokens."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paiq.interfaces.base import Fused, Interface, Sizes, Trace, affine


class Concat(Interface):
    """Two affine projections, one sequence after the other (772 tokens in the paper)."""

    name: ClassVar[str] = "concat"
    equation: ClassVar[str] = "Z = [X_d P_d^T + 1 b_d^T ; X_s P_s^T + 1 b_s^T]"

    def __init__(self, sizes: Sizes, options: Any) -> None:
        super().__init__(sizes, options)
        self.spatial_projection = nn.Linear(sizes.spatial_size, sizes.hidden_size)  # P_d, b_d
        self.semantic_projection = nn.Linear(sizes.semantic_size, sizes.hidden_size)  # P_s, b_s

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.spatial_tokens + sizes.semantic_tokens

    @classmethod
    def parameter_groups(cls, sizes: Sizes, options: Any) -> dict[str, int]:
        widths = sizes.spatial_size + sizes.semantic_size
        return {"content maps": (widths + 2) * sizes.hidden_size}

    def fuse(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        D, S = affine(self.spatial_projection, spatial), affine(self.semantic_projection, semantic)
        return Fused(torch.cat([D, S], dim=1).to(spatial.dtype))

    def trace(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Trace:
        tokens = self(spatial, semantic).tokens
        base, source = tokens.split([self.sizes.spatial_tokens, self.sizes.semantic_tokens], dim=1)
        return Trace(tokens=tokens, base=base, source=source)
