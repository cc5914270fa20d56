"""PAIQ: content matching, then a rotated residual (paper sec. 3).

Axes     B batch, n base tokens, m source tokens, c / k channels, d hidden size
Symbols  X / Y features, D base, S source, Pi allocation, Q rotation, Z fused tokens,
         P_d b_d P_s b_s projections, W_d W_s matching maps
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from paiq.errors import ConfigError
from paiq.interfaces.base import Fused, Interface, Sizes, Trace
from paiq.interfaces.folding import Folded
from paiq.interfaces.maps import Maps, Rotated, direct_interpolation
from paiq.interfaces.matching import MatchingRule, Reading, cosines, read
from paiq.interfaces.plan import Plan, cheapest
from paiq.interfaces.precision import full_precision, working_dtype
from paiq.interfaces.rotation import Rotation


@dataclass(frozen=True, kw_only=True)
class PaiqOptions(MatchingRule):
    """The constants of sec. 3."""

    scale: float = 0.6
    """lambda of eq. inject."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.scale < 1.0:
            raise ConfigError(f"scale must lie in (0, 1), got {self.scale}")


CONTENT = "D = X_d P_d^T + 1 b_d^T,   S = X_s P_s^T + 1 b_s^T"
MATCHING = (
    "C_ji = [1 - norm(W_d d_j) . norm(W_s s_i)]_+,   K = -C / temperature",
    "from beta = 0, iterations times:   alpha_j = clip(-LSE_i(K_ji + beta_i))",
    "                                  beta_i = clip(-LSE_j(K_ji + alpha_j))",
    "T = exp(min(K + alpha + beta, 0)),   Pi_ji = T_ji / (sum_i T_ji + stabilizer)",
)


class Paiq(Interface):
    """Patch-aligned semantic injection through a shared rotation."""

    name: ClassVar[str] = "paiq"
    equation: ClassVar[str] = "Z = D + 0.6 (Pi S - D) Q^T,  Q = (I - A/2)^-1 (I + A/2)"
    equations: ClassVar[tuple[str, ...]] = (
        CONTENT,
        *MATCHING,
        "A = W_Q - W_Q^T,   Q = (I - A/2)^-1 (I + A/2)",
        "Z = D + scale (Pi S - D) Q^T",
    )
    Options: ClassVar[type] = PaiqOptions
    rotates: ClassVar[bool] = True

    def __init__(self, sizes: Sizes, options: PaiqOptions) -> None:
        super().__init__(sizes, options)
        d = sizes.hidden_size
        self.spatial_projection = nn.Linear(sizes.spatial_size, d)  # P_d, b_d
        self.semantic_projection = nn.Linear(sizes.semantic_size, d)  # P_s, b_s
        self.query = nn.Linear(d, d, bias=False)  # W_d
        self.key = nn.Linear(d, d, bias=False)  # W_s
        nn.init.eye_(self.query.weight)
        nn.init.eye_(self.key.weight)
        if self.rotates:
            self.rotation = Rotation(d)  # W_Q

    @classmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        return sizes.spatial_tokens

    @classmethod
    def parameter_groups(cls, sizes: Sizes, options: Any) -> dict[str, int]:
        d = sizes.hidden_size
        groups = {
            "content maps": (sizes.spatial_size + sizes.semantic_size + 2) * d,
            "matching maps": 2 * d * d,
        }
        return groups | ({"rotation": d * d} if cls.rotates else {})

    def fuse(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        plan = cheapest(self.sizes, len(spatial), rotates=self.rotates)
        return Fused(self.tokens(spatial, semantic, plan).to(spatial.dtype))

    def tokens(self, spatial: Tensor, semantic: Tensor, plan: Plan) -> Float[Tensor, "B n d"]:
        """Z by that plan, in the working precision; all plans agree to rounding."""
        maps = self.maps(working_dtype(spatial, self.query.weight))
        X, Y = spatial.to(maps.dtype), semantic.to(maps.dtype)
        D = None if plan.rotate_weights else maps.base(X)
        S = None if plan.compose_keys else maps.source(Y)
        # Only the matching maps may run in an outer autocast's precision (app. B.1).
        queries = maps.composed_queries(X) if plan.compose_queries or D is None else maps.queries(D)
        keys = maps.composed_keys(Y) if S is None else maps.keys(S)
        with full_precision(X):
            reading = read(cosines(queries, keys), Y if S is None else S, self.options)
            if D is None:
                return self._by_rotated_weights(X, reading, maps)
            aggregate = maps.project_aggregate(reading) if S is None else reading.aggregate
            return torch.add(D, self._rotated(aggregate - D), alpha=self.options.scale)

    def trace(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Trace:
        self.check_features(spatial, semantic)
        maps = self.maps(working_dtype(spatial, self.query.weight))
        D, S = maps.base(spatial.to(maps.dtype)), maps.source(semantic.to(maps.dtype))
        queries, keys = maps.queries(D), maps.keys(S)
        with full_precision(D):
            reading = read(cosines(queries, keys), S, self.options)
            Z = torch.add(D, self._rotated(reading.aggregate - D), alpha=self.options.scale)
        return Trace(
            tokens=Z.to(spatial.dtype),
            base=D,
            source=S,
            allocation=reading.allocation,
            aggregate=reading.aggregate,
            rotation=self.rotation_matrix(maps.dtype),
            row_mass=reading.row_mass,
            orthogonality_error=self._orthogonality_error(maps.dtype),
        )

    def maps(self, dtype: torch.dtype) -> Maps:
        """The linear maps in that precision; the parameters themselves where they have it."""
        return Maps(
            P_d=self.spatial_projection.weight.to(dtype),
            b_d=self.spatial_projection.bias.to(dtype),
            P_s=self.semantic_projection.weight.to(dtype),
            b_s=self.semantic_projection.bias.to(dtype),
            W_d=self.query.weight.to(dtype),
            W_s=self.key.weight.to(dtype),
        )

    def rotation_matrix(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "d d"]:
        """Q, without gradients."""
        if self.rotates:
            return self.rotation.matrix(dtype)
        weight = self.query.weight
        return torch.eye(len(weight), dtype=working_dtype(weight), device=weight.device).to(dtype)

    def _orthogonality_error(self, dtype: torch.dtype) -> float:
        return self.rotation.orthogonality_error(dtype) if self.rotates else 0.0

    @torch.no_grad()
    def fold(self) -> Folded:
        """The same function for inference, frozen at the present weights; see `folding`."""
        dtype = working_dtype(self.query.weight)
        rotated = Rotated(self._rotate, self.options.scale)
        return Folded.of(self.sizes, self.options, self.maps(torch.float64), rotated).to(dtype)

    @torch.no_grad()
    def as_direct_interpolation(self) -> "Pai":
        """A `pai` with other weights and the same outputs (app. A.4, lemma equivalence)."""
        maps = direct_interpolation(
            self.maps(torch.float64), self.rotation_matrix(torch.float64), self.options.scale
        )
        result = Pai(self.sizes, self.options).to(self.query.weight.device, self.query.weight.dtype)
        result.spatial_projection.weight.copy_(maps.P_d)
        result.spatial_projection.bias.copy_(maps.b_d)
        result.semantic_projection.weight.copy_(maps.P_s)
        result.semantic_projection.bias.copy_(maps.b_s)
        result.query.weight.copy_(maps.W_d)
        result.key.weight.copy_(maps.W_s)
        return result.train(self.training)

    def _rotate(self, columns: Float[Tensor, "d r"]) -> Float[Tensor, "d r"]:
        return self.rotation(columns) if self.rotates else columns

    def _rotated(self, residuals: Float[Tensor, "B n d"]) -> Float[Tensor, "B n d"]:
        if not self.rotates:
            return residuals
        return self._rotate(residuals.flatten(0, 1).mT).mT.view_as(residuals)

    def _by_rotated_weights(
        self, X: Float[Tensor, "B n c"], reading: Reading, maps: Maps
    ) -> Float[Tensor, "B n d"]:
        """Z = x' (H_d - lambda Q H_d)^T + lambda (Pi y') (Q H_s)^T with H = [P b], x' = [x 1]."""
        scale, c = self.options.scale, maps.P_d.shape[1] + 1
        H = torch.cat(
            [maps.P_d, maps.b_d.unsqueeze(1), maps.P_s, maps.b_s.unsqueeze(1)], dim=1
        )  # d c+k+2
        QH = self._rotate(H)
        base, source = torch.sub(H[:, :c], QH[:, :c], alpha=scale), scale * QH[:, c:]
        Z = linear(X, base[:, :-1], base[:, -1]) + linear(reading.aggregate, source[:, :-1])
        return torch.addcmul(Z, reading.coverage.unsqueeze(2), source[:, -1])


class Pai(Paiq):
    """PAIQ with Q fixed to the identity: direct interpolation."""

    name: ClassVar[str] = "pai"
    equation: ClassVar[str] = "Z = D + 0.6 (Pi S - D)"
    equations: ClassVar[tuple[str, ...]] = (CONTENT, *MATCHING, "Z = D + scale (Pi S - D)")
    rotates: ClassVar[bool] = False
