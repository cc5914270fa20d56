"""Two frozen towers, a trainable interface, a frozen language model.

Axes     B batch, T positions, N visual tokens, n / m tokens of a stream, c / k its channels,
         d hidden size, V vocabulary, A answer tokens
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling, ModelOutput

from paiq.errors import ConfigError
from paiq.interfaces import Fused, create
from paiq.interfaces.folding import Folded
from paiq.interfaces.paiq import Paiq
from paiq.model.configuration import PaiqConfig
from paiq.model.losses import IGNORED
from paiq.model.placing import check_placeholders, pack_prompt, unpack_prompt
from paiq.towers import Tower
from paiq.towers.tower import fresh_encoder

IMAGE_INPUTS = (
    "pixel_values",
    "pixel_values_semantic",
    "spatial_features",
    "semantic_features",
)


@dataclass
class PaiqModelOutput(ModelOutput):
    last_hidden_state: Tensor | None = None
    past_key_values: Any = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    image_hidden_states: Tensor | None = None


class PaiqPreTrainedModel(PreTrainedModel):
    config_class = PaiqConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _keep_in_fp32_modules_strict = {"interface"}  # noqa: RUF012 read from the class
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012 read from the class

    def _init_weights(self, module: nn.Module) -> None:
        """Leaves every weight alone: parts initialise themselves, PAIQ's to identity and zero."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *args: Any, **kwargs: Any
    ) -> Self:
        """A model out of an interface checkpoint or a merged folder, strictly.

        An interface checkpoint loads its frozen parts from where its config says; `sources`
        (`{"spatial": folder, "semantic": ..., "language": ...}`) says where they lie now.
        """
        from paiq.model.checkpoint import load_model

        return load_model(cls, pretrained_model_name_or_path, *args, **kwargs)


class PaiqModel(PaiqPreTrainedModel):
    """The composite without the language model's head."""

    def __init__(self, config: PaiqConfig) -> None:
        super().__init__(config)
        self.spatial_tower = Tower(
            fresh_encoder(config.spatial_config), config.selection("spatial")
        )
        self.semantic_tower = Tower(
            fresh_encoder(config.semantic_config), config.selection("semantic")
        )
        self.interface = _unfilled_interface(config)
        self.language_model = AutoModel.from_config(config.text_config)
        self.post_init()
        self.freeze()

    def freeze(self) -> None:
        """Leaves exactly the interface trainable."""
        for part in (self.spatial_tower, self.semantic_tower, self.language_model):
            part.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Train mode for the interface alone.

        The language model follows only while it checkpoints gradients, which works in train mode
        alone; it is loaded without dropout, so its function stays the same.
        """
        super().train(mode)
        checkpoints = any(
            getattr(module, "gradient_checkpointing", False)
            for module in self.language_model.modules()
        )
        self.language_model.train(mode and checkpoints)
        return self

    def get_input_embeddings(self) -> nn.Module:
        return self.language_model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.language_model.set_input_embeddings(value)

    def get_encoder(self, modality: str | None = None) -> Any:
        return self.spatial_tower if modality == "image" else super().get_encoder(modality)

    def encode(
        self,
        pixel_values: Float[Tensor, "B 3 h w"],
        pixel_values_semantic: Float[Tensor, "B 3 g v"],
    ) -> tuple[Float[Tensor, "B n c"], Float[Tensor, "B m k"]]:
        """The frozen features of both streams."""
        return self.spatial_tower(pixel_values), self.semantic_tower(pixel_values_semantic)

    def fuse(
        self,
        spatial: Float[Tensor, "B n c"],
        semantic: Float[Tensor, "B m k"],
        text: Float[Tensor, "B L d"] | None = None,
        text_mask: Bool[Tensor, "B L"] | None = None,
    ) -> Fused:
        """The interface's tokens, in float32 whatever the dtype or autocast around it."""
        with torch.autocast(spatial.device.type, enabled=False):
            words = None if text is None else text.float()
            fused = self.interface(spatial.float(), semantic.float(), words, text_mask)
        return Fused(*fused)

    def get_image_features(
        self, pixel_values: Tensor, pixel_values_semantic: Tensor, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """The visual tokens, where serving engines look for them."""
        del kwargs
        tokens = self.fuse(*self.encode(pixel_values, pixel_values_semantic)).tokens
        return BaseModelOutputWithPooling(pooler_output=tokens.to(self.language_model.dtype))

    def embed(
        self,
        input_ids: Int[Tensor, "B T"],
        spatial: Float[Tensor, "B n c"],
        semantic: Float[Tensor, "B m k"],
        prompt_mask: Bool[Tensor, "B T"],
    ) -> tuple[Float[Tensor, "B T d"], Float[Tensor, "B N d"]]:
        """Embeddings with the visual tokens in the placeholders' seats, and those tokens."""
        slots = input_ids == self.config.image_token_id  # B T
        check_placeholders(slots, spatial.shape[0], self.config.num_image_tokens)
        text = self.get_input_embeddings()(input_ids)
        prompt = pack_prompt(text, prompt_mask & ~slots)
        fused = self.fuse(spatial, semantic, prompt.text, prompt.mask)
        if fused.text is not None:
            text = unpack_prompt(text, prompt, fused.text)
        tokens = fused.tokens.to(text)
        return text.masked_scatter(slots.unsqueeze(-1), tokens), tokens

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> PaiqModelOutput:
        """Hidden states; images come as pixels (`pixel_values`, `pixel_values_semantic`) or as
        features (`spatial_features`, `semantic_features`).

        `labels` only tell an interface that reads text where the prompt ends.
        """
        images = [kwargs.pop(name, None) for name in IMAGE_INPUTS]
        kwargs.pop("mm_token_type_ids", None)
        features, tokens = self._features(*images), None
        if inputs_embeds is not None:
            if features is not None:
                raise ConfigError("give images together with input_ids, not with inputs_embeds")
        elif input_ids is None:
            raise ConfigError("give input_ids or inputs_embeds")
        elif features is None:
            if past_key_values is None or past_key_values.get_seq_length() == 0:
                self._check_text_only(input_ids)
            inputs_embeds = self.get_input_embeddings()(input_ids)
        else:
            mask = prompt_positions(input_ids, attention_mask, labels)
            inputs_embeds, tokens = self.embed(input_ids, *features, mask)
        out = self.language_model(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            **kwargs,
        )
        return PaiqModelOutput(
            last_hidden_state=out.last_hidden_state,
            past_key_values=out.past_key_values,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
            image_hidden_states=tokens,
        )

    def _features(
        self,
        pixel_values: Tensor | None,
        pixel_values_semantic: Tensor | None,
        spatial_features: Tensor | None,
        semantic_features: Tensor | None,
    ) -> tuple[Tensor, Tensor] | None:
        pixels = pixel_values, pixel_values_semantic
        features = spatial_features, semantic_features
        for names, pair in ((IMAGE_INPUTS[:2], pixels), (IMAGE_INPUTS[2:], features)):
            if (pair[0] is None) != (pair[1] is None):
                absent = names[0] if pair[0] is None else names[1]
                raise ConfigError(f"both streams are needed: {' and '.join(names)}; no {absent}")
        if pixels[0] is not None and features[0] is not None:
            raise ConfigError("give pixels or features, not both")
        if pixel_values is not None and pixel_values_semantic is not None:
            return self.encode(pixel_values, pixel_values_semantic)
        if spatial_features is None or semantic_features is None:
            return None
        return spatial_features, semantic_features

    def _check_text_only(self, input_ids: Tensor) -> None:
        if bool((input_ids == self.config.image_token_id).any()):
            raise ConfigError(
                "the prompt holds image placeholders but no image was given; "
                f"pass {' and '.join(IMAGE_INPUTS[:2])}, or {' and '.join(IMAGE_INPUTS[2:])}"
            )


def prompt_positions(
    input_ids: Int[Tensor, "B T"],
    attention_mask: Int[Tensor, "B T"] | None,
    labels: Int[Tensor, "B T"] | None,
) -> Bool[Tensor, "B T"]:
    """What stands before the first supervised token, padding left out."""
    if attention_mask is None:
        mask = torch.ones_like(input_ids, dtype=torch.bool)
    else:
        mask = attention_mask.bool()
    if labels is None:
        return mask
    return mask & ((labels != IGNORED).cumsum(dim=1) == 0)


def _unfilled_interface(config: PaiqConfig) -> nn.Module:
    interface = create(config.interface, **config.interface_settings())
    if config.folded and isinstance(interface, Paiq):
        # Its tensors come from the checkpoint; folding first weights would cost a QR and a solve.
        return Folded(interface.sizes, interface.options)
    return interface
