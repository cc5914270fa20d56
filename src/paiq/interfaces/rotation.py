"""The shared rotation: a Cayley transform that is factorised once per weight (paper sec. 3.3).

Axes     d hidden size, r right-hand sides
Symbols  A = W - W^T, M = I - A/2, Q = M^-1 (I + A/2) = 2 M^-1 - I

Q b is 2 M^-1 b - b: one solve with the factors of M, without a product by I + A/2. The backward
needs M^-1 and M^-T again and reuses the factors; they serve all images, micro-batches and eval
calls until the weight changes.
"""

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from paiq.interfaces.precision import full_precision, refuse_second_order, working_dtype

RESIDUAL_LIMIT = 16.0  # in units of rounding, what LU leaves behind too
SOLVE_COST = 2.0  # a triangular solve against a product of as many operations, as measured


def system(weight: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """M = I - A/2."""
    M = (weight.mT - weight).div_(2)
    M.diagonal().add_(1)
    return M


@dataclass(frozen=True)
class Factors:
    """LU factors of M with pivots."""

    lu: Float[Tensor, "d d"]
    pivots: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Factors":
        return cls(*torch.linalg.lu_factor(system(weight)))

    def times(self, columns: Tensor, *, transposed: bool) -> Tensor:
        solved = torch.linalg.lu_solve(self.lu, self.pivots, columns, adjoint=transposed)
        return solved.mul_(2).sub_(columns)


@dataclass(frozen=True)
class UnpivotedFactors:
    """LU factors of M without pivots, where those are slow.

    The symmetric part of M is I: every leading block and Schur complement keeps a symmetric part
    of at least I, so that no pivot comes near zero. Elements may still grow with |A|^2: `of`
    measures a residual and gives None where it is above rounding.
    """

    lu: Float[Tensor, "d d"]
    """Both triangles in one matrix; the diagonal of L is one."""

    @classmethod
    def of(cls, weight: Tensor) -> "UnpivotedFactors | None":
        M = system(weight)
        factors = cls(torch.linalg.lu_factor(M, pivot=False)[0])
        return factors if factors.leave_only_rounding(M) else None

    def leave_only_rounding(self, M: Float[Tensor, "d d"]) -> bool:
        """Whether M x = b is solved as well as its precision allows, for one random b."""
        given = _random_vector(M).unsqueeze(1)
        residual = M @ self.solve(given, transposed=False) - given
        limit = RESIDUAL_LIMIT * torch.finfo(M.dtype).eps * given.norm()
        return bool(residual.norm() <= limit)

    def solve(self, columns: Tensor, *, transposed: bool) -> Tensor:
        solve = torch.linalg.solve_triangular
        if transposed:
            inner = solve(self.lu.mT, columns, upper=False)
            return solve(self.lu.mT, inner, upper=True, unitriangular=True)
        inner = solve(self.lu, columns, upper=False, unitriangular=True)
        return solve(self.lu, inner, upper=True)

    def times(self, columns: Tensor, *, transposed: bool) -> Tensor:
        return self.solve(columns, transposed=transposed).mul_(2).sub_(columns)


@dataclass(frozen=True)
class Dense:
    """Q itself, where it serves more columns than it has."""

    Q: Float[Tensor, "d d"]

    @cached_property
    def orthogonality_error(self) -> float:
        """The largest entry of |Q^T Q - I|."""
        gram = self.Q.mT @ self.Q
        gram.diagonal().sub_(1)
        return float(gram.abs().max())

    def times(self, columns: Tensor, *, transposed: bool) -> Tensor:
        return (self.Q.mT if transposed else self.Q) @ columns


Rotator = Factors | UnpivotedFactors | Dense  # each multiplies by Q or by its transpose


class Rotation(nn.Module):
    """Q of eq. cayley, parameterised by one square matrix that starts at zero (Q = I)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))  # W_Q
        self._cache = _Cache()

    def forward(self, columns: Float[Tensor, "d r"]) -> Float[Tensor, "d r"]:
        """Q times the columns, through the factors or through Q, whichever is cheaper."""
        dtype = working_dtype(self.weight, columns)
        with full_precision(columns):
            dense = dense_is_cheaper(self.weight.shape[0], columns.shape[1])
            rotator = self._cache.rotator(self.weight, dtype, dense=dense)
            rotated: Tensor = _Rotate.apply(self.weight.to(dtype), columns.to(dtype), rotator)
            return rotated

    def matrix(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "d d"]:
        """Q itself, without gradients."""
        with full_precision(self.weight):
            wanted = torch.promote_types(dtype, working_dtype(self.weight))
            return self._cache.dense(self.weight, wanted).Q

    def orthogonality_error(self, dtype: torch.dtype = torch.float32) -> float:
        """The largest entry of |Q^T Q - I|."""
        with full_precision(self.weight):
            wanted = torch.promote_types(dtype, working_dtype(self.weight))
            return self._cache.dense(self.weight, wanted).orthogonality_error


def dense_is_cheaper(width: int, columns: int) -> bool:
    """Whether forming Q (width more solves) and multiplying beats solving for these columns."""
    return SOLVE_COST * width + columns < SOLVE_COST * columns


def factorise(weight: Float[Tensor, "d d"]) -> Factors | UnpivotedFactors:
    """The cheapest factors that are accurate on this device."""
    quick = UnpivotedFactors.of(weight) if weight.is_cuda else None
    return quick or Factors.of(weight)


class _Cache:
    """What was computed from one state of one weight, for as long as that state lasts.

    A changed weight shows in its identity, address, version or type; a silent write through
    `.data` changes its product with a fixed random vector, compared before every use.
    """

    def __init__(self) -> None:
        self._key: tuple[Any, ...] | None = None
        self._weight: weakref.ref[Tensor] | None = None
        self._vector = torch.empty(0)
        self._probe = torch.empty(0)
        self._factors: Factors | UnpivotedFactors | None = None
        self._dense: Dense | None = None

    def __reduce__(self) -> tuple[type["_Cache"], tuple[()]]:
        return _Cache, ()  # copies and processes start empty

    def rotator(self, weight: Tensor, dtype: torch.dtype, *, dense: bool) -> Rotator:
        return self.dense(weight, dtype) if dense else self.factors(weight, dtype)

    def factors(self, weight: Tensor, dtype: torch.dtype) -> Factors | UnpivotedFactors:
        self._refresh(weight, dtype)
        if self._factors is None:
            with torch.inference_mode(False), torch.no_grad():
                self._factors = factorise(weight.detach().to(dtype))
        return self._factors

    def dense(self, weight: Tensor, dtype: torch.dtype) -> Dense:
        factors = self.factors(weight, dtype)
        if self._dense is None:
            with torch.inference_mode(False), torch.no_grad():
                eye = torch.eye(weight.shape[0], dtype=dtype, device=weight.device)
                self._dense = Dense(factors.times(eye, transposed=False))
        return self._dense

    def _refresh(self, weight: Tensor, dtype: torch.dtype) -> None:
        version = None if weight.is_inference() else weight._version
        key = (weight.data_ptr(), version, weight.dtype, weight.device, dtype)
        same = self._weight is not None and self._weight() is weight and self._key == key
        with torch.inference_mode(False), torch.no_grad():
            if not same:
                self._vector = _random_vector(weight)
            probe = weight.detach() @ self._vector
        if same and torch.equal(self._probe, probe):
            return
        self._key, self._weight, self._probe = key, weakref.ref(weight), probe
        self._factors = self._dense = None


def _random_vector(matrix: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(matrix.shape[1], generator=generator)
    return vector.to(matrix.device, matrix.dtype)


class _Rotate(torch.autograd.Function):
    """Y = Q B = 2 X - B with X = M^-1 B. Given G: V = M^-T G, dL/dB = 2 V - G,
    dL/dW = V X^T - X V^T.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, columns: Tensor, rotator: Rotator) -> Tensor:
        rotated = rotator.times(columns, transposed=False)
        ctx.rotator = rotator
        ctx.save_for_backward((rotated + columns).div_(2) if ctx.needs_input_grad[0] else None)
        return rotated

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        refuse_second_order("the rotation")
        (X,) = ctx.saved_tensors
        G = gradients[0]
        with full_precision(G):
            to_columns = ctx.rotator.times(G, transposed=True)
            if X is None:
                return None, to_columns, None
            outer = (to_columns + G).div_(2) @ X.mT
            return outer - outer.mT, to_columns, None
