"""The main comparison, for the paper's numbers and for our own alike.

Means are exact decimals; differences are taken of them and rounded last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from paiq.analysis.claims import hundredths
from paiq.analysis.statistics import marks
from paiq.records import AXES, Axis
from paiq.report.tables import Band, Cell, Mark, Table, Tone

Key = tuple[str, str, str, Axis]
"""Group, dataset, method, axis."""
HEADS = {"accuracy": "Acc. ↑", "hallucination": "Hall. ↓"}
KNOWN_MARKS: Mapping[str, Mark] = {"best": "best", "second": "second", "none": "none"}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the table shows: means, and what stands where there is none."""

    means: Mapping[Key, Decimal]
    ours: str
    missing: Mapping[Key, str] = field(default_factory=dict)
    """Such as 999/1000 for a cell that is not complete."""

    def groups(self) -> list[str]:
        return list(dict.fromkeys(key[0] for key in self._keys()))

    def datasets(self) -> list[str]:
        return list(dict.fromkeys(key[1] for key in self._keys()))

    def methods(self, group: str) -> list[str]:
        """Baselines in order, ours last."""
        found = dict.fromkeys(key[2] for key in self._keys() if key[0] == group)
        return [method for method in found if method != self.ours] + (
            [self.ours] if self.ours in found else []
        )

    def _keys(self) -> list[Key]:
        return [*self.means, *self.missing]


def comparison_table(comparison: Comparison, *, name: str, caption: str) -> Table:
    """Methods by dataset and axis, a band for each group."""
    datasets = comparison.datasets()
    rows: list[tuple[Cell, ...] | Band] = []
    for group in comparison.groups():
        rows.append(Band(text=group))
        marked = {
            (dataset, axis): _column_marks(comparison, group, dataset, axis)
            for dataset in datasets
            for axis in AXES
        }
        for method in comparison.methods(group):
            cells = [
                _cell(comparison, (group, dataset, method, axis), marked[dataset, axis])
                for dataset in datasets
                for axis in AXES
            ]
            rows.append((Cell(text=method), *cells))
    return Table(
        name=name,
        caption=caption,
        header=("Method", *[HEADS[axis] for _ in datasets for axis in AXES]),
        groups=(("", 1), *[(dataset, 2) for dataset in datasets]),
        rows=tuple(rows),
    )


def difference_note(ours: Decimal, theirs: Decimal, axis: Axis) -> tuple[str, Tone]:
    """The arrow says where ours lies, the tone whom it favours."""
    gap = hundredths(ours - theirs)
    if gap == 0:
        return "= 0.00", "muted"
    good = gap > 0 if axis == "accuracy" else gap < 0
    return f"{'↑' if gap > 0 else '↓'} {abs(gap)}", "good" if good else "bad"


def _column_marks(comparison: Comparison, group: str, dataset: str, axis: Axis) -> dict[str, Mark]:
    """Best and second of the displayed values, among complete cells."""
    shown = {
        method: float(hundredths(comparison.means[group, dataset, method, axis]))
        for method in comparison.methods(group)
        if (group, dataset, method, axis) in comparison.means
    }
    if len(shown) < 2:
        return {}
    given = marks(list(shown.values()), higher=axis == "accuracy")
    return {method: KNOWN_MARKS[mark] for method, mark in zip(shown, given, strict=True)}


def _cell(comparison: Comparison, key: Key, marked: Mapping[str, Mark]) -> Cell:
    group, dataset, method, axis = key
    if key in comparison.missing:
        return Cell(text="incomplete", note=comparison.missing[key], tone="bad")
    if key not in comparison.means:
        return Cell(text="–")
    mean = comparison.means[key]
    reference = comparison.means.get((group, dataset, comparison.ours, axis))
    note: str = ""
    tone: Tone = "none"
    if method != comparison.ours and reference is not None:
        note, tone = difference_note(reference, mean, axis)
    return Cell(text=str(hundredths(mean)), mark=marked.get(method, "none"), note=note, tone=tone)


def macro_table(comparison: Comparison, *, name: str) -> Table:
    """Means of dataset means, for methods that are complete on every dataset of their group."""
    rows: list[tuple[Cell, ...] | Band] = []
    for group in comparison.groups():
        found = {}
        for method in comparison.methods(group):
            means = [_macro(comparison, group, method, axis) for axis in AXES]
            if means[0] is not None and means[1] is not None:
                found[method] = (means[0], means[1])
        if not found:
            continue
        rows.append(Band(text=group))
        columns = [
            marks([float(hundredths(pair[i])) for pair in found.values()], higher=i == 0)
            for i in range(2)
        ]
        for index, (method, pair) in enumerate(found.items()):
            cells = [
                Cell(text=str(hundredths(mean)), mark=KNOWN_MARKS[columns[i][index]])
                for i, mean in enumerate(pair)
            ]
            rows.append((Cell(text=method), *cells))
    return Table(
        name=name,
        caption="Means of the dataset means, every dataset counted once; only methods that are "
        "complete on all datasets of their group.",
        header=("Method", *[HEADS[axis] for axis in AXES]),
        rows=tuple(rows),
    )


def _macro(comparison: Comparison, group: str, method: str, axis: Axis) -> Decimal | None:
    datasets = {key[1] for key in [*comparison.means, *comparison.missing] if key[0] == group}
    keys: Sequence[Key] = [(group, dataset, method, axis) for dataset in sorted(datasets)]
    if any(key not in comparison.means for key in keys):
        return None
    return sum((comparison.means[key] for key in keys), Decimal(0)) / len(keys)
