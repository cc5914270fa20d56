"""What happened to a request, as entries for the ledger; nothing with the key in it."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from paiq.judging.ledger_rows import Entry
from paiq.judging.ledger_state import Expected
from paiq.judging.redaction import told
from paiq.judging.types import Failure, Outcome, Reply, Request

ALLOWED_HEADERS = frozenset(
    {
        "content-type",
        "date",
        "openai-processing-ms",
        "retry-after",
        "retry-after-ms",
        "server",
        "x-generation-id",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-tokens",
        "x-request-id",
    }
)
MOST_KEPT = 2000
"""Characters of a rejected reply's body; an accepted one is told completely by its fields."""


def intent(request: Request, *, route: str, attempt: int, text_bytes: int) -> Entry:
    return Entry(
        kind="intent",
        key=request.key,
        route=route,
        attempt=attempt,
        body={
            "payload_sha256": sha256(request.body).hexdigest(),
            "bytes": len(request.body),
            "text_bytes": text_bytes,
        },
    )


def outcome(
    intended: Entry, reply: Reply, result: Outcome, *, evaluator: str, secrets: Iterable[str] = ()
) -> list[Entry]:
    """The outcome of a send and, where its reply was accepted, that reply with its score."""
    secrets = tuple(secrets)
    tell = _Telling(secrets)
    entry = Entry(
        kind="outcome",
        key=intended.key,
        route=intended.route,
        attempt=intended.attempt,
        body=_outcome_body(reply, result, tell),
    )
    accepted = result.accepted
    if accepted is None:
        return [entry]
    body = {
        "score": accepted.score,
        "evaluator": evaluator,
        "response_id": tell(accepted.response_id),
        "model": tell(accepted.model),
        "finish_reason": accepted.finish_reason,
        "body_sha256": accepted.body_sha256,
        "attempt": intended.attempt,
    }
    return [entry, Entry(kind="accepted", key=intended.key, route=intended.route, body=body)]


def interrupted(key: str, route: str, attempt: int) -> Entry:
    """The outcome of a send whose process died before the reply was recorded."""
    body = {"class": str(Failure.INTERRUPTED), "detail": "the process ended before the outcome"}
    return Entry(kind="outcome", key=key, route=route, attempt=attempt, body=body)


def terminal(key: str, route: str, failures: Sequence[Failure], detail: str = "") -> Entry:
    """The end of a key on a route: the class of its last attempt, with all classes kept."""
    body = {"class": str(failures[-1]), "classes": [str(failure) for failure in failures]}
    return Entry(kind="terminal", key=key, route=route, body={**body, "detail": detail})


def grant(key: str, route: str, ended: Failure) -> Entry:
    body = {"action": "grant", "ended": str(ended)}
    return Entry(kind="operator", key=key, route=route, body=body)


class _Telling:
    """Text from outside, without the key and on one inert line."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets

    def __call__(self, text: str, most: int = 300) -> str:
        return told(text, self._secrets, most=most)


def _outcome_body(reply: Reply, result: Outcome, tell: _Telling) -> dict[str, Any]:
    body: dict[str, Any] = {
        "class": "accepted" if result.failure is None else str(result.failure),
        "seconds": round(reply.elapsed, 3),
        "status": reply.status,
        "response_id": result.response_id and tell(result.response_id),
        "model": result.model and tell(result.model),
        "finish_reason": result.finish_reason and tell(result.finish_reason),
        "usage": None if result.usage is None else dict(vars(result.usage)),
        "retry_after": result.retry_after,
        "headers": _headers(reply.headers, tell),
        "body_sha256": sha256(reply.body).hexdigest() if reply.body else None,
    }
    if result.failure is not None:
        body["detail"] = tell(result.detail)
        body["body"] = tell(reply.body.decode("utf-8", "replace"), MOST_KEPT)
    return {name: value for name, value in body.items() if value not in (None, "", {})}


def _headers(headers: Mapping[str, str], tell: _Telling) -> dict[str, str]:
    return {name: tell(headers[name]) for name in sorted(ALLOWED_HEADERS & set(headers))}


def withdrawal(item: Expected) -> Entry:
    """The prediction is no longer in its slice: its score is not expected any more."""
    return Entry(kind="operator", key=item.key, body={"action": "withdraw", **item.named()})
