"""What the user can mend, and the names we suggest."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """The user asked for something we cannot do; shown without a traceback.

    The text says what was given, what is allowed and what to type instead.
    """


class DataError(ConfigError):
    """A file or a record is not what it should be; names the file or the record."""


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
