"""The two-stream image processor and the processor around it, for transformers' pipelines."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image
from transformers import BatchFeature, ProcessorMixin
from transformers.image_processing_base import ImageProcessingMixin
from transformers.image_utils import make_flat_list_of_images, to_numpy_array
from transformers.processing_utils import MultiModalData

from paiq.config import from_mapping
from paiq.errors import ConfigError
from paiq.towers import Preprocessing, prepare

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
PAPER_SPATIAL = {"height": 224, "width": 224, "resample": "bilinear", **IMAGENET}
PAPER_SEMANTIC = {"height": 384, "width": 384, "resample": "bicubic", **HALF}


class PaiqImageProcessor(ImageProcessingMixin):
    """One picture in, the pixels of both streams out. No torchvision."""

    model_input_names = ["pixel_values", "pixel_values_semantic"]  # noqa: RUF012 read from the class

    def __init__(
        self,
        spatial: Mapping[str, Any] | None = None,
        semantic: Mapping[str, Any] | None = None,
        backend: str = "pil",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spatial = from_mapping(Preprocessing, spatial or PAPER_SPATIAL, where="spatial")
        self.semantic = from_mapping(Preprocessing, semantic or PAPER_SEMANTIC, where="semantic")
        if backend not in ("pil", "torch"):
            raise ConfigError(f"image backend must be 'pil' or 'torch', got {backend!r}")
        self.backend = backend

    def __call__(
        self, images: Any, return_tensors: str | None = None, **kwargs: Any
    ) -> BatchFeature:
        """`pixel_values` for the spatial stream, `pixel_values_semantic` for the other."""
        del kwargs  # settings of text and video travel along with every processor call
        pictures = [as_picture(image) for image in make_flat_list_of_images(images)]
        pixels = {
            "pixel_values": prepare(pictures, self.spatial, self.backend),  # type: ignore[arg-type]  # checked above
            "pixel_values_semantic": prepare(pictures, self.semantic, self.backend),  # type: ignore[arg-type]  # checked above
        }
        return BatchFeature(pixels, tensor_type=return_tensors)

    preprocess = __call__

    def to_dict(self) -> dict[str, Any]:
        return {
            "image_processor_type": type(self).__name__,
            "spatial": asdict(self.spatial),
            "semantic": asdict(self.semantic),
            "backend": self.backend,
        }


def as_picture(image: Any) -> Image.Image:
    """A PIL picture of whatever transformers hands over: PIL, numpy or torch."""
    if isinstance(image, Image.Image):
        return image
    array = to_numpy_array(image)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.dtype.kind == "f" and array.max() <= 1.0:
        array = array * 255
    return Image.fromarray(array.round().astype("uint8").squeeze())


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
        folder = Path(pretrained_model_name_or_path)
        if (folder / "interface.safetensors").is_file() and not _has_processor(folder):
            from paiq.model.build import load_processor

            return load_processor(folder, sources=kwargs.get("sources"))
        return super().from_pretrained(pretrained_model_name_or_path, **kwargs)


def _has_processor(folder: Path) -> bool:
    return (folder / "processor_config.json").is_file()
