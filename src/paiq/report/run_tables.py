"""The tables of a report on runs."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from paiq.analysis.cells import Cell as Place
from paiq.analysis.cells import CellScores, Coverage
from paiq.analysis.claims import hundredths
from paiq.analysis.comparisons import (
    Cells,
    Paired,
    Plan,
    Roles,
    best_of_two,
    cell_result,
    empty_outputs,
    evaluator_sources,
    pooled_share,
)
from paiq.analysis.comparisons import Comparison as Paring
from paiq.analysis.runs import RunSlice
from paiq.analysis.statistics import Estimate
from paiq.records import AXES
from paiq.report.comparison_tables import Comparison, Key
from paiq.report.tables import Cell, Table, cells

THRESHOLD = 80
MOST_PAIRS = 12
"""Score pairs of empty outputs shown one by one; the rest are added up in a row."""


def comparison_of(found: Cells, ours: str, methods: Sequence[str] = ()) -> Comparison:
    """Exact means of complete cells; n of N for the others."""
    means: dict[Key, Decimal] = {}
    missing: dict[Key, str] = {}
    for place, scores in found.items():
        if methods and place.method not in methods:
            continue
        for axis in AXES:
            key = (place.group, place.dataset, place.method, axis)
            if scores.is_complete(axis):
                total = sum(scores.scores[axis].values())
                means[key] = Decimal(total) / len(scores.expected)
            else:
                missing[key] = f"{len(scores.scores[axis])}/{len(scores.expected)} scored"
    return Comparison(means=means, ours=ours, missing=missing)


def coverage_table(parts: Mapping[tuple[str, str], Coverage], whole: Coverage) -> Table:
    rows = [_coverage_row(group, dataset, coverage) for (group, dataset), coverage in parts.items()]
    if len(parts) > 1:
        rows.append(_coverage_row("all", "", whole))
    return Table(
        name="coverage",
        caption="Keys: two axes for every expected prediction. Scored + terminal + pending = "
        "expected. An empty candidate is scored like any other; a terminal or pending key has no "
        "score and is no zero.",
        header=(
            "Group",
            "Dataset",
            "Expected",
            "Scored by",
            "Terminal",
            "Pending",
            "Empty candidates",
            "Records",
            "Distinct images",
            "Sends",
            "Retries",
        ),
        rows=tuple(rows),
        text_columns=2,
    )


def _coverage_row(group: str, dataset: str, coverage: Coverage) -> tuple[Cell, ...]:
    return (
        *cells(group, dataset, f"{coverage.expected:,}"),
        Cell(text=_counts(coverage.scored)),
        Cell(text=_counts(coverage.terminal)),
        Cell(text=f"{coverage.pending:,}"),
        Cell(text=f"{coverage.empty_candidates:,}"),
        Cell(text=f"{coverage.records:,}"),
        Cell(text=f"{coverage.distinct_images:,}"),
        Cell(text="–" if coverage.sends is None else f"{coverage.sends:,}"),
        Cell(text="–" if coverage.retries is None else f"{coverage.retries:,}"),
    )


def _counts(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{name} {count:,}" for name, count in counts.items()) or "0"


def interval_table(found: Cells, plan: Plan) -> Table:
    rows = []
    for place, scores in found.items():
        line = [*cells(place.group, place.dataset, place.method)]
        for axis in AXES:
            result = cell_result(scores, axis, plan)
            if result.estimate is None:
                note = f"{result.scored}/{result.expected} scored"
                line.append(Cell(text="incomplete", note=note, tone="bad"))
            else:
                line.append(_estimate_cell(result.estimate))
        n = f"{len(scores.expected):,}"
        rows.append((*line, Cell(text=n)))
    return Table(
        name="means",
        caption="Means over all records with 95% percentile bootstrap intervals. A cell that is "
        "not complete has no mean.",
        header=("Group", "Dataset", "Method", "Accuracy ↑", "Hallucination ↓", "N"),
        rows=tuple(rows),
        text_columns=3,
    )


def paired_table(parings: Sequence[Paring], ours: str) -> Table:
    rows = []
    for paring in parings:
        for axis in AXES:
            pair = paring.axes[axis]
            rows.append(
                (
                    *cells(paring.group, paring.dataset, paring.comparator, axis),
                    _paired_cell(pair.by_record),
                    Cell(text=_interval(pair.by_image)),
                    Cell(text=_p(pair.p)),
                    Cell(text=_p(pair.p_holm)),
                    _pairs_cell(pair),
                )
            )
    return Table(
        name="paired",
        caption=f"{ours} against the single encoder with the higher mean Accuracy, which was fixed "
        "before resampling. Positive favours ours on both axes. By image: records of one picture "
        "are resampled together. p: sign flips; Holm: over all rows of this table. Intervals rest "
        "on one training run and one evaluation.",
        header=(
            "Group",
            "Dataset",
            "Comparator",
            "Axis",
            "Difference, by record",
            "By image",
            "p",
            "p, Holm",
            "Pairs",
        ),
        rows=tuple(rows),
        text_columns=4,
    )


def _pairs_cell(pair: Paired) -> Cell:
    note = f"{pair.dropped} left out" if pair.dropped else ""
    return Cell(text=f"{pair.by_record.n:,}", note=note, tone="bad")


def selector_table(found: Cells, roles: Roles) -> Table | None:
    """The post-hoc choice of the better single encoder, beside ours."""
    rows = []
    for place, scores in found.items():
        if place.method != roles.ours:
            continue
        pair = [
            found.get(Place(group=place.group, dataset=place.dataset, method=name))
            for name in (roles.spatial, roles.semantic)
        ]
        spatial, semantic = pair
        if spatial is None or semantic is None or not _complete([scores, spatial, semantic]):
            continue
        chosen = best_of_two(spatial, semantic)
        rows.append(
            cells(
                place.group,
                place.dataset,
                *(shown_mean(float(values.mean()), len(values)) for values in chosen),
                *(shown_mean(float(scores.values(a).mean()), len(scores.expected)) for a in AXES),
            )
        )
    if not rows:
        return None
    return Table(
        name="best-of-two",
        caption="For every sample the single-encoder output with the higher Accuracy, ties to the "
        "spatial encoder, with the Hallucination of that same output: a bound on choosing after "
        "the fact, not a router.",
        header=("Group", "Dataset", *["Acc. ↑", "Hall. ↓"] * 2),
        groups=(("", 2), ("Best of two", 2), (roles.ours, 2)),
        rows=tuple(rows),
        text_columns=2,
    )


def share_table(found: Cells) -> Table | None:
    by_method: dict[tuple[str, str], list[CellScores]] = {}
    for place, scores in found.items():
        by_method.setdefault((place.group, place.method), []).append(scores)
    rows = []
    for (group, method), listed in by_method.items():
        if _complete(listed):
            hits, total = pooled_share(listed, "accuracy", THRESHOLD)
            rows.append(cells(group, method, f"{hits:,}", f"{total:,}", f"{hits / total:.2%}"))
    if not rows:
        return None
    return Table(
        name="share",
        caption=f"Pooled responses with Accuracy of at least {THRESHOLD}.",
        header=("Group", "Method", f"≥ {THRESHOLD}", "of", "share"),
        rows=tuple(rows),
        text_columns=2,
    )


def empty_table(found: Cells) -> Table | None:
    counts = empty_outputs(found.values())
    if not counts:
        return None
    common = list(counts.items())[:MOST_PAIRS]
    rows = [
        cells("unscored" if a is None else a, "unscored" if h is None else h, f"{n:,}")
        for (a, h), n in common
    ]
    others = sum(counts.values()) - sum(n for _, n in common)
    if others:
        rows.append(cells(f"{len(counts) - len(common):,} other pairs", "", f"{others:,}"))
    rows.append(cells("all", "", f"{sum(counts.values()):,}"))
    return Table(
        name="empty-outputs",
        caption="Scores that empty or blank candidates received. They stay in the means.",
        header=("Accuracy", "Hallucination", "Candidates"),
        rows=tuple(rows),
    )


def source_table(found: Cells) -> Table:
    sources = evaluator_sources(found.values())
    names = list(dict.fromkeys(name for counts in sources.values() for name in counts))
    return Table(
        name="evaluator-sources",
        caption="Which evaluator gave the scores, in scoring axes. Evaluators are not calibrated "
        "against each other.",
        header=("Group", "Total", *names),
        rows=tuple(
            cells(group, f"{counts.total():,}", *(f"{counts[name]:,}" for name in names))
            for group, counts in sources.items()
        ),
    )


def _complete(found: Iterable[CellScores]) -> bool:
    return all(scores.is_complete(axis) for scores in found for axis in AXES)


def _estimate_cell(value: Estimate) -> Cell:
    return Cell(text=str(shown_mean(value.mean, value.n)), note=_interval(value), tone="muted")


def shown_mean(mean: float, n: int) -> Decimal:
    """The mean of n integers in hundredths, rounded as every other mean of the page is."""
    return hundredths(Decimal(round(mean * n)) / n)


def _paired_cell(value: Estimate) -> Cell:
    text = f"{shown_mean(value.mean, value.n):+}"
    if not value.excludes_zero:
        return Cell(text=text, note=_interval(value), tone="muted")
    up = value.mean > 0
    note = f"{'▲' if up else '▼'} {_interval(value)}"
    return Cell(text=text, note=note, tone="good" if up else "bad")


def _interval(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return "no interval"
    return f"[{value.low:.2f}, {value.high:.2f}]"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def interface_table(slices: Sequence[RunSlice]) -> Table | None:
    """Visual tokens and trained parameters of the runs that hold their model."""
    found = {
        (part.records.group, part.trained.name): part.trained
        for part in slices
        if part.trained is not None
    }
    if not found:
        return None
    return Table(
        name="interfaces",
        caption="What was trained: visual tokens that the language model reads, and trainable "
        "parameters, by formula from each run's own sizes.",
        header=("Group", "Interface", "Equation", "Visual tokens", "Trained parameters"),
        rows=tuple(
            cells(group, name, item.equation, f"{item.tokens:,}", f"{item.parameters:,}")
            for (group, name), item in found.items()
        ),
        text_columns=3,
    )
