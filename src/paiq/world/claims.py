"""What a text claims about a scene: words of size, colour, pattern, shape and place, with spans.

Words that follow each other belong to one *mention* until a kind of word comes again, or until a
new clause names another shape. A mention is about an object if it names its shape or its place;
mentions and objects are paired one to one so that most claims hold.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from paiq.world.language import NUMBERS, RELATIONS
from paiq.world.scenes import VALUES

_WORD = re.compile(r"[A-Za-z]+|\d+|[.,;:!?\n]")
_ENDS = frozenset(".,;:!?\n") | {"and"}
_ANCHORS = ("shape", "place")

_EQUIVALENT = {
    "colour": {"violet": "purple", "turquoise": "cyan"},
    "pattern": {
        "solid": "plain",
        "unpatterned": "plain",
        "spotted": "dotted",
        "checkered": "checked",
        "chequered": "checked",
    },
    "size": {"big": "large", "little": "small", "tiny": "small"},
    "shape": {"rhombus": "diamond", "plus": "cross"},
    "place": {"upper left": "top left", "upper right": "top right"}
    | {"lower left": "bottom left", "lower right": "bottom right"},
    "relation": {"over": "above", "under": "below"},
    "number": {"no": "none", "zero": "none", "0": "none", "1": "one", "2": "two", "3": "three"},
}
_KNOWN = {**VALUES, "relation": RELATIONS, "number": NUMBERS}
LEXICON: dict[str, tuple[str, str]] = {
    word: (kind, value)
    for kind, values in _KNOWN.items()
    for word, value in {**{value: value for value in values}, **_EQUIVALENT[kind]}.items()
}
"""What each word or pair of words says: a kind and a value."""


class Word(NamedTuple):
    """A word of the lexicon in a text."""

    start: int
    end: int
    clause: int
    kind: str
    value: str


class Judged(NamedTuple):
    word: Word
    holds: bool


Mention = list[Word]


def find_words(text: str) -> list[Word]:
    """All words of the lexicon, the longest first where they overlap."""
    pieces = list(_WORD.finditer(text))
    found, clause, index = [], 0, 0
    while index < len(pieces):
        entry, length = _look_up(text, pieces, index)
        if entry is not None:
            last = pieces[index + length - 1]
            found.append(Word(pieces[index].start(), last.end(), clause, *entry))
        elif pieces[index].group().lower() in _ENDS:
            clause += 1
        index += length
    return found


def _look_up(
    text: str, pieces: Sequence[re.Match[str]], index: int
) -> tuple[tuple[str, str] | None, int]:
    first = pieces[index]
    if index + 1 < len(pieces):
        second = pieces[index + 1]
        between = text[first.end() : second.start()]
        pair = f"{first.group()} {second.group()}".lower()
        if pair in LEXICON and between in (" ", "-"):
            return LEXICON[pair], 2
    word = first.group().lower()
    for spelled in (word, word.removesuffix("s"), word.removesuffix("es")):
        if spelled in LEXICON:
            return LEXICON[spelled], 1
    return None, 1


def mentions(words: Sequence[Word]) -> Iterator[Mention]:
    """The words of size, colour, pattern, shape and place, by the thing they are said of."""
    about = [word for word in words if word.kind in VALUES]
    shaped = {word.clause for word in about if word.kind == "shape"}
    current: Mention = []
    for word in about:
        kinds = {known.kind for known in current}
        parted = bool(current) and word.clause != current[-1].clause
        if word.kind in kinds or (parted and "shape" in kinds and word.clause in shaped):
            yield current
            current = []
        current.append(word)
    if current:
        yield current


def judge(
    said: Sequence[Mention],
    things: Sequence[Mapping[str, str]],
    context: Mapping[str, str] | None = None,
) -> list[Judged]:
    """Every claim with its verdict; `context` anchors mentions that name no shape or place."""
    pairs = _pair_up(said, things, context or {})
    return [
        Judged(word, number in pairs and things[pairs[number]][word.kind] == word.value)
        for number, mention in enumerate(said)
        for word in mention
    ]


def _pair_up(
    said: Sequence[Mention], things: Sequence[Mapping[str, str]], context: Mapping[str, str]
) -> dict[int, int]:
    """Mention to thing, one to one, with the most true claims; earlier mentions first."""
    gains = [[_gain(mention, thing, context) for mention in said] for thing in things]
    # No best pairing needs more of a thing's candidates than there are things.
    likely: list[list[int | None]] = [
        [None, *sorted(filter(row.__getitem__, range(len(row))), key=lambda i: (-row[i], i))]
        for row in gains
    ]
    best: tuple[tuple[int, int], dict[int, int]] = ((-1, 0), {})
    for chosen in itertools.product(*(row[: len(things) + 1] for row in likely)):
        pairs = {mention: thing for thing, mention in enumerate(chosen) if mention is not None}
        if len(pairs) < sum(mention is not None for mention in chosen):
            continue  # two things share a mention
        total = sum(gains[thing][mention] for mention, thing in pairs.items())
        best = max(best, ((total, -sum(pairs)), pairs), key=lambda found: found[0])
    return best[1]


def _gain(mention: Mention, thing: Mapping[str, str], context: Mapping[str, str]) -> int:
    """True claims if the mention is of this thing; 0 if nothing ties the two."""
    said = {word.kind: word.value for word in mention}
    ties = {kind: said[kind] for kind in _ANCHORS if kind in said} or context
    if not any(thing[kind] == value for kind, value in ties.items() if kind in _ANCHORS):
        return 0
    return sum(thing[kind] == value for kind, value in said.items())
