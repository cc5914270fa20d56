"""The cheapest of several equal ways through PAIQ, chosen by counting multiply-adds.

Axes     B batch, n base tokens, m source tokens, c / k channels, d hidden size

Matching needs W (P x + b). Through tokens that costs d^2 per token; with W P composed first it
costs d^2 c once and c d per token. The aggregate can be formed of features and projected after,
n tokens instead of m. The rotation can act on the residuals (B n columns) or on the projections
(c + k + 2 columns), after which no token meets it.
"""

from dataclasses import dataclass

from paiq.interfaces.features import Sizes
from paiq.interfaces.rotation import SOLVE_COST


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which products are formed; every plan has the same result and the same gradients."""

    compose_queries: bool = False
    """W_d P_d first, then features; else W_d on the base tokens."""
    compose_keys: bool = False
    """W_s P_s first and aggregation of features; else the source tokens are formed."""
    rotate_weights: bool = False
    """Q on the projections; else Q on the residuals. Needs both composed."""


PLAIN = Plan()
"""The order of the paper's equations."""


def cheapest(sizes: Sizes, batch: int, *, rotates: bool) -> Plan:
    """The plan with the fewest multiply-adds of a forward; a backward has twice as many of each."""
    d, c, k = sizes.hidden_size, sizes.spatial_size, sizes.semantic_size
    base, source = batch * sizes.spatial_tokens, batch * sizes.semantic_tokens
    pairs = base * sizes.semantic_tokens
    key_tokens = source * d * (k + d) + pairs * d
    key_composed = d * (k + 1) * (d + source) + pairs * k + base * k * d
    query_tokens = base * d * d
    query_composed = d * (c + 1) * (d + base)
    compose_keys = key_composed < key_tokens
    # Rotated projections leave no base tokens to match with: those are then composed or extra.
    weights = _rotation(d, c + k + 2) + min(query_composed, query_tokens + base * c * d)
    residuals = _rotation(d, base) + base * c * d + min(query_composed, query_tokens)
    rotate_weights = rotates and compose_keys and weights + base * c * d < residuals
    return Plan(
        compose_queries=rotate_weights or query_composed < query_tokens,
        compose_keys=compose_keys,
        rotate_weights=rotate_weights,
    )


def _rotation(d: int, columns: int) -> float:
    return d * d * min(SOLVE_COST * columns, SOLVE_COST * d + columns)
