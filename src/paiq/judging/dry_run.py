"""What a run would send and cost, without a key, a ledger entry or a request."""

from collections import Counter
from dataclasses import dataclass

from paiq.judging.judge import Plan
from paiq.judging.ledger_files import load_book
from paiq.judging.ledger_state import Book
from paiq.judging.limits import Price
from paiq.judging.opening import works
from paiq.judging.types import Unsendable


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Of the keys that are still open."""

    requests: int
    most_requests: int
    """If every request needs all its retries."""
    request_bytes: int
    """Sent if every request succeeds at once."""
    unsendable: tuple[Unsendable, ...]
    likely: float | None
    """Dollars at the bound of each request, without retries; None where the route has no prices."""
    most: float | None
    """The same with every retry."""

    def lines(self) -> list[str]:
        lines = [
            f"{self.requests:,} requests, {self.most_requests:,} with every retry",
            f"{self.request_bytes / 1e6:,.1f} MB of request bodies",
        ]
        if self.unsendable:
            lines.append(f"{len(self.unsendable):,} cannot be sent and will end as `unsendable`:")
            lines += self._reasons()
        if self.likely is None or self.most is None:
            return [*lines, "cost unknown: the route states no prices"]
        return [
            *lines,
            f"at most ${self.likely:,.2f} without retries, ${self.most:,.2f} with every retry",
        ]

    def _reasons(self) -> list[str]:
        """Each reason with its count and the first sample it befell."""
        counts = Counter(one.reason for one in self.unsendable)
        first = {one.reason: one for one in reversed(self.unsendable)}
        return [
            f"  {count:,} {reason}, such as {first[reason].sample_id!r}: {first[reason].detail}"
            for reason, count in counts.most_common()
        ]


def forecast(plan: Plan) -> Forecast:
    book = load_book(plan.ledger) if plan.ledger.exists() else Book()
    open_works = [work for work in works(book, plan.route, plan.jobs) if not work.job.unsendable]
    price = Price.of(plan.route)
    bounds = [(work.left, price.bound(work.job.text_bytes)) for work in open_works if price]
    return Forecast(
        requests=len(open_works),
        most_requests=sum(work.left for work in open_works),
        request_bytes=sum(work.job.body_bytes for work in open_works),
        unsendable=tuple(job.unsendable for job in plan.jobs if job.unsendable),
        likely=sum(bound for _, bound in bounds) if price else None,
        most=sum(left * bound for left, bound in bounds) if price else None,
    )
