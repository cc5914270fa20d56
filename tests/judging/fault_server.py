"""What the tests of the judge share: marked jobs, routes to a scripted server, quick time."""

import asyncio
import json
import time
from hashlib import sha256
from pathlib import Path

from paiq.bench.fault_server import FaultServer, Seen
from paiq.judging.clock import Clock
from paiq.judging.judge import Plan, judge
from paiq.judging.ledger import Ledger
from paiq.judging.ledger_state import Book, Expected
from paiq.judging.limits import text_bytes_of
from paiq.judging.routes import Route
from paiq.judging.runner import Job, Options
from paiq.judging.types import Request

CANARY = "sk-canary/4Fz+9qWmTr=Yx"
VARIABLE = "PAIQ_TEST_JUDGE_KEY"


class QuickClock(Clock):
    """Seconds that pass a hundred times faster, so that back-off and outages fit into a test."""

    def __init__(self, factor: float = 100.0) -> None:
        self.factor = factor

    def monotonic(self) -> float:
        return time.monotonic() * self.factor

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        await super().wait(event, seconds / self.factor)


def route_to(server: FaultServer | str, **changes) -> Route:
    settings = {
        "name": "fake",
        "endpoint": server if isinstance(server, str) else server.url,
        "model": "gpt-4o",
        "accepted_model": r"(?:openai/)?gpt-4o(?:-[0-9]{4}-[0-9]{2}-[0-9]{2})?",
        "evaluator": "gpt-4o",
        "key_variable": VARIABLE,
        "connect_seconds": 10.0,
        "read_seconds": 10.0,
        "total_seconds": 10.0,
        "concurrency": 4,
        "dollars_per_million_prompt_tokens": 2.5,
        "dollars_per_million_completion_tokens": 10.0,
    }
    return Route(**{**settings, **changes})


def job(mark: str, axis: str = "accuracy", *, text: str = "a cat", route: str = "fake") -> Job:
    """A wanted score whose body names its mark; the key is the digest of the body."""
    content = f"{mark} {axis}_score {text}"
    body = json.dumps({"model": "gpt-4o", "messages": content}).encode()
    key = sha256(body).hexdigest()
    digests = dict.fromkeys(
        ("prompt_sha256", "image_sha256", "candidate_sha256", "template_sha256"), key
    )
    expected = Expected(
        key=key,
        slice="vqa",
        sample_id=mark,
        method="paiq",
        axis=axis,
        family="vqa",
        empty_candidate=not text,
        **digests,
    )

    def load() -> Request:
        return Request(
            key=key,
            sample_id=mark,
            method="paiq",
            axis=axis,
            family="vqa",
            route=route,
            body=body,
            **digests,
        )

    return Job(expected=expected, load=load, body_bytes=len(body), text_bytes=text_bytes_of(body))


def jobs(count: int, **settings) -> list[Job]:
    return [job(f"KEY-{number}", **settings) for number in range(count)]


def plan(folder: Path, route: Route, wanted: list[Job]) -> Plan:
    name = route.recovers or route.name
    return Plan(
        route=route,
        jobs=wanted,
        ledger=folder / "judge" / f"{name}.sqlite",
        scores=folder / "scores",
    )


def run(folder: Path, server: FaultServer, wanted: list[Job], **settings):
    """A judging run against the server; settings of `Options` and of the route, by name."""
    names = set(Options.__dataclass_fields__) - {"concurrency"}
    options = Options(**{name: settings.pop(name) for name in list(settings) if name in names})
    clock = settings.pop("clock", None) or QuickClock()
    return judge(plan(folder, route_to(server, **settings), wanted), options=options, clock=clock)


def book_of(folder: Path, name: str = "fake") -> Book:
    with Ledger(folder / "judge" / f"{name}.sqlite") as ledger:
        return Book(ledger.rows())


def classes(folder: Path, wanted: Job) -> list[str]:
    """The classes of every attempt at a key, in order."""
    return [attempt["class"] for attempt in book_of(folder).key(wanted.expected.key).attempts]


def scores(folder: Path, name: str = "vqa") -> bytes:
    return (folder / "scores" / f"{name}.jsonl").read_bytes()


def check_invariants(folder: Path, record: list[Seen], most: int = 3) -> None:
    """I1-I4 of every ledger, against what the server saw."""
    book = book_of(folder)
    cover = book.coverage()
    assert sum(cover.scored.values()) + sum(cover.terminal.values()) + cover.pending == (
        cover.expected
    )
    arrivals: dict[str, int] = {}
    for seen in record:
        arrivals[seen.body_hash] = arrivals.get(seen.body_hash, 0) + 1
    assert max(arrivals.values(), default=0) <= most
    for key, known in book.keys.items():
        assert known.sends.total() >= arrivals.get(key, 0), "a send that the ledger does not know"
        if known.score is not None:
            accepted = [item for item in known.attempts if item["class"] == "accepted"]
            assert len(accepted) == 1
            assert accepted[0]["response_id"]
            assert accepted[0]["model"]
            assert known.evaluator
