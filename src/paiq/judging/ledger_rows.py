"""One row of the ledger: what it holds, how it is chained, and the rules SQLite keeps for us.

Every row carries the digest of the row before it, so a row that is changed, dropped or swapped
breaks the chain at its place. What may stand beside what is left to constraints and triggers:
no code path of ours can write a fourth send, a second accepted reply, or a score without one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

FORMAT = 1
APPLICATION = 0x50414951  # "PAIQ": other tools and our own open see what kind of file this is
GENESIS = "0" * 64

RowKind = Literal[
    "run_opened", "expected", "intent", "outcome", "accepted", "terminal", "operator", "run_closed"
]
COLUMNS = "seq, kind, key, route, attempt, at, body, previous, digest"

SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};

CREATE TABLE record (
    seq      INTEGER PRIMARY KEY CHECK (seq >= 1),
    kind     TEXT NOT NULL CHECK (kind IN ({", ".join(f"'{kind}'" for kind in get_args(RowKind))})),
    key      TEXT,
    route    TEXT,
    attempt  INTEGER CHECK (attempt >= 1),
    at       REAL NOT NULL,
    body     TEXT NOT NULL CHECK (json_valid(body)),
    previous TEXT NOT NULL,
    digest   TEXT NOT NULL,
    CHECK ((kind IN ('run_opened', 'run_closed')) = (key IS NULL) OR kind = 'operator'),
    CHECK ((kind IN ('intent', 'outcome')) = (attempt IS NOT NULL)),
    UNIQUE (seq, kind, key)
) STRICT;

CREATE UNIQUE INDEX one_of_each_attempt ON record (kind, key, route, attempt)
    WHERE kind IN ('intent', 'outcome');
CREATE UNIQUE INDEX one_accepted_reply ON record (key) WHERE kind = 'accepted';

CREATE TABLE score (
    key       TEXT PRIMARY KEY,
    accepted  INTEGER NOT NULL UNIQUE,
    kind      TEXT NOT NULL CHECK (kind = 'accepted'),
    value     INTEGER NOT NULL CHECK (value BETWEEN 0 AND 100),
    evaluator TEXT NOT NULL CHECK (evaluator <> ''),
    FOREIGN KEY (accepted, kind, key) REFERENCES record (seq, kind, key)
) STRICT;

CREATE TRIGGER record_is_final BEFORE UPDATE ON record
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER record_stays BEFORE DELETE ON record
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER score_is_final BEFORE UPDATE ON score
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER score_stays BEFORE DELETE ON score
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

CREATE TRIGGER record_follows BEFORE INSERT ON record
    WHEN NEW.previous IS NOT COALESCE(
        (SELECT digest FROM record WHERE seq = NEW.seq - 1), CASE NEW.seq WHEN 1 THEN '{GENESIS}' END)
    BEGIN SELECT RAISE(ABORT, 'the row does not follow the last one'); END;

CREATE TRIGGER three_sends BEFORE INSERT ON record
    WHEN NEW.kind = 'intent' AND NEW.attempt > 3 AND NEW.attempt > 3 + (
        SELECT count(*) FROM record WHERE kind = 'operator' AND key = NEW.key
        AND route = NEW.route AND json_extract(body, '$.action') = 'grant')
    BEGIN SELECT RAISE(ABORT, 'a key is sent at most three times over one route'); END;

CREATE TRIGGER outcome_has_intent BEFORE INSERT ON record
    WHEN NEW.kind = 'outcome' AND NOT EXISTS (
        SELECT 1 FROM record WHERE kind = 'intent' AND key = NEW.key AND route = NEW.route
        AND attempt = NEW.attempt)
    BEGIN SELECT RAISE(ABORT, 'an outcome needs its intent'); END;

CREATE TRIGGER score_is_the_accepted_one BEFORE INSERT ON score
    WHEN NEW.value IS NOT (
        SELECT json_extract(body, '$.score') FROM record WHERE seq = NEW.accepted)
    BEGIN SELECT RAISE(ABORT, 'a score is the one of its accepted reply'); END;
"""


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
