"""A ledger as a file: verified, exported, merged with the shards of other machines."""

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paiq.errors import ConfigError, DataError
from paiq.files import write_atomically
from paiq.judging.ledger import DamagedLedgerError, Ledger, connect, damaged, last, read, trouble
from paiq.judging.ledger_rows import COLUMNS, Entry, Row, canonical
from paiq.judging.ledger_state import Book, Coverage
from paiq.judging.lock import beside

BATCH = 2000
UNSCORED = """
SELECT count(*) FROM record AS r LEFT JOIN score AS s ON s.accepted = r.seq
WHERE r.kind = 'accepted' AND (s.key IS NOT r.key
    OR s.value IS NOT json_extract(r.body, '$.score')
    OR s.evaluator IS NOT json_extract(r.body, '$.evaluator'))
"""
SLICES = "SELECT DISTINCT json_extract(body, '$.slice') FROM record WHERE kind = 'expected'"


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A ledger that is whole."""

    rows: int
    digest: str
    """Of the last record: the whole ledger in one number."""
    coverage: Coverage


def verify(path: Path) -> Verified:
    """Every record against its chain, every score against its reply, and SQLite's own structure."""
    database = connect(path)
    try:
        rows, digest = last(database, path)
        found = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            raise damaged(path, f"SQLite says: {found}")
        book = Book(read(database, path))
        wrong = database.execute(UNSCORED).fetchone()[0]
        scores = database.execute("SELECT count(*) FROM score").fetchone()[0]
        accepted = book.models.total()
        if wrong or scores != accepted:
            raise damaged(path, f"{accepted} accepted replies and {scores} scores do not agree")
    except sqlite3.Error as error:
        raise trouble(path, error) from error
    finally:
        database.close()
    return Verified(rows=rows, digest=digest, coverage=book.coverage())


def load_book(path: Path) -> Book:
    """What a ledger says, read while another process may be writing it."""
    database = connect(path)
    try:
        last(database, path)
        return Book(read(database, path))
    finally:
        database.close()


def slices_of(path: Path) -> set[str]:
    """Names of the slices that a ledger has judged."""
    database = connect(path)
    try:
        return {name for (name,) in database.execute(SLICES)}
    except sqlite3.Error as error:
        raise trouble(path, error) from error
    finally:
        database.close()


def export(path: Path, to: Path, *, good_prefix: bool = False) -> tuple[int, str]:
    """How many records were written, and what is wrong behind them where a prefix was asked for."""
    if to.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"cannot export to {to}; its name must end in .jsonl or .parquet")
    rows: list[Row] = []
    problem = ""
    try:
        for row in _rows_of(path, whole=not good_prefix):
            rows.append(row)  # noqa: PERF402  # the rows before the damage are to be kept
    except DamagedLedgerError as error:
        if not good_prefix:
            raise
        problem = str(error).split(". ")[0]
    write_atomically(to, _jsonl(rows) if to.suffix == ".jsonl" else _parquet(rows))
    return len(rows), problem


def _rows_of(path: Path, *, whole: bool) -> Iterator[Row]:
    database = connect(path)
    try:
        if whole:
            last(database, path)
        yield from read(database, path)
    finally:
        database.close()


def _names() -> list[str]:
    return COLUMNS.split(", ")


def _jsonl(rows: Iterable[Row]) -> bytes:
    lines = (
        canonical({**dict(zip(_names(), row.values, strict=True)), "body": row.body})
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _parquet(rows: Sequence[Row]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow; type: pip install 'paiq[data]'") from error
    columns = list(zip(*(row.values for row in rows), strict=True)) or [()] * len(_names())
    types = {"seq": pyarrow.int64(), "attempt": pyarrow.int64(), "at": pyarrow.float64()}
    arrays = [
        pyarrow.array(column, types.get(name, pyarrow.string()))
        for name, column in zip(_names(), columns, strict=True)
    ]
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(_names(), arrays, strict=True))), sink)
    return sink.getvalue().to_pybytes()


def merge(shards: Sequence[Path], to: Path) -> int:
    """How many records the union of the shards has; it is whole at `to` or not there at all.

    Records that are in several shards, as after copying a run, stand once. Two different accepted
    replies to one key, or two different accounts of one attempt, are an error: no side is chosen.
    """
    if to.exists():
        raise ConfigError(f"{to} exists already; merge into a new file")
    rows = _union(shards)
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".merge-") as folder:
        built = Path(folder) / to.name
        with Ledger(built) as ledger:
            entries = [_again(row) for row in rows]
            for start in range(0, len(entries), BATCH):
                ledger.append(entries[start : start + BATCH])
        os.link(built, to)  # refuses where a file has appeared in between, as a rename would not
        beside(built).replace(beside(to))
    return len(rows)


def _union(shards: Sequence[Path]) -> list[Row]:
    rows: list[Row] = []
    known: dict[tuple[Any, ...], tuple[Path, Row]] = {}
    primaries = {}
    for shard in shards:
        if not shard.exists():
            raise DataError(f"there is no ledger at {shard}")
        with Ledger(shard) as ledger:
            found = list(ledger.rows())
        primaries[Book(found).primary] = shard
        for row in found:
            first, other = known.setdefault(_event(row), (shard, row))
            if other is row:
                rows.append(row)
            elif row.kind in ("intent", "outcome", "accepted") and other.content != row.content:
                raise DataError(_conflict(other, first, row, shard))
    if len(primaries) > 1:
        raise DataError(f"the shards belong to different routes: {', '.join(primaries)}")
    return rows


def _event(row: Row) -> tuple[Any, ...]:
    """Equal for two records that cannot both be true, or that are one."""
    if row.kind in ("intent", "outcome"):
        return row.kind, row.key, row.route, row.attempt
    if row.kind == "accepted":
        return row.kind, row.key
    if row.kind in ("expected", "terminal"):
        return row.kind, row.key, row.route, row.text
    return row.content


def _conflict(first: Row, in_first: Path, second: Row, in_second: Path) -> str:
    what = "accepted reply" if first.kind == "accepted" else f"{first.kind} of attempt"
    number = "" if first.attempt is None else f" {first.attempt}"
    return (
        f"{in_first} and {in_second} hold two different records of the {what}{number} of key "
        f"{first.key}; both were sent, so no union is right. Decide which shard stands and merge "
        "without the other"
    )


def _again(row: Row) -> Entry:
    return Entry(
        kind=row.kind,
        key=row.key,
        route=row.route,
        attempt=row.attempt,
        at=row.at,
        body=row.body,
    )
