"""The contract every visual interface keeps.

Axes     B batch, n spatial tokens, m semantic tokens, L text tokens, N visual tokens out
         c channels of the spatial stream, k channels of the semantic stream, d hidden size
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from paiq.interfaces.features import Sizes, check_features, refuse_nonfinite


class Fused(NamedTuple):
    """What an interface hands to the language model."""

    tokens: Float[Tensor, "B N d"]
    text: Float[Tensor, "B L d"] | None = None
    """The text embeddings, where the interface changes them; None leaves them as they are."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The forward tensors by the paper's names; None where an interface has no such thing."""

    tokens: Float[Tensor, "B N d"]
    """Z, the visual tokens."""
    text: Float[Tensor, "B L d"] | None = None
    """The text embeddings, where the interface changes them."""
    base: Float[Tensor, "B n d"] | None = None
    """D, the projected spatial features."""
    source: Float[Tensor, "B m d"] | None = None
    """S, the projected semantic features."""
    allocation: Float[Tensor, "B n m"] | None = None
    """Pi, what each token reads from the source."""
    aggregate: Float[Tensor, "B n d"] | None = None
    """S-bar, the aggregated source."""
    rotation: Float[Tensor, "d d"] | None = None
    """Q; the identity where it is fixed to that."""
    row_mass: Float[Tensor, "B n"] | None = None
    """q, row sums before conditioning."""
    orthogonality_error: float | None = None
    """The largest entry of |Q^T Q - I|."""

    def named(self) -> dict[str, Any]:
        """What this interface has, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """An interface with nothing to choose."""


class Interface(nn.Module, ABC):
    """Features of two frozen vision encoders in, visual tokens of a frozen language model out.

    A subclass writes `fuse`; `forward` and `trace` check the features first.
    """

    name: ClassVar[str]
    """The exact name in the registry and in the tables."""
    equation: ClassVar[str]
    """One line of plain text, shown in the list of `paiq interfaces`."""
    equations: ClassVar[tuple[str, ...]] = ()
    """All of it, line by line, shown by `paiq interfaces NAME`; empty where one line says all."""
    Options: ClassVar[type] = NoOptions

    check_finite: bool | None = None
    """Whether NaN and infinity in the features are an error; None means in eval only."""

    def __init__(self, sizes: Sizes, options: Any) -> None:
        super().__init__()
        self.sizes = sizes
        self.options = options

    @property
    def num_tokens(self) -> int:
        """N, the visual tokens per image."""
        return self.count_tokens(self.sizes, self.options)

    @classmethod
    @abstractmethod
    def count_tokens(cls, sizes: Sizes, options: Any) -> int:
        """N by formula, without building anything."""

    @classmethod
    @abstractmethod
    def parameter_groups(cls, sizes: Sizes, options: Any) -> dict[str, int]:
        """Trainable parameters by formula, split as the paper's tables split them."""

    @classmethod
    def count_parameters(cls, sizes: Sizes, options: Any) -> int:
        """Trainable parameters by formula; the tests hold the built module to it."""
        return sum(cls.parameter_groups(sizes, options).values())

    @abstractmethod
    def fuse(
        self,
        spatial: Float[Tensor, "B n c"],
        semantic: Float[Tensor, "B m k"],
        text: Float[Tensor, "B L d"] | None = None,
        text_mask: Bool[Tensor, "B L"] | None = None,
    ) -> Fused:
        """The interface itself, on features that were checked."""

    def forward(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Fused:
        """The visual tokens, in the dtype of the features."""
        self.check_features(spatial, semantic)
        return self.fuse(spatial, semantic, text, text_mask)

    def trace(
        self,
        spatial: Tensor,
        semantic: Tensor,
        text: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> Trace:
        """The same tokens together with every intermediate this interface has a name for."""
        fused = self(spatial, semantic, text, text_mask)
        return Trace(tokens=fused.tokens, text=fused.text)

    def fold(self) -> nn.Module:
        """The same function in its cheapest form for inference; itself where there is none."""
        return self

    def check_features(self, spatial: Tensor, semantic: Tensor) -> None:
        """Stops at features that do not fit, before they can broadcast or spread NaN."""
        parameter = next(self.parameters(), None)
        device = None if parameter is None else parameter.device
        check_features(self.sizes, spatial, semantic, device)
        if not self.training if self.check_finite is None else self.check_finite:
            refuse_nonfinite(spatial, semantic)

    def frozen(self) -> "Interface":
        return self.requires_grad_(False).eval()


def affine(layer: nn.Linear, features: Tensor) -> Tensor:
    """The layer applied in its own precision or the features', whichever is finer."""
    if torch.is_autocast_enabled(features.device.type):
        result: Tensor = layer(features)
        return result
    dtype = torch.promote_types(layer.weight.dtype, features.dtype)
    bias = None if layer.bias is None else layer.bias.to(dtype)
    return nn.functional.linear(features.to(dtype), layer.weight.to(dtype), bias)


__all__ = ["Fused", "Interface", "NoOptions", "Sizes", "Trace", "affine"]
