"""What PAIQ is measured against, on the same inputs: plain transcriptions and other people's code.

Axes     B batch, n base tokens, m source tokens, d hidden size
"""

# ruff: noqa: N803, N806 - the paper's letters stand beside its equations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

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
    D, S = interface.spatial_projection(X), interface.semantic_projection(Y)
    queries, keys = normalize(interface.query(D), dim=1), normalize(interface.key(S), dim=1)
    aggregate = papers_matching(queries @ keys.mT, S, interface.options)
    Q = dense_cayley(interface.rotation.weight)
    return D + interface.options.scale * (aggregate - D) @ Q.mT


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


def papers_matching(
    similarity: Float[Tensor, "n m"], features: Float[Tensor, "m k"], rule: MatchingRule
) -> Float[Tensor, "n k"]:
    """One image's aggregate from its cosines."""
    T = log_domain(-(1 - similarity).clamp(min=0) / rule.temperature, rule)
    return (T / (T.sum(1, keepdim=True) + rule.stabilizer)) @ features


def pots_matching(
    similarity: Float[Tensor, "B n m"], rule: MatchingRule
) -> Callable[[], list[Tensor]] | None:
    """POT's log-domain Sinkhorn for as many iterations, image after image; None without POT.

    POT updates its second marginal first: it is given the transpose, to keep rows before columns.
    """
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
                columns, rows, 1 - image.mT, rule.temperature, "sinkhorn_log",
                numItermax=rule.iterations, stopThr=0.0, warn=False,
            ).mT
            for image in similarity
        ]  # fmt: skip

    return match


def torch_rotation(width: int) -> nn.Module:
    """PyTorch's own Cayley parametrization: `.weight` is computed anew at every use."""
    layer = nn.Linear(width, width, bias=False)
    nn.init.orthogonal_(layer.weight)
    return nn.utils.parametrizations.orthogonal(layer, orthogonal_map="cayley")
