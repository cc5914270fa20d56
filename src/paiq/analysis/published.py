"""The paper's published tables, as printed: strings become exact decimals, nothing is rounded.

The files under `paper/` are the tables' numbers, one row per number.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

from paiq.analysis.statistics import marks
from paiq.errors import DataError
from paiq.records import Axis

OURS, SPATIAL, SEMANTIC, FIXED = "PAIQ", "DINOv3", "SigLIP", "PAI (w/o orthogonal Q)"
CLUSTERING = {"Granulon-style (K=10)": "Granulon"}
"""The dedicated archive's name of a method, and the main table's."""
DATASETS = ("FLUX-Reason", "Caption", "SEED", "A-OKVQA")


@dataclass(frozen=True, order=True)
class Place:
    """Where one number stands."""

    backbone: str
    dataset: str
    method: str
    axis: Axis


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A number of the main or scaling table with everything printed beside it."""

    place: Place
    value: Decimal
    mark: str
    arrow: str
    delta: Decimal | None
    colour: str


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A printed interval; for paired ones the mean is not printed."""

    place: Place
    low: Decimal
    high: Decimal
    replicates: int | None = None
    mean: Decimal | None = None

    @property
    def middle(self) -> Decimal:
        return (self.low + self.high) / 2

    @property
    def half_width(self) -> Decimal:
        return (self.high - self.low) / 2

    @property
    def favours(self) -> bool:
        """Whether all of it lies above zero."""
        return self.low > 0


@dataclass(frozen=True, kw_only=True)
class Delta:
    """PAIQ minus one baseline, recomputed from the two printed means."""

    arrow: str
    size: Decimal
    colour: str

    @classmethod
    def between(cls, ours: Decimal, theirs: Decimal, axis: Axis) -> "Delta":
        gap = ours - theirs
        good = gap > 0 if axis == "accuracy" else gap < 0
        return cls(
            arrow="up" if gap > 0 else "down", size=abs(gap), colour="green" if good else "red"
        )


@cache
def main_table() -> dict[Place, Printed]:
    return _printed("main")


@cache
def scaling_table() -> dict[Place, Printed]:
    return _printed("scaling")


@cache
def paired_intervals() -> list[Interval]:
    """PAIQ against the single encoder with the higher Accuracy; positive favours PAIQ."""
    return [
        Interval(
            place=Place(row["backbone"], row["dataset"], OURS, _axis(row["metric"])),
            low=Decimal(row["ci_low"]),
            high=Decimal(row["ci_high"]),
            replicates=int(row["resamples"]),
        )
        for row in read("bootstrap")
    ]


@cache
def dedicated_table() -> list[Interval]:
    """The 2B question archive: means with their marginal intervals."""
    return [
        Interval(
            place=Place(row["backbone"], row["dataset"], row["method"], _axis(row["metric"])),
            low=Decimal(row["ci_low"]),
            high=Decimal(row["ci_high"]),
            mean=Decimal(row["mean"]),
        )
        for row in read("qwen2b_vqa")
    ]


@cache
def values() -> dict[Place, Decimal]:
    """Every mean of the two large tables; where both print one, they must agree."""
    found = {place: row.value for place, row in main_table().items()}
    for place, row in scaling_table().items():
        if found.setdefault(place, row.value) != row.value:
            raise DataError(f"the tables print {found[place]} and {row.value} for {place}")
    return found


def recomputed_delta(table: dict[Place, Printed], place: Place) -> Delta:
    ours = Place(place.backbone, place.dataset, OURS, place.axis)
    return Delta.between(table[ours].value, table[place].value, place.axis)


def recomputed_marks(table: dict[Place, Printed]) -> dict[Place, str]:
    """Best and second of every backbone, dataset and axis, from the displayed values."""
    found: dict[Place, str] = {}
    for group in groups(table):
        given = marks([float(table[p].value) for p in group], higher=group[0].axis == "accuracy")
        found |= dict(zip(group, given, strict=True))
    return found


def groups(table: Iterable[Place]) -> list[list[Place]]:
    """Places that are compared with each other, all methods of one column."""
    columns: dict[tuple[str, str, str], list[Place]] = {}
    for place in table:
        columns.setdefault((place.backbone, place.dataset, place.axis), []).append(place)
    return list(columns.values())


def better_encoder(backbone: str, dataset: str) -> str:
    """The single encoder with the higher printed Accuracy; ties go to the spatial one."""
    known = values()
    spatial, semantic = (
        known[Place(backbone, dataset, method, "accuracy")] for method in (SPATIAL, SEMANTIC)
    )
    return SEMANTIC if semantic > spatial else SPATIAL


def read(name: str) -> Iterator[dict[str, str]]:
    text = (files("paiq.analysis") / "paper" / f"table_{name}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def _printed(name: str) -> dict[Place, Printed]:
    found = {}
    for row in read(name):
        place = Place(row["backbone"], row["dataset"], row["method"], _axis(row["metric"]))
        delta = Decimal(row["printed_delta"]) if row["printed_delta"] else None
        found[place] = Printed(
            place=place,
            value=Decimal(row["value"]),
            mark=row["highlight"],
            arrow=row["printed_arrow"],
            delta=delta,
            colour=row["printed_color"],
        )
    return found


def _axis(metric: str) -> Axis:
    if metric == "accuracy":
        return "accuracy"
    if metric == "hallucination":
        return "hallucination"
    raise DataError(f"no metric {metric!r} in the published tables")
