"""A claim of the paper beside the number that its own tables give for it."""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum


class Verdict(StrEnum):
    OK = "OK"
    AS_READ = "OK as read"
    """Reproduces under the reading that the note states."""
    DIFFERS = "differs"
    NOT_DERIVABLE = "not derivable"
    OURS = "ours"
    """Not in the paper; recomputed because readers ask for it."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is printed, what comes out, and what that means."""

    topic: str
    claim: str
    printed: str
    recomputed: str
    verdict: Verdict
    note: str = ""


def check(topic: str, claim: str, printed: str, recomputed: str, note: str = "") -> Claim:
    """OK where the two texts are equal; the recomputed one is formed without the printed one."""
    verdict = Verdict.OK if printed == recomputed else Verdict.DIFFERS
    return Claim(
        topic=topic,
        claim=claim,
        printed=printed,
        recomputed=recomputed,
        verdict=verdict,
        note=note,
    )


def as_read(topic: str, claim: str, printed: str, recomputed: str, note: str) -> Claim:
    """As `check`, where agreement rests on the reading in the note."""
    verdict = Verdict.AS_READ if printed == recomputed else Verdict.DIFFERS
    return Claim(
        topic=topic,
        claim=claim,
        printed=printed,
        recomputed=recomputed,
        verdict=verdict,
        note=note,
    )


def not_derivable(topic: str, claim: str, printed: str, known: str, note: str) -> Claim:
    return Claim(
        topic=topic,
        claim=claim,
        printed=printed,
        recomputed=known,
        verdict=Verdict.NOT_DERIVABLE,
        note=note,
    )


def ours(topic: str, claim: str, recomputed: str, note: str = "") -> Claim:
    return Claim(
        topic=topic,
        claim=claim,
        printed="",
        recomputed=recomputed,
        verdict=Verdict.OURS,
        note=note,
    )


def hundredths(value: Decimal) -> Decimal:
    """Rounded half up, as tables of means print it."""
    return value.quantize(Decimal("0.01"), ROUND_HALF_UP)
