"""JSON files of records, strictly."""

import json
from pathlib import Path
from typing import Any

from paiq.errors import DataError


def read_json(path: Path) -> Any:
    """The value; NaN is an error, and so is a repeated key, of which the last would win."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    return parse_json(text, str(path))


def parse_json(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def the_file(path: Path, usual: str) -> Path:
    """The path, or the file of the usual name in it where it is a folder."""
    found = path / usual if path.is_dir() else path
    if not found.is_file():
        raise DataError(f"{found} does not exist")
    return found
