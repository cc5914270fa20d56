import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paiq.judging.entries import outcome
from paiq.judging.ledger_rows import Entry
from paiq.judging.redaction import HIDDEN, MOST_READ, inert, redact, told
from paiq.judging.routes import load
from paiq.judging.types import Reply
from paiq.judging.verdict import classify

CANARY = "sk-Canary/0+é\"x'=<&>"
RAW = CANARY.encode()


@pytest.mark.parametrize(
    "spelled",
    [
        CANARY,
        CANARY.upper(),
        quote(CANARY, safe=""),
        quote(CANARY, safe="").lower(),
        quote_plus(CANARY),
        "".join(f"%{byte:02x}" for byte in RAW),
        json.dumps(CANARY),
        json.dumps(json.dumps(CANARY)),
        repr(CANARY),
        html.escape(CANARY),
        RAW.hex(),
        "".join(f"\\u{ord(letter):04X}" for letter in CANARY),
    ],
)
def test_a_secret_is_taken_out_in_every_spelling(spelled):
    cleaned = redact(f"before {spelled} after", [CANARY])
    assert "anary" not in cleaned.lower()
    assert HIDDEN in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")


LONG = "sk-proj-Canary0123456789Canary"


@pytest.mark.parametrize("prefix", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("suffix", ["", "x", ":pw"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_found_at_every_alignment(prefix, suffix, encode):
    letters = encode((prefix + LONG + suffix).encode()).decode()
    kept = redact(f"<{letters}>", [LONG]).replace(HIDDEN, "").strip("<>").rstrip("=")
    # What stays belongs to the neighbours; at most one letter at each end shares bits with the key.
    assert len(kept) <= 8 * (len(prefix) + len(suffix)) / 6 + 2


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345678",
        "incorrect api key sk-proj-abcdefgh1234",
        '{"api_key": "abcdefgh1234"}',
        "https://host/?access_token=abcdefgh1234",
    ],
)
def test_what_looks_like_a_key_is_hidden_without_being_told(text):
    assert "abcdefgh" not in redact(text)


def test_ordinary_text_and_empty_secrets_change_nothing():
    text = "The bearer of the basic skill asked: a sky, a task?"
    assert redact(text, ["", "unrelated"]) == text


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
        "a\rb\nc\tb\bd",
        "\x9b2J",
        "\u202egpj.exe",
        "\u2066x\u2069",
        "zero\u200bwidth",
        "line\u2028end\u2029",
        "nul\0",
        "half \ud83d",
        "\U000e0041",
    ],
)
def test_text_for_a_terminal_is_printable_and_still_legible(text):
    shown = inert(text)
    assert shown.isprintable()
    assert shown.encode("utf-8")
    assert all(word in shown for word in text.split() if word.isascii() and word.isalnum())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(exclude_categories=[]), max_size=50))
def test_any_text_becomes_one_printable_line_of_bounded_length(text):
    shown = inert(text, most=40)
    assert shown.isprintable()
    assert len(shown) <= 40


def test_harmless_text_is_shown_as_it_is():
    assert inert("naïve 🐶, 中文, <b>") == "naïve 🐶, 中文, <b>"


@pytest.mark.parametrize("length", [30, 164, 900])
@pytest.mark.parametrize("shift", range(0, 900, 97))
def test_a_key_that_a_cut_runs_through_leaves_nothing_in_the_record(length, shift):
    key = "".join(f"{number:03d}x" for number in range(length))[:length]
    reply = Reply(status=400, body=b"<" * shift + key.encode() * (200_000 // length))
    result = classify(reply, axis="accuracy", route=load("local-vllm"), secrets=[key])
    intended = Entry(kind="intent", key="0" * 64, route="local-vllm", attempt=1, body={})
    (entry,) = outcome(intended, reply, result, evaluator="x", secrets=[key])
    told = entry.body.get("body", "") + entry.body["detail"]
    assert not any(key[start : start + 4] in told for start in range(len(key) - 3))
    assert len(told) <= 2300


def test_a_line_is_cut_only_where_it_is_too_long():
    assert inert("x" * 300) == "x" * 300
    assert inert("x" * 301) == "x" * 299 + "…"
    assert inert("\x1b" * 75) == "\\x1b" * 75


@pytest.mark.parametrize(("size", "kept"), [(MOST_READ, 300), (MOST_READ + 1, 300)])
def test_a_text_of_the_longest_length_is_told_whole(size, kept):
    assert len(told("x" * size)) == kept
    assert told(" " * (size - 1) + "x", most=size)[-1] == ("x" if size <= MOST_READ else " ")
