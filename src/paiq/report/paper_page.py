"""The paper's published tables with every claim recomputed beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from paiq.analysis.claims import Claim, Verdict
from paiq.analysis.compute import relative_percent
from paiq.analysis.paper import NOTES, claims, verdicts
from paiq.analysis.published import (
    FIXED,
    OURS,
    SEMANTIC,
    SPATIAL,
    Interval,
    Place,
    Printed,
    dedicated_table,
    main_table,
    paired_intervals,
    read,
    scaling_table,
    values,
)
from paiq.analysis.shapes import BACKBONES
from paiq.records import AXES, Axis
from paiq.report.comparison_tables import Comparison, Key, comparison_table, macro_table
from paiq.report.compute_tables import compute_table, fusion_table, parameter_table
from paiq.report.figures import (
    ComputePoint,
    ForestLine,
    ablation_figure,
    compute_figure,
    forest_figure,
)
from paiq.report.output import Document
from paiq.report.page import render
from paiq.report.style import Drawing
from paiq.report.tables import Cell, Mark, Table, cells

ROUTES = {SPATIAL: "DINOv3-only", SEMANTIC: "SigLIP-only", OURS: "PAIQ"}
MARKS: dict[Verdict, Mark] = {Verdict.DIFFERS: "best", Verdict.NOT_DERIVABLE: "second"}


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with its tables and drawings."""

    anchor: str
    title: str
    tables: tuple[Table, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    text: str = ""


def paper_document() -> Document:
    found = claims()
    sections = [
        Section(
            anchor="claims",
            title="Claims",
            tables=(claims_table(found),),
            text="Every claim that the printed tables and public model shapes can answer, "
            "recomputed at the writing of this page.",
        ),
        Section(
            anchor="main",
            title="Main table",
            tables=(_comparison(main_table(), "main"), _macro()),
        ),
        Section(
            anchor="scaling",
            title="Scaling",
            tables=(_comparison(scaling_table(), "scaling"),),
            text="The 27B models may write 512 tokens, the others 128.",
        ),
        Section(
            anchor="intervals",
            title="Paired intervals",
            tables=(interval_table(),),
            drawings=(_forest(),),
        ),
        Section(
            anchor="questions",
            title="2B question archive",
            tables=(dedicated(),),
            drawings=(_ablation(),),
        ),
        Section(
            anchor="compute",
            title="Compute and parameters",
            tables=(
                compute_table(list(BACKBONES.values())),
                fusion_table(list(BACKBONES.values())),
                parameter_table(sorted({shape.hidden for shape in BACKBONES.values()})),
            ),
            drawings=(_compute("FLUX-Reason"),),
        ),
        Section(
            anchor="coverage",
            title="Coverage and empty outputs",
            tables=(provenance_table(), empty_table()),
        ),
    ]
    counts = verdicts(found)
    facts = [(str(verdict), str(counts[verdict])) for verdict in Verdict]
    page = render(
        "paper.html.j2",
        {"sections": sections, "facts": facts, "notes": NOTES},
        title="The paper's numbers, recomputed",
    )
    return Document(
        page=page,
        tables=[table for section in sections for table in section.tables],
        drawings=[drawing for section in sections for drawing in section.drawings],
    )


def claims_table(found: Sequence[Claim]) -> Table:
    return Table(
        name="claims",
        caption="OK: comes out as printed. OK as read: comes out under the reading in the note. "
        "Not derivable: the tables do not hold what it takes. Ours: not in the paper. "
        "Verdicts that ask for a second look are marked.",
        header=("Topic", "Claim", "Printed", "Recomputed", "Verdict", "Note"),
        rows=tuple(
            (
                *cells(claim.topic, claim.claim, claim.printed or "–", claim.recomputed),
                Cell(text=str(claim.verdict), mark=MARKS.get(claim.verdict, "none")),
                Cell(text=claim.note),
            )
            for claim in found
        ),
        text_columns=6,
    )


def _comparison(table: dict[Place, Printed], name: str) -> Table:
    printed = {place: row.value for place, row in table.items()}
    return comparison_table(
        Comparison(means=_means(printed), ours=OURS),
        name=name,
        caption="Published means. Differences and marks are recomputed from them: the arrow gives "
        "the direction and size of PAIQ's difference from the baseline, green favours PAIQ.",
    )


def _means(printed: Mapping[Place, Decimal]) -> dict[Key, Decimal]:
    return {(p.backbone, p.dataset, p.method, p.axis): v for p, v in printed.items()}


def _macro() -> Table:
    return macro_table(Comparison(means=_means(values()), ours=OURS), name="macro")


def interval_table() -> Table:
    by_setting = _by_setting()
    rows = []
    for (backbone, dataset), pair in by_setting.items():
        shown = [
            Cell(
                text=f"[{pair[axis].low}, {pair[axis].high}]",
                note="" if pair[axis].favours else "holds zero",
                tone="bad",
            )
            for axis in AXES
        ]
        rows.append((*cells(backbone, dataset, pair["accuracy"].replicates), *shown))
    return Table(
        name="bootstrap",
        caption="Published paired 95% intervals; positive favours PAIQ on both axes.",
        header=("Backbone", "Dataset", "Replicates", "Δ Accuracy", "Δ Hallucination"),
        rows=tuple(rows),
        text_columns=2,
    )


def _by_setting() -> dict[tuple[str, str], dict[Axis, Interval]]:
    found: dict[tuple[str, str], dict[Axis, Interval]] = {}
    for interval in paired_intervals():
        place = interval.place
        found.setdefault((place.backbone, place.dataset), {})[place.axis] = interval
    return found


def _forest() -> Drawing:
    lines: dict[Axis, list[ForestLine]] = {axis: [] for axis in AXES}
    for interval in paired_intervals():
        place = interval.place
        lines[place.axis].append(
            ForestLine(
                label=f"{place.backbone} · {place.dataset}",
                low=float(interval.low),
                high=float(interval.high),
            )
        )
    return forest_figure(lines, OURS)


def dedicated() -> Table:
    rows: dict[tuple[str, str], dict[Axis, Interval]] = {}
    for interval in dedicated_table():
        place = interval.place
        rows.setdefault((place.dataset, place.method), {})[place.axis] = interval
    return Table(
        name="questions-2b",
        caption="Published means with marginal 95% intervals, Qwen3.5-2B.",
        header=("Dataset", "Method", "Accuracy ↑", "Hallucination ↓"),
        rows=tuple(
            (
                *cells(dataset, method),
                *(
                    Cell(
                        text=str(pair[axis].mean),
                        note=f"[{pair[axis].low}, {pair[axis].high}]",
                        tone="muted",
                    )
                    for axis in AXES
                ),
            )
            for (dataset, method), pair in rows.items()
        ),
        text_columns=2,
    )


def _ablation() -> Drawing:
    means = {i.place: i.mean for i in dedicated_table()}
    pairs = [
        (place.dataset, place.axis, float(mean), float(after))
        for place, mean in means.items()
        if place.method == FIXED and mean is not None
        for after in [means[Place(place.backbone, place.dataset, OURS, place.axis)]]
        if after is not None
    ]
    return ablation_figure(pairs, "Q fixed to the identity", "Q learned")


def _compute(dataset: str) -> Drawing:
    known = values()
    points = [
        ComputePoint(
            backbone=name,
            method=method,
            percent=float(relative_percent(shape)[route]),
            accuracy=float(known[Place(name, dataset, method, "accuracy")]),
        )
        for name, shape in BACKBONES.items()
        for method, route in ROUTES.items()
    ]
    return compute_figure(points, dataset)


def provenance_table() -> Table:
    rows: dict[str, dict[str, str]] = {}
    for row in read("provenance"):
        rows.setdefault(row["scope"], {})[row["source"]] = f"{int(row['axes']):,}"
    sources = ("total", "gpt_4o", "qwen_recovery", "terminal")
    return Table(
        name="evaluator-sources",
        caption="Published evaluator sources of the question archives; two axes a prediction.",
        header=("Scope", "Total", "GPT-4o", "Qwen recovery", "Terminal"),
        rows=tuple(cells(scope, *(found[s] for s in sources)) for scope, found in rows.items()),
    )


def empty_table() -> Table:
    return Table(
        name="empty-outputs",
        caption="Published scores of empty candidates. They stay in the means.",
        header=("Accuracy", "Hallucination", "Candidates"),
        rows=tuple(
            cells(row["accuracy"], row["hallucination"], row["candidates"])
            for row in read("empty")
            if row["row"] == "score_pair"
        ),
        text_columns=0,
    )
