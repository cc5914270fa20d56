"""Sends what is pending, records everything, and stops in good order.

One loop decides when the next request may go out; each send is a task of its own, so that one
poisoned key disturbs no other. It is the only owner of retries.
"""

import asyncio
import heapq
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from paiq.judging import entries
from paiq.judging.clock import Clock
from paiq.judging.journal import Journal
from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Expected
from paiq.judging.limits import COOLDOWN_SECONDS, OUTAGE, Breaker, Budget, Concurrency
from paiq.judging.routes import Route
from paiq.judging.types import Failure, Outcome, Reply, Request, Unsendable
from paiq.judging.verdict import classify
from paiq.progress import Report, silent

Send = Callable[[Request], Awaitable[Reply]]
FOREVER = float("inf")
MOST_UNRECORDED = 64
"""Replies that may wait for the disk before no further request goes out."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A score that is wanted, and how to build its request."""

    expected: Expected
    load: Callable[[], Request | Unsendable]
    """The same bytes at every call; a request is kept only while it is under way."""
    unsendable: Unsendable | None = None
    """Why there is no request, where none can be built."""
    body_bytes: int = 0
    text_bytes: int = 0
    """Of the body without its picture."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a run goes about it; nothing here can change an answer."""

    budget: float | None = None
    """Dollars that all runs of this ledger together may cost."""
    concurrency: int | None = None
    """Most requests in flight, where it is to be less than the route allows."""
    grant: Failure | None = None
    """Gives every key that ended in this class one more send; recorded as a decision."""
    longest_wait: float = 120.0
    """Seconds a server may ask us to wait; if it asks for more, the run ends with keys pending."""
    patience: float = 1800.0
    """Seconds an outage may last before the run ends."""
    backoff: float = 1.0
    """Seconds before a first retry, doubled for the second, with jitter; longer after a 429."""


@dataclass
class Work:
    """One key on its way."""

    job: Job
    sends: int
    left: int
    failures: list[Failure] = field(default_factory=list)


class Runner:
    """Works through the pending keys of one route; `run` returns why it ended."""

    def __init__(
        self,
        route: Route,
        send: Send,
        *,
        options: Options | None = None,
        clock: Clock | None = None,
        budget: Budget | None = None,
        secret: str | None = None,
    ) -> None:
        self.route, self.budget = route, budget
        self.options = options or Options()
        self._send, self._clock = send, clock or Clock()
        self._secrets = (secret,) if secret else ()
        now = self._clock.monotonic
        self.limit = Concurrency(
            ceiling=min(self.options.concurrency or route.concurrency, route.concurrency),
            by_latency=route.self_hosted,
            clock=now,
        )
        self.breaker = Breaker(clock=now)
        self.ended = ""
        self.sent = self.retried = 0
        self.changed: list[str] = []
        """Samples whose prediction or picture changed while the run was on; they stay pending."""
        self._ends: Counter[str] = Counter()
        self._jitter = random.Random(0)
        self._paused_until = -FOREVER
        self._later: list[tuple[float, int, Work]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight = self._tickets = 0
        self._wake = asyncio.Event()
        self._error: BaseException | None = None

    async def run(self, works: Sequence[Work], journal: Journal, report: Report = silent) -> str:
        """Why it ended: "" when every key reached its end, else the reason why some are pending."""
        self._journal, self._report = journal, report
        # Those sent least come first: what goes wrong for all then costs nobody a last attempt.
        self._fresh = deque(sorted(works, key=lambda work: work.sends))
        self._total, self._started = len(works), self._clock.monotonic()
        try:
            while self._tasks or not (self.ended or self._idle()):
                # Cleared before looking: whatever happens from here on wakes us again.
                self._wake.clear()
                wait = self._wait()
                if wait <= 0:
                    self._launch(self._next())
                else:
                    await self._clock.wait(self._wake, wait)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._error is not None:
            raise self._error
        return self.ended

    def stop(self, reason: str) -> None:
        """Nothing more is sent; what is under way is awaited and recorded."""
        self.ended = self.ended or reason
        self._wake.set()

    # When

    def _idle(self) -> bool:
        return not self._fresh and not self._later

    def _wait(self) -> float:
        """Seconds until the next send may go out; infinity until something else happens."""
        recording = len(self._tasks) - self._in_flight
        full = self._in_flight >= self.limit.limit or recording >= MOST_UNRECORDED
        if self.ended or self._idle() or full:
            return FOREVER
        if self.breaker.open_for() > self.options.patience:
            self.stop("the server has given no usable answer for too long")
            return FOREVER
        if not self._affordable():
            return FOREVER
        now = self._clock.monotonic()
        due = now if self._fresh else self._later[0][0]
        return max(self.breaker.wait(), self._paused_until - now, due - now)

    def _affordable(self) -> bool:
        if self.budget is None or self.budget.fits(self._peek().job.text_bytes):
            return True
        if not self._in_flight:
            self.stop(f"the budget of ${self.budget.dollars:g} does not cover another request")
        return False

    def _peek(self) -> Work:
        return self._fresh[0] if self._takes_fresh() else self._later[0][2]

    def _next(self) -> Work:
        return self._fresh.popleft() if self._takes_fresh() else heapq.heappop(self._later)[2]

    def _takes_fresh(self) -> bool:
        if not self._fresh or not self._later:
            return bool(self._fresh)
        # While the server is in doubt, the first sends of many are risked, not the last of a few.
        return self.breaker.in_doubt or self._later[0][0] > self._clock.monotonic()

    # One send

    def _launch(self, work: Work) -> None:
        self._in_flight += 1
        self.breaker.sent()
        self.limit.sent(self._in_flight)
        if self.budget is not None:
            self.budget.reserve(work.job.text_bytes)
        task = asyncio.create_task(self._attempt(work))
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._error = self._error or error
            self.stop("an error")

    async def _attempt(self, work: Work) -> None:
        try:
            written = await self._exchange(work)
        finally:
            self._in_flight -= 1
            self._wake.set()
        if written:
            await self._journal.append(written)
        self._tell()

    async def _exchange(self, work: Work) -> list[Entry]:
        """What is to be recorded after the reply; the intent is on the disk before the send."""
        request = work.job.load()
        wanted = work.job.expected
        if isinstance(request, Unsendable) or request.key != wanted.key:
            # It could be built when the run began, so a file has changed since.
            self._withdraw(work)
            return []
        work.sends, work.left = work.sends + 1, work.left - 1
        intended = entries.intent(
            request, route=self.route.name, attempt=work.sends, text_bytes=work.job.text_bytes
        )
        await self._journal.append([intended])
        self.sent += 1
        self.retried += work.sends > 1
        reply = await self._send(request)
        result = classify(reply, axis=request.axis, route=self.route, secrets=self._secrets)
        if self.budget is not None:
            self.budget.settle(work.job.text_bytes, result)
        self._steer(reply, result)
        written = entries.outcome(
            intended, reply, result, evaluator=self.route.evaluator, secrets=self._secrets
        )
        return written + self._after(work, result)

    def _withdraw(self, work: Work) -> None:
        self.changed.append(work.job.expected.sample_id)
        self.breaker.unsent()
        if self.budget is not None:
            self.budget.release(work.job.text_bytes)

    def _after(self, work: Work, result: Outcome) -> list[Entry]:
        """Puts the key back, or ends it with the entry that says so."""
        if result.failure is None:
            self._ends["scored"] += 1
            return []
        work.failures.append(result.failure)
        if result.kind == "stop_route":
            self.stop(f"{result.failure}: {result.detail}")
        if result.kind == "terminal" or work.left <= 0:
            self._ends[result.failure] += 1
            key = work.job.expected.key
            return [entries.terminal(key, self.route.name, work.failures, result.detail)]
        if result.kind == "retry":
            self._put_back(work, result.retry_after)
        return []

    def _put_back(self, work: Work, retry_after: float | None) -> None:
        # A refusal for load is a refusal of now: the key waits until the lower limit has told.
        refused = work.failures[-1] is Failure.RATE_LIMITED
        first = COOLDOWN_SECONDS if refused else self.options.backoff
        wait = first * 2 ** (len(work.failures) - 1) * self._jitter.uniform(0.5, 1.5)
        if retry_after is not None:
            wait = max(wait, min(retry_after, self.options.longest_wait))
        self._tickets += 1
        due = self._clock.monotonic() + wait
        heapq.heappush(self._later, (due, self._tickets, work))

    # What an outcome says about the others

    def _steer(self, reply: Reply, result: Outcome) -> None:
        if result.failure in OUTAGE:
            self.breaker.dead()
        else:
            self.breaker.alive()
        if result.failure is None:
            self.limit.answered(reply.elapsed)
        elif result.failure is Failure.RATE_LIMITED:
            self.limit.refused(result.retry_after)
        if result.retry_after is not None and result.kind == "retry":
            self._pause(result.retry_after, whole_route=reply.status in (429, 503))

    def _pause(self, seconds: float, *, whole_route: bool) -> None:
        if seconds > self.options.longest_wait:
            self.stop(f"the server asks for {seconds:.0f} s of silence")
        elif whole_route:
            self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)

    def _tell(self) -> None:
        done = self._ends.total()
        took = max(self._clock.monotonic() - self._started, 1e-9)
        parts = [f"{done / took:.1f}/s", f"limit {self.limit.limit}"]
        if self.retried:
            parts.append(f"{self.retried} retries")
        parts += [f"{count} {name}" for name, count in self._ends.items() if name != "scored"]
        if self.breaker.is_open:
            parts.append("server down, waiting")
        if self.budget is not None:
            most = f" of ${self.budget.dollars:g}" if self.budget.dollars < FOREVER else ""
            parts.append(f"${self.budget.spent:.2f}{most}")
        self._report(done, ", ".join(parts))
