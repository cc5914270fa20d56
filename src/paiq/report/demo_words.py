"""What won and what did not, in sentences made from the numbers alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paiq.analysis.statistics import Estimate
from paiq.report.demo_results import DemoResults
from paiq.report.demo_summary import DemoDifference, DemoRow

FAMILY_WORDS = {"description": "descriptions", "vqa": "questions"}
FEW = 50
"""Records a cell below which the page calls its own numbers a look."""
STANDING_LIMITS = (
    "The world of this page is generated and small. It shows and tests the pipeline and compares "
    "interfaces on equal terms; it is no evidence about natural images.",
    "An interval resamples pictures. It says nothing about other training seeds, other recipes "
    "or other towers, and no correction for looking at several comparisons is made.",
    "One recipe served every method. None was tuned, so a method that needs another learning "
    "rate or more steps is shown below its best.",
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence and its sign."""

    kind: Literal["won", "lost", "open", "note"]
    text: str


def findings(
    rows: Sequence[DemoRow], differences: Sequence[DemoDifference], ceilings: Sequence[DemoRow]
) -> list[Finding]:
    """One sentence per split and task, then the rotation, the ceiling and the shift."""
    found = []
    for split, family in dict.fromkeys((row.split, row.family) for row in rows):
        here = [d for d in differences if (d.split, d.family) == (split, family)]
        own = [row for row in rows if (row.split, row.family) == (split, family)]
        if here:
            found.append(_place(own, here))
    return found + _rotation(differences) + _ceiling(rows, ceilings) + _shift(rows)


def lead(results: DemoResults, rows: Sequence[DemoRow]) -> str:
    """The page's first sentence."""
    pictures = max((row.n for row in rows), default=0)
    seeds = max((row.seeds for row in rows), default=0)
    caution = "" if pictures >= FEW else " That is too few to conclude anything: a look, no result."
    return (
        f"{len(results.methods)} visual interfaces between the same two frozen vision towers and "
        f"the same frozen language model, trained by one recipe with {_count(seeds, 'seed')} and "
        f"scored exactly on held-out scenes (up to {pictures} records a cell).{caution}"
    )


def _place(own: Sequence[DemoRow], differences: Sequence[DemoDifference]) -> Finding:
    where = f"{differences[0].split.capitalize()}, {FAMILY_WORDS[differences[0].family]}"
    ours = next(row for row in own if row.method == "paiq")
    ahead = [d for d in differences if d.accuracy.excludes_zero and d.accuracy.mean > 0]
    behind = [d for d in differences if d.accuracy.excludes_zero and d.accuracy.mean < 0]
    level = [d for d in differences if not d.accuracy.excludes_zero]
    parts = []
    if ahead:
        parts.append(f"ahead of {_list(ahead)}")
    if level:
        parts.append(f"not distinguishable from {_list(level)}")
    if behind:
        parts.append(f"behind {_list(behind)}")
    if behind:
        kind: Literal["won", "lost", "open"] = "lost"
    else:
        kind = "open" if level else "won"
    worse = [
        d.other
        for d in differences
        if d.hallucination.excludes_zero and d.hallucination.mean < 0 and d not in behind
    ]
    text = f"{where}: PAIQ reaches Accuracy {_value(ours.accuracy)} and is {'; '.join(parts)}."
    if worse:
        text += f" It invents more than {_join(worse)}."
        kind = "lost" if kind == "won" else kind
    return Finding(kind=kind, text=text)


def _rotation(differences: Sequence[DemoDifference]) -> list[Finding]:
    here = [d for d in differences if d.other == "pai"]
    if not here:
        return []
    listed = [
        f"{d.accuracy.mean:+.1f} {_interval(d.accuracy)} ({d.split}, {FAMILY_WORDS[d.family]})"
        for d in here
    ]
    clear = [d for d in here if d.accuracy.excludes_zero]
    helped = [d for d in clear if d.accuracy.mean > 0]
    if len(helped) == len(here):
        kind: Literal["won", "lost", "open"] = "won"
        verdict = "helps everywhere"
    elif len(clear) > len(helped):
        kind, verdict = "lost", f"costs in {len(clear) - len(helped)} of {len(here)} places"
    else:
        kind, verdict = "open", f"helps clearly in {len(helped)} of {len(here)} places"
    text = f"Learning the rotation instead of fixing it (pai) {verdict}: {_join(listed)}."
    return [Finding(kind=kind, text=text)]


def _ceiling(rows: Sequence[DemoRow], ceilings: Sequence[DemoRow]) -> list[Finding]:
    parts = []
    for ceiling in ceilings:
        here = [row for row in rows if (row.split, row.family) == (ceiling.split, ceiling.family)]
        if here:
            best = max(here, key=lambda row: row.accuracy.mean)
            gap = best.accuracy.mean - ceiling.accuracy.mean
            parts.append(
                f"{ceiling.accuracy.mean:.1f} on {FAMILY_WORDS[ceiling.family]} "
                f"({ceiling.split}; the best interface, {best.method}, stands {gap:+.1f} from it)"
            )
    if not parts:
        return []
    text = f"Given the true words, the frozen language model itself reaches {_join(parts)}."
    return [Finding(kind="note", text=text)]


def _shift(rows: Sequence[DemoRow]) -> list[Finding]:
    splits = list(dict.fromkeys(row.split for row in rows))
    by_key = {(row.method, row.split, row.family): row.accuracy.mean for row in rows}
    found = []
    for family in dict.fromkeys(row.family for row in rows):
        for split in splits[1:]:
            changes = [
                f"{row.method} {by_key[moved] - row.accuracy.mean:+.1f}"
                for row in rows
                if (row.split, row.family) == (splits[0], family)
                and (moved := (row.method, split, family)) in by_key
            ]
            if changes:
                text = f"From {splits[0]} to {split} ({FAMILY_WORDS[family]}), Accuracy changes by "
                found.append(Finding(kind="note", text=f"{text}{_join(changes)}."))
    return found


def _list(differences: Sequence[DemoDifference]) -> str:
    ordered = sorted(differences, key=lambda d: -d.accuracy.mean)
    return _join([f"{d.other} ({d.accuracy.mean:+.1f} {_interval(d.accuracy)})" for d in ordered])


def _value(value: Estimate) -> str:
    return f"{value.mean:.1f} {_interval(value)}".rstrip()


def _interval(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return f"[n = {value.n}]"
    return f"[{value.low:.1f}, {value.high:.1f}]"


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _count(number: int, noun: str) -> str:
    return f"one {noun}" if number == 1 else f"{number} {noun}s"
