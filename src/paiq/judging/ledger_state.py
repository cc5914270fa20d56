"""What the rows of a ledger say: the state of every key, its history, and the counts of all.

Nothing here is stored. A key is pending, in flight, scored, terminal or in recovery because of its
rows, and for no other reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paiq.judging.ledger_rows import Entry, Row
from paiq.judging.limits import may_be_charged
from paiq.judging.types import Failure
from paiq.records import Axis, Family, Judgment


class State(StrEnum):
    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    SCORED = "scored"
    TERMINAL = "terminal"
    RECOVERY = "recovery"
    """Terminal with empty responses only, and a recovery route has been asked."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A score that is wanted, and the digests of everything it depends on."""

    key: str
    slice: str
    sample_id: str
    method: str
    axis: Axis
    family: Family
    empty_candidate: bool
    prompt_sha256: str = ""
    image_sha256: str = ""
    candidate_sha256: str = ""
    template_sha256: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What stays the same when the prompt, the image or the answer changes."""
        return self.slice, self.sample_id, self.method, self.axis

    def named(self) -> dict[str, str]:
        names = ("slice", "sample_id", "method", "axis")
        return dict(zip(names, self.identity, strict=True))

    def entry(self) -> Entry:
        body = dict(vars(self))
        return Entry(kind="expected", key=body.pop("key"), body=body)


@dataclass(kw_only=True)
class KeyState:
    """Everything that happened to one key."""

    sends: Counter[str] = field(default_factory=Counter)
    open: dict[tuple[str, int], int] = field(default_factory=dict)
    """Sends without an outcome, as (route, attempt), and the bytes of their text."""
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    terminal: dict[str, Failure] = field(default_factory=dict)
    grants: Counter[str] = field(default_factory=Counter)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    score: int | None = None
    evaluator: str = ""

    def state(self, primary: str, recoveries: Iterable[str] = ()) -> State:
        if self.score is not None:
            return State.SCORED
        if self.open:
            return State.IN_FLIGHT
        if primary not in self.terminal:
            return State.PENDING
        asked = any(self.sends[name] for name in recoveries)
        done = all(name in self.terminal for name in recoveries if self.sends[name])
        return State.RECOVERY if asked and not done else State.TERMINAL

    def left(self, route: str, limit: int) -> int:
        """Sends that remain on this route."""
        return max(0, limit + self.grants[route] - self.sends[route])


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of what is expected is scored, by whom: scored + terminal + pending = expected."""

    expected: int
    scored: Mapping[str, int]
    """By evaluator."""
    terminal: Mapping[str, int]
    """By class of failure."""
    pending: int
    """Also those in flight and in recovery."""
    in_flight: int
    recovery: int
    empty_candidates: int
    superseded: int
    """Keys whose prompt, image, answer or judge settings changed since; kept, not counted."""
    sends: int
    interrupted: int
    retries: int
    prompt_tokens: int
    completion_tokens: int
    models: Mapping[str, int]
    """Returned models of accepted replies: more than one name is a mixture."""
    reused_response_ids: int
    """Accepted replies whose id another key's reply bears too; a reason to ask the provider."""

    @property
    def complete(self) -> bool:
        return sum(self.scored.values()) == self.expected


class Book:
    """The rows of one ledger, added up as they are appended."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.keys: dict[str, KeyState] = {}
        self.expected: dict[tuple[str, str, str, str], Expected] = {}
        self.primary = ""
        self.recoveries: set[str] = set()
        self.usage: dict[str, Counter[str]] = {}
        """By route: tokens as stated, and sends whose tokens were not stated."""
        self.models: Counter[str] = Counter()
        self.reused_response_ids = 0
        self._response_ids: dict[str, str] = {}
        self._known: set[str] = set()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        getattr(self, f"_{row.kind}")(row, row.body)

    def key(self, key: str) -> KeyState:
        known = self.keys.get(key)
        if known is None:
            known = self.keys[key] = KeyState()
        return known

    def state(self, key: str) -> State:
        return self.key(key).state(self.primary, self.recoveries)

    def wanted(self) -> Iterator[Expected]:
        """The current expectation of every identity, in an order that history cannot change."""
        return (self.expected[identity] for identity in sorted(self.expected))

    def judgments(self) -> Iterator[Judgment]:
        """The scores of what is expected now, each with every attempt of its key."""
        return (judgment for _, judgment in self.scores())

    def scores(self) -> Iterator[tuple[Expected, Judgment]]:
        """The same, each with what it answers."""
        for item in self.wanted():
            known = self.key(item.key)
            if known.score is None:
                continue
            yield (
                item,
                Judgment(
                    sample_id=item.sample_id,
                    method=item.method,
                    axis=item.axis,
                    score=known.score,
                    evaluator=known.evaluator,
                    attempts=tuple(known.attempts),
                ),
            )

    def coverage(self) -> Coverage:
        states: Counter[State] = Counter()
        scored: Counter[str] = Counter()
        terminal: Counter[str] = Counter()
        for item in self.expected.values():
            state, known = self.state(item.key), self.key(item.key)
            states[state] += 1
            if state is State.SCORED:
                scored[known.evaluator] += 1
            elif state is State.TERMINAL:
                terminal[known.terminal[self.primary]] += 1
        wanted = {item.key for item in self.expected.values()}
        usage = sum(self.usage.values(), Counter[str]())
        sent = [known.sends.total() for known in self.keys.values()]
        return Coverage(
            expected=len(self.expected),
            scored=dict(sorted(scored.items())),
            terminal=dict(sorted(terminal.items())),
            pending=states[State.PENDING] + states[State.IN_FLIGHT] + states[State.RECOVERY],
            in_flight=states[State.IN_FLIGHT],
            recovery=states[State.RECOVERY],
            empty_candidates=sum(item.empty_candidate for item in self.expected.values()),
            superseded=len(self._known - wanted),
            sends=sum(sent),
            interrupted=usage["interrupted"],
            retries=sum(count - 1 for count in sent if count > 1),
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            models=dict(sorted(self.models.items())),
            reused_response_ids=self.reused_response_ids,
        )

    # One method per kind of row

    def _run_opened(self, row: Row, body: dict[str, Any]) -> None:
        name = str(row.route)
        if body.get("recovers"):
            self.recoveries.add(name)
        else:
            self.primary = name

    def _run_closed(self, row: Row, body: dict[str, Any]) -> None:
        pass  # its counts are what the other rows add up to

    def _expected(self, row: Row, body: dict[str, Any]) -> None:
        item = Expected(key=str(row.key), **body)
        self.expected[item.identity] = item
        self._known.add(item.key)

    def _operator(self, row: Row, body: dict[str, Any]) -> None:
        if body["action"] == "grant" and row.key and row.route:
            known = self.key(row.key)
            known.grants[row.route] += 1
            known.terminal.pop(row.route, None)
        elif body["action"] == "withdraw":
            identity = body["slice"], body["sample_id"], body["method"], body["axis"]
            self.expected.pop(identity, None)

    def _intent(self, row: Row, body: dict[str, Any]) -> None:
        known, route, attempt = self._attempt(row)
        known.sends[route] += 1
        known.open[route, attempt] = body["text_bytes"]

    def _outcome(self, row: Row, body: dict[str, Any]) -> None:
        known, route, attempt = self._attempt(row)
        text_bytes = known.open.pop((route, attempt))
        known.attempts.append({"route": route, "attempt": attempt, **_shown(body)})
        if body["class"] != "accepted":
            known.failures.setdefault(route, []).append(Failure(body["class"]))
        self._charge(route, body, text_bytes)

    def _charge(self, route: str, body: Mapping[str, Any], text_bytes: int) -> None:
        usage = self.usage.setdefault(route, Counter())
        usage["interrupted"] += body["class"] == Failure.INTERRUPTED
        if "usage" in body:
            usage.update(body["usage"])
        elif body["class"] == "accepted" or may_be_charged(Failure(body["class"])):
            usage["unstated"] += 1
            usage["unstated_text_bytes"] += text_bytes

    def _accepted(self, row: Row, body: dict[str, Any]) -> None:
        known = self.key(str(row.key))
        known.score, known.evaluator = body["score"], body["evaluator"]
        self.models[body["model"]] += 1
        if self._response_ids.setdefault(body["response_id"], str(row.key)) != row.key:
            self.reused_response_ids += 1

    def _terminal(self, row: Row, body: dict[str, Any]) -> None:
        self.key(str(row.key)).terminal[str(row.route)] = Failure(body["class"])

    def _attempt(self, row: Row) -> tuple[KeyState, str, int]:
        assert row.route is not None
        assert row.attempt is not None
        return self.key(str(row.key)), row.route, row.attempt


def _shown(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an attempt history tells: nothing that a clock or the order of work could change."""
    names = ("class", "status", "model", "response_id", "finish_reason", "detail")
    return {name: body[name] for name in names if body.get(name) is not None}
