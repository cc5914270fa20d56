"""Text from outside made fit to keep and to show: keys taken out, controls made visible."""

import base64
import functools
import html
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

HIDDEN = "[redacted]"
MOST_READ = 64_000
"""Characters of a text that are looked at."""
LONGEST_SECRET = 4_000
"""Characters that a secret may take in its longest spelling."""
# What looks like a credential is hidden even where nobody told us that it is one.
CREDENTIAL = re.compile(
    r"(?i)(?:\bbearer|\bbasic)\s+[a-z0-9._~+/=-]{8,}"
    r"|\bsk-[a-z0-9_-]{8,}"
    r"|(?:api[_-]?key|access[_-]?token)[\"']?\s*[:=]\s*[\"']?[a-z0-9._~+/=-]{8,}"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets in any common spelling, and without what looks like one."""
    for secret in secrets:
        if secret:
            text = _spellings(secret).sub(HIDDEN, text)
    return CREDENTIAL.sub(HIDDEN, text)


def told(text: str, secrets: Iterable[str] = (), *, most: int = 300) -> str:
    """The beginning of a text from outside as one line without the secrets.

    The secrets go first and the cuts come after; what a cut may have left of a secret is dropped
    with the end.
    """
    cleaned = redact(text[:MOST_READ], secrets)
    return inert(cleaned if len(text) <= MOST_READ else cleaned[:-LONGEST_SECRET], most=most)


def inert(text: str, *, most: int = 300) -> str:
    """One printable line: controls, escapes, bidi marks and line ends spelled out, and cut."""
    line = "".join(_visible(letter) for letter in text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def _visible(letter: str) -> str:
    if letter.isprintable():
        return letter
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


@functools.lru_cache(maxsize=64)
def _spellings(secret: str) -> re.Pattern[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    forms = {
        secret,
        quote(raw, safe=""),
        quote_plus(raw),
        "".join(f"%{byte:02X}" for byte in raw),
        raw.hex(),
        "".join(f"\\u{ord(letter):04x}" for letter in secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret)[1:-1].replace("/", "\\/"),
        json.dumps(json.dumps(secret)[1:-1])[1:-1],
        html.escape(secret),
        repr(secret)[1:-1],
        *_base64_forms(raw),
    }
    longest_first = sorted(filter(None, forms), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)


def _base64_forms(raw: bytes) -> Iterable[str]:
    """The letters of base64 that depend on the secret alone, at each of the three alignments."""
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            letters = encode(b"\0" * shift + raw).decode("ascii").rstrip("=")
            first = -(-shift * 8 // 6)
            last = (shift + len(raw)) * 8 // 6
            if last - first >= 8:
                yield letters[first:last]
