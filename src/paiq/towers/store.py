"""The feature store: what the frozen towers make of each image, once, on disk in bfloat16.

    features/KEY/store.json                what the rows are: towers, preprocessing, images
                 shard-00000.safetensors   spatial (rows n c), semantic (rows m k), checksum (rows)

A store is named by the digest of what made it, so another tower, size or source is another store.
Shards appear whole or not at all; every row is checked when it is read.
"""

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import BFloat16
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from paiq.errors import ConfigError, DataError
from paiq.files import write_atomically
from paiq.progress import Report, silent

SHARD_BYTES = 256 * 2**20
FORMAT = 1


class Features(NamedTuple):
    """Both streams of some images."""

    spatial: BFloat16[Tensor, "B n c"]
    semantic: BFloat16[Tensor, "B m k"]


Encode = Callable[[Sequence[int]], Features]
"""The features of the images at these rows."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One tower's side of a store."""

    origin: str
    """What decides the numbers: digest of the weights, preprocessing, layer, dtype."""
    tokens: int
    width: int


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a store holds; equal contents are the same store."""

    source: str
    images: tuple[str, ...] = field(repr=False)
    """The distinct images of the source; their positions here are the rows."""
    spatial: Stream
    semantic: Stream

    def __post_init__(self) -> None:
        if len(set(self.images)) != len(self.images) or not self.images:
            raise DataError(f"the images of {self.source} must be distinct and at least one")

    @property
    def row_bytes(self) -> int:
        return 2 * sum(s.tokens * s.width for s in (self.spatial, self.semantic))

    @property
    def total_bytes(self) -> int:
        """The size on disk, up to a few kilobytes of headers."""
        return self.row_bytes * len(self.images)

    @property
    def rows_per_shard(self) -> int:
        return max(1, SHARD_BYTES // self.row_bytes)

    @property
    def shards(self) -> int:
        return -(-len(self.images) // self.rows_per_shard)

    def rows_of(self, shard: int) -> range:
        start = shard * self.rows_per_shard
        return range(start, min(start + self.rows_per_shard, len(self.images)))

    @cached_property
    def summary(self) -> dict[str, Any]:
        names = hashlib.sha256("\n".join(self.images).encode()).hexdigest()
        values = {name: value for name, value in asdict(self).items() if name != "images"}
        return {"format": FORMAT, **values, "count": len(self.images), "images": names}

    @property
    def key(self) -> str:
        text = json.dumps(self.summary, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class FeatureStore:
    """Rows of features by position, read from memory-mapped shards."""

    def __init__(self, root: Path, contents: Contents) -> None:
        self.contents = contents
        self.folder = root / contents.key
        self._open: dict[int, Any] = {}

    def missing(self) -> list[int]:
        """The shards that are still to be made."""
        return [shard for shard in range(self.contents.shards) if not self._is_whole(shard)]

    def build(
        self,
        encode: Encode,
        *,
        batch: int,
        rank: int = 0,
        processes: int = 1,
        report: Report = silent,
    ) -> None:
        """Makes this process's missing shards; a store that is whole costs a look."""
        # By the shard's own number: who makes which does not depend on who looked first.
        mine = [shard for shard in self.missing() if shard % processes == rank]
        if not mine:
            return
        self._must_fit()
        write_atomically(
            self.folder / "store.json", json.dumps(self.contents.summary, indent=1).encode()
        )
        done = 0
        for shard in mine:
            done = self._make(shard, encode, batch, lambda rows, start=done: report(start + rows))

    def read(self, rows: Sequence[int]) -> Features:
        """The features of these rows, each held to its checksum."""
        parts = [self._row(row) for row in rows]
        return Features(*(torch.stack(stream) for stream in zip(*parts, strict=True)))

    def _row(self, row: int) -> tuple[Tensor, Tensor]:
        if not 0 <= row < len(self.contents.images):
            raise DataError(f"{self.folder} holds {len(self.contents.images)} rows, not row {row}")
        shard, position = divmod(row, self.contents.rows_per_shard)
        file = self._shard(shard)
        spatial, semantic = file["spatial"][position], file["semantic"][position]
        if _checksum(spatial, semantic) != int(file["checksum"][position]):
            raise DataError(
                f"row {position} of {self._path(shard)} (image {self.contents.images[row]!r}) is "
                "damaged; remove that file, then `paiq features RECIPE` makes it again"
            )
        return spatial, semantic

    def _shard(self, shard: int) -> Any:
        if shard not in self._open:
            try:
                file = safe_open(self._path(shard), framework="pt")
            except (OSError, SafetensorError) as error:
                raise DataError(
                    f"cannot read {self._path(shard)}: {error}; "
                    "`paiq features RECIPE` makes what is missing"
                ) from error
            self._open[shard] = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        return self._open[shard]

    def _make(self, shard: int, encode: Encode, batch: int, report: Report) -> int:
        rows = self.contents.rows_of(shard)
        parts = []
        for start in range(rows.start, rows.stop, batch):
            chosen = range(start, min(start + batch, rows.stop))
            parts.append(self._checked(encode(chosen), len(chosen)))
            report(chosen.stop - rows.start)
        spatial, semantic = (torch.cat(stream) for stream in zip(*parts, strict=True))
        checks = [_checksum(a, b) for a, b in zip(spatial, semantic, strict=True)]
        tensors = {"spatial": spatial, "semantic": semantic, "checksum": torch.tensor(checks)}
        write_atomically(self._path(shard), save(tensors))
        return len(rows)

    def _checked(self, features: Features, count: int) -> Features:
        streams = (self.contents.spatial, self.contents.semantic)
        for stream, made in zip(streams, features, strict=True):
            expected = (count, stream.tokens, stream.width)
            if tuple(made.shape) != expected:
                raise DataError(f"the tower made {tuple(made.shape)} where {expected} was expected")
            if not bool(torch.isfinite(made).all()):
                raise DataError("the tower made features that are not finite")
        return Features(*(made.to("cpu", torch.bfloat16).contiguous() for made in features))

    def _is_whole(self, shard: int) -> bool:
        # A shard was renamed into place whole; a file cut later does not match its own header.
        try:
            with safe_open(self._path(shard), framework="pt") as file:
                rows = file.get_slice("checksum").get_shape()[0]
        except (OSError, SafetensorError):
            return False
        return bool(rows == len(self.contents.rows_of(shard)))

    def _must_fit(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        needed = sum(len(self.contents.rows_of(s)) for s in self.missing())
        needed *= self.contents.row_bytes
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise ConfigError(
                f"the features of {self.contents.source} take {readable(needed)}, but "
                f"{self.folder} has {readable(free)} left; choose another "
                "features.folder, or features.store=false to run the towers in every step"
            )

    def _path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:05d}.safetensors"


def readable(count: int) -> str:
    """A size for people, in powers of 1,024."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _checksum(spatial: Tensor, semantic: Tensor) -> int:
    return zlib.crc32(_bytes(semantic), zlib.crc32(_bytes(spatial)))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().view(torch.uint8).numpy().data
