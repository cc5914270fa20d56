"""What the forward tensors of one fixed model show (paper, Aggregation and residual diagnostics).

Axes     B batch, n base tokens, m source tokens
Symbols  Pi allocation, H concentration, rho relative update, R(B) fixed-answer sensitivity

They describe how a representation is built, not why an answer was given.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from paiq.errors import ConfigError

ENTROPY_STABILIZER = 1e-12
"""delta_H of eq. provenance_entropy; the paper asks only that it is positive."""


class Traced(Protocol):
    """The forward tensors that the diagnostics read."""

    @property
    def base(self) -> Tensor: ...
    @property
    def allocation(self) -> Tensor: ...
    @property
    def tokens(self) -> Tensor: ...


def concentration(trace: Traced, stabilizer: float = ENTROPY_STABILIZER) -> Float[Tensor, "B n"]:
    """H(pi_j) = -sum_i pi_ji log(pi_ji + delta_H), eq. provenance_entropy.

    Rows sum to a little less than one and the logarithm is stabilised, so this is a
    concentration statistic and no exact entropy.
    """
    if not stabilizer > 0:
        raise ConfigError(f"the stabilizer must be positive, got {stabilizer}")
    pi = trace.allocation.double()
    return -(pi * (pi + stabilizer).log()).sum(dim=2)


def relative_update(trace: Traced) -> Float[Tensor, "B n"]:
    """rho_j = |z_j - d_j| / |d_j|, eq. rho; NaN where the base norm is zero, never a number."""
    base = trace.base.double()
    norm = base.norm(dim=2)
    rho = (trace.tokens.double() - base).norm(dim=2) / norm
    return rho.masked_fill(norm == 0, torch.nan)


def as_grid(values: Float[Tensor, "B n"]) -> Float[Tensor, "B side side"]:
    """The same values on the square grid of output positions."""
    side = round(values.shape[1] ** 0.5)
    if side * side != values.shape[1]:
        raise ConfigError(f"{values.shape[1]} positions form no square grid")
    return values.unflatten(1, (side, side))


def answer_sensitivity(
    trace: Traced, log_likelihood: Callable[[Tensor], Tensor], block: int = 2
) -> Float[Tensor, "B rows columns"]:
    """R(B) = log p(y | Z) - log p(y | Z^(-B)) for each part B of the grid, eq. reliance.

    `log_likelihood` maps visual tokens (B n d) to the summed log-likelihoods (B) of the fixed
    answers under teacher forcing. Inside a part, `block` positions high and wide, the tokens are
    restored to their bases; all else stays. Positive: without the part's updates the answer is
    less likely. Where the side does not divide by `block`, the last parts are smaller, so that
    every position lies in exactly one.
    """
    side = as_grid(trace.base[..., 0]).shape[1]
    if not 1 <= block <= side:
        raise ConfigError(f"block must lie in [1, {side}], got {block}")
    with torch.no_grad():
        whole = log_likelihood(trace.tokens).double()
        drops = [
            whole - log_likelihood(_restored(trace, side, block, part)).double()
            for part in range((-(-side // block)) ** 2)
        ]
    return as_grid(torch.stack(drops, dim=1))


def _restored(trace: Traced, side: int, block: int, part: int) -> Float[Tensor, "B n d"]:
    row, column = divmod(part, -(-side // block))
    inside = torch.zeros(side, side, dtype=torch.bool, device=trace.base.device)
    inside[row * block : (row + 1) * block, column * block : (column + 1) * block] = True
    return torch.where(inside.flatten()[:, None], trace.base, trace.tokens)
