"""Both encoders side by side: spatial tokens, then semantic tokens."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paiq.interfaces.base import Fused, Interface, Sizes


class Concat(Interface):
    """Two affine projections, one sequence after the other (772 tokens in the paper)."""

    name: ClassVar[str] = "concat"
    equation: ClassVar[str] = "Z = [X_d P_d^T + 1 b_d^T ; X_s P_s^T + 1 b_s^T]"

    def __init__(self, sizes: Sizes, options: Any) -> None:
        super().__init__(sizes, options)
        self.spatial_projection = nn.Linear(sizes.spatial_size, sizes.hidden_size)
        self.semantic_projection = nn.Linear(sizes.semantic_size, sizes.hidden_size)

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.spatial_tokens + sizes.semantic_tokens

    @classmethod
    def count_parameters(cls, sizes: Sizes, options: Any) -> int:
        return (sizes.spatial_size + sizes.semantic_size + 2) * sizes.hidden_size

    def forward(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        self.check_features(spatial, semantic)
        both = self.spatial_projection(spatial), self.semantic_projection(semantic)
        return Fused(torch.cat(both, dim=1))
