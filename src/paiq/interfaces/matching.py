"""Content matching: cosine cost, coupled normalisation, aggregation (paper sec. 3.2).

Axes     B batch, n base tokens, m source tokens, r width of queries and keys, k of the features
Symbols  C cost, K = -C / epsilon logits, E = exp K, alpha / beta log row / column factors,
         u = exp alpha, v = exp beta, T coupled weights, q row mass, Pi allocation

Two forms of the same iteration. `LogForm` is the paper's loop. `ExpForm` runs it as matrix-vector
products on E, which stays inside the floating range while 2 / epsilon and the clip are small
enough; its backward needs E and the factors of each iteration, never a tape of the loop.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from paiq.errors import ConfigError
from paiq.interfaces.precision import full_precision, refuse_second_order, working_dtype

NORM_FLOOR = 1e-12  # norm(a) = a / max(|a|, floor), eq. cost


@dataclass(frozen=True, kw_only=True)
class MatchingRule:
    """The constants of sec. 3.2."""

    temperature: float = 0.05
    """epsilon: logits are -cost / temperature, eq. sinkhorn."""
    iterations: int = 5
    """L, row-then-column updates; 0 is an independent row softmax."""
    clip: float = 30.0
    """Bound of the log factors."""
    stabilizer: float = 1e-6
    """delta of eq. barycentric."""

    def __post_init__(self) -> None:
        positive = {"temperature": self.temperature, "clip": self.clip}
        for name, value in positive.items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be a positive number, got {value}")
        if self.iterations < 0:
            raise ConfigError(f"iterations must be 0 or more, got {self.iterations}")
        if not (math.isfinite(self.stabilizer) and self.stabilizer >= 0):
            raise ConfigError(f"stabilizer must be 0 or more, got {self.stabilizer}")


class Reading(NamedTuple):
    """What the base tokens read from the source. Gradients flow through the first two."""

    aggregate: Float[Tensor, "B n k"]
    """Pi times the features."""
    coverage: Float[Tensor, "B n"]
    """Row sums of Pi, q / (q + delta): just below one (eq. row_mass)."""
    allocation: Float[Tensor, "B n m"]
    """Pi, eq. barycentric."""
    row_mass: Float[Tensor, "B n"]
    """q, row sums of T."""


def cosines(
    queries: Float[Tensor, "B n r"], keys: Float[Tensor, "B m r"]
) -> Float[Tensor, "B n m"]:
    """Cosines of all pairs, near-zero vectors protected: 1 - C before the clamp of eq. cost."""
    dtype = working_dtype(queries, keys)
    with full_precision(queries):
        result: Tensor = _Cosines.apply(queries.to(dtype), keys.to(dtype))
        return result


def read(
    similarity: Float[Tensor, "B n m"], features: Float[Tensor, "B m k"], rule: MatchingRule
) -> Reading:
    """Features aggregated by the coupled allocation, eqs. sinkhorn and barycentric.

    Never below float32, whatever the autocast state; float64 stays float64.
    """
    dtype = working_dtype(similarity, features)
    with full_precision(similarity):
        form = ExpForm if exponentials_are_safe(rule, similarity.shape, dtype) else LogForm
        return form.read(similarity.to(dtype), features.to(dtype), rule)


def exponentials_are_safe(rule: MatchingRule, shape: torch.Size, dtype: torch.dtype) -> bool:
    """Whether no sum, reciprocal or product of `ExpForm` can leave the normal range.

    E lies in [exp(-2/epsilon), 1] and factors in exp(+-clip): row and column sums lie in
    exp(-2/epsilon - clip) .. max(n, m) exp(clip), and u v below exp(2 clip).
    """
    tokens = max(*shape[1:], 1)
    smallest = -2.0 / rule.temperature - rule.clip
    largest = max(rule.clip + math.log(tokens), 2 * rule.clip)
    limits = torch.finfo(dtype)
    margin = 2.0  # rounding of cosines, and room for the weights of the backward
    return smallest - margin > math.log(limits.tiny) and largest + margin < math.log(limits.max)


class LogForm:
    """The paper's loop in the log domain; safe for any temperature, differentiable by tape."""

    @staticmethod
    def read(similarity: Tensor, features: Tensor, rule: MatchingRule) -> Reading:
        K = -(1 - similarity).clamp(min=0) / rule.temperature
        alpha, beta = LogForm.factors(K, rule)
        exponent = K + alpha.unsqueeze(2) + beta.unsqueeze(1)
        T = (exponent - exponent.detach().clamp(min=0)).exp()  # min(., 0), see _Read
        q = T.sum(dim=2)  # B n
        Pi = T / (q + rule.stabilizer).unsqueeze(2)
        return Reading(Pi @ features, Pi.sum(dim=2), Pi, q)

    @staticmethod
    def factors(
        K: Float[Tensor, "B n m"], rule: MatchingRule
    ) -> tuple[Float[Tensor, "B n"], Float[Tensor, "B m"]]:
        """alpha and beta after all iterations, rows before columns (eq. sinkhorn)."""
        alpha = K.new_zeros(K.shape[:2])  # B n
        beta = K.new_zeros(K.shape[0], K.shape[2])  # B m
        for _ in range(rule.iterations):
            alpha = (-torch.logsumexp(K + beta.unsqueeze(1), dim=2)).clamp(-rule.clip, rule.clip)
            beta = (-torch.logsumexp(K + alpha.unsqueeze(2), dim=1)).clamp(-rule.clip, rule.clip)
        return alpha, beta


class ExpForm:
    """The same iteration as products with E, each clip an exact clip of the factor."""

    @staticmethod
    def read(similarity: Tensor, features: Tensor, rule: MatchingRule) -> Reading:
        return Reading(*_Read.apply(similarity, features, rule))

    @staticmethod
    def kernel(similarity: Tensor, temperature: float) -> Tensor:
        """E = exp(-[1 - cos]_+ / epsilon)."""
        return ((similarity - 1) / temperature).clamp_(max=0).exp_()

    @staticmethod
    def factors(E: Tensor, rule: MatchingRule) -> tuple[list[Tensor], list[Tensor]]:
        """u of iterations 1..L (each B n), v of iterations 0..L (each B m)."""
        low, high = math.exp(-rule.clip), math.exp(rule.clip)
        rows: list[Tensor] = []
        columns = [E.new_ones(E.shape[0], E.shape[2])]
        for _ in range(rule.iterations):
            rows.append(_times(E, columns[-1]).reciprocal_().clamp_(low, high))
            columns.append(_times(E.mT, rows[-1]).reciprocal_().clamp_(low, high))
        return rows, columns

    @staticmethod
    def couple(E: Tensor, rows: list[Tensor], v: Tensor) -> Tensor:
        """min(u E v, 1) before the min: the small side first, so that nothing overflows."""
        T = E * v.unsqueeze(1)
        return T.mul_(rows[-1].unsqueeze(2)) if rows else T


class _Cosines(torch.autograd.Function):
    """Products first, scaled by the norms after: nothing as wide as a token is kept twice."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor) -> Tensor:
        query_norms = torch.linalg.vector_norm(queries, dim=2).clamp_(min=NORM_FLOOR)  # B n
        key_norms = torch.linalg.vector_norm(keys, dim=2).clamp_(min=NORM_FLOOR)  # B m
        ctx.save_for_backward(queries, keys, query_norms, key_norms)
        unit = queries / query_norms.unsqueeze(2)
        return torch.bmm(unit, keys.mT).div_(key_norms.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        refuse_second_order("matching")
        queries, keys, query_norms, key_norms = ctx.saved_tensors
        with full_precision(queries):
            G = gradients[0] / query_norms.unsqueeze(2)
            G.div_(key_norms.unsqueeze(1))
            to_queries, to_keys = torch.bmm(G, keys), torch.bmm(G.mT, queries)
            _remove_radial(to_queries, queries, query_norms)
            _remove_radial(to_keys, keys, key_norms)
        return to_queries, to_keys


def _remove_radial(gradient: Tensor, vectors: Tensor, norms: Tensor) -> None:
    # A vector longer than the floor has unit length after norm(.): its own direction is lost.
    radial = _row_products(gradient, vectors) / norms.square()
    radial.masked_fill_(norms <= NORM_FLOOR, 0)
    gradient.addcmul_(radial.unsqueeze(2), vectors, value=-1)


class _Read(torch.autograd.Function):
    """`ExpForm` with its backward: E and the factors are all it keeps.

    With H = dL/d log T, the gradient of K is H - E * (sum of 2 L outer products), one pair
    (u_t, v_t dbeta_t), (u_t dalpha_t, v_(t-1)) per iteration. Three n x m matrices live at once.

    min(., 0) of eq. barycentric passes its gradient everywhere: K <= 0 and the column update in
    the end leave log T <= 0, so that only rounding is ever cut, and gradients of a column with one
    dominant row cancel as they must.
    """

    @staticmethod
    def forward(
        ctx: Any, similarity: Tensor, features: Tensor, rule: MatchingRule
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        E = ExpForm.kernel(similarity, rule.temperature)
        rows, columns = ExpForm.factors(E, rule)
        Pi = ExpForm.couple(E, rows, columns[-1]).clamp_(max=1)
        q = Pi.sum(dim=2)
        Pi.div_((q + rule.stabilizer).unsqueeze(2))
        coverage = q / (q + rule.stabilizer)
        ctx.rule = rule
        ctx.save_for_backward(features, E, *rows, *columns)
        ctx.mark_non_differentiable(Pi, q)
        ctx.set_materialize_grads(False)
        return torch.bmm(Pi, features), coverage, Pi, q

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        refuse_second_order("matching")
        features, E, *factors = ctx.saved_tensors
        L = ctx.rule.iterations
        rows, columns = factors[:L], factors[L:]
        to_aggregate, to_coverage = gradients[:2]
        with full_precision(E):
            G = _to_allocation(to_aggregate, to_coverage, features, E)
            T = ExpForm.couple(E, rows, columns[-1])
            to_features = None
            if ctx.needs_input_grad[1] and to_aggregate is not None:
                mass = T.clamp(max=1).sum(dim=2, keepdim=True) + ctx.rule.stabilizer
                to_features = torch.bmm(T.clamp(max=1).mT, to_aggregate / mass)
            if not ctx.needs_input_grad[0]:
                return None, to_features, None
            _through_conditioning(G, T, ctx.rule.stabilizer)
            left, right = _through_iterations(G, E, rows, columns, ctx.rule.clip)
            if L:
                torch.bmm(left, right.mT, out=T)
                G.sub_(T.mul_(E))
            G.masked_fill_(E >= 1, 0)  # [1 - cos]_+ and rounding cosines above one
            return G.div_(ctx.rule.temperature), to_features, None


def _to_allocation(
    to_aggregate: Tensor | None, to_coverage: Tensor | None, features: Tensor, E: Tensor
) -> Tensor:
    G = torch.zeros_like(E) if to_aggregate is None else torch.bmm(to_aggregate, features.mT)
    return G if to_coverage is None else G.add_(to_coverage.unsqueeze(2))


def _through_conditioning(G: Tensor, T: Tensor, stabilizer: float) -> None:
    """dL/dPi becomes dL/d log T, in place: Pi = T / (q + delta), T = min(T', 1)."""
    T.clamp_(max=1)
    mass = T.sum(dim=2, keepdim=True) + stabilizer
    G.mul_(T)
    shift = -G.sum(dim=2, keepdim=True) / mass
    G.addcmul_(T, shift).div_(mass)


def _through_iterations(
    H: Tensor, E: Tensor, rows: list[Tensor], columns: list[Tensor], clip: float
) -> tuple[Tensor, Tensor]:
    """The outer products of the unrolled loop: left (B n 2L) and right (B m 2L)."""
    to_alpha, to_beta = H.sum(dim=2), H.sum(dim=1)
    left: list[Tensor] = []
    right: list[Tensor] = []
    for t in reversed(range(len(rows))):
        u, v, v_before = rows[t], columns[t + 1], columns[t]
        weighted = _inside(to_beta, v, clip) * v
        left.append(u)
        right.append(weighted)
        to_alpha = _inside(to_alpha - u * _times(E, weighted), u, clip)
        left.append(to_alpha * u)
        right.append(v_before)
        to_beta = -v_before * _times(E.mT, left[-1])
        to_alpha = torch.zeros_like(to_alpha)
    if not left:
        return H.new_empty(0), H.new_empty(0)
    return torch.stack(left, dim=2), torch.stack(right, dim=2)


def _inside(gradient: Tensor, factor: Tensor, clip: float) -> Tensor:
    # The clip passes no gradient where it holds the factor.
    held = (factor <= math.exp(-clip)) | (factor >= math.exp(clip))
    return gradient.masked_fill(held, 0)


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    # A row vector times the transpose: many times faster on CPU than the column form.
    return torch.bmm(vector.unsqueeze(1), matrix.mT).squeeze(1)


def _row_products(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b, dim=2)
