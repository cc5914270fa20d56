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
from dataclasses import asdict
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
from paiq.interfaces.maps import Maps, Rotated
from paiq.interfaces.matching import NORM_FLOOR, MatchingRule, Reading, read
from paiq.interfaces.precision import full_precision, working_dtype
from paiq.interfaces.streams import Side

ALIGN = 16  # widths are filled up with zero rows to a multiple the product kernels like
TRIANGLE_BLOCKS = 4  # strips of a triangular product; 4 leave 5/8 of the operations
TRIANGLE_ROWS = {"cpu": 128}  # below, strips cost more than they spare
TRIANGLE_ROWS_ELSEWHERE = 8192
TENSORS, SETTINGS = "folded.safetensors", "folded.json"


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
        dtype = working_dtype(spatial, self.key_map)
        X, Y = spatial.to(dtype), semantic.to(dtype)
        maps = {name: tensor.to(dtype) for name, tensor in self.named_buffers()}
        with full_precision(X):
            side = Side(X)
            with side:  # whatever needs X alone runs while the keys and the matching do
                queries = _unit_queries(X, maps)
                ready = side.mark()
                tokens = linear(X, maps["base_map"], maps["base_bias"])
            keys = triangular(Y.flatten(0, 1), maps["key_map"], maps["key_bias"])
            key_norms = torch.linalg.vector_norm(keys, dim=1).clamp_(min=NORM_FLOOR)
            side.wait(ready, queries)
            similarity = torch.bmm(queries, keys.view(*Y.shape[:2], keys.shape[1]).mT)
            similarity.div_(key_norms.view(Y.shape[0], 1, Y.shape[1]))
            aggregate = _with_coverage(read(similarity, Y, self.rule))
            side.wait(side.mark(), tokens)
            tokens.flatten(0, 1).addmm_(aggregate.flatten(0, 1), maps["source_map"].mT)
            return Fused(tokens.to(spatial.dtype))

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
    enough = TRIANGLE_ROWS.get(rows.device.type, TRIANGLE_ROWS_ELSEWHERE)
    strips = TRIANGLE_BLOCKS if rows.shape[0] >= enough else 1
    result = rows.new_empty(rows.shape[0], weight.shape[0])
    step = -(-weight.shape[1] // (strips * ALIGN)) * ALIGN
    for start in range(0, min(weight.shape), step):
        end = start + step if start + step < weight.shape[1] else weight.shape[0]
        strip, out = weight[start:end, start:].mT, result[:, start:end]
        torch.addmm(bias[start:end], rows[:, start:], strip, out=out)
    return result


def _unit_queries(X: Float[Tensor, "B n c"], maps: dict[str, Tensor]) -> Float[Tensor, "B n r"]:
    rows = X.flatten(0, 1)
    lengths = triangular(rows, maps["query_norm_map"], maps["query_norm_bias"])
    norms = torch.linalg.vector_norm(lengths, dim=1).clamp_(min=NORM_FLOOR)
    queries = linear(X, maps["query_map"], maps["query_bias"])
    return queries.div_(norms.view(*X.shape[:2], 1))


def _with_coverage(reading: Reading) -> Float[Tensor, "B n w"]:
    coverage = reading.coverage.unsqueeze(2)
    filling = coverage.new_zeros(1, 1, ALIGN - 1).expand(*coverage.shape[:2], -1)
    return torch.cat([reading.aggregate, coverage, filling], dim=2)


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
