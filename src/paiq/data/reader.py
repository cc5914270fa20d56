"""What the readers of published formats share: rows by position, read when asked for."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from paiq.data.images import inside, read_bytes, read_image
from paiq.errors import DataError
from paiq.records import Sample
from paiq.registry import Registry

ENDS = 64 * 1024


class Reader(ABC):
    """A data set as published. A bad row is an error when it is asked for, not before."""

    first_frame = False
    files: tuple[Path, ...] = ()
    """The files that decide which samples there are."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows, good and bad."""

    @abstractmethod
    def __getitem__(self, row: int) -> Sample: ...

    @abstractmethod
    def image_bytes(self, sample: Sample) -> bytes:
        """The file of the picture, untouched."""

    def image_name(self, sample: Sample) -> str:
        return sample.image

    def image(self, sample: Sample) -> Image.Image:
        return read_image(
            self.image_bytes(sample), self.image_name(sample), first_frame=self.first_frame
        )


class FolderReader(Reader):
    """Pictures are files under one folder."""

    def __init__(self, images: Path) -> None:
        self.images = images

    def image_bytes(self, sample: Sample) -> bytes:
        return read_bytes(inside(self.images, sample.image))

    def image_name(self, sample: Sample) -> str:
        return str(self.images / sample.image)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a data set lies."""

    path: Path
    images: Path | None = None
    """The folder of the pictures, where the format keeps them apart."""

    def image_folder(self, *usual: str) -> Path:
        """The named folder, or the first of the usual ones beside the file, or its own folder."""
        if self.images is not None:
            if not self.images.is_dir():
                raise DataError(f"image folder {self.images} does not exist")
            return self.images
        beside = self.path if self.path.is_dir() else self.path.parent
        return next((beside / name for name in usual if (beside / name).is_dir()), beside)


@dataclass(frozen=True)
class Kind:
    """A format: how it is opened, what can be set, and one line that explains it."""

    open: Callable[[Place, Any], Reader]
    options: type
    line: str


KINDS: Registry[Kind] = Registry("kind of data")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns a file that vanished, is locked away or cannot be read into an error with its name."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror}") from error


def require(row: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    """The value under the key, of exactly this type."""
    if key not in row:
        raise DataError(f"{where} has no {key!r}; has {', '.join(map(str, row))}")
    value = row[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"{where}: {key!r} must be {kind.__name__}, got {value!r:.80}")
    return value


def require_texts(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = require(row, key, list, where)
    if not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: {key!r} must hold texts only")
    return tuple(values)


def fingerprint(files: Sequence[Path], *settings: str) -> str:
    """A digest of the settings and of each file's name, size, first and last 64 KiB.

    It tells data sets and their versions apart without reading terabytes; a flipped bit in the
    middle of a large file passes.
    """
    digest = hashlib.sha256()
    for text in settings:
        digest.update(f"{len(text)}:{text}".encode())
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}:".encode())
        with path.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(size - ENDS, 0), os.SEEK_SET)
            digest.update(file.read(ENDS))
    return digest.hexdigest()
