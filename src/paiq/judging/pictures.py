"""Whether a picture can be sent as it is. The original bytes go out, so nothing is mended here."""

import io
import struct

from PIL import Image, ImageFile, UnidentifiedImageError

from paiq.errors import ConfigError

MIME = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA"})
MOST_BYTES = 20_000_000
MOST_SIDE = 8_000
ORIENTATION = 0x0112

BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    TypeError,
    IndexError,
    OverflowError,
    RuntimeError,
    struct.error,
    Image.DecompressionBombError,
)
"""What Pillow's decoders raise on damaged files."""


class UnfitPicture(Exception):  # noqa: N818 - a finding about one key, told as Unsendable
    """This picture would not reach the evaluator as the model saw it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def mime_of(content: bytes) -> str:
    """The media type, read from the bytes; raises UnfitPicture where the bytes cannot be sent."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ConfigError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES hides cut images; set it to False")
    if not content:
        raise UnfitPicture("empty_image", "the image has no bytes")
    if len(content) > MOST_BYTES:
        raise UnfitPicture("large_image", f"the image has more than {MOST_BYTES:,} bytes")
    try:
        with Image.open(io.BytesIO(content), formats=list(MIME)) as image:
            _check(image, content)
            image.load()
            return MIME[str(image.format)]
    except UnidentifiedImageError:
        raise UnfitPicture(
            "unsupported_image", f"the image is none of {', '.join(MIME)}; convert it"
        ) from None
    except BROKEN as error:
        raise UnfitPicture("broken_image", f"the image cannot be decoded: {error}") from None


def _check(image: Image.Image, content: bytes) -> None:
    if max(image.size) > MOST_SIDE:
        raise UnfitPicture(
            "large_image", f"{image.width} x {image.height} pixels; the most is {MOST_SIDE} a side"
        )
    if getattr(image, "n_frames", 1) > 1:
        raise UnfitPicture("animated_image", "the image has several frames; send one of them")
    sixteen_bit = image.format == "PNG" and content[24:25] == b"\x10"
    if image.mode not in MODES or sixteen_bit:
        depth = "16 bits" if sixteen_bit else image.mode
        raise UnfitPicture(
            "unsupported_image", f"evaluators may read {depth} differently; convert to 8-bit RGB"
        )
    if image.getexif().get(ORIENTATION, 1) != 1:
        raise UnfitPicture(
            "rotated_image", "an EXIF tag turns the image, which evaluators may ignore; turn it"
        )
