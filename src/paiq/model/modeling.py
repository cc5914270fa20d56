"""The composite with the language model's own head, as transformers knows it.

Axes     B batch, T positions, n / m tokens of a stream, c / k its channels, d hidden size,
         V vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel, AutoModelForImageTextToText, GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPooling, ModelOutput

from paiq.model.composite import IMAGE_INPUTS, PaiqModel, PaiqPreTrainedModel
from paiq.model.configuration import PaiqConfig
from paiq.model.losses import answer_nll, finish_logits


@dataclass
class PaiqCausalOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None
    past_key_values: Any = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    image_hidden_states: Tensor | None = None


class PaiqForConditionalGeneration(PaiqPreTrainedModel, GenerationMixin):
    """The composite with the language model's own head: loss, logits, generation."""

    _tied_weights_keys = {  # noqa: RUF012 read from the class
        "lm_head.weight": "model.language_model.embed_tokens.weight"
    }

    def __init__(self, config: PaiqConfig) -> None:
        super().__init__(config)
        self.model = PaiqModel(config)
        text: Any = config.text_config
        self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=config.head_bias)
        self._name_tied_weights()
        self.post_init()
        self.freeze()

    def _name_tied_weights(self) -> None:
        embedding = self.get_input_embeddings().weight
        for name, parameter in self.model.language_model.named_parameters():
            if parameter is embedding:
                self._tied_weights_keys = {"lm_head.weight": f"model.language_model.{name}"}

    def freeze(self) -> None:
        self.model.freeze()
        self.lm_head.requires_grad_(False)

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def get_image_features(
        self, pixel_values: Tensor, pixel_values_semantic: Tensor, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        return self.model.get_image_features(pixel_values, pixel_values_semantic, **kwargs)

    @property
    def interface(self) -> Any:
        """The only trainable part: an `Interface`, or its folded form."""
        return self.model.interface

    @property
    def num_image_tokens(self) -> int:
        return self.config.num_image_tokens

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Recomputes the language model's layers in the backward pass; towers have none."""
        options = {"use_reentrant": False, **(gradient_checkpointing_kwargs or {})}
        self._checkpoint_layers(True, partial(checkpoint, **options))

    def gradient_checkpointing_disable(self) -> None:
        self._checkpoint_layers(False, checkpoint)

    def _checkpoint_layers(self, enable: bool, how: Callable[..., Any]) -> None:
        self.model.language_model._set_gradient_checkpointing(
            enable=enable, gradient_checkpointing_func=how
        )
        self.train(self.training)  # the language model's mode depends on it

    def logits(self, hidden: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        """The language model's own logits, soft caps and scales included."""
        return finish_logits(self.lm_head(hidden), self.config.text_config)

    def answer_loss(
        self,
        input_ids: Int[Tensor, "B T"],
        attention_mask: Int[Tensor, "B T"],
        labels: Int[Tensor, "B T"],
        spatial_features: Float[Tensor, "B n c"],
        semantic_features: Float[Tensor, "B m k"],
    ) -> tuple[Float[Tensor, ""], int]:
        """Summed negative log likelihood of the answer tokens, and how many there are.

        Logits are computed at the supervised positions alone; the sum is that of the full loss.
        """
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            labels=labels,
            spatial_features=spatial_features,
            semantic_features=semantic_features,
            use_cache=False,
        )
        return answer_nll(out.last_hidden_state, labels, self.logits, self.lm_head.out_features)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> PaiqCausalOutput:
        """Logits, or with `labels` the mean loss over answer tokens and no logits.

        Inputs as in `PaiqModel.forward`; a mean over `num_items_in_batch` where that is given.
        """
        kwargs.pop("return_dict", None)
        out = self.model(
            input_ids=input_ids, attention_mask=attention_mask, labels=labels, **kwargs
        )
        loss = logits = None
        if labels is not None:
            total, count = answer_nll(
                out.last_hidden_state, labels, self.logits, self.lm_head.out_features
            )
            loss = total / (num_items_in_batch if num_items_in_batch is not None else max(count, 1))
        else:
            kept = (
                slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            )
            logits = self.logits(out.last_hidden_state[:, kept])
        return PaiqCausalOutput(
            loss=loss,
            logits=logits,
            past_key_values=out.past_key_values,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
            image_hidden_states=out.image_hidden_states,
        )

    def _validate_model_kwargs(self, model_kwargs: dict[str, Any]) -> None:
        # The library looks for names in forward's signature; ours travel as keywords.
        super()._validate_model_kwargs(
            {name: value for name, value in model_kwargs.items() if name not in IMAGE_INPUTS}
        )

    def prepare_inputs_for_generation(
        self, *args: Any, is_first_iteration: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        inputs = super().prepare_inputs_for_generation(
            *args, is_first_iteration=is_first_iteration, **kwargs
        )
        if not is_first_iteration and kwargs.get("use_cache", True):
            for name in IMAGE_INPUTS:  # the cache remembers the image
                inputs.pop(name, None)
        return inputs

    def save_pretrained(self, save_directory: str | Path, **kwargs: Any) -> None:
        """Writes the interface and references to the frozen parts; see `paiq export` for all."""
        from paiq.model.checkpoint import save_interface

        kwargs.pop("state_dict", None)
        save_interface(self, Path(save_directory))


AutoModel.register(PaiqConfig, PaiqModel, exist_ok=True)
AutoModelForImageTextToText.register(PaiqConfig, PaiqForConditionalGeneration, exist_ok=True)
