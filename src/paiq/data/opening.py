"""From a description of some data to its samples: which format, where, which rows."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from paiq.config import from_mapping, load_yaml
from paiq.data.bad_rows import read_bad
from paiq.data.reader import KINDS, Place, Reader, fingerprint, readable
from paiq.data.slices import paper_slice, rows_of
from paiq.errors import ConfigError, DataError
from paiq.records import Sample

SPEC = re.compile(r"([a-z-]+):([^\[\]]+)(?:\[([^\[\]]*)\])?")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Some samples: a data set and the rows of it."""

    kind: str
    """The format; `paiq data list` shows them."""
    path: Path
    """The file, or the folder of files."""
    slice: str = ""
    """Which rows: 500:1500, (500+i)%1145 for 1000, paper/flux; empty for all."""
    images: Path | None = None
    """The folder of the pictures, where the format keeps them apart and not beside the file."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the format; `paiq data list` shows them."""
    first_frame: bool = False
    """Take the first frame of animated pictures instead of refusing them."""
    skip_bad: Path | None = None
    """Leave out the bad rows listed in this file, which `paiq data check --write-bad` wrote."""


class Selection:
    """The chosen rows of a data set."""

    def __init__(self, reader: Reader, rows: Sequence[int], name: str, data: str) -> None:
        self.reader = reader
        self.rows = rows
        self.name = name
        self.data = data
        """Changes when the files or the format's settings change."""
        self.fingerprint = fingerprint((), data, name, repr(list(rows)))
        """Changes also when the slice or the skipped rows do."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        with readable(self.reader.files[0]):
            return self.reader[self.rows[index]]

    def image(self, sample: Sample) -> Image.Image:
        with readable(self.reader.files[0]):
            return self.reader.image(sample)

    def image_bytes(self, sample: Sample) -> bytes:
        """The picture's file, untouched."""
        with readable(self.reader.files[0]):
            return self.reader.image_bytes(sample)

    def image_name(self, sample: Sample) -> str:
        """Where the picture is, as errors name it."""
        return self.reader.image_name(sample)


def parse_source(text: str) -> DataConfig:
    """The config that `KIND:PATH`, `KIND:PATH[SLICE]` or a YAML file describes."""
    if text.endswith((".yaml", ".yml")):
        return load_yaml(DataConfig, Path(text))
    match = SPEC.fullmatch(text)
    if not match:
        raise ConfigError(
            f"{text!r} describes no data; write KIND:PATH[SLICE], such as "
            "'llava:cc3m/chat.json[500:1500]', or name a .yaml file"
        )
    return DataConfig(kind=match[1], path=Path(match[2]), slice=match[3] or "")


def open_source(config: DataConfig | str) -> Selection:
    """The samples that the config describes; counts that do not fit are errors."""
    if isinstance(config, str):
        config = parse_source(config)
    kind = KINDS[config.kind]
    if not config.path.exists():
        raise DataError(
            f"{config.path} does not exist; name your {config.kind} data as "
            f"{config.kind}:PATH or {config.kind}:PATH[SLICE]"
        )
    options: Any = from_mapping(kind.options, config.options, where=f"options of {config.kind}")
    with readable(config.path):
        reader = kind.open(Place(path=config.path, images=config.images), options)
    reader.first_frame = config.first_frame
    if not len(reader):
        raise DataError(f"{config.path} holds no rows")
    settings = json.dumps([config.kind, asdict(options), config.first_frame], sort_keys=True)
    with readable(config.path):
        whole = fingerprint(reader.files, settings)
    named = paper_slice(config.slice)
    written = named.rows if named else config.slice
    name = (named.dataset if named else config.kind) + (f"[{written}]" if written else "")
    rows = rows_of(config.slice, len(reader))
    if config.skip_bad is not None:
        rows, name = _without(rows, name, read_bad(config.skip_bad, whole))
    return Selection(reader, rows, name, whole)


def _without(rows: Sequence[int], name: str, bad: set[int]) -> tuple[Sequence[int], str]:
    kept = [row for row in rows if row not in bad]
    if not kept:
        raise DataError(f"every row of {name} is listed as bad")
    return kept, f"{name} without {len(rows) - len(kept)} bad"
