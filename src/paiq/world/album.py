"""Samples laid side by side, to be looked at."""

from collections.abc import Iterator
from pathlib import Path

from paiq.errors import ConfigError
from paiq.world.language import describe
from paiq.world.scenes import SIDE
from paiq.world.source import WorldSource

_COLUMNS = 8
_GAP = 4


def show(split: str, indices: range, seed: int, out: Path) -> Iterator[str]:
    """A few lines about each sample; the pictures stand in `out` when the first one comes."""
    from PIL import Image

    if len(indices) < 1 or indices.start < 0:
        raise ConfigError("show at least one sample, counted from 0")
    source = WorldSource(split, indices.stop, seed)
    step = SIDE + _GAP
    rows = -(-len(indices) // _COLUMNS)
    width = min(len(indices), _COLUMNS) * step - _GAP
    sheet = Image.new("RGB", (width, rows * step - _GAP), "white")
    for number, picture in enumerate(source.draw_batch(list(indices))):
        row, column = divmod(number, _COLUMNS)
        drawn = Image.fromarray(picture.permute(1, 2, 0).contiguous().numpy())
        sheet.paste(drawn, (column * step, row * step))
    try:
        sheet.save(out)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write {out}: {error}; give a name ending in .png") from error
    for index in indices:
        yield from _lines(source, index)


def _lines(source: WorldSource, index: int) -> Iterator[str]:
    sample = source[index]
    yield f"\n{sample.id}: {describe(source.scene(index))}"
    for turn in sample.turns:
        answer = turn.answer or sample.reference
        yield f"  {turn.prompt}" + (f"  ->  {answer}" if answer else "")
