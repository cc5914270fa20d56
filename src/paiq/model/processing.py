"""The processor: one placeholder in the text becomes as many as the interface makes tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoProcessor, ProcessorMixin
from transformers.processing_utils import MultiModalData

from paiq.model.configuration import PaiqConfig
from paiq.towers.folder import checkpoint_folder

INTERFACE = "interface.safetensors"

FLATTEN = (
    "{%- set paiq = namespace(messages=[]) -%}"
    "{%- for message in messages -%}"
    "{%- if message.content is string -%}{%- set text = message.content -%}"
    "{%- else -%}{%- set parts = namespace(text='') -%}"
    "{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}{%- set parts.text = parts.text + IMAGE_BLOCK -%}"
    "{%- elif part.type == 'text' -%}{%- set parts.text = parts.text + part.text -%}{%- endif -%}"
    "{%- endfor -%}{%- set text = parts.text -%}{%- endif -%}"
    "{%- set paiq.messages = paiq.messages + [{'role': message.role, 'content': text}] -%}"
    "{%- endfor -%}{%- set messages = paiq.messages -%}"
)
"""Turns contents of several parts into the text a language model's own template understands."""


def chat_template(own: str, image_block: str, options: Mapping[str, Any]) -> str:
    """The language model's template, taught where the image block goes."""
    chosen = "".join(
        f"{{%- if {name} is not defined -%}}{{%- set {name} = {_literal(value)} -%}}{{%- endif -%}}"
        for name, value in options.items()
    )
    return chosen + FLATTEN.replace("IMAGE_BLOCK", _literal(image_block)) + own


def _literal(value: Any) -> str:
    # Jinja reads JSON's strings and numbers; its booleans and null are spelled the same.
    return json.dumps(value, ensure_ascii=False)


class PaiqProcessor(ProcessorMixin):
    """Image processor and tokenizer; one placeholder in the text becomes N."""

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        chat_template: str | None = None,
        image_token: str = "<image>",  # noqa: S107 a token of text
        num_image_tokens: int = 196,
        **kwargs: Any,
    ) -> None:
        self.image_token = image_token
        self.num_image_tokens = num_image_tokens
        self.image_token_id = tokenizer.convert_tokens_to_ids(image_token)
        tokenizer.padding_side = "left"  # prompts end together, where answers begin
        super().__init__(image_processor, tokenizer, chat_template=chat_template, **kwargs)

    def replace_image_token(self, image_inputs: Any, image_idx: int, **kwargs: Any) -> str:
        return self.image_token * self.num_image_tokens

    def _get_num_multimodal_tokens(self, image_sizes: Any = None, **kwargs: Any) -> MultiModalData:
        count = len(image_sizes or [])
        if not count:
            return MultiModalData()
        return MultiModalData(
            num_image_tokens=[self.num_image_tokens] * count, num_image_patches=[1] * count
        )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **kwargs: Any) -> Any:
        """From a folder's own files, or put together from the parts its model refers to."""
        folder = checkpoint_folder(pretrained_model_name_or_path, kwargs.pop("revision", None))
        if (folder / INTERFACE).is_file() and not (folder / "processor_config.json").is_file():
            from paiq.model.build import load_processor

            return load_processor(folder, sources=kwargs.get("sources"))
        return super().from_pretrained(folder, **kwargs)


AutoProcessor.register(PaiqConfig, PaiqProcessor, exist_ok=True)
