"""The linear maps of PAIQ, applied in the paper's order or composed first.

Axes     B batch, n base tokens, m source tokens, c / k channels, d hidden size
Symbols  X / Y features, D base, S source, Q rotation, P_d b_d P_s b_s projections,
         W_d W_s matching maps
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from paiq.interfaces.matching import Reading
from paiq.interfaces.precision import full_precision


@dataclass(frozen=True)
class Maps:
    """The linear maps of PAIQ as tensors of one dtype."""

    P_d: Float[Tensor, "d c"]
    b_d: Float[Tensor, "d"]
    P_s: Float[Tensor, "d k"]
    b_s: Float[Tensor, "d"]
    W_d: Float[Tensor, "d d"]
    W_s: Float[Tensor, "d d"]

    @property
    def dtype(self) -> torch.dtype:
        return self.P_d.dtype

    def base(self, X: Float[Tensor, "B n c"]) -> Float[Tensor, "B n d"]:
        """D, eq. content_project, out of reach of autocast."""
        with full_precision(X):
            return linear(X, self.P_d, self.b_d)

    def source(self, Y: Float[Tensor, "B m k"]) -> Float[Tensor, "B m d"]:
        """S, likewise."""
        with full_precision(Y):
            return linear(Y, self.P_s, self.b_s)

    def queries(self, D: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        return linear(D, self.W_d)

    def keys(self, S: Float[Tensor, "B m d"]) -> Float[Tensor, "B m d"]:
        return linear(S, self.W_s)

    def composed_queries(self, X: Float[Tensor, "B n c"]) -> Float[Tensor, "B n d"]:
        """The queries without D: weights are multiplied once, tokens never meet d x d."""
        return linear(X, self.W_d @ self.P_d, self.W_d @ self.b_d)

    def composed_keys(self, Y: Float[Tensor, "B m k"]) -> Float[Tensor, "B m d"]:
        return linear(Y, self.W_s @ self.P_s, self.W_s @ self.b_s)

    def project_aggregate(self, reading: Reading) -> Float[Tensor, "B n d"]:
        """Pi S out of Pi Y: the bias counts as often as Pi covers."""
        projected = linear(reading.aggregate, self.P_s)
        return torch.addcmul(projected, reading.coverage.unsqueeze(2), self.b_s)


def direct_interpolation(maps: Maps, Q: Float[Tensor, "d d"], scale: float) -> Maps:
    """Maps with which Q = I gives the same outputs, eq. fold_parameters."""
    eye = torch.eye(len(Q), dtype=Q.dtype, device=Q.device)
    B_d = (eye - scale * Q) / (1 - scale)
    return Maps(
        P_d=B_d @ maps.P_d,
        b_d=B_d @ maps.b_d,
        P_s=Q @ maps.P_s,
        b_s=Q @ maps.b_s,
        W_d=torch.linalg.solve(B_d, maps.W_d, left=False),
        W_s=maps.W_s @ Q.mT,
    )


@dataclass(frozen=True)
class Rotated:
    """How the residual is turned and scaled."""

    columns: Callable[[Tensor], Tensor]
    """Multiplies columns by Q."""
    scale: float
    """lambda."""
