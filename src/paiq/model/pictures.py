"""One picture in, the pixels of both streams out; transformers' image processor."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from PIL import Image, ImageOps
from transformers import AutoImageProcessor, BatchFeature
from transformers.image_processing_utils import BaseImageProcessor
from transformers.image_utils import make_flat_list_of_images, to_numpy_array

from paiq.config import from_mapping
from paiq.errors import ConfigError
from paiq.model.configuration import PaiqConfig
from paiq.towers import Preprocessing, prepare

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
PAPER_SPATIAL = {"height": 224, "width": 224, "resample": "bilinear", **IMAGENET}
PAPER_SEMANTIC = {"height": 384, "width": 384, "resample": "bicubic", **HALF}


class PaiqImageProcessor(BaseImageProcessor):
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
    """An upright PIL picture of whatever transformers hands over: PIL, numpy or torch."""
    if isinstance(image, Image.Image):
        return ImageOps.exif_transpose(image)
    array = to_numpy_array(image)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.dtype.kind == "f" and array.max() <= 1.0:
        array = array * 255
    return Image.fromarray(array.round().astype("uint8").squeeze())


AutoImageProcessor.register(
    PaiqConfig, slow_image_processor_class=PaiqImageProcessor, exist_ok=True
)
