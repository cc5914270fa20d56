"""What the protocol and the runner hand to each other.

Request   payload -> runner     one question to an evaluator, frozen
Reply     runner -> verdict     what came back over the wire, or why nothing did
Outcome   verdict -> ledger     what the reply means; only an accepted one holds a score
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, get_args

from paiq.errors import DataError
from paiq.records import Axis, Family, Judgment

DIGEST = re.compile(r"[0-9a-f]{64}")

Transport = Literal[
    "connect_timeout",
    "read_timeout",
    "total_deadline",
    "connection",
    "protocol",
    "too_large",
    "interrupted",
]
Kind = Literal["accepted", "retry", "terminal", "stop_route"]


class Failure(StrEnum):
    """Why an attempt gave no score. No class has a number."""

    EMPTY_RESPONSE = "empty_response"
    """A complete reply whose content is null or blank; the only class that opens recovery."""
    EMPTY_BODY = "empty_body"
    NOT_JSON = "not_json"
    SCHEMA = "schema"
    LENGTH = "length"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    TRANSIENT_STATUS = "transient_status"
    """HTTP 408, 409 and 425."""
    CONNECT_TIMEOUT = "connect_timeout"
    READ_TIMEOUT = "read_timeout"
    TOTAL_DEADLINE = "total_deadline"
    CONNECTION = "connection"
    PROTOCOL = "protocol"
    TOO_LARGE = "too_large"
    INTERRUPTED = "interrupted"
    """Sent, and the process died before the outcome was known; counts as an attempt."""
    REFUSED = "refused"
    REJECTED_REQUEST = "rejected_request"
    UNSENDABLE = "unsendable"
    """Stopped before any send: the image or the candidate cannot be put into a request."""
    WRONG_MODEL = "wrong_model"
    AUTHENTICATION = "authentication"
    QUOTA = "quota"


TERMINAL = frozenset({Failure.REFUSED, Failure.REJECTED_REQUEST, Failure.UNSENDABLE})
STOPS_ROUTE = frozenset({Failure.WRONG_MODEL, Failure.AUTHENTICATION, Failure.QUOTA})


def kind_of(failure: Failure) -> Kind:
    """What a failure asks for: another attempt, the end of its key, or the end of the route."""
    if failure in STOPS_ROUTE:
        return "stop_route"
    return "terminal" if failure in TERMINAL else "retry"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question to an evaluator; every attempt sends these very bytes."""

    key: str
    """SHA-256 of everything that can change the answer, and of nothing else."""
    sample_id: str
    method: str
    axis: Axis
    family: Family
    route: str
    """Name of the route it is sent over; a recovery request keeps the key of its primary one."""
    body: bytes
    prompt_sha256: str
    image_sha256: str
    candidate_sha256: str
    template_sha256: str

    def __post_init__(self) -> None:
        for name in ("key", "prompt_sha256", "image_sha256", "candidate_sha256", "template_sha256"):
            if not DIGEST.fullmatch(getattr(self, name)):
                raise DataError(f"{name} of request {self.sample_id!r} is no SHA-256")
        if type(self.body) is not bytes or not self.body:
            raise DataError(f"request {self.sample_id!r} needs a body of bytes")


@dataclass(frozen=True, kw_only=True)
class Unsendable:
    """A request that cannot be built; it is a terminal of its key, never a score."""

    key: str
    """Digest of the same things as a request's key; mending the input makes a new key."""
    sample_id: str
    method: str
    axis: Axis
    family: Family
    route: str
    reason: str
    """missing_image, empty_image, truncated_image, unsupported_image, candidate_too_long, ..."""
    detail: str
    failure: Failure = Failure.UNSENDABLE


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one send brought back; `transport` says why where there is no complete response."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case; repeated headers joined by ", "."""
    body: bytes = b""
    transport: Transport | None = None
    elapsed: float = 0.0
    received_at: float | None = None
    """Unix seconds on the client's clock; a Retry-After date is read against it."""

    def __post_init__(self) -> None:
        if self.transport is not None and self.transport not in get_args(Transport):
            raise DataError(f"no transport failure {self.transport!r}")
        object.__setattr__(self, "headers", MappingProxyType(dict(self.headers)))


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens the provider says it charged."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A reply that passed every check. A score exists only inside one."""

    axis: Axis
    score: int
    response_id: str
    model: str
    """The returned model, as the provider spelled it."""
    finish_reason: str
    body_sha256: str

    def __post_init__(self) -> None:
        if type(self.score) is not int or not 0 <= self.score <= 100:
            raise DataError(f"an accepted score is an integer in [0, 100], got {self.score!r}")
        if not self.response_id.strip() or not self.model.strip():
            raise DataError("an accepted reply names its response id and its model")
        if self.finish_reason != "stop":
            raise DataError(f"an accepted reply ends with 'stop', not {self.finish_reason!r}")
        if not DIGEST.fullmatch(self.body_sha256):
            raise DataError("an accepted reply carries the SHA-256 of its body")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one reply means. Holds `accepted` exactly when its kind is accepted, else `failure`."""

    kind: Kind
    failure: Failure | None = None
    accepted: Accepted | None = None
    retry_after: float | None = None
    """Seconds the server asked for, at least 0 and not capped; None where it did not ask."""
    detail: str = ""
    """One redacted, printable line for people."""
    response_id: str | None = None
    """As the reply claims, also where it was not accepted."""
    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    """Failed replies may have been charged too."""

    def __post_init__(self) -> None:
        if (self.kind == "accepted") != (self.accepted is not None):
            raise DataError("an outcome is accepted exactly when it holds an accepted reply")
        if (self.failure is None) != (self.accepted is not None):
            raise DataError("an outcome holds either an accepted reply or a failure")
        if self.failure is not None and self.kind != kind_of(self.failure):
            raise DataError(f"{self.failure} asks for {kind_of(self.failure)}, not {self.kind}")


def failed(failure: Failure, detail: str, **more: Any) -> Outcome:
    """The outcome of an attempt that gave no score."""
    return Outcome(kind=kind_of(failure), failure=failure, detail=detail, **more)


def judgment(
    request: Request, accepted: Accepted, *, evaluator: str, attempts: tuple[Mapping[str, Any], ...]
) -> Judgment:
    """The score of a request, which only an accepted reply to its own axis can give."""
    if accepted.axis != request.axis:
        raise DataError(
            f"request {request.key} asks for {request.axis}, the reply scores {accepted.axis}"
        )
    return Judgment(
        sample_id=request.sample_id,
        method=request.method,
        axis=request.axis,
        score=accepted.score,
        evaluator=evaluator,
        attempts=attempts,
    )
