"""Everything between features and tokens, collapsed for fixed weights.

Axes     B batch, n base tokens, m source tokens, c / k channels, d hidden size, r = min(d, k + 1)
Symbols  x' = [x 1], M_d = W_d [P_d b_d], M_s = W_s [P_s b_s] = B R_s with orthonormal B, R_s upper
         triangular, M_d = B_d R_d likewise

Keys are read in the basis B: |M_s y'| = |R_s y'| and (M_d x').(M_s y') = (B^T M_d x').(R_s y'),
both as sums of squares and products of the same vectors, so that near-zero norms keep the accuracy
of the unfolded form. Aggregation happens on features; projections, scale and rotation merge into
two affine maps. Per image there is no d^2 and no d^3 left.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from paiq.config import from_mapping
from paiq.errors import DataError
from paiq.files import write_atomically
from paiq.interfaces.base import Fused, Sizes
from paiq.interfaces.features import check_features, refuse_nonfinite
from paiq.interfaces.matching import NORM_FLOOR, MatchingRule, Reading, read
from paiq.interfaces.precision import full_precision, working_dtype

ALIGN = 16  # widths are filled up with zero rows to a multiple the product kernels like
TRIANGLE_BLOCKS = 4  # strips of a triangular product; 4 leave 5/8 of the operations
TRIANGLE_ROWS = {"cpu": 128, "cuda": 8192}  # below, strips cost more than they spare
TENSORS, SETTINGS = "folded.safetensors", "folded.json"


class Side:
    """A second CUDA stream for what does not depend on the first; nothing on a processor."""

    def __init__(self, tensor: Tensor) -> None:
        self.main = self.stream = None
        if tensor.is_cuda:
            self.main = torch.cuda.current_stream(tensor.device)
            self.stream = _side_stream(tensor.device)

    def __enter__(self) -> None:
        if self.stream is not None and self.main is not None:
            self.stream.wait_stream(self.main)
            torch.cuda.set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self.main is not None:
            torch.cuda.set_stream(self.main)

    def mark(self) -> torch.cuda.Event | None:
        return None if self.stream is None else self.stream.record_event()

    def wait(self, event: torch.cuda.Event | None, made: Tensor) -> None:
        """The first stream goes on when the event has passed, and may then use what was made."""
        if self.main is not None and event is not None:
            self.main.wait_event(event)
            made.record_stream(self.main)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@dataclass(frozen=True)
class Rotated:
    """How the residual is turned and scaled."""

    columns: Callable[[Tensor], Tensor]
    """Multiplies columns by Q."""
    scale: float
    """lambda."""


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


class Folded(nn.Module):
    """PAIQ or PAI at fixed weights: same call, same tokens, no gradients."""

    query_map: Float[Tensor, "r c"]
    query_bias: Float[Tensor, "r"]
    query_norm_map: Float[Tensor, "q c"]
    query_norm_bias: Float[Tensor, "q"]
    key_map: Float[Tensor, "r k"]
    key_bias: Float[Tensor, "r"]
    base_map: Float[Tensor, "d c"]
    base_bias: Float[Tensor, "d"]
    source_map: Float[Tensor, "d w"]

    check_finite: bool = True
    """Whether NaN and infinity in the features are an error."""

    def __init__(self, sizes: Sizes, rule: MatchingRule) -> None:
        super().__init__()
        self.sizes = sizes
        self.rule = rule
        for name, shape in _shapes(sizes).items():
            self.register_buffer(name, torch.empty(shape))

    @classmethod
    def of(cls, sizes: Sizes, rule: MatchingRule, maps: Maps, rotated: Rotated) -> "Folded":
        """The folded form of these maps, in their dtype."""
        constants = {name: getattr(rule, name) for name in MatchingRule.__dataclass_fields__}
        folded = cls(sizes, MatchingRule(**constants))
        for name, tensor in fold_maps(maps, rotated).items():
            setattr(folded, name, tensor)
        return folded.eval()

    @property
    def num_tokens(self) -> int:
        """N, the visual tokens per image."""
        return self.sizes.spatial_tokens

    @torch.no_grad()
    def forward(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        """The visual tokens, in the dtype of the features."""
        check_features(self.sizes, spatial, semantic, self.key_map.device)
        if self.check_finite:
            refuse_nonfinite(spatial, semantic)
        dtype = working_dtype(self.key_map)
        X, Y = spatial.to(dtype), semantic.to(dtype)
        with full_precision(X):
            side = Side(X)
            with side:  # whatever needs X alone runs while the keys and the matching do
                queries = self._unit_queries(X)
                ready = side.mark()
                tokens = linear(X, self.base_map, self.base_bias)
            keys = triangular(Y.flatten(0, 1), self.key_map, self.key_bias)
            key_norms = torch.linalg.vector_norm(keys, dim=1).clamp_(min=NORM_FLOOR)
            side.wait(ready, queries)
            similarity = torch.bmm(queries, keys.view(*Y.shape[:2], keys.shape[1]).mT)
            similarity.div_(key_norms.view(Y.shape[0], 1, Y.shape[1]))
            aggregate = self._with_coverage(read(similarity, Y, self.rule))
            side.wait(side.mark(), tokens)
            tokens.flatten(0, 1).addmm_(aggregate.flatten(0, 1), self.source_map.mT)
            return Fused(tokens.to(spatial.dtype))

    def _unit_queries(self, X: Float[Tensor, "B n c"]) -> Float[Tensor, "B n r"]:
        lengths = triangular(X.flatten(0, 1), self.query_norm_map, self.query_norm_bias)
        norms = torch.linalg.vector_norm(lengths, dim=1).clamp_(min=NORM_FLOOR)
        queries = linear(X, self.query_map, self.query_bias)
        return queries.div_(norms.view(*X.shape[:2], 1))

    def _with_coverage(self, reading: Reading) -> Float[Tensor, "B n w"]:
        coverage = reading.coverage.unsqueeze(2)
        filling = coverage.new_zeros(1, 1, ALIGN - 1).expand(*coverage.shape[:2], -1)
        return torch.cat([reading.aggregate, coverage, filling], dim=2)

    def save(self, folder: Path) -> None:
        """Writes the tensors and, last, what they are for."""
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        write_atomically(folder / TENSORS, save(tensors))
        settings = {"sizes": asdict(self.sizes), "rule": asdict(self.rule)}
        write_atomically(folder / SETTINGS, (json.dumps(settings, indent=2) + "\n").encode())

    @classmethod
    def load(cls, folder: Path, device: torch.device | str = "cpu") -> "Folded":
        """What `save` wrote; a file that does not fit is an error that names it."""
        try:
            settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            tensors = load((folder / TENSORS).read_bytes())
        except OSError as error:
            raise DataError(f"cannot read {error.filename}: {error.strerror}") from error
        except (ValueError, SafetensorError) as error:
            raise DataError(f"{folder} holds no folded interface: {error}") from error
        folded = cls(
            from_mapping(Sizes, settings.get("sizes", {}), where=str(folder / SETTINGS)),
            from_mapping(MatchingRule, settings.get("rule", {}), where=str(folder / SETTINGS)),
        )
        try:
            folded.load_state_dict(tensors, assign=True)
        except RuntimeError as error:
            raise DataError(f"{folder / TENSORS} does not fit {SETTINGS}: {error}") from error
        return folded.to(device).eval()


def fold_maps(maps: Maps, rotated: Rotated) -> dict[str, Tensor]:
    """The tensors of `Folded` by name."""
    M_d = maps.W_d @ _with_bias(maps.P_d, maps.b_d)  # d c+1
    M_s = maps.W_s @ _with_bias(maps.P_s, maps.b_s)  # d k+1
    basis, R_s = torch.linalg.qr(M_s)
    R_d = torch.linalg.qr(M_d, mode="r").R
    base = _with_bias(maps.P_d, maps.b_d)
    base = base - rotated.scale * rotated.columns(base)
    source = rotated.scale * rotated.columns(_with_bias(maps.P_s, maps.b_s))
    queries, lengths, keys = map(_fill_rows, (basis.mT @ M_d, R_d, R_s))
    return {
        "query_map": queries[:, :-1].contiguous(),
        "query_bias": queries[:, -1].contiguous(),
        "query_norm_map": lengths[:, :-1].contiguous(),
        "query_norm_bias": lengths[:, -1].contiguous(),
        "key_map": keys[:, :-1].contiguous(),
        "key_bias": keys[:, -1].contiguous(),
        "base_map": base[:, :-1].contiguous(),
        "base_bias": base[:, -1].contiguous(),
        "source_map": pad(source, (0, ALIGN - 1)),
    }


def triangular(
    rows: Float[Tensor, "N k"], weight: Float[Tensor, "r k"], bias: Float[Tensor, "r"]
) -> Float[Tensor, "N r"]:
    """rows weight^T + bias for a weight that is zero below its diagonal, strip by strip."""
    strips = TRIANGLE_BLOCKS if rows.shape[0] >= TRIANGLE_ROWS[rows.device.type] else 1
    result = rows.new_empty(rows.shape[0], weight.shape[0])
    step = -(-weight.shape[1] // (strips * ALIGN)) * ALIGN
    for start in range(0, min(weight.shape), step):
        end = start + step if start + step < weight.shape[1] else weight.shape[0]
        strip, out = weight[start:end, start:].mT, result[:, start:end]
        torch.addmm(bias[start:end], rows[:, start:], strip, out=out)
    return result


def _with_bias(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, bias.unsqueeze(1)], dim=1)


def _fill_rows(matrix: Tensor) -> Tensor:
    return pad(matrix, (0, 0, 0, -len(matrix) % ALIGN))


def _shapes(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    d, c, k = sizes.hidden_size, sizes.spatial_size, sizes.semantic_size
    r, q = -(-min(d, k + 1) // ALIGN) * ALIGN, -(-min(d, c + 1) // ALIGN) * ALIGN
    return {
        "query_map": (r, c),
        "query_bias": (r,),
        "query_norm_map": (q, c),
        "query_norm_bias": (q,),
        "key_map": (r, k),
        "key_bias": (r,),
        "base_map": (d, c),
        "base_bias": (d,),
        "source_map": (d, k + ALIGN),
    }
