"""Lists of rows that cannot be used, tied to the data they were made from."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paiq.data.json_file import read_json
from paiq.errors import DataError
from paiq.files import write_atomically


@dataclass(frozen=True)
class Bad:
    """A row that cannot be used, and why."""

    row: int
    problem: str


def write_bad(path: Path, bad: Sequence[Bad], whole: str) -> None:
    values = {"data": whole, "bad": [asdict(entry) for entry in bad]}
    write_atomically(path, json.dumps(values, indent=1, ensure_ascii=False).encode())


def read_bad(path: Path, whole: str) -> set[int]:
    """The rows to leave out, of a list that was made from this very data."""
    values = read_json(path)
    if not isinstance(values, dict) or set(values) != {"data", "bad"}:
        raise DataError(f"{path} is no list of bad rows; make one with --write-bad")
    if values["data"] != whole:
        raise DataError(
            f"{path} was made from other data or settings; check again with --write-bad {path}"
        )
    rows: list[Any] = [entry.get("row") for entry in values["bad"] if isinstance(entry, dict)]
    if len(rows) != len(values["bad"]) or not all(isinstance(row, int) for row in rows):
        raise DataError(f"{path}: each entry of 'bad' needs a row number")
    return set(rows)
