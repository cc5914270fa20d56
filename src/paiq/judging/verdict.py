"""What a reply means: one pure function from bytes to an outcome, closed on every doubt.

A number comes out only of a complete chat completion of the right model whose content is one JSON
object with exactly the asked field. Everything else is a named failure.
"""

import email.utils
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from hashlib import sha256
from typing import Any, NoReturn

from paiq.judging.redaction import told
from paiq.judging.routes import Route
from paiq.judging.types import Accepted, Failure, Outcome, Reply, Usage, failed
from paiq.records import Axis

FIELD: Mapping[Axis, str] = {
    "accuracy": "accuracy_score",
    "hallucination": "hallucination_score",
}
# Names that providers put into error.code or error.type.
QUOTA_NAMES = frozenset(
    {
        "insufficient_quota",
        "quota_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_user_quota",
        "access_terminated",
    }
)
KEY_NAMES = frozenset({"invalid_api_key", "invalid_authentication", "authentication_error"})
MODEL_NAMES = frozenset({"model_not_found", "invalid_model", "model_not_available"})
REFUSAL_NAMES = frozenset(
    {
        "content_policy_violation",
        "content_filter",
        "moderation_blocked",
        "responsibleaipolicyviolation",
    }
)
TRANSIENT = frozenset({408, 409, 425})
REFUSING_ENDS = frozenset({"content_filter", "tool_calls", "function_call", "error"})
LARGEST_WAIT = 1e9


class _Reject(Exception):  # noqa: N818 - control flow inside this module, not an error to report
    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure, self.detail = failure, detail


def classify(reply: Reply, *, axis: Axis, route: Route, secrets: Iterable[str] = ()) -> Outcome:
    """The outcome of one send. Never raises, and holds a score only for a strictly valid reply."""
    claims, known = _Claims(), tuple(secrets)
    try:
        return _accept(reply, axis, route, claims, known)
    except _Reject as rejected:
        return failed(
            rejected.failure,
            told(rejected.detail, known),
            retry_after=retry_after(reply),
            response_id=claims.response_id and told(claims.response_id, known),
            model=claims.model and told(claims.model, known),
            finish_reason=claims.finish_reason and told(claims.finish_reason, known),
            usage=claims.usage,
        )


class _Claims:
    """What a reply says of itself, kept for the record even where it is rejected."""

    response_id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None

    def read(self, body: Mapping[str, Any]) -> None:
        self.response_id, self.model = _text(body.get("id")), _text(body.get("model"))
        self.usage = _usage(body.get("usage"))


def _accept(
    reply: Reply, axis: Axis, route: Route, claims: _Claims, secrets: tuple[str, ...]
) -> Outcome:
    if reply.transport is not None:
        raise _Reject(Failure(reply.transport), f"no complete response: {reply.transport}")
    if reply.status is None:
        raise _Reject(Failure.PROTOCOL, "no status came back")
    if reply.status != 200:
        _reject_status(reply.status, reply.body)
    completion = _completion(reply.body)
    claims.read(completion)
    if completion.get("error"):
        _reject_error(completion["error"])
    model = _right_model(completion, route)
    choice = _only_choice(completion)
    claims.finish_reason = _text(choice.get("finish_reason"))
    content = _content(choice)
    response_id = claims.response_id
    if response_id is None or not response_id.strip() or told(response_id, secrets) != response_id:
        raise _Reject(Failure.SCHEMA, "the reply has no usable response id")
    accepted = Accepted(
        axis=axis,
        score=score_in(content, axis),
        response_id=response_id,
        model=model,
        finish_reason="stop",
        body_sha256=sha256(reply.body).hexdigest(),
    )
    return Outcome(
        kind="accepted",
        accepted=accepted,
        detail=f"{axis} {accepted.score}",
        response_id=accepted.response_id,
        model=model,
        finish_reason="stop",
        usage=claims.usage,
    )


# The envelope


def _completion(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise _Reject(Failure.EMPTY_BODY, "HTTP 200 with an empty body")
    completion = strict_json(body, what="body")
    if not isinstance(completion, dict):
        raise _Reject(Failure.SCHEMA, "the body is no JSON object")
    return completion


def _right_model(completion: Mapping[str, Any], route: Route) -> str:
    if not {"model", "choices"} & set(completion):
        raise _Reject(Failure.SCHEMA, "the body is no chat completion")
    model = _text(completion.get("model"))
    if model is None or not route.accepts.fullmatch(model):
        raise _Reject(Failure.WRONG_MODEL, f"asked for {route.model}, answered by: {model}")
    return model


def _only_choice(completion: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = completion.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        count = len(choices) if isinstance(choices, list) else "no list of"
        raise _Reject(Failure.SCHEMA, f"one choice is expected, the reply has {count}")
    return choices[0]


def _content(choice: Mapping[str, Any]) -> str:
    reason, message = choice.get("finish_reason"), choice.get("message")
    if choice.get("error"):
        _reject_error(choice["error"])
    if reason == "length":
        # Before the content: a cut answer is no empty one, and opens no recovery.
        raise _Reject(Failure.LENGTH, "the evaluator was cut off by the token limit")
    if isinstance(reason, str) and reason in REFUSING_ENDS:
        raise _Reject(Failure.REFUSED, f"the evaluator ended with {reason}")
    if not isinstance(message, dict):
        raise _Reject(Failure.SCHEMA, "the choice has no message")
    for name in ("refusal", "tool_calls", "function_call"):
        if message.get(name):
            raise _Reject(Failure.REFUSED, f"the evaluator answered with {name}")
    if reason != "stop":
        raise _Reject(Failure.SCHEMA, f"finish_reason must be 'stop', got: {reason}")
    return _given(message)


def _given(message: Mapping[str, Any]) -> str:
    if "content" not in message:
        raise _Reject(Failure.SCHEMA, "the message has no content field")
    content = message["content"]
    if content is None or (isinstance(content, str) and not content.strip()):
        raise _Reject(Failure.EMPTY_RESPONSE, "the evaluator returned no content")
    if not isinstance(content, str):
        raise _Reject(Failure.SCHEMA, f"content must be text, got {type(content).__name__}")
    return content


# The verdict


def score_in(content: str, axis: Axis) -> int:
    """The score, where the content is one JSON object with exactly the asked integer field."""
    field = FIELD[axis]
    verdict = strict_json(content, what="content")
    if not isinstance(verdict, dict) or set(verdict) != {field}:
        raise _Reject(Failure.SCHEMA, f"expected exactly one field {field!r}: {content}")
    score = verdict[field]
    if type(score) is not int:
        raise _Reject(Failure.SCHEMA, f"{field} must be an integer: {content}")
    if not 0 <= score <= 100:
        raise _Reject(Failure.SCHEMA, f"{field} must lie in [0, 100]: {content}")
    return score


def strict_json(text: str | bytes, *, what: str) -> Any:
    """The value of a JSON text as the standard has it: no repeated field, no NaN, no BOM."""
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        return json.loads(decoded, object_pairs_hook=_fields, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _Reject(Failure.NOT_JSON, f"the {what} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        # ValueError covers a broken text and an integer of thousands of digits.
        named = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise _Reject(Failure.NOT_JSON, f"the {what} is no JSON: {named}") from None


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _Reject(Failure.SCHEMA, "a JSON object repeats a field")
    return fields


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# Errors of the provider


def _reject_status(status: int, body: bytes) -> NoReturn:
    error: Any = None
    try:
        parsed = strict_json(body, what="body")
        error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    except _Reject:
        pass  # An error page needs no JSON; its status alone speaks.
    _reject_code(status, error)


def _reject_error(error: Any) -> NoReturn:
    """A reply with status 200 that holds an error object is judged by the code inside."""
    code = error.get("code") if isinstance(error, dict) else None
    number = code if type(code) is int else None
    if isinstance(code, str) and re.fullmatch(r"[1-5][0-9]{2}", code):
        number = int(code)
    # An error without a usable number went wrong behind the provider: as a server error.
    _reject_code(number if number is not None and number != 200 else 500, error)


def _reject_code(status: int, error: Any) -> NoReturn:
    names, message = _names(error), _message(error)
    detail = f"HTTP {status}" + (f": {message}" if message else "")
    if status == 402 or names & QUOTA_NAMES:
        raise _Reject(Failure.QUOTA, detail)
    if names & REFUSAL_NAMES or (status == 403 and _moderated(error)):
        raise _Reject(Failure.REFUSED, detail)
    if status in (401, 403) or names & KEY_NAMES:
        raise _Reject(Failure.AUTHENTICATION, detail)
    if names & MODEL_NAMES or (status == 404 and "model" in message.lower()):
        raise _Reject(Failure.WRONG_MODEL, detail)
    if status == 429:
        raise _Reject(Failure.RATE_LIMITED, detail)
    if status in TRANSIENT:
        raise _Reject(Failure.TRANSIENT_STATUS, detail)
    if 500 <= status <= 599:
        raise _Reject(Failure.SERVER_ERROR, detail)
    raise _Reject(Failure.REJECTED_REQUEST, detail)


def _names(error: Any) -> set[str]:
    if not isinstance(error, dict):
        return set()
    return {str(error.get(name)).lower() for name in ("code", "type")}


def _message(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _moderated(error: Any) -> bool:
    metadata = error.get("metadata") if isinstance(error, dict) else None
    flagged = isinstance(metadata, dict) and bool({"reasons", "flagged_input"} & set(metadata))
    return flagged or "moderation" in _message(error).lower()


# The wait the server asks for


def retry_after(reply: Reply) -> float | None:
    """Seconds, at least 0: from `retry-after-ms`, a number or a date; None for anything else.

    A repeated header counts with its longest wait. A date without a zone is GMT; it is read against
    the server's own Date, else against the client's clock.
    """
    milliseconds = _numbers(reply.headers.get("retry-after-ms", ""))
    if milliseconds:
        return max(milliseconds) / 1000
    text = reply.headers.get("retry-after", "")
    seconds = _numbers(text)
    if seconds:
        return max(seconds)
    now = _moment(reply.headers.get("date", ""))
    now = reply.received_at if now is None else now
    moments = [_moment(part) for part in re.split(r",\s+(?=[A-Z][a-z]+,)", text)]
    known = [moment for moment in moments if moment is not None]
    return max(0.0, max(known) - now) if known and now is not None else None


def _numbers(text: str) -> list[float]:
    parts = [part.strip() for part in text.split(",")]
    plain = [part for part in parts if re.fullmatch(r"[0-9]+(\.[0-9]+)?", part, re.ASCII)]
    return [min(float(part), LARGEST_WAIT) for part in plain]


def _moment(text: str) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


# Small readers


def _text(value: Any) -> str | None:
    """A text that can be stored; None for anything else, also for half a surrogate pair."""
    if not isinstance(value, str):
        return None
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return value


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    asked, answered = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if asked is None or answered is None:
        return None
    return Usage(prompt_tokens=asked, completion_tokens=answered)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None
