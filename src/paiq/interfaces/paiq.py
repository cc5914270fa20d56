"""PAIQ: content matching, then a rotated residual (paper sec. 3).

Axes     B batch, n base tokens, m source tokens, d hidden size
Symbols  D base, S source, Pi allocation, R residual, Q rotation, Z fused tokens
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from paiq.errors import ConfigError
from paiq.interfaces.base import Fused, Interface, Sizes


@dataclass(frozen=True, kw_only=True)
class PaiqOptions:
    """The constants of sec. 3."""

    scale: float = 0.6
    """lambda of eq. inject."""
    temperature: float = 0.05
    """epsilon: logits are -cost / temperature, eq. sinkhorn."""
    iterations: int = 5
    """L, row-then-column updates."""
    clip: float = 30.0
    """Bound of the log factors."""
    stabilizer: float = 1e-6
    """delta of eq. barycentric."""

    def __post_init__(self) -> None:
        if not 0.0 < self.scale < 1.0:
            raise ConfigError(f"scale must lie in (0, 1), got {self.scale}")


@dataclass(frozen=True)
class Trace:
    """The forward tensors, by name."""

    base: Float[Tensor, "B n d"]
    source: Float[Tensor, "B m d"]
    allocation: Float[Tensor, "B n m"]
    aggregate: Float[Tensor, "B n d"]
    rotation: Float[Tensor, "d d"]
    tokens: Float[Tensor, "B n d"]
    row_mass: Float[Tensor, "B n"]


class Paiq(Interface):
    """Patch-aligned semantic injection through a shared rotation."""

    name: ClassVar[str] = "paiq"
    equation: ClassVar[str] = "Z = D + 0.6 (Pi S - D) Q^T,  Q = (I - A/2)^-1 (I + A/2)"
    Options: ClassVar[type] = PaiqOptions
    rotates: ClassVar[bool] = True

    def __init__(self, sizes: Sizes, options: PaiqOptions) -> None:
        super().__init__(sizes, options)
        d = sizes.hidden_size
        self.spatial_projection = nn.Linear(sizes.spatial_size, d)  # P_d, b_d
        self.semantic_projection = nn.Linear(sizes.semantic_size, d)  # P_s, b_s
        self.query = nn.Linear(d, d, bias=False)  # W_d
        self.key = nn.Linear(d, d, bias=False)  # W_s
        with torch.no_grad():
            self.query.weight.copy_(torch.eye(d))
            self.key.weight.copy_(torch.eye(d))
        if self.rotates:
            self.rotation = nn.Linear(d, d, bias=False)  # W_Q
            nn.init.zeros_(self.rotation.weight)

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.spatial_tokens

    @classmethod
    def count_parameters(cls, sizes: Sizes, options: Any) -> int:
        d = sizes.hidden_size
        content = (sizes.spatial_size + sizes.semantic_size + 2) * d
        return content + (3 if cls.rotates else 2) * d * d

    def forward(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        return Fused(self.trace(spatial, semantic).tokens.to(spatial.dtype))

    def trace(self, spatial: Tensor, semantic: Tensor) -> Trace:
        self.check_features(spatial, semantic)
        D = self.spatial_projection(spatial)  # B n d
        S = self.semantic_projection(semantic)  # B m d
        queries, keys = self.query(D).float(), self.key(S).float()
        D, S = D.float(), S.float()
        C = (1 - normalize(queries, dim=-1) @ normalize(keys, dim=-1).mT).clamp(min=0)
        T = self._match(-C / self.options.temperature)  # B n m
        row_mass = T.sum(dim=2)  # B n
        Pi = T / (row_mass + self.options.stabilizer).unsqueeze(2)
        aggregate = Pi @ S  # B n d
        Q = self._rotation()  # d d
        Z = D + self.options.scale * (aggregate - D) @ Q.mT
        return Trace(D, S, Pi, aggregate, Q, Z, row_mass)

    def _match(self, K: Tensor) -> Tensor:
        clip = self.options.clip
        alpha = K.new_zeros(K.shape[:2])  # B n
        beta = K.new_zeros(K.shape[0], K.shape[2])  # B m
        for _ in range(self.options.iterations):
            alpha = -torch.logsumexp(K + beta.unsqueeze(1), dim=2).clamp(-clip, clip)
            beta = -torch.logsumexp(K + alpha.unsqueeze(2), dim=1).clamp(-clip, clip)
        return (K + alpha.unsqueeze(2) + beta.unsqueeze(1)).clamp(max=0).exp()

    def _rotation(self) -> Tensor:
        eye = torch.eye(self.sizes.hidden_size, device=self.query.weight.device)
        if not self.rotates:
            return eye
        W = self.rotation.weight.float()
        A = W - W.mT
        return torch.linalg.solve(eye - A / 2, eye + A / 2)


class Pai(Paiq):
    """PAIQ with Q fixed to the identity: direct interpolation."""

    name: ClassVar[str] = "pai"
    equation: ClassVar[str] = "Z = D + 0.6 (Pi S - D)"
    rotates: ClassVar[bool] = False
