"""What PAIQ is measured against, on the same inputs: plain transcriptions and other people's code.

Axes     B batch, n base tokens, m source tokens, d hidden size
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from paiq.interfaces.matching import MatchingRule
from paiq.interfaces.paiq import Paiq


def papers_path(
    interface: Paiq, spatial: Float[Tensor, "B n c"], semantic: Float[Tensor, "B m k"]
) -> Float[Tensor, "B n d"]:
    """The reported execution (app. B.1): image after image, each with its own dense Cayley solve,
    matching maps on tokens, normalisation in the log domain, gradients by tape.
    """
    images = zip(spatial, semantic, strict=True)
    return torch.stack([_one_image(interface, X, Y) for X, Y in images])


def _one_image(interface: Paiq, X: Tensor, Y: Tensor) -> Tensor:
    rule = interface.options
    D, S = interface.spatial_projection(X), interface.semantic_projection(Y)
    queries, keys = normalize(interface.query(D), dim=1), normalize(interface.key(S), dim=1)
    T = log_domain(-(1 - queries @ keys.mT).clamp(min=0) / rule.temperature, rule)
    Pi = T / (T.sum(1, keepdim=True) + rule.stabilizer)
    Q = dense_cayley(interface.rotation.weight)
    return D + rule.scale * (Pi @ S - D) @ Q.mT


def log_domain(K: Float[Tensor, "n m"], rule: MatchingRule) -> Float[Tensor, "n m"]:
    """T by the printed updates."""
    alpha, beta = K.new_zeros(K.shape[0]), K.new_zeros(K.shape[1])
    for _ in range(rule.iterations):
        alpha = (-torch.logsumexp(K + beta, dim=1)).clamp(-rule.clip, rule.clip)
        beta = (-torch.logsumexp(K + alpha.unsqueeze(1), dim=0)).clamp(-rule.clip, rule.clip)
    return (K + alpha.unsqueeze(1) + beta).clamp(max=0).exp()


def dense_cayley(weight: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Q by solving (I - A/2) Q = I + A/2 for all d columns."""
    A = weight - weight.mT
    eye = torch.eye(len(A), dtype=A.dtype, device=A.device)
    return torch.linalg.solve(eye - A / 2, eye + A / 2)


class TwoLayers(nn.Module):
    """The projector of LLaVA-1.5 on the tokens of both streams."""

    def __init__(self, width: int, hidden_size: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden_size)
        self.second = nn.Linear(hidden_size, hidden_size)

    def forward(self, features: Float[Tensor, "B N c"]) -> Float[Tensor, "B N d"]:
        result: Tensor = self.second(nn.functional.gelu(self.first(features)))
        return result


def pots_matching(
    similarity: Float[Tensor, "B n m"], rule: MatchingRule
) -> Callable[[], list[Tensor]] | None:
    """POT's log-domain Sinkhorn for as many iterations, image after image; None without POT."""
    try:
        import ot
    except ImportError:
        return None
    _, n, m = similarity.shape
    rows = torch.full((n,), 1 / n, dtype=similarity.dtype, device=similarity.device)
    columns = torch.full((m,), 1 / m, dtype=similarity.dtype, device=similarity.device)

    def match() -> list[Tensor]:
        return [
            ot.sinkhorn(
                rows, columns, 1 - image, rule.temperature, "sinkhorn_log",
                numItermax=rule.iterations, stopThr=0.0, warn=False,
            )
            for image in similarity
        ]  # fmt: skip

    return match


def torch_rotation(width: int) -> nn.Linear:
    """PyTorch's own Cayley parametrization: `.weight` is computed anew at every use."""
    layer = nn.Linear(width, width, bias=False)
    nn.init.orthogonal_(layer.weight)
    return nn.utils.parametrizations.orthogonal(layer, orthogonal_map="cayley")


def rotate_rows(layer: nn.Linear, rows: Float[Tensor, "N d"]) -> Float[Tensor, "N d"]:
    return linear(rows, layer.weight)
