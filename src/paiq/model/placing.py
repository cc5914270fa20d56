"""Who sits where in the sequence: placeholders, and the prompt an interface may read.

Axes     B batch, T positions, L longest prompt, N visual tokens, d hidden size
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from paiq.errors import ConfigError


class Prompt(NamedTuple):
    """The prompts' embeddings, pushed to the left: padding side and image do not show."""

    text: Float[Tensor, "B L d"]
    mask: Bool[Tensor, "B L"]
    positions: Bool[Tensor, "B T"]


def check_placeholders(slots: Bool[Tensor, "B T"], images: int, num_tokens: int) -> None:
    """Every prompt must hold exactly one image's placeholders."""
    counts = slots.sum(dim=1)
    if images != len(counts):
        raise ConfigError(f"{len(counts)} prompts came with {images} images; give one image each")
    if bool((counts != num_tokens).any()):
        found = counts.tolist()
        row = next(row for row, count in enumerate(found) if count != num_tokens)
        raise ConfigError(
            f"prompt {row} holds {found[row]} image placeholders but the interface makes "
            f"{num_tokens} tokens; every prompt needs exactly one image slot, rendered with "
            f"{num_tokens} placeholders"
        )


def pack_prompt(text: Float[Tensor, "B T d"], positions: Bool[Tensor, "B T"]) -> Prompt:
    """The embeddings at these positions, side by side, zeros behind them."""
    lengths = positions.sum(dim=1)  # B
    longest = int(lengths.max())
    mask = torch.arange(longest, device=text.device) < lengths.unsqueeze(1)  # B L
    packed = text.new_zeros(text.shape[0], longest, text.shape[2])
    packed[mask] = text[positions]
    return Prompt(packed, mask, positions)


def unpack_prompt(
    text: Float[Tensor, "B T d"], prompt: Prompt, changed: Float[Tensor, "B L d"]
) -> Float[Tensor, "B T d"]:
    """The text with its prompt replaced by what the interface made of it."""
    return text.masked_scatter(prompt.positions.unsqueeze(-1), changed[prompt.mask].to(text))
