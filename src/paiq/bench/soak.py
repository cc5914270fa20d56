"""The two sides of the judge's soak, each a process of its own: a faulty server and a judging run.

python -m paiq.bench.soak serve FAULT_SHARE DELAY     prints its port, serves until its input ends
python -m paiq.bench.soak judge FOLDER URL KEYS SLOTS BODY_BYTES READ_SECONDS
"""

import json
import sys
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from paiq.bench.fault_server import (
    Action,
    FaultServer,
    Plan,
    Seen,
    answer,
    close,
    drip,
    hang,
    raw,
    reset,
    status,
)
from paiq.judging.judge import Plan as JudgingPlan
from paiq.judging.judge import judge
from paiq.judging.ledger_state import Expected
from paiq.judging.routes import Route
from paiq.judging.runner import Job
from paiq.judging.types import Request

READ_SECONDS = 0.5
"""Of the soak; the server is silent for twice as long."""

FAULTS: Mapping[str, Action] = {
    "408": status(408),
    "409": status(409),
    "429": status(429),
    "500": status(500),
    "503": status(503),
    "400, terminal": status(400),
    "reset": reset(),
    "closed": close(),
    "garbage": raw(b"garbage\r\n\r\n"),
    "cut body": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}"),
    "cut chunk": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"),
    "silence": hang(2 * READ_SECONDS),
    "slow drip": drip(every=READ_SECONDS / 5, times=1000),
    "web page": status(200, b"<html>Bad gateway</html>"),
    "empty body": status(200, b""),
    "empty content": answer(content=""),
    "cut by length": answer(finish_reason="length"),
    "fenced": answer(content='```json\n{"accuracy_score": 90}\n```'),
    "wrong field": answer(content='{"score": 90}'),
    "refused, terminal": answer(finish_reason="content_filter"),
}


def faulty(share: float, delay: float) -> Plan:
    """Each fault for `share` of the sends, fixed by the body and how often it was sent."""
    actions = list(FAULTS.values())
    for name, action in FAULTS.items():
        action.__name__ = name  # as the record is to call it
    good = answer(delay=delay)

    def plan(seen: Seen) -> Action:
        word = sha256(f"{seen.body_hash}/{seen.nth}".encode()).hexdigest()
        chosen = int(int(word[:8], 16) / 2**32 / share) if share else len(actions)
        return actions[chosen] if chosen < len(actions) else good

    return plan


def route_to(url: str, slots: int, read_seconds: float) -> Route:
    return Route(
        name="soak",
        endpoint=url,
        model="gpt-4o",
        accepted_model=r"gpt-4o(?:-[0-9]{4}-[0-9]{2}-[0-9]{2})?",
        evaluator="gpt-4o",
        connect_seconds=read_seconds,
        read_seconds=read_seconds,
        total_seconds=1.6 * read_seconds,
        concurrency=slots,
    )


def body_of(number: int, size: int) -> bytes:
    head = f'{{"model":"gpt-4o","prompt":"KEY-{number} accuracy_score ","image":"'.encode()
    return head + b"A" * max(0, size - len(head) - 2) + b'"}'


def job(number: int, size: int) -> Job:
    """A wanted score; its body is made when it is sent, as a real one is."""
    key = sha256(body_of(number, size)).hexdigest()
    digests = {
        "prompt_sha256": key,
        "image_sha256": key,
        "candidate_sha256": key,
        "template_sha256": key,
    }

    def load() -> Request:
        return Request(
            key=key,
            sample_id=f"KEY-{number}",
            method="paiq",
            axis="accuracy",
            family="vqa",
            route="soak",
            body=body_of(number, size),
            **digests,
        )

    expected = Expected(
        key=key,
        slice="soak",
        sample_id=f"KEY-{number}",
        method="paiq",
        axis="accuracy",
        family="vqa",
        empty_candidate=False,
        **digests,
    )
    return Job(expected=expected, load=load, body_bytes=size, text_bytes=size)


def plan_of(folder: Path, route: Route, keys: int, size: int) -> JudgingPlan:
    return JudgingPlan(
        route=route,
        jobs=[job(number, size) for number in range(keys)],
        ledger=folder / "judge" / "soak.sqlite",
        scores=folder / "scores",
    )


def serve(share: float, delay: float) -> None:
    with FaultServer(faulty(share, delay)) as server:
        print(server.port, flush=True)
        sys.stdin.read()


def run(plan: JudgingPlan) -> int:
    """The exit code of a judging run, after one line with what it took."""
    began, used = time.perf_counter(), time.process_time()
    summary = judge(plan)
    took, used = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"seconds": took, "processor_seconds": used, "sent": summary.sent}))
    return summary.exit_code


def main(words: list[str]) -> int:
    if words[0] == "serve":
        serve(float(words[1]), float(words[2]))
        return 0
    keys, slots, size = (int(word) for word in words[3:6])
    route = route_to(words[2], slots, float(words[6]))
    return run(plan_of(Path(words[1]), route, keys, size))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
