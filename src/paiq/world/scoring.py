"""Exact scores of what is said about a scene of the world, on both axes, and why.

Description: Accuracy is the part of the scene's facts that the text states, Hallucination the part
of the text's claims that are false. Leaving out lowers Accuracy only.
Question: Accuracy tells whether the right option is chosen, by letter, text or equivalent;
Hallucination is the part of the answer's and the explanation's claims that are false.
An empty text scores 0 on both axes. The rules in full: docs/world.md.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from paiq.errors import DataError
from paiq.records import Axis, Sample
from paiq.world.claims import LEXICON, Word, find_words, judge, mentions
from paiq.world.language import LETTERS
from paiq.world.scenes import ATTRIBUTES

Verdict = Literal["true", "false"]


@dataclass(frozen=True)
class Claim:
    """A part of the text that asserts something, and whether it holds."""

    start: int
    end: int
    text: str
    verdict: Verdict

    @property
    def right(self) -> bool:
        return self.verdict == "true"


@dataclass(frozen=True)
class WorldScore:
    accuracy: int
    hallucination: int
    claims: tuple[Claim, ...] = ()
    """In the order of the text."""

    @property
    def axes(self) -> Mapping[Axis, int]:
        return {"accuracy": self.accuracy, "hallucination": self.hallucination}


def score(sample: Sample, text: str) -> WorldScore:
    """The scores of a response to a sample whose facts are known."""
    things = _things(sample)
    if not text.strip():
        return WorldScore(0, 0)
    if sample.family == "description":
        return _score_description(things, text)
    return _score_answer(sample, things, text)


@cache
def rules_digest() -> str:
    """SHA-256 of the code that scores: other rules have another digest."""
    here = Path(__file__).parent
    names = ("scoring.py", "claims.py", "language.py", "scenes.py")
    return hashlib.sha256(b"".join((here / name).read_bytes() for name in names)).hexdigest()


def _things(sample: Sample) -> Sequence[Mapping[str, Any]]:
    things = (sample.facts or {}).get("objects")
    if not things or not all(set(ATTRIBUTES) <= set(thing) for thing in things):
        raise DataError(
            f"sample {sample.id!r} has no scene graph; exact scores need facts['objects'] "
            f"with {', '.join(ATTRIBUTES)} of each object"
        )
    return list(things)


def _score_description(things: Sequence[Mapping[str, Any]], text: str) -> WorldScore:
    judged = judge(list(mentions(find_words(text))), things)
    right = sum(found.holds for found in judged)
    return WorldScore(
        accuracy=_percent(right, len(ATTRIBUTES) * len(things)),
        hallucination=_percent(len(judged) - right, len(judged)),
        claims=_claims(text, {(word.start, word.end): holds for word, holds in judged}),
    )


def _score_answer(sample: Sample, things: Sequence[Mapping[str, Any]], text: str) -> WorldScore:
    if sample.reference is None or not sample.options:
        raise DataError(f"question {sample.id!r} needs options and a reference to be scored")
    chosen = _chosen(sample.options, text)
    right = _meaning(sample.reference)
    verdicts = {span: option == right for span, option in chosen.items()}
    answers = list(chosen.values())
    decided = bool(answers) and answers[-1] == right
    words = [word for word in find_words(text) if (word.start, word.end) not in chosen]
    verdicts |= _explanation(sample, things, words)
    false = sum(not holds for holds in verdicts.values())
    return WorldScore(
        accuracy=_percent(1, len(set(answers))) if decided else 0,
        hallucination=_percent(false, len(verdicts)),
        claims=_claims(text, verdicts),
    )


Span = tuple[int, int]
Meaning = tuple[str, str]


def _meaning(option: str) -> Meaning:
    """What an option says; its bare text where the lexicon does not know it."""
    return LEXICON.get(option.lower(), ("text", option.lower()))


def _chosen(options: Sequence[str], text: str) -> dict[Span, Meaning]:
    """The options that the text chooses, in its order, by where it does so.

    Words of the options' kind count in the first clause that has one, and in later clauses that
    say nothing else; a kind's word that is no option is a wrong choice.
    """
    meanings = [_meaning(option) for option in options]
    found = {span: meanings[number] for span, number in _letters(text, options).items()}
    kinds = {kind for kind, _ in meanings}
    words = find_words(text)
    of_kind = [word for word in words if word.kind in kinds]
    first = min((word.clause for word in of_kind), default=0)
    other = {word.clause for word in words if word.kind not in kinds}
    for word in of_kind:
        if word.clause == first or word.clause not in other:
            found[word.start, word.end] = (word.kind, word.value)
    for kind, bare in meanings:
        for match in re.finditer(rf"\b{re.escape(bare)}\b", text.lower()) if kind == "text" else ():
            found[match.span()] = (kind, bare)
    return dict(sorted(found.items()))


def _letters(text: str, options: Sequence[str]) -> dict[Span, int]:
    """Option letters: alone, before a mark or its own option, never the article."""
    found = {}
    allowed = "".join(LETTERS[: len(options)])
    for match in re.finditer(rf"(?<![A-Za-z])[{allowed}](?![A-Za-z])", text):
        number = LETTERS.index(match.group())
        rest = text[match.end() :].lstrip(" .):-\t\n")
        marked = re.match(r"\s*($|[.,:;)\]\n-])", text[match.end() :])
        if match.group() != "A" or marked or rest.lower().startswith(options[number].lower()):
            found[match.span()] = number
    bare = text.strip(" .()\n\t")
    if not found and len(bare) == 1 and bare.upper() in allowed:
        start = text.index(bare)
        found[start, start + 1] = LETTERS.index(bare.upper())
    return found


def _explanation(
    sample: Sample, things: Sequence[Mapping[str, Any]], words: Sequence[Word]
) -> dict[Span, bool]:
    """Claims about the scene beside the answer; words of the question itself are none.

    What names no object speaks of the question's.
    """
    asked = find_words(sample.question or "")
    context: dict[str, str] = {}
    for word in asked:
        context.setdefault(word.kind, word.value)
    repeated = {(word.kind, word.value) for word in asked}
    judged = judge(list(mentions(words)), things, context)
    return {
        (word.start, word.end): holds
        for word, holds in judged
        if (word.kind, word.value) not in repeated
    }


def _claims(text: str, verdicts: Mapping[Span, bool]) -> tuple[Claim, ...]:
    return tuple(
        Claim(start, end, text[start:end], "true" if holds else "false")
        for (start, end), holds in sorted(verdicts.items())
    )


def _percent(part: int, whole: int) -> int:
    """Rounded half up, in integers alone; 0 of nothing."""
    return (200 * part + whole) // (2 * whole) if whole else 0
