"""The last layer's feed-forward block, at answer positions only.

The loss reads the last layer's output where an answer token follows, and a feed-forward block
works on each position by itself: what it makes of the prompt and the image is never looked at.
Leaving that out changes no loss and no gradient. A language model of four layers gains about a
tenth of a step, one of sixty next to nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from paiq.errors import ConfigError
from paiq.training.feed import IGNORED

TRIAL = 3
TOLERANCE = 0.05
"""Relative, wide enough for bfloat16; a block that mixes positions is off by far more."""


class LastLayer:
    """The last layer's feed-forward block of a decoder, where it has one that can be narrowed."""

    def __init__(self, decoder: Any) -> None:
        block = dict(decoder_layers(decoder)[-1].named_children()).get("mlp")
        width = decoder.get_input_embeddings().embedding_dim
        self.block = block if block is not None and _by_position(block, width) else None

    @contextmanager
    def at_answers(self, labels: Int[Tensor, "B T"]) -> Iterator[None]:
        """A block in which only positions count that an answer token follows."""
        if self.block is None:
            yield
            return
        rows = torch.zeros_like(labels, dtype=torch.bool)
        rows[:, :-1] = labels[:, 1:] != IGNORED

        def narrow(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0][rows].unsqueeze(0),)

        def widen(_: nn.Module, inputs: tuple[Tensor], made: Tensor) -> Tensor:
            whole = made.new_zeros(*rows.shape, made.shape[-1])
            return whole.index_put((rows,), made[0])

        hooks = (
            self.block.register_forward_pre_hook(narrow),
            self.block.register_forward_hook(widen),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def decoder_layers(decoder: Any) -> list[nn.Module]:
    """The decoder's layers in order, by the library's own account of what must stay together."""
    kinds = set(decoder._no_split_modules or ())
    layers = [module for module in decoder.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ConfigError(f"{type(decoder).__name__} does not say what its layers are")
    return layers


@torch.no_grad()
def _by_position(block: nn.Module, width: int) -> bool:
    """Whether the block turns each position into one of its own; found out by trying."""
    weight = next(block.parameters())
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1, TRIAL, width, generator=generator).to(weight)
    whole = block(states)
    if not isinstance(whole, Tensor) or whole.shape != states.shape:
        return False
    alone = torch.cat([block(states[:, [row]]) for row in range(TRIAL)], dim=1)
    return bool((whole - alone).norm() <= TOLERANCE * whole.norm())
