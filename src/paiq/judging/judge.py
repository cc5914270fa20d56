"""A judging run over its ledger: opened or resumed, worked through, closed, published."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from paiq import __version__
from paiq.errors import ConfigError
from paiq.judging.clock import Clock
from paiq.judging.journal import Journal
from paiq.judging.ledger import Ledger
from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Book, Coverage
from paiq.judging.limits import Budget, Price
from paiq.judging.opening import Opening, opening, works
from paiq.judging.routes import Route
from paiq.judging.runner import Job, Options, Runner, Work
from paiq.judging.scores import publish
from paiq.judging.secret import secret_of
from paiq.judging.types import Reply, Request
from paiq.progress import Report, silent

INTERRUPTED = "interrupted"
BATCH = 2000
"""Entries per transaction where many are written at once."""


class Answerer(Protocol):
    """Who answers requests: an HTTP client, or an exact judge in this process."""

    async def send(self, request: Request) -> Reply: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be judged, over which route, and where it is recorded."""

    route: Route
    jobs: Sequence[Job]
    ledger: Path
    scores: Path
    """Folder of the score files, one per slice."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run did and how things stand after it."""

    coverage: Coverage
    sent: int
    retried: int
    ended: str
    """Why keys are pending; empty when every key reached its end."""
    changed: tuple[str, ...]
    """Samples whose files changed under the run; run again to judge them as they are now."""
    superseded: int
    """Expectations that this run replaced, because their inputs differ from earlier ones."""
    spent: float | None
    """Dollars of all runs of this ledger on this route; None where the route has no prices."""

    @property
    def exit_code(self) -> int:
        """0 all scored, 1 some ended without a score, 3 some are pending, 130 interrupted."""
        if self.ended == INTERRUPTED:
            return 130
        if self.coverage.pending:
            return 3
        return 0 if self.coverage.complete else 1


def judge(
    plan: Plan,
    *,
    answerer: Answerer | None = None,
    options: Options | None = None,
    clock: Clock | None = None,
    report: Report = silent,
) -> Summary:
    """Judges what is pending; the first Ctrl-C drains, the second stops at once."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise ConfigError(
            "an event loop is running already, as in a notebook; write "
            "`await paiq.judging.judge_async(plan)` instead of `judge(plan)`"
        )
    work = judge_async(plan, answerer=answerer, options=options, clock=clock, report=report)
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def judge_async(
    plan: Plan,
    *,
    answerer: Answerer | None = None,
    options: Options | None = None,
    clock: Clock | None = None,
    report: Report = silent,
) -> Summary:
    """The same inside a running event loop."""
    options, clock = options or Options(), clock or Clock()
    with Ledger(plan.ledger, clock=clock.wall) as ledger:
        book = Book(ledger.rows())
        begun = opening(book, plan.route, plan.jobs, options.grant)
        runner = None
        if begun.entries or any(works(book, plan.route, plan.jobs)):
            # A finished run comes not even here: it needs no key and writes nothing.
            secret = None if answerer else secret_of(plan.route)
            answerer = answerer or _client(plan.route, secret, clock)
            runner = Runner(
                plan.route,
                answerer.send,
                options=options,
                clock=clock,
                budget=budget_of(plan.route, book, options.budget),
                secret=secret,
            )
            _append(ledger, book, [_opened(plan.route), *begun.entries])
            pending = list(works(book, plan.route, plan.jobs))
            await _work(runner, pending, answerer, Journal(ledger, book), report)
            _append(ledger, book, [_closed(plan.route, runner, book)])
        publish(book, plan.scores)
    return _summary(plan.route, book, runner, begun)


def _client(route: Route, secret: str | None, clock: Clock) -> Answerer:
    """What sends over the network; only who sends needs an HTTP library."""
    try:
        from paiq.judging.sender import Sender
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sending to a judge needs {error.name}, which is missing; pip install 'paiq[judge]'"
        ) from error
    return Sender(route, secret, wall=clock.wall)


def budget_of(route: Route, book: Book, dollars: float | None) -> Budget | None:
    """What a run may spend, and what earlier runs of this ledger have spent on this route.

    Without a budget the sky is the limit; without prices nothing is counted.
    """
    price = Price.of(route)
    if dollars is not None and price is None:
        raise ConfigError(
            f"a budget needs prices, and route {route.name!r} states none; give its file "
            "dollars_per_million_prompt_tokens and dollars_per_million_completion_tokens"
        )
    if dollars is not None and not dollars > 0:
        raise ConfigError(f"the budget must be above 0 dollars, got {dollars}")
    if price is None:
        return None
    spent = price.of_counts(book.usage.get(route.name))
    return Budget(dollars=float("inf") if dollars is None else dollars, price=price, spent=spent)


async def _work(
    runner: Runner, pending: list[Work], answerer: Answerer, journal: Journal, report: Report
) -> None:
    async with AsyncExitStack() as stack:
        if isinstance(answerer, AbstractAsyncContextManager):
            await stack.enter_async_context(answerer)
        await stack.enter_async_context(journal)
        with _interruptible(runner):
            await runner.run(pending, journal, report)


def _summary(route: Route, book: Book, runner: Runner | None, begun: Opening) -> Summary:
    budget = budget_of(route, book, None)
    return Summary(
        coverage=book.coverage(),
        sent=runner.sent if runner else 0,
        retried=runner.retried if runner else 0,
        ended=runner.ended if runner else "",
        changed=tuple(runner.changed) if runner else (),
        superseded=len(begun.superseded),
        spent=None if budget is None else budget.spent,
    )


def _append(ledger: Ledger, book: Book, entries: Sequence[Entry]) -> None:
    for start in range(0, len(entries), BATCH):
        for row in ledger.append(entries[start : start + BATCH]):
            book.add(row)


def _opened(route: Route) -> Entry:
    body = {
        "paiq": __version__,
        "pid": os.getpid(),
        "recovers": route.recovers or "",
        "settings": asdict(route),
    }
    return Entry(kind="run_opened", route=route.name, body=body)


def _closed(route: Route, runner: Runner, book: Book) -> Entry:
    counts = book.coverage()
    body = {
        "ended": runner.ended,
        "sent": runner.sent,
        "scored": sum(counts.scored.values()),
        "terminal": sum(counts.terminal.values()),
        "pending": counts.pending,
        "limits": [[change.limit, change.reason] for change in runner.limit.history],
    }
    return Entry(kind="run_closed", route=route.name, body=body)


@contextmanager
def _interruptible(runner: Runner) -> Iterator[None]:
    """Ctrl-C once ends the run in good order, twice at once; both can be resumed."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if runner.ended == INTERRUPTED:
            task.cancel()
        runner.stop(INTERRUPTED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
