"""The verdict on a reply: a table of what a provider can send, and one property over the rest."""

import json
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paiq.judging import routes
from paiq.judging.types import Failure, Outcome, Reply, kind_of
from paiq.judging.verdict import FIELD, classify

ROUTE = routes.load("openrouter-gpt-4o")
SCORE = '{"accuracy_score": 73}'
CANARY = "sk-or-v1-canary/7+f=é"


def completion(content=SCORE, /, **changes):
    choice = {
        "index": 0,
        "finish_reason": changes.pop("finish_reason", "stop"),
        "message": {"role": "assistant", "content": content, **changes.pop("message", {})},
        **changes.pop("choice", {}),
    }
    body = {
        "id": "gen-1",
        "model": "openai/gpt-4o",
        "choices": [choice],
        "usage": {"prompt_tokens": 900, "completion_tokens": 9},
        **changes,
    }
    return {name: value for name, value in body.items() if value is not ...}


def replied(body, status=200, headers=None, **more):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return Reply(status=status, headers=headers or {}, body=body, **more)


def judge(body, status=200, axis="accuracy", route=ROUTE, **more) -> Outcome:
    return classify(replied(body, status, **more), axis=axis, route=route)


def test_a_valid_reply_is_accepted_with_everything_the_record_needs():
    body = json.dumps(completion()).encode()
    outcome = judge(body)
    assert outcome.kind == "accepted"
    accepted = outcome.accepted
    assert (accepted.score, accepted.axis) == (73, "accuracy")
    assert (accepted.response_id, accepted.model) == ("gen-1", "openai/gpt-4o")
    assert accepted.body_sha256 == sha256(body).hexdigest()
    assert (outcome.usage.prompt_tokens, outcome.usage.completion_tokens) == (900, 9)


@pytest.mark.parametrize("score", [0, 1, 99, 100])
@pytest.mark.parametrize("axis", FIELD)
def test_both_axes_accept_the_whole_range(score, axis):
    outcome = judge(completion(json.dumps({FIELD[axis]: score})), axis=axis)
    assert outcome.accepted.score == score


@pytest.mark.parametrize("padding", [b" \n\r\t", b""])
def test_white_space_before_a_valid_body_is_harmless(padding):
    assert judge(padding + json.dumps(completion()).encode()).kind == "accepted"


def error(code, **more):
    return {"error": {"code": code, "message": "told", **more}}


STATUSES = [
    *((status, b"", Failure.TRANSIENT_STATUS) for status in (408, 409, 425)),
    (429, b"", Failure.RATE_LIMITED),
    *((status, b"", Failure.SERVER_ERROR) for status in (500, 502, 503, 504, 529, 599)),
    (502, b"<html><script>alert(1)</script></html>", Failure.SERVER_ERROR),
    # A quota is a quota under every status.
    (402, b"", Failure.QUOTA),
    (402, error(402), Failure.QUOTA),
    *((status, error("insufficient_quota"), Failure.QUOTA) for status in (200, 400, 403, 429, 500)),
    (429, error(None, type="insufficient_quota"), Failure.QUOTA),
    (429, error("rate_limit_exceeded"), Failure.RATE_LIMITED),
    (401, b"", Failure.AUTHENTICATION),
    (403, b"", Failure.AUTHENTICATION),
    (400, error("invalid_api_key"), Failure.AUTHENTICATION),
    (403, error(403, metadata={"reasons": ["violence"]}), Failure.REFUSED),
    (403, {"error": {"message": "flagged by moderation"}}, Failure.REFUSED),
    (400, error("content_filter"), Failure.REFUSED),
    *((status, b"", Failure.REJECTED_REQUEST) for status in (400, 404, 413, 422)),
    *((status, b"", Failure.REJECTED_REQUEST) for status in (100, 202, 204, 301, 302, 307, 308)),
    (404, error("model_not_found"), Failure.WRONG_MODEL),
    (404, {"message": "The model `x` does not exist."}, Failure.WRONG_MODEL),
    (None, b"", Failure.PROTOCOL),
    # HTTP 200 around an error: the code inside speaks.
    (200, error(429), Failure.RATE_LIMITED),
    (200, error("429"), Failure.RATE_LIMITED),
    (200, error(401), Failure.AUTHENTICATION),
    (200, error(402), Failure.QUOTA),
    (200, error(408), Failure.TRANSIENT_STATUS),
    (200, error(502), Failure.SERVER_ERROR),
    (200, error(400), Failure.REJECTED_REQUEST),
    (200, error(403, metadata={"flagged_input": "x"}), Failure.REFUSED),
    (200, {"error": "overloaded"}, Failure.SERVER_ERROR),
    (200, {**completion(), **error(502)}, Failure.SERVER_ERROR),
]


@pytest.mark.parametrize(("status", "body", "failure"), STATUSES)
def test_every_status_has_its_class(status, body, failure):
    outcome = judge(body, status)
    assert outcome.failure is failure
    assert outcome.kind == kind_of(failure)
    assert outcome.accepted is None


def test_the_fail_closed_classes_stop_the_route_and_refusals_end_the_key():
    assert {failure for failure in Failure if kind_of(failure) == "stop_route"} == {
        Failure.WRONG_MODEL,
        Failure.AUTHENTICATION,
        Failure.QUOTA,
    }
    assert {failure for failure in Failure if kind_of(failure) == "terminal"} == {
        Failure.REFUSED,
        Failure.REJECTED_REQUEST,
        Failure.UNSENDABLE,
    }


@pytest.mark.parametrize(
    "transport",
    [
        "connect_timeout",
        "read_timeout",
        "total_deadline",
        "connection",
        "protocol",
        "too_large",
        "interrupted",
    ],
)
def test_a_transport_failure_is_retried_and_its_part_of_a_body_never_read(transport):
    outcome = judge(completion(), transport=transport)
    assert (outcome.kind, outcome.failure) == ("retry", Failure(transport))


BODIES = {
    "empty": (b"", Failure.EMPTY_BODY),
    "white space": (b" \n\t ", Failure.EMPTY_BODY),
    "html": (b"<!doctype html><title>Sorry</title>", Failure.NOT_JSON),
    "cut": (json.dumps(completion()).encode()[:-9], Failure.NOT_JSON),
    "two bodies": (json.dumps(completion()).encode() * 2, Failure.NOT_JSON),
    "byte order mark": (b"\xef\xbb\xbf" + json.dumps(completion()).encode(), Failure.NOT_JSON),
    "utf-16": (json.dumps(completion()).encode("utf-16"), Failure.NOT_JSON),
    "latin-1": (b'{"id": "\xe9"}', Failure.NOT_JSON),
    "nul bytes": (b"\0" * 64, Failure.NOT_JSON),
    "nan": (b'{"id": NaN}', Failure.NOT_JSON),
    "nested": (b"[" * 100_000, Failure.NOT_JSON),
    "repeated field": (b'{"id": "a", "id": "b"}', Failure.SCHEMA),
    "list": (b"[]", Failure.SCHEMA),
    "number": (b"73", Failure.SCHEMA),
    "verdict without an envelope": (SCORE.encode(), Failure.SCHEMA),
    "no object at all": (b"null", Failure.SCHEMA),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_completion_is_retried(name):
    body, failure = BODIES[name]
    outcome = judge(body)
    assert (outcome.kind, outcome.failure) == ("retry", failure)


ENVELOPES = {
    "no choices": (completion(choices=...), Failure.SCHEMA),
    "choices null": (completion(choices=None), Failure.SCHEMA),
    "empty choices": (completion(choices=[]), Failure.SCHEMA),
    "two choices": (completion(choices=completion()["choices"] * 2), Failure.SCHEMA),
    "choice is text": (completion(choices=["x"]), Failure.SCHEMA),
    "no message": (completion(choice={"message": None}), Failure.SCHEMA),
    "no id": (completion(id=...), Failure.SCHEMA),
    "empty id": (completion(id=""), Failure.SCHEMA),
    "blank id": (completion(id="  "), Failure.SCHEMA),
    "numeric id": (completion(id=7), Failure.SCHEMA),
    "id with controls": (completion(id="gen\x1b[2J"), Failure.SCHEMA),
    "id with half a surrogate pair": (completion(id="gen\ud800"), Failure.SCHEMA),
    "null content": (completion(None), Failure.EMPTY_RESPONSE),
    "empty content": (completion(""), Failure.EMPTY_RESPONSE),
    "blank content": (completion("  \n"), Failure.EMPTY_RESPONSE),
    "parts": (completion([{"type": "text", "text": SCORE}]), Failure.SCHEMA),
    "number as content": (completion(73), Failure.SCHEMA),
    "missing content": (completion(choice={"message": {"role": "assistant"}}), Failure.SCHEMA),
    "cut at the limit": (completion(finish_reason="length"), Failure.LENGTH),
    "cut and empty": (completion(None, finish_reason="length"), Failure.LENGTH),
    "filtered": (completion(finish_reason="content_filter"), Failure.REFUSED),
    "filtered and empty": (completion(None, finish_reason="content_filter"), Failure.REFUSED),
    "ended by tools": (completion(finish_reason="tool_calls"), Failure.REFUSED),
    "ended by an error": (completion(finish_reason="error"), Failure.REFUSED),
    "refused": (completion(None, message={"refusal": "I cannot"}), Failure.REFUSED),
    "called a tool": (completion(None, message={"tool_calls": [{}]}), Failure.REFUSED),
    "choice holds an error": (
        completion(None, finish_reason="error", choice={"error": {"code": 502}}),
        Failure.SERVER_ERROR,
    ),
    "no reason": (completion(finish_reason=None), Failure.SCHEMA),
    "unknown reason": (completion(finish_reason="eos"), Failure.SCHEMA),
    "reason is a list": (completion(finish_reason=["stop"]), Failure.SCHEMA),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_with_a_fault_gives_its_class_and_no_score(name):
    body, failure = ENVELOPES[name]
    outcome = judge(body)
    assert outcome.failure is failure
    assert outcome.accepted is None


CONTENTS = {
    "code fence": f"```json\n{SCORE}\n```",
    "prose before": f"Sure: {SCORE}",
    "trailing text": f"{SCORE} done",
    "two objects": SCORE * 2,
    "byte order mark": "\ufeff" + SCORE,
    "no-break space": "\u00a0" + SCORE,
    "cut": SCORE[:-1],
    "single quotes": SCORE.replace('"', "'"),
    "comment": SCORE + " // ok",
    "repeated field": '{"accuracy_score": 10, "accuracy_score": 90}',
    "repeated equal field": '{"accuracy_score": 10, "accuracy_score": 10}',
    "extra field": '{"accuracy_score": 10, "why": "x"}',
    "wrong axis": '{"hallucination_score": 10}',
    "both axes": '{"accuracy_score": 10, "hallucination_score": 10}',
    "different case": '{"Accuracy_Score": 10}',
    "escaped twin": '{"accuracy_score": 1, "\\u0061ccuracy_score": 2}',
    "empty object": "{}",
    "list": "[73]",
    "bare number": "73",
    "bare text": '"73"',
    "nested deeply": "[" * 100_000,
    **{
        f"score {written[:12]}": f'{{"accuracy_score": {written}}}'
        for written in (
            'true false null 85.0 1e2 1E0 0.5 "85" NaN Infinity -Infinity [85] {} 101 -1 085 +5'
            " 0x10 8_5 ٨٥ " + "9" * 5000
        ).split()
    },
}


@pytest.mark.parametrize("name", CONTENTS)
def test_content_that_is_not_the_exact_verdict_is_retried_and_never_rescued(name):
    outcome = judge(completion(CONTENTS[name]))
    assert outcome.kind == "retry"
    assert outcome.failure in (Failure.NOT_JSON, Failure.SCHEMA)


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o-mini",
        "gpt-4o-2024-11-20:free",
        "GPT-4o",
        "openai/gpt-4o ",
        "gpt-4o\n",
        "gpt-4o-2024-11-20\n",
        "azure/gpt-4o",
        "gpt-4o-2024-1-20",
        "gpt-4o-٢٠٢٤-11-20",
        "",
        None,
        ["gpt-4o"],
        ...,
    ],
)
def test_another_model_stops_the_route(model):
    outcome = judge(completion(model=model))
    assert (outcome.kind, outcome.failure) == ("stop_route", Failure.WRONG_MODEL)


@pytest.mark.parametrize(
    "model", ["gpt-4o", "openai/gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o-2024-11-20"]
)
def test_dated_aliases_are_accepted_and_kept_as_returned(model):
    assert judge(completion(model=model)).accepted.model == model


def test_the_wrong_model_is_found_before_its_answer_is_looked_at():
    assert judge(completion(None, model="qwen")).failure is Failure.WRONG_MODEL


def test_the_recovery_route_accepts_its_one_model_only():
    recovery = routes.load("paratera-qwen3-vl")
    exact = completion(model="Qwen3-VL-235B-A22B-Instruct")
    assert judge(exact, route=recovery).kind == "accepted"
    for model in ("qwen3-vl-235b-a22b-instruct", "Qwen3-VL-235B-A22B-Thinking", "gpt-4o"):
        assert judge(completion(model=model), route=recovery).failure is Failure.WRONG_MODEL


GMT = "Thu, 19 Nov 2026 10:00:00 GMT"
WAITS = [
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": "0"}, 0.0),
    ({"retry-after": "1.5"}, 1.5),
    ({"retry-after": "1000000"}, 1e6),
    ({"retry-after": "9" * 400}, 1e9),
    ({"retry-after": "5, 30"}, 30.0),
    ({"retry-after": "-5"}, None),
    ({"retry-after": "abc"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "٥"}, None),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"retry-after": "Thu, 19 Nov 2026 10:00:30 GMT", "date": GMT}, 30.0),
    ({"retry-after": "Thu, 19 Nov 2026 10:00:30", "date": GMT}, 30.0),
    ({"retry-after": "Thu, 19 Nov 2026 09:00:00 GMT", "date": GMT}, 0.0),
    ({"retry-after": f"{GMT}, Thu, 19 Nov 2026 10:01:00 GMT", "date": GMT}, 60.0),
    ({"retry-after": "Thu, 99 Nov 2026 10:00:30 GMT", "date": GMT}, None),
    ({"retry-after": "Thu, 19 Nov 2026 10:00:30 GMT"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("headers", "wait"), WAITS)
def test_the_asked_wait_is_read_or_ignored_but_never_wrong(headers, wait):
    assert judge(b"", 429, headers=headers).retry_after == wait


def test_a_date_is_read_against_the_clients_clock_where_the_server_gives_none():
    headers = {"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}
    assert judge(b"", 503, headers=headers, received_at=90.0).retry_after == 10.0


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 401, "message": f"bad key {CANARY}"}},
        {"error": {"message": "x" * 200 + " Authorization: Bearer " + CANARY * 40}},
        completion(f'{{"accuracy_score": "{CANARY}"}}'),
        completion("x" * 280 + CANARY),
        completion(model=CANARY),
        completion(finish_reason=CANARY),
        completion(id=CANARY),
        completion(id=CANARY, model="other"),
    ],
)
def test_an_echoed_key_reaches_no_field_of_the_outcome(body):
    outcome = classify(replied(body), axis="accuracy", route=ROUTE, secrets=[CANARY])
    assert outcome.accepted is None
    assert "canary" not in repr(outcome)


def test_details_are_one_inert_line():
    outcome = judge({"error": {"message": "\x1b[31m\r\nred\u202e \x9b"}}, 400)
    assert outcome.detail.isprintable()
    assert "\\x1b" in outcome.detail


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "900",
        {},
        {"prompt_tokens": 900},
        {"completion_tokens": 9},
        {"prompt_tokens": -1, "completion_tokens": 9},
        {"prompt_tokens": 900, "completion_tokens": True},
        {"prompt_tokens": 900.0, "completion_tokens": 9},
        {"prompt_tokens": 900, "completion_tokens": 2**53},
    ],
)
def test_a_usage_that_is_no_pair_of_counts_is_unknown_and_harms_no_score(usage):
    outcome = judge(completion(usage=usage))
    assert (outcome.kind, outcome.usage) == ("accepted", None)


def test_tokens_of_a_rejected_reply_are_kept_because_they_cost_too():
    usage = {"prompt_tokens": 0, "completion_tokens": 2**53 - 1}
    outcome = judge(completion(finish_reason="length", usage=usage))
    assert (outcome.usage.prompt_tokens, outcome.usage.completion_tokens) == (0, 2**53 - 1)


@pytest.mark.parametrize("size", [1000, 70_000, 1_000_000])
def test_a_giant_text_is_told_in_one_short_line(size):
    outcome = judge(completion(f'{{"accuracy_score": "{"x" * size}"}}'))
    assert outcome.failure is Failure.SCHEMA
    assert outcome.detail.startswith("accuracy_score must be an integer: ")
    assert len(outcome.detail) <= 300


@pytest.mark.parametrize("name", ["model", "id", "content", "finish_reason"])
@pytest.mark.parametrize("length", [40, 164, 900])
def test_a_key_repeated_without_end_is_not_left_over_at_a_cut(name, length):
    key = "".join(f"{number:03d}x" for number in range(length))[:length]
    many = key * (120_000 // length)
    changes = {name: many} if name != "content" else {}
    body = completion(many if name == "content" else SCORE, **changes)
    outcome = classify(replied(body), axis="accuracy", route=ROUTE, secrets=[key])
    shown = repr(outcome)
    assert not any(key[start : start + 5] in shown for start in range(length - 4))


def test_the_accepted_and_the_failed_outcome_cannot_be_mixed():
    accepted = judge(completion()).accepted
    with pytest.raises(ValueError, match="accepted"):
        Outcome(kind="retry", failure=Failure.SCHEMA, accepted=accepted)
    with pytest.raises(ValueError, match="asks for"):
        Outcome(kind="retry", failure=Failure.QUOTA)


FIELDS = (
    st.sampled_from(["id", "model", "choices", "error", "message", "content", "code"])
    | st.just("accuracy_score")
    | st.text(max_size=4)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(SCORE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5),
    max_leaves=12,
)
CHANGES = st.dictionaries(
    st.sampled_from(["id", "model", "choices", "error", "finish_reason", "choice", "message"]),
    JSON,
    max_size=2,
)


def mutated(changes, content):
    changes = {
        name: value
        for name, value in changes.items()
        if name not in ("choice", "message") or isinstance(value, dict)
    }
    return json.dumps(completion(content, **changes)).encode("utf-8", "surrogatepass")


REPLIES = st.builds(
    Reply,
    status=st.sampled_from([200, 200, 200, 429, 500, 404, None]) | st.integers(-5, 700),
    headers=st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "date"]), st.text(), max_size=3
    ),
    body=st.binary()
    | st.builds(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"), JSON)
    | st.builds(mutated, CHANGES, JSON)
    | st.builds(lambda value: mutated({}, json.dumps({"accuracy_score": value})), JSON),
    transport=st.sampled_from([None, None, None, "connection"]),
)


def is_strictly_valid(reply):
    """The acceptance rule written a second time, from the paper's sentence."""
    body = json.loads(reply.body)
    (choice,) = body["choices"]
    verdict = json.loads(choice["message"]["content"])
    return (
        reply.status == 200
        and reply.transport is None
        and body["model"] == "openai/gpt-4o"
        and bool(body["id"].strip())
        and choice["finish_reason"] == "stop"
        and list(verdict) == ["accuracy_score"]
        and type(verdict["accuracy_score"]) is int
        and 0 <= verdict["accuracy_score"] <= 100
    )


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REPLIES)
def test_no_reply_raises_and_only_a_strictly_valid_one_gives_a_number(reply):
    outcome = classify(reply, axis="accuracy", route=ROUTE)
    assert outcome.detail.isprintable()
    assert outcome.retry_after is None or 0 <= outcome.retry_after <= 1e9
    if outcome.accepted is not None:
        assert is_strictly_valid(reply)
    else:
        assert outcome.failure is not None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 100), st.sampled_from(["", " ", "\n"]))
def test_every_valid_score_is_accepted_as_it_is(score, space):
    content = f'{space}{{{space}"accuracy_score"{space}:{space}{score}{space}}}{space}'
    assert judge(completion(content)).accepted.score == score
