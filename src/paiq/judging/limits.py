"""When the next request may go out: how many at once, whether the server is up, what it may cost.

Three small machines with an injected clock; none of them sends or sleeps.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from paiq.judging.routes import Route
from paiq.judging.types import Failure, Outcome

Clock = Callable[[], float]

SATURATED = 0.8
"""Share of the limit that must have been in use within a round before success argues for more."""
CUT = 0.8
GROWTH = 1.05
COOLDOWN_SECONDS = 15.0
SLOW = 2.0
"""A round this many times slower than the quickest one means that the server queues."""

OUTAGE = frozenset(
    {
        Failure.CONNECTION,
        Failure.CONNECT_TIMEOUT,
        Failure.READ_TIMEOUT,
        Failure.TOTAL_DEADLINE,
        Failure.PROTOCOL,
        Failure.SERVER_ERROR,
    }
)


@dataclass(frozen=True)
class Change:
    """A change of the limit and what caused it."""

    at: float
    limit: int
    reason: str


@dataclass(kw_only=True)
class Concurrency:
    """How many requests may be in flight: doubled while all is well, cut when the server objects.

    It begins with one, alone: a wrong key or a wrong model costs a single request. Each clean round
    of `limit` answers doubles the limit until the first refusal, and adds a twentieth after it. A
    429 cuts to four fifths, once per cooldown. Server errors and time-outs say nothing about load.
    With `by_latency`, a round that is twice as slow as the quickest counts like a refusal: a server
    of one's own queues instead of refusing.
    """

    ceiling: int
    by_latency: bool = False
    clock: Clock = time.monotonic
    history: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._exact = 1.0
        self._slow_start = True
        self._quiet_until = float("-inf")
        self._latencies: list[float] = []
        self._peak = 0
        self._quickest = float("inf")

    @property
    def limit(self) -> int:
        return max(1, min(self.ceiling, int(self._exact)))

    def sent(self, in_flight: int) -> None:
        """A request goes out; `in_flight` counts it too."""
        self._peak = max(self._peak, in_flight)

    def answered(self, latency: float) -> None:
        """A request came back well."""
        if self.clock() < self._quiet_until:
            return
        self._latencies.append(latency)
        if len(self._latencies) >= self.limit:
            self._close_round()

    def refused(self, retry_after: float | None = None) -> None:
        """The server said 429."""
        now = self.clock()
        quiet = now + (retry_after or 0.0)
        if now >= self._quiet_until:
            self._cut("429")
            quiet = max(quiet, now + COOLDOWN_SECONDS)
        self._quiet_until = max(self._quiet_until, quiet)
        self._start_round()

    def _close_round(self) -> None:
        took, used = median(self._latencies), self._peak >= SATURATED * self.limit
        self._start_round()
        if self.by_latency and self._is_slow(took):
            self._cut("slower")
            self._quiet_until = self.clock() + took
        elif used and self._exact < self.ceiling:
            factor = 2.0 if self._slow_start else GROWTH
            self._set(min(self.ceiling, self._exact * factor), "clean round")

    def _is_slow(self, took: float) -> bool:
        if self.limit == 1:
            self._quickest = took  # alone, nothing queues: this is simply its pace now
        self._quickest = min(self._quickest, took)
        return took > SLOW * self._quickest

    def _cut(self, reason: str) -> None:
        self._slow_start = False
        self._set(max(1.0, min(self._exact, self.ceiling) * CUT), reason)

    def _start_round(self) -> None:
        self._latencies, self._peak = [], 0

    def _set(self, exact: float, reason: str) -> None:
        before, self._exact = self.limit, exact
        if self.limit != before:
            self.history.append(Change(self.clock(), self.limit, reason))


@dataclass(kw_only=True)
class Breaker:
    """Whether the server is up. Failures in a row open it; then one probe at a time goes out.

    While it is open nothing is sent, so an outage costs no attempts beyond those that found it and
    the probes.
    """

    threshold: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self._failures = 0
        self._wait = self.first_wait
        self._probe_at: float | None = None
        self._probing = False
        self.open_since: float | None = None

    @property
    def is_open(self) -> bool:
        return self.open_since is not None

    @property
    def in_doubt(self) -> bool:
        """Whether the last answer was none."""
        return self._failures > 0

    def wait(self) -> float:
        """Seconds until a request may go out; infinity while a probe is under way."""
        if self._probe_at is None:
            return 0.0
        return float("inf") if self._probing else max(0.0, self._probe_at - self.clock())

    def sent(self) -> None:
        self._probing = self.is_open

    def unsent(self) -> None:
        """The request that was to go out did not."""
        self._probing = False

    def alive(self) -> None:
        """The server answered, be it with a complaint."""
        self._failures, self._wait = 0, self.first_wait
        self._probe_at = self.open_since = None
        self._probing = False

    def dead(self) -> None:
        """No usable answer came: no connection, no time, a server error."""
        self._failures += 1
        if self._failures < self.threshold and not self.is_open:
            return
        if self.is_open and not self._probing:
            return  # a straggler from before it opened
        now = self.clock()
        self.open_since = now if self.open_since is None else self.open_since
        self._probe_at, self._probing = now + self._wait, False
        self._wait = min(self._wait * 2, self.longest_wait)

    def open_for(self) -> float:
        """Seconds since it opened and stayed open."""
        return 0.0 if self.open_since is None else self.clock() - self.open_since


UNCHARGED = frozenset(
    {
        Failure.RATE_LIMITED,
        Failure.SERVER_ERROR,
        Failure.TRANSIENT_STATUS,
        Failure.REJECTED_REQUEST,
        Failure.AUTHENTICATION,
        Failure.QUOTA,
        Failure.CONNECT_TIMEOUT,
    }
)
"""The server said no, or was never reached."""

MOST_IMAGE_TOKENS = 1445
"""Of one picture at detail high by the tile rule: 85, and 170 for each of at most 8 tiles."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """What tokens cost on a route, in dollars."""

    prompt: float
    completion: float
    max_tokens: int

    @classmethod
    def of(cls, route: Route) -> "Price | None":
        prompt = route.dollars_per_million_prompt_tokens
        completion = route.dollars_per_million_completion_tokens
        if prompt is None or completion is None:
            return None
        return cls(prompt=prompt / 1e6, completion=completion / 1e6, max_tokens=route.max_tokens)

    def of_usage(self, prompt_tokens: int, completion_tokens: int) -> float:
        return prompt_tokens * self.prompt + completion_tokens * self.completion

    def of_counts(self, counts: Mapping[str, int] | None) -> float:
        """What a route has cost so far; sends whose tokens were not stated count at their bound."""
        if not counts:
            return 0.0
        stated = self.of_usage(counts["prompt_tokens"], counts["completion_tokens"])
        sends, text = counts["unstated"], counts["unstated_text_bytes"]
        return stated + self.of_usage(text + sends * MOST_IMAGE_TOKENS, sends * self.max_tokens)

    def bound(self, text_bytes: int) -> float:
        """The most that one send of so much text and one picture should cost.

        A token is at least one byte of text; the picture is counted by the tile rule, because its
        price does not follow its bytes.
        """
        return self.of_usage(text_bytes + MOST_IMAGE_TOKENS, self.max_tokens)


@dataclass(kw_only=True)
class Budget:
    """Whether one more send still fits, with what is in flight counted at its bound."""

    dollars: float
    price: Price
    spent: float = 0.0
    reserved: float = 0.0

    def fits(self, text_bytes: int) -> bool:
        return self.spent + self.reserved + self.price.bound(text_bytes) <= self.dollars

    def reserve(self, text_bytes: int) -> None:
        self.reserved += self.price.bound(text_bytes)

    def release(self, text_bytes: int) -> None:
        self.reserved = max(0.0, self.reserved - self.price.bound(text_bytes))

    def settle(self, text_bytes: int, result: Outcome) -> None:
        self.release(text_bytes)
        if result.usage is not None:
            usage = result.usage
            self.spent += self.price.of_usage(usage.prompt_tokens, usage.completion_tokens)
        elif may_be_charged(result.failure):
            self.spent += self.price.bound(text_bytes)


def may_be_charged(failure: Failure | None) -> bool:
    """Whether a send without a stated usage may have cost money; then it counts at its bound."""
    return failure not in UNCHARGED


def text_bytes_of(body: bytes) -> int:
    """Bytes of a request body without its picture."""
    start = body.find(b";base64,")
    end = body.find(b'"', start) if start >= 0 else -1
    return len(body) - (end - start) if end > start >= 0 else len(body)
