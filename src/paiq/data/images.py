"""Pictures from files and bytes: RGB, upright, whole, or a `DataError` that names the file.

What each oddity becomes (the table of docs/data.md):
EXIF orientation applied; CMYK, YCbCr, greyscale and palette converted; 16 bits keep their high
byte; alpha composited on white; animated or many-paged refused unless the first frame is asked
for; truncated, empty, oversized, floating-point and unknown files refused. Nothing is fetched.
"""

import io
import re
import struct
from pathlib import Path, PurePosixPath, PureWindowsPath

from PIL import Image, ImageFile, UnidentifiedImageError

from paiq.errors import ConfigError, DataError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""What we let Pillow try. EPS and the like start other programs and are never tried."""
MOST_PIXELS = 64_000_000
"""8000 x 8000; a small file may claim far more and fill the memory."""
MOST_BYTES = 256 * 2**20
WHITE = (255, 255, 255)

ORIENTATION = 0x0112  # the EXIF tag
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

# What Pillow's decoders raise on broken files, found by cutting and flipping bytes of every format.
DECODING = (
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


def inside(root: Path, relative: str) -> Path:
    """The file `relative` under `root`; a way out of the folder or an address is an error."""
    if SCHEME.match(relative):
        raise DataError(
            f"{relative!r} is an address, not a file under {root}; "
            "nothing is fetched: download the images first"
        )
    windows = PureWindowsPath(relative)
    parts = {*PurePosixPath(relative).parts, *windows.parts}
    if not relative or "\0" in relative or ".." in parts or windows.anchor:
        raise DataError(f"{relative!r} is no path inside {root}")
    path = root / relative
    try:
        leaves = not path.resolve().is_relative_to(root.resolve())
    except RuntimeError as error:
        raise DataError(f"{path} is a link that leads to itself") from error
    if leaves:
        raise DataError(
            f"{path} is a link that leaves {root}; name the folder that really holds the images"
        )
    return path


def read_bytes(path: Path) -> bytes:
    """The file, where it is a plain one of a reasonable size."""
    try:
        if not path.is_file():
            raise DataError(f"{path} {'is no file' if path.exists() else 'does not exist'}")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES:,} bytes, too large for an image")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def read_image(
    source: Path | bytes,
    where: str = "",
    *,
    first_frame: bool = False,
    most_pixels: int = MOST_PIXELS,
    background: tuple[int, int, int] = WHITE,
) -> Image.Image:
    """The picture as upright RGB; `where` names it in errors."""
    where = where or (str(source) if isinstance(source, Path) else "image")
    content = read_bytes(source) if isinstance(source, Path) else source
    if not content:
        raise DataError(f"{where} is empty")
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ConfigError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on, so cut images would pass unseen; "
            "set it to False"
        )
    return _rgb(_decode(content, where, first_frame, most_pixels), where, background)


def _decode(content: bytes, where: str, first_frame: bool, most_pixels: int) -> Image.Image:
    try:
        with Image.open(io.BytesIO(content), formats=_readable()) as image:
            _refuse(image, where, first_frame, most_pixels)
            image.load()
            return _upright(image)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{where} is no image we read ({', '.join(FORMATS)})") from error
    except DECODING as error:
        raise DataError(f"{where} is broken: {error or type(error).__name__}") from error


def _readable() -> list[str]:
    Image.init()  # otherwise Pillow knows only the commonest formats
    return [name for name in FORMATS if name in Image.OPEN]  # a build may lack a codec


def _refuse(image: Image.Image, where: str, first_frame: bool, most_pixels: int) -> None:
    if image.width * image.height > most_pixels:
        raise DataError(
            f"{where} has {image.width} x {image.height} pixels, more than {most_pixels:,}; "
            "shrink it"
        )
    # A phone's MPO holds one photo and its previews or its second eye: the first is the picture.
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if frames > 1 and not first_frame:
        raise DataError(f"{where} has {frames} frames; set first_frame to take the first of them")


def _upright(image: Image.Image) -> Image.Image:
    turn = UPRIGHT.get(image.getexif().get(ORIENTATION, 1))
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image, where: str, background: tuple[int, int, int]) -> Image.Image:
    if image.mode == "F":
        raise DataError(f"{where} holds floating-point pixels, whose range is unknown; convert it")
    if image.mode.startswith("I"):
        image = _high_byte(image, where)
    if image.mode == "LAB":
        raise DataError(f"{where} holds Lab colours, which need a colour profile; convert it")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        canvas = Image.new("RGBA", layer.size, (*background, 255))
        return Image.alpha_composite(canvas, layer).convert("RGB")
    return image.convert("RGB")


def _high_byte(image: Image.Image, where: str) -> Image.Image:
    """8 bits of 16, as Pillow itself reads 16-bit RGB; its own conversion of grey would clip."""
    import numpy as np

    values = np.asarray(image.convert("I"))
    if values.min() < 0 or values.max() > 0xFFFF:
        raise DataError(f"{where} holds more than 16 bits per pixel; convert it")
    return Image.fromarray((values >> 8).astype(np.uint8))
