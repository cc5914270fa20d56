"""Parquet shards as one long table: any row by its number, a small part in memory at a time."""

import bisect
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from paiq.data.reader import Reader
from paiq.errors import ConfigError, DataError, suggest
from paiq.records import Sample

BATCH = 32
"""Rows decoded at a time: 32 pictures of 1024 x 1024 are about 5 MB of JPEG."""
OPEN_CURSORS = 4
NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})(-[0-9a-f]+)?\.parquet", re.ASCII)


def import_parquet() -> Any:
    """The module `pyarrow.parquet`, or what to install."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError("reading parquet needs pyarrow: pip install 'paiq[data]'") from error
    return parquet


def shards(path: Path, pattern: str = "*.parquet") -> tuple[Path, ...]:
    """The shards of a folder in the order of their names, without a hole; or the one file."""
    if path.is_file():
        return (path,)
    found = sorted(path.rglob(pattern), key=lambda file: file.relative_to(path).parts)
    if not found:
        raise DataError(f"no {pattern} under {path}")
    _refuse_holes(found)
    return tuple(found)


def _refuse_holes(found: Sequence[Path]) -> None:
    """A missing shard would shift the number of every row behind it."""
    series: dict[tuple[Path, str, str], list[int]] = {}
    for file in found:
        if match := NUMBERED.fullmatch(file.name):
            series.setdefault((file.parent, match[1], match[3]), []).append(int(match[2]))
    for place, ((folder, name, total), numbers) in enumerate(series.items()):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        if not missing and len(numbers) < int(total) and place < len(series) - 1:
            missing = [len(numbers)]
        if missing:
            raise DataError(
                f"{folder} lacks shard {missing[0]} of {name} ({len(numbers)} of {int(total)} "
                "are there), so the rows behind it would be misnumbered; name one file, or "
                "complete the folder"
            )


class Table:
    """Rows of equally shaped shards. Reading forward is quick; a step back begins anew."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        parquet = import_parquet()
        groups: list[tuple[Path, int, int]] = []
        self.schema: Any = None
        for path in self.files:
            metadata, schema = _footer(parquet, path)
            if self.schema is not None and set(schema.names) != set(self.schema.names):
                raise DataError(f"{path} has other columns than {self.files[0]}")
            self.schema = schema
            groups += [
                (path, group, metadata.row_group(group).num_rows)
                for group in range(metadata.num_row_groups)
            ]
        self._groups = groups
        self._ends = list(accumulate(rows for _, _, rows in groups))
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._cursors: OrderedDict[tuple[int, tuple[str, ...]], _Cursor] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens its own files.
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_cursors")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def need(self, *columns: str) -> None:
        for column in columns:
            if column not in self.columns:
                raise DataError(
                    f"{self.files[0]} has no column {column!r}; has {', '.join(self.columns)}."
                    f"{suggest(column, self.columns)}"
                )

    def where(self, row: int) -> str:
        """File and row in the file, as errors name them."""
        path, start = self._file_of(row)
        return f"{path} row {row - start}"

    def read(self, row: int, columns: Sequence[str]) -> Mapping[str, Any]:
        """The named columns of a row as plain values."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        group = bisect.bisect_right(self._ends, row)
        start = self._ends[group - 1] if group else 0
        with self._lock:
            return self._cursor(group, tuple(columns)).read(row - start)

    def _cursor(self, group: int, columns: tuple[str, ...]) -> "_Cursor":
        key = (group, columns)
        if key not in self._cursors:
            path, inner, _ = self._groups[group]
            self._cursors[key] = _Cursor(path, inner, columns)
            if len(self._cursors) > OPEN_CURSORS:
                self._cursors.popitem(last=False)
        self._cursors.move_to_end(key)
        return self._cursors[key]

    def _file_of(self, row: int) -> tuple[Path, int]:
        group = bisect.bisect_right(self._ends, row)
        path, inner, _ = self._groups[group]
        first = group - inner
        return path, self._ends[first - 1] if first else 0


class _Cursor:
    """A place in one row group from which rows are decoded a batch at a time."""

    def __init__(self, path: Path, group: int, columns: tuple[str, ...]) -> None:
        self.path, self.group, self.columns = path, group, columns
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None
        self._first = 0
        self._rewind()

    def _rewind(self) -> None:
        parquet = import_parquet()
        with _named(self.path):
            # Without pre_buffer a row group of gigabytes is not fetched whole.
            file = parquet.ParquetFile(self.path, pre_buffer=False)
            self._batches = file.iter_batches(
                BATCH, row_groups=[self.group], columns=list(self.columns), use_threads=False
            )
        self._batch, self._first = None, 0

    def read(self, row: int) -> dict[str, Any]:
        if row < self._first:
            self._rewind()
        while self._batch is None or row >= self._first + self._batch.num_rows:
            self._advance()
        values = self._batch.slice(row - self._first, 1).to_pylist()[0]
        return dict(values)

    def _advance(self) -> None:
        if self._batch is not None:
            self._first += self._batch.num_rows
        with _named(self.path):
            self._batch = next(self._batches, None)
        if self._batch is None:
            raise DataError(f"{self.path} ends before the rows its footer promises")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns what pyarrow raises on a broken file into an error with the file's name."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is no readable parquet file: {error}") from error


def _footer(parquet: Any, path: Path) -> tuple[Any, Any]:
    with _named(path), parquet.ParquetFile(path) as file:
        return file.metadata, file.schema_arrow


def one_image(value: Any, where: str, *, first_frame: bool = False) -> bytes:
    """The bytes of an image cell: a struct of bytes and path, or a list that holds one such."""
    if isinstance(value, list):
        if len(value) != 1 and not (value and first_frame):
            raise DataError(
                f"{where} holds {len(value)} pictures, not one"
                + ("; set first_frame to take the first" if value else "")
            )
        value = value[0]
    if isinstance(value, Mapping):
        value = value.get("bytes")
    if not isinstance(value, bytes):
        raise DataError(f"{where} holds no image bytes (a path alone is not followed)")
    return value


class TableReader(Reader):
    """Samples out of parquet, with their pictures; the key of a picture is its row."""

    image_column = "image"

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.table = Table(files)
        self.table.need(self.image_column)

    def __len__(self) -> int:
        return len(self.table)

    def image_bytes(self, sample: Sample) -> bytes:
        row = int(sample.image.removeprefix("row "))
        cell = self.table.read(row, (self.image_column,))[self.image_column]
        return one_image(cell, self.table.where(row), first_frame=self.first_frame)

    def image_name(self, sample: Sample) -> str:
        return self.table.where(int(sample.image.removeprefix("row ")))
