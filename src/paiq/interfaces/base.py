"""The contract every visual interface keeps.

Axes     B batch, n spatial tokens, m semantic tokens, L text tokens, N visual tokens out
         c channels of the spatial stream, k channels of the semantic stream, d hidden size
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from jaxtyping import Bool, Float
from torch import Tensor, nn

from paiq.errors import ConfigError


class Fused(NamedTuple):
    """What an interface hands to the language model."""

    tokens: Float[Tensor, "B N d"]
    text: Float[Tensor, "B L d"] | None = None
    """The text embeddings, where the interface changes them; None leaves them as they are."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What an interface connects; the defaults are the paper's (sec. 3.1)."""

    hidden_size: int
    """Width of the language model's embeddings."""
    spatial_size: int = 1024
    """Channels of the spatial features."""
    semantic_size: int = 1024
    """Channels of the semantic features."""
    spatial_tokens: int = 196
    """Patches of the spatial stream."""
    semantic_tokens: int = 576
    """Patches of the semantic stream."""

    def __post_init__(self) -> None:
        wrong = {name: value for name, value in vars(self).items() if value < 1}
        if wrong:
            raise ConfigError(f"sizes must be positive, got {wrong}")


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """An interface with nothing to choose."""


class Interface(nn.Module, ABC):
    """Features of two frozen vision encoders in, visual tokens of a frozen language model out."""

    name: ClassVar[str]
    """The exact name in the registry and in the tables."""
    equation: ClassVar[str]
    """One or two lines of plain text, shown by `paiq interfaces NAME`."""
    Options: ClassVar[type] = NoOptions

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
    def count_parameters(cls, sizes: Sizes, options: Any) -> int:
        """Trainable parameters by formula; the tests hold the built module to it."""

    @abstractmethod
    def forward(
        self,
        spatial: Float[Tensor, "B n c"],
        semantic: Float[Tensor, "B m k"],
        text: Float[Tensor, "B L d"] | None = None,
        text_mask: Bool[Tensor, "B L"] | None = None,
    ) -> Fused: ...

    def fold(self) -> "Interface | nn.Module":
        """The same function in its cheapest form for inference; itself where there is none."""
        return self

    def check_features(self, spatial: Tensor, semantic: Tensor) -> None:
        """Stops at features that do not fit, before they can broadcast."""
        sizes = self.sizes
        expected = {
            "spatial": (spatial, sizes.spatial_tokens, sizes.spatial_size),
            "semantic": (semantic, sizes.semantic_tokens, sizes.semantic_size),
        }
        for stream, (features, tokens, width) in expected.items():
            if features.dim() != 3 or features.shape[1:] != (tokens, width):
                raise ConfigError(
                    f"{stream} features must be (batch, {tokens}, {width}), "
                    f"got {tuple(features.shape)}"
                )
        if spatial.shape[0] != semantic.shape[0]:
            raise ConfigError(
                f"both streams must hold the same images, got {spatial.shape[0]} spatial "
                f"and {semantic.shape[0]} semantic"
            )

    def frozen(self) -> Self:
        return self.requires_grad_(False).eval()
