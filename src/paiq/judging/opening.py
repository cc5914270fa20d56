"""The beginning of a run: what the ledger knows, what is new, what is left to send."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from paiq.errors import ConfigError, DataError
from paiq.judging import entries
from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Book, Expected
from paiq.judging.routes import MOST_ATTEMPTS, Route, may_recover
from paiq.judging.runner import Job, Work
from paiq.judging.types import Failure


@dataclass(frozen=True)
class Opening:
    """Entries that bring the ledger up to date before the first send."""

    entries: list[Entry]
    superseded: tuple[Expected, ...]
    """Expectations that a changed prompt, picture, answer or setting has replaced."""


def opening(book: Book, route: Route, jobs: Sequence[Job], grant: Failure | None) -> Opening:
    """Sends that a killed process left open are closed; new expectations are entered."""
    _refuse_other_judges(book, route)
    found = [*_interrupted(book, route), *_exhausted(book, route)]
    superseded: tuple[Expected, ...] = ()
    if route.recovers is None:
        new, superseded = _expectations(book, jobs)
        found += new
        found += _unsendable(book, jobs)
    if grant is not None:
        found += _grants(book, route, grant)
    return Opening(found, superseded)


def works(book: Book, route: Route, jobs: Iterable[Job]) -> Iterator[Work]:
    """One piece of work per key that may still be sent on this route."""
    met = set()
    for job in jobs:
        key = job.expected.key
        if key in met or not _is_open(book, route, job.expected):
            continue
        met.add(key)
        known = book.key(key)
        yield Work(
            job=job,
            sends=known.sends[route.name],
            left=known.left(route.name, route.attempts),
            failures=list(known.failures.get(route.name, ())),
        )


def _is_open(book: Book, route: Route, item: Expected) -> bool:
    known = book.key(item.key)
    if known.score is not None or route.name in known.terminal:
        return False
    if route.recovers is None:
        return True
    ended = book.primary in known.terminal
    return ended and may_recover(route, item.family, known.failures.get(book.primary, ()))


def _refuse_other_judges(book: Book, route: Route) -> None:
    primary = route.recovers or route.name
    if route.recovers is not None and not book.primary:
        raise ConfigError(
            f"route {route.name!r} answers what {primary!r} left empty, and {primary!r} has not "
            f"judged this run yet; type: paiq judge RUN --route {primary}"
        )
    if book.primary and book.primary != primary:
        raise DataError(f"the ledger belongs to route {book.primary!r}, not to {primary!r}")


def _interrupted(book: Book, route: Route) -> Iterator[Entry]:
    for key, known in book.keys.items():
        for sent_over, attempt in known.open:
            yield entries.interrupted(key, sent_over, attempt)
            limit = route.attempts if sent_over == route.name else MOST_ATTEMPTS
            if not known.left(sent_over, limit):
                failures = [*known.failures.get(sent_over, ()), Failure.INTERRUPTED]
                yield entries.terminal(key, sent_over, failures)


def _exhausted(book: Book, route: Route) -> Iterator[Entry]:
    """Ends keys that a route with fewer attempts than before may not send again."""
    for key, known in book.keys.items():
        pending = known.score is None and not known.open and route.name not in known.terminal
        failures = known.failures.get(route.name)
        if pending and failures and not known.left(route.name, route.attempts):
            yield entries.terminal(key, route.name, failures)


def _expectations(book: Book, jobs: Sequence[Job]) -> tuple[list[Entry], tuple[Expected, ...]]:
    wanted: dict[tuple[str, str, str, str], Expected] = {}
    for job in jobs:
        item = job.expected
        if item.identity in wanted:
            raise DataError(f"{item.axis} of {item.sample_id!r} by {item.method!r} is there twice")
        wanted[item.identity] = item
    slices = {item.slice for item in wanted.values()}
    known = {item.identity: item for item in book.wanted()}
    new = [item.entry() for name, item in wanted.items() if known.get(name) != item]
    gone = [item for name, item in known.items() if item.slice in slices and name not in wanted]
    replaced = tuple(
        item for name, item in known.items() if name in wanted and wanted[name].key != item.key
    )
    return new + [entries.withdrawal(item) for item in gone], replaced


def _unsendable(book: Book, jobs: Iterable[Job]) -> Iterator[Entry]:
    for job in jobs:
        problem = job.unsendable
        if problem is not None and not book.key(problem.key).terminal:
            detail = f"{problem.reason}: {problem.detail}"
            yield entries.terminal(problem.key, problem.route, [Failure.UNSENDABLE], detail)


def _grants(book: Book, route: Route, ended: Failure) -> Iterator[Entry]:
    for item in book.wanted():
        known = book.key(item.key)
        if known.score is None and known.terminal.get(route.name) is ended:
            yield entries.grant(item.key, route.name, ended)
