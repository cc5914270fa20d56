"""One row of the ledger: what it holds and how it is chained.

Every row carries the digest of the row before it, so a row that is changed, dropped or swapped
breaks the chain at its place. What may stand beside what is left to constraints and triggers:
no code path of ours can write a fourth send, a second accepted reply, or a score without one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

FORMAT = 1
APPLICATION = 0x50414951  # "PAIQ": other tools and our own open see what kind of file this is
GENESIS = "0" * 64

RowKind = Literal[
    "run_opened", "expected", "intent", "outcome", "accepted", "terminal", "operator", "run_closed"
]
COLUMNS = "seq, kind, key, route, attempt, at, body, previous, digest"

SCHEMA = (resources.files("paiq.judging") / "ledger.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is to be appended; its place in the chain is given to it then."""

    kind: RowKind
    body: Mapping[str, Any]
    key: str | None = None
    route: str | None = None
    attempt: int | None = None
    at: float | None = None
    """Unix seconds where they are known already: a merge keeps the time of each row."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entry in its place."""

    seq: int
    kind: RowKind
    key: str | None
    route: str | None
    attempt: int | None
    at: float
    text: str
    """The body as canonical JSON."""
    previous: str
    digest: str

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.text)

    @property
    def content(self) -> tuple[Any, ...]:
        """Everything but the place: equal for the same event in two copies of a ledger."""
        return self.kind, self.key, self.route, self.attempt, self.at, self.text

    @property
    def values(self) -> tuple[Any, ...]:
        """In the order of `COLUMNS`."""
        return self.seq, *self.content, self.previous, self.digest


def place(entry: Entry, *, seq: int, at: float, previous: str) -> Row:
    """The entry as the row after the one whose digest is `previous`."""
    text = canonical(entry.body)
    when = at if entry.at is None else entry.at
    content = (entry.kind, entry.key, entry.route, entry.attempt, when, text)
    return Row(
        seq=seq,
        kind=entry.kind,
        key=entry.key,
        route=entry.route,
        attempt=entry.attempt,
        at=when,
        text=text,
        previous=previous,
        digest=digest_of(seq, content, previous),
    )


def from_values(values: tuple[Any, ...]) -> Row:
    seq, kind, key, route, attempt, at, text, previous, digest = values
    return Row(
        seq=seq,
        kind=kind,
        key=key,
        route=route,
        attempt=attempt,
        at=at,
        text=text,
        previous=previous,
        digest=digest,
    )


def digest_of(seq: int, content: tuple[Any, ...], previous: str) -> str:
    """SHA-256 over the previous digest, the place and the content, unambiguously joined."""
    return hashlib.sha256(canonical([previous, seq, *content]).encode()).hexdigest()


def canonical(value: Any) -> str:
    # ASCII escapes keep lone surrogates and control characters out of the file.
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
