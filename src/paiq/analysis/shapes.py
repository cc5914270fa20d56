"""The five language backbones by their published shapes, and the parameters these imply.

Counts hold the text tower alone: input embedding, layers, final norm, and the output head where it
is not tied to the embedding. Nothing is loaded; every count is a sum of matrix sizes.
"""

from dataclasses import dataclass, replace

from paiq.errors import ConfigError, suggest


@dataclass(frozen=True, kw_only=True)
class LinearAttention:
    """A gated delta-rule layer, as in Qwen3.5: heads of keys and values of one size."""

    layers: int
    key_heads: int
    value_heads: int
    head: int = 128
    kernel: int = 4

    def parameters(self, d: int) -> int:
        """Of one layer: q, k, v, gate, two scalars per head, convolution, norm, output."""
        keys, values = self.key_heads * self.head, self.value_heads * self.head
        mixed = 2 * keys + values
        inputs = d * (mixed + values + 2 * self.value_heads)
        return inputs + self.kernel * mixed + 2 * self.value_heads + self.head + values * d


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A decoder's shape. Layers that are not linear attention are softmax attention."""

    name: str
    hidden: int
    layers: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    tied: bool
    """Whether the output head is the input embedding."""
    gated: bool = False
    """Whether attention's output is gated, which doubles the query projection."""
    head_norms: bool = False
    """Whether queries and keys are normalised per head."""
    linear: LinearAttention | None = None

    @property
    def attention_parameters(self) -> int:
        """Of one softmax layer; no projection has a bias in these five."""
        query = self.hidden * self.heads * self.head * (2 if self.gated else 1)
        keys_values = 2 * self.hidden * self.kv_heads * self.head
        output = self.heads * self.head * self.hidden
        return query + keys_values + output + (2 * self.head if self.head_norms else 0)

    @property
    def embedding_parameters(self) -> int:
        """Input embedding, and the output head unless tied."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """The language side's P: everything a text token can meet."""
        linear_layers = self.linear.layers if self.linear else 0
        linear_each = self.linear.parameters(self.hidden) if self.linear else 0
        every_layer = 2 * self.hidden + 3 * self.hidden * self.feed_forward  # norms, gated MLP
        return (
            self.layers * every_layer
            + (self.layers - linear_layers) * self.attention_parameters
            + linear_layers * linear_each
            + self.hidden  # final norm
            + self.embedding_parameters
        )


QWEN35_2B = Backbone(
    name="Qwen3.5-2B",
    hidden=2048,
    layers=24,
    feed_forward=6144,
    heads=8,
    kv_heads=2,
    head=256,
    vocabulary=248_320,
    tied=True,
    gated=True,
    head_norms=True,
    linear=LinearAttention(layers=18, key_heads=16, value_heads=16),
)

BACKBONES = {
    backbone.name: backbone
    for backbone in (
        QWEN35_2B,
        replace(
            QWEN35_2B,
            name="Qwen3.5-9B",
            hidden=4096,
            layers=32,
            feed_forward=12288,
            heads=16,
            kv_heads=4,
            tied=False,
            linear=LinearAttention(layers=24, key_heads=16, value_heads=32),
        ),
        replace(
            QWEN35_2B,
            name="Qwen3.5-27B",
            hidden=5120,
            layers=64,
            feed_forward=17408,
            heads=24,
            kv_heads=4,
            tied=False,
            linear=LinearAttention(layers=48, key_heads=16, value_heads=48),
        ),
        Backbone(
            name="InternVL3.5-8B",  # its language model, Qwen3-8B
            hidden=4096,
            layers=36,
            feed_forward=12288,
            heads=32,
            kv_heads=8,
            head=128,
            vocabulary=151_936,
            tied=False,
            head_norms=True,
        ),
        Backbone(
            name="Llama-3.1-8B",
            hidden=4096,
            layers=32,
            feed_forward=14336,
            heads=32,
            kv_heads=8,
            head=128,
            vocabulary=128_256,
            tied=False,
        ),
    )
}


def backbone(name: str) -> Backbone:
    if name not in BACKBONES:
        raise ConfigError(
            f"no backbone {name!r}; have {', '.join(BACKBONES)}.{suggest(name, BACKBONES)}"
        )
    return BACKBONES[name]
