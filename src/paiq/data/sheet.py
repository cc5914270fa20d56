"""A contact sheet: pictures of a data set on one page, each with its id and text."""

import io
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw

from paiq.data.opening import Selection
from paiq.errors import ConfigError, DataError
from paiq.files import write_atomically

COLUMNS = 6
CELL = 200
CAPTION_LINES = 5
LINE = 13
CHARACTERS = 32
MARGIN = 6
PAPER, INK, BROKEN = (255, 255, 255), (20, 20, 20), (190, 20, 20)


def spread(length: int, most: int) -> list[int]:
    """At most `most` positions, evenly over the whole."""
    count = min(length, most)
    return [index * length // count for index in range(count)]


def contact_sheet(source: Selection, most: int = 36) -> Image.Image:
    """Some of the samples, evenly over the source; a bad one shows what is wrong with it."""
    indices = spread(len(source), most)
    rows = -(-len(indices) // COLUMNS)
    height = CELL + CAPTION_LINES * LINE + MARGIN
    page = Image.new("RGB", (COLUMNS * (CELL + MARGIN) + MARGIN, rows * height + MARGIN), PAPER)
    for place, index in enumerate(indices):
        corner = (
            MARGIN + place % COLUMNS * (CELL + MARGIN),
            MARGIN + place // COLUMNS * height,
        )
        _cell(page, corner, source, index)
    return page


def write_sheet(source: Selection, path: Path) -> None:
    forms = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
    if path.suffix.lower() not in forms:
        raise ConfigError(f"a contact sheet is a .png or a .jpg, not {path.name!r}")
    content = io.BytesIO()
    contact_sheet(source).save(content, forms[path.suffix.lower()])
    write_atomically(path, content.getvalue())


def _cell(page: Image.Image, corner: tuple[int, int], source: Selection, index: int) -> None:
    row = source.rows[index]
    try:
        sample = source[index]
        picture = source.image(sample)
    except DataError as error:
        _write(page, corner, f"row {row}: {error}", BROKEN, 14)
        return
    picture.thumbnail((CELL, CELL))
    page.paste(picture, corner)
    turn = sample.turns[0]
    asked = textwrap.shorten(sample.question or turn.prompt, 2 * CHARACTERS, placeholder=" …")
    text = f"{row}: {sample.id}\n{asked}\n> {turn.answer or ''}"
    _write(page, (corner[0], corner[1] + CELL), text, INK, CAPTION_LINES)


def _write(
    page: Image.Image, corner: tuple[int, int], text: str, ink: tuple[int, int, int], most: int
) -> None:
    lines = [
        piece for line in text.splitlines() for piece in textwrap.wrap(line, CHARACTERS) or [""]
    ]
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(lines[:most]):
        shown = line if number + 1 < most or len(lines) <= most else line[: CHARACTERS - 2] + " …"
        draw.text((corner[0], corner[1] + number * LINE), shown, fill=ink, font_size=11)
