"""The answer loss without logits for the prompt.

Axes     B batch, T positions, d hidden size, V vocabulary, A answer tokens
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

IGNORED = -100
"""The label of what is not supervised."""
MOST_LOGITS = 2**26
"""Logits held at once; 256 MiB in float32."""


def answer_nll(
    hidden: Float[Tensor, "B T d"],
    labels: Int[Tensor, "B T"],
    logits: Callable[[Tensor], Tensor],
    vocabulary: int,
) -> tuple[Float[Tensor, ""], int]:
    """Sum over supervised positions of -log p(label), in float32, and their number.

    Positions are gathered before the head is applied. Where their logits would not fit at once,
    they are worked through in pieces that the backward pass computes again.
    """
    targets = labels[:, 1:]
    supervised = targets != IGNORED  # B T-1
    states = hidden[:, :-1][supervised.to(hidden.device)]  # A d
    targets = targets[supervised].to(hidden.device)  # A
    count = len(targets)
    if count == 0:
        return hidden.sum() * 0.0, 0

    def piece(some: Tensor, wanted: Tensor) -> Tensor:
        return cross_entropy(logits(some).float(), wanted, reduction="sum")

    size = max(1, MOST_LOGITS // vocabulary)
    if count <= size:
        return piece(states, targets), count
    total = states.new_zeros((), dtype=torch.float32)
    for some, wanted in zip(states.split(size), targets.split(size), strict=True):
        total = total + checkpoint(piece, some, wanted, use_reentrant=False)
    return total, count


def finish_logits(logits: Float[Tensor, "... V"], text_config: Any) -> Float[Tensor, "... V"]:
    """What some families do to their logits after the head (Cohere, Granite, Gemma)."""
    if scale := getattr(text_config, "logit_scale", None):
        logits = logits * scale
    if divisor := getattr(text_config, "logits_scaling", None):
        logits = logits / divisor
    if cap := getattr(text_config, "final_logit_softcapping", None):
        logits = torch.tanh(logits / cap) * cap
    return logits
