"""The report on runs: coverage on top of everything, then the numbers, then the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paiq.analysis.cells import CellScores, Coverage, collect, coverage
from paiq.analysis.comparisons import Cells, Plan, Roles, compare, index
from paiq.analysis.comparisons import Comparison as Paring
from paiq.analysis.compute import ROUTES, relative_percent
from paiq.analysis.runs import RunSlice
from paiq.analysis.shapes import BACKBONES
from paiq.errors import ConfigError, suggest
from paiq.records import AXES, Axis
from paiq.report import run_tables
from paiq.report.comparison_tables import comparison_table, macro_table
from paiq.report.compute_tables import compute_table, fusion_table, parameter_table
from paiq.report.figures import (
    ComputePoint,
    ForestLine,
    ablation_figure,
    compute_figure,
    distribution_figure,
    forest_figure,
)
from paiq.report.output import Document
from paiq.report.page import render, script_source
from paiq.report.paper_page import Section
from paiq.report.run_samples import sample_cards
from paiq.report.style import Drawing
from paiq.report.tables import Table


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a report shows."""

    roles: Roles
    plan: Plan
    samples: int = 100
    """Cards per group and dataset, evenly spread over the slice; 0 leaves them out."""
    title: str = "Report"


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A report and whether everything that was expected is scored."""

    document: Document
    coverage: Coverage


def run_report(slices: Sequence[RunSlice], choices: Choices) -> RunReport:
    parts = [(part, collect(part.records)) for part in slices]
    found = index(cell for _, cells in parts for cell in cells)
    _check_roles(found, choices.roles)
    by_place, whole = _coverage(parts)
    parings = compare(found, choices.roles, choices.plan)
    sections = [*_sections(found, parings, choices), _compute_section(found, slices, choices.roles)]
    sections = [section for section in sections if _filled(section)]
    coverage_table = run_tables.coverage_table(by_place, whole)
    cards, samples = sample_cards(slices, choices.samples) if choices.samples else ([], 0)
    values = {
        "title": choices.title,
        "coverage": whole,
        "coverage_table": coverage_table,
        "warnings": _warnings(slices, whole),
        "sections": sections,
        "cards": cards,
        "samples": samples,
        "filters": _filters(found),
        "ours": choices.roles.ours,
    }
    script = script_source("filter.js") if cards else ""
    document = Document(
        page=render("run.html.j2", values, title=choices.title, script=script),
        tables=[coverage_table, *(table for section in sections for table in section.tables)],
        drawings=[drawing for section in sections for drawing in section.drawings],
    )
    return RunReport(document=document, coverage=whole)


def write_run_report(slices: Sequence[RunSlice], choices: Choices, folder: Path) -> RunReport:
    report = run_report(slices, choices)
    report.document.write(folder)
    return report


def _check_roles(found: Cells, roles: Roles) -> None:
    have = list(dict.fromkeys(place.method for place in found))
    if roles.ours not in have:
        raise ConfigError(
            f"no method {roles.ours!r} in these runs; have {', '.join(have)}."
            f"{suggest(roles.ours, have)} Choose with --ours NAME"
        )


def _coverage(
    parts: Sequence[tuple[RunSlice, list[CellScores]]],
) -> tuple[dict[tuple[str, str], Coverage], Coverage]:
    places: dict[tuple[str, str], list[tuple[RunSlice, list[CellScores]]]] = {}
    for part, cells in parts:
        places.setdefault((part.records.group, part.records.dataset), []).append((part, cells))
    return {place: _joined(listed) for place, listed in places.items()}, _joined(parts)


def _joined(parts: Sequence[tuple[RunSlice, list[CellScores]]]) -> Coverage:
    terminal: dict[str, int] = {}
    for part, _ in parts:
        for ending in part.endings.values():
            terminal[ending.failure] = terminal.get(ending.failure, 0) + 1
    kept = [part.sends for part, _ in parts if part.sends is not None]
    sends = [count for counts in kept for count in counts.values()]
    return coverage(
        [cell for _, cells in parts for cell in cells],
        terminal=dict(sorted(terminal.items())),
        sends=sum(sends) if kept else None,
        retries=sum(count - 1 for count in sends if count > 1) if kept else None,
    )


def _sections(found: Cells, parings: Sequence[Paring], choices: Choices) -> list[Section]:
    ours, roles = choices.roles.ours, choices.roles
    comparison = run_tables.comparison_of(found, ours)
    groups = comparison.groups()
    scaling = run_tables.comparison_of(found, ours, (roles.spatial, roles.semantic, ours))
    caption = (
        f"Means over all records; {ours}'s difference from each other method beside it, taken of "
        f"unrounded means: the arrow says where {ours} lies, green favours it. Best bold, second "
        "underlined, among complete cells of one group and column."
    )
    return [
        Section(
            anchor="main",
            title="Main comparison",
            tables=(
                comparison_table(comparison, name="main", caption=caption),
                run_tables.interval_table(found, choices.plan),
                macro_table(comparison, name="macro"),
            ),
        ),
        Section(
            anchor="paired",
            title="Paired uncertainty",
            tables=(run_tables.paired_table(parings, ours),) if parings else (),
            drawings=(_forest(parings, ours),) if parings else (),
        ),
        Section(
            anchor="scaling",
            title="Scaling",
            tables=(comparison_table(scaling, name="scaling", caption=caption),)
            if len(groups) > 1
            else (),
        ),
        Section(
            anchor="distributions",
            title="Distributions",
            tables=_some(run_tables.share_table(found), run_tables.selector_table(found, roles)),
            drawings=_distributions(found),
        ),
        Section(anchor="ablation", title="The rotation", drawings=_ablation(found, ours)),
        Section(
            anchor="evaluators",
            title="Evaluators and empty outputs",
            tables=_some(run_tables.source_table(found), run_tables.empty_table(found)),
        ),
    ]


def _filled(section: Section) -> bool:
    return bool(section.tables or section.drawings)


def _some(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in tables if table is not None)


def _forest(parings: Sequence[Paring], ours: str) -> Drawing:
    lines: dict[Axis, list[ForestLine]] = {axis: [] for axis in AXES}
    for paring in parings:
        for axis in AXES:
            value = paring.axes[axis].by_record
            if value.low is not None and value.high is not None:
                label = f"{paring.group} · {paring.dataset}"
                line = ForestLine(label=label, low=value.low, high=value.high, mean=value.mean)
                lines[axis].append(line)
    return forest_figure(lines, ours)


def _distributions(found: Cells) -> tuple[Drawing, ...]:
    """Pooled over the datasets of the first group; only methods that are complete there."""
    group = next(iter(found)).group
    pooled: dict[str, list[CellScores]] = {}
    for place, scores in found.items():
        if place.group == group:
            pooled.setdefault(place.method, []).append(scores)
    whole = {
        method: {axis: np.concatenate([scores.values(axis) for scores in listed]) for axis in AXES}
        for method, listed in pooled.items()
        if all(scores.is_complete(axis) for scores in listed for axis in AXES)
    }
    return (distribution_figure(whole, f"{group}, all datasets pooled"),) if whole else ()


def _ablation(found: Cells, ours: str) -> tuple[Drawing, ...]:
    means = run_tables.comparison_of(found, ours).means
    pairs = [
        (f"{group} · {dataset}", axis, float(mean), float(means[group, dataset, ours, axis]))
        for (group, dataset, method, axis), mean in means.items()
        if method == "pai" and (group, dataset, ours, axis) in means
    ]
    both = {axis for _, axis, _, _ in pairs} == set(AXES)
    return (ablation_figure(pairs, "Q fixed to the identity", "Q learned"),) if both else ()


def _compute_section(found: Cells, slices: Sequence[RunSlice], roles: Roles) -> Section:
    """What was trained; analytical compute for groups named as a backbone of published shape."""
    known = [BACKBONES[name] for name in dict.fromkeys(p.group for p in found) if name in BACKBONES]
    tables = _some(run_tables.interface_table(slices))
    if known:
        sizes = sorted({shape.hidden for shape in known})
        tables += (compute_table(known), fusion_table(known), parameter_table(sizes))
    routes = {roles.spatial: ROUTES[0], roles.semantic: ROUTES[1], roles.ours: ROUTES[3]}
    points: dict[str, list[ComputePoint]] = {}
    for place, scores in found.items():
        shape = BACKBONES.get(place.group)
        if shape and place.method in routes and scores.is_complete("accuracy"):
            point = ComputePoint(
                backbone=place.group,
                method=place.method,
                percent=float(relative_percent(shape)[routes[place.method]]),
                accuracy=float(scores.values("accuracy").mean()),
            )
            points.setdefault(place.dataset, []).append(point)
    drawings = [compute_figure(listed, dataset) for dataset, listed in points.items()]
    return Section(
        anchor="compute",
        title="Compute and parameters",
        tables=tables,
        drawings=tuple(drawings[:1]),
        text="Analytical, from published shapes and layer sizes; no device was measured.",
    )


def _warnings(slices: Sequence[RunSlice], whole: Coverage) -> list[str]:
    found = []
    if not whole.complete:
        found.append(
            f"{whole.expected - whole.scored_total:,} of {whole.expected:,} keys have no score. "
            "Cells that miss one show no mean and enter no comparison of means."
        )
    if any(part.own_templates for part in slices):
        found.append(
            "Descriptions were judged with our own templates; these scores are not comparable "
            "with the paper's."
        )
    models = sorted({model for part in slices for model in part.models})
    if len(models) > 1:
        found.append(f"The scores come from several returned models: {', '.join(models)}.")
    if len(whole.scored) > 1:
        found.append(
            "More than one evaluator gave the scores; they are not calibrated against each other."
        )
    return found


def _filters(found: Cells) -> Mapping[str, list[str]]:
    return {
        "dataset": list(dict.fromkeys(place.dataset for place in found)),
        "group": list(dict.fromkeys(place.group for place in found)),
    }
