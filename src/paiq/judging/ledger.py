"""The ledger: every send, what came of it, and who decided what, in one append-only file.

SQLite in write-ahead mode with full syncing: a batch that `append` returned from is on the disk.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from paiq.errors import DataError
from paiq.judging.ledger_rows import (
    APPLICATION,
    COLUMNS,
    FORMAT,
    GENESIS,
    SCHEMA,
    Entry,
    Row,
    digest_of,
    from_values,
    place,
)
from paiq.judging.lock import Lock, beside, witness

AROUND = (
    "SQLITE_BUSY",
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_LOCKED",
    "SQLITE_NOMEM",
    "SQLITE_PERM",
    "SQLITE_READONLY",
)
"""Errors that say nothing about the content of the file."""
INSERT = f"INSERT INTO record ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # constants only
SELECT = f"SELECT {COLUMNS} FROM record ORDER BY seq"  # noqa: S608  # constants only
SCORE = "INSERT INTO score (key, accepted, kind, value, evaluator) VALUES (?, ?, 'accepted', ?, ?)"


class DamagedLedgerError(DataError):
    """The file is not what was written; says where, and how to save what is good."""


class LedgerError(DataError):
    """An entry that the ledger's own rules refuse: a fourth send, a second accepted reply."""


class Ledger:
    """Appends to a ledger as its only writer.

    `rows` is the way to read it; what the rows mean is worked out in `ledger_state`.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._lock = Lock(path)
        try:
            self._database = connect(path, create=True)
            self._seq, self._digest = last(self._database, path)
        except BaseException:
            self._lock.close()
            raise

    def append(self, entries: Sequence[Entry]) -> list[Row]:
        """The rows of one transaction: all of them are on the disk afterwards, or none."""
        rows: list[Row] = []
        seq, digest = self._seq, self._digest
        at = self._clock()
        for entry in entries:
            row = place(entry, seq=seq + 1, at=at, previous=digest)
            rows.append(row)
            seq, digest = row.seq, row.digest
        try:
            self._write(rows, entries)
        except sqlite3.IntegrityError as error:
            raise LedgerError(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            raise DataError(f"cannot write {self.path}: {error}") from error
        self._seq, self._digest = seq, digest
        self._lock.note(seq, digest)
        return rows

    def _write(self, rows: Sequence[Row], entries: Sequence[Entry]) -> None:
        scores = [
            (row.key, row.seq, entry.body["score"], entry.body["evaluator"])
            for row, entry in zip(rows, entries, strict=True)
            if row.kind == "accepted"
        ]
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany(INSERT, [row.values for row in rows])
            self._database.executemany(SCORE, scores)
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def rows(self) -> Iterator[Row]:
        return read(self._database, self.path)

    def close(self) -> None:
        try:
            self._database.close()
        finally:
            self._lock.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """A connection with every rule switched on; a file that is no ledger is refused untouched."""
    fresh = not path.exists() or path.stat().st_size == 0
    if fresh and not create:
        raise DataError(f"there is no ledger at {path}")
    _refuse_strangers(path)
    try:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("PRAGMA recursive_triggers = ON")  # REPLACE counts as a deletion
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT; PRAGMA wal_checkpoint;")
        _check_format(database, path)
    except sqlite3.Error as error:
        raise trouble(path, error) from error
    return database


def read(database: sqlite3.Connection, path: Path) -> Iterator[Row]:
    """Every row in order, each checked against the one before; the first bad one is an error."""
    seq, digest = 0, GENESIS
    try:
        for values in database.execute(SELECT):
            row = from_values(values)
            if row.seq != seq + 1:
                raise damaged(path, f"record {seq + 1} is missing", seq)
            if row.previous != digest or row.digest != digest_of(seq + 1, row.content, digest):
                raise damaged(path, f"record {row.seq} is not the one that was written", seq)
            yield row
            seq, digest = row.seq, row.digest
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise trouble(path, error, seq) from error


def trouble(path: Path, error: Exception, good: int | None = None) -> DataError:
    """What an error of SQLite means: something around the file, or damage in it."""
    name = getattr(error, "sqlite_errorname", "")  # not of the Python errors among them
    if name.startswith(AROUND):
        return DataError(
            f"cannot use {path}: {error}. The folder must be writable and on a disk with room, "
            "even for reading: SQLite keeps its log beside the file"
        )
    return damaged(path, f"SQLite says: {error}", good)


def damaged(path: Path, problem: str, good: int | None = None) -> DamagedLedgerError:
    kept = f" Records 1 to {good} are good." if good else ""
    return DamagedLedgerError(
        f"{path} is damaged: {problem}.{kept} Nothing was changed. Save the good part with "
        f"`paiq ledger export {path} --good-prefix --to FILE.jsonl`, then restore a backup"
    )


def _refuse_strangers(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if not head:
        return
    if head[:16] != b"SQLite format 3\0":
        raise damaged(path, "it does not begin like an SQLite file")
    mark = int.from_bytes(head[68:72], "big")
    # A ledger killed while it was born has its mark still in the write-ahead log.
    if mark not in (APPLICATION, 0):
        raise DataError(f"{path} is an SQLite file of another program")


def _check_format(database: sqlite3.Connection, path: Path) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    mark = database.execute("PRAGMA application_id").fetchone()[0]
    if mark != APPLICATION:
        raise DataError(f"{path} is an SQLite file of another program")
    if version != FORMAT:
        raise DataError(f"{path} has ledger format {version}; this version reads {FORMAT}")


def last(database: sqlite3.Connection, path: Path) -> tuple[int, str]:
    """Place and digest of the last row; every row before it is checked, and that none is lost."""
    end = (0, GENESIS)
    known = witness(path)
    met = known is None or known[0] == 0
    for row in read(database, path):
        end = (row.seq, row.digest)
        met = met or end == known
    if not met and known is not None:
        raise damaged(
            path,
            f"it ends with record {end[0]}, but record {known[0]} had been written; its "
            "write-ahead log was cut or lost. If you put back a backup on purpose, delete "
            f"{beside(path)}",
            end[0],
        )
    return end
