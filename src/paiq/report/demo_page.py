"""The page of the demo, and the same results as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

from paiq.analysis.statistics import Estimate, marks
from paiq.errors import DataError
from paiq.files import write_atomically
from paiq.records import AXES, Axis
from paiq.report.demo_figures import (
    FAMILY_TITLES,
    curve_figure,
    distribution_figure,
    score_figure,
)
from paiq.report.demo_results import DemoAnswer, DemoCard, DemoMaps, DemoResults
from paiq.report.demo_summary import (
    DemoDifference,
    DemoRow,
    demo_differences,
    demo_rows,
)
from paiq.report.demo_words import STANDING_LIMITS, findings, lead
from paiq.report.page import render
from paiq.report.safe import to_markdown as escaped
from paiq.report.tables import Band, Cell, Mark, Table, cells, to_markdown

AXIS_SHORT = {"accuracy": "Acc. ↑", "hallucination": "Hall. ↓"}


def write_demo_page(results: DemoResults, path: Path) -> None:
    """Writes one HTML file that needs nothing beside it."""
    write_atomically(path, demo_page(results).encode())


def demo_page(results: DemoResults) -> str:
    rows, ceilings = demo_rows(results.scores), demo_rows(results.ceilings)
    differences = demo_differences(results.scores)
    values = {
        "results": results,
        "lead": lead(results, rows),
        "facts": _facts(results),
        "findings": findings(rows, differences, ceilings),
        "score_drawing": score_figure(results, rows, ceilings),
        "tables": [
            main_table(results, rows, ceilings),
            *([difference_table(differences)] if differences else []),
        ],
        "cards": [_card(card) for card in results.cards],
        "curve_drawing": curve_figure(results) if results.curves else None,
        "distribution_drawing": distribution_figure(results, rows[0].split),
        "probe_table": probe_table(results) if results.probes else None,
        "recipe_table": _pairs("recipe", "The recipe, the same for every method.", results.recipe),
        "version_table": _pairs("versions", "What ran.", results.versions),
        "limits": [*STANDING_LIMITS, *results.limits],
    }
    return render("demo.html.j2", values, title=results.title)


def demo_markdown(results: DemoResults) -> str:
    """The findings and tables of the page, for docs/results."""
    rows, ceilings = demo_rows(results.scores), demo_rows(results.ceilings)
    differences = demo_differences(results.scores)
    sentences = [f"- {escaped(f.text)}" for f in findings(rows, differences, ceilings)]
    tables = [main_table(results, rows, ceilings)]
    if differences:
        tables.append(difference_table(differences))
    if results.probes:
        tables.append(probe_table(results))
    tables.append(_pairs("recipe", "The recipe, the same for every method.", results.recipe))
    tables.append(_pairs("versions", "What ran.", results.versions))
    limits = [f"- {escaped(limit)}" for limit in [*STANDING_LIMITS, *results.limits]]
    parts = [
        f"# {escaped(results.title)}",
        escaped(lead(results, rows)),
        "\n".join(sentences),
        *[to_markdown(table) for table in tables],
        "## What this does not show",
        "\n".join(limits),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main_table(results: DemoResults, rows: Sequence[DemoRow], ceilings: Sequence[DemoRow]) -> Table:
    """Methods by family and split, means with intervals, best and second marked."""
    columns = list(dict.fromkeys((row.family, row.split) for row in rows))
    by_key = {(row.method, row.family, row.split): row for row in rows}
    lines: list[tuple[Cell, ...] | Band] = []
    marked = {key: _column_marks(rows, *key) for key in ((*c, a) for c in columns for a in AXES)}
    for method in results.methods:
        line = [Cell(text=method.name), Cell(text=f"{method.tokens}")]
        line.append(Cell(text=f"{method.parameters:,}"))
        for family, split in columns:
            row = by_key.get((method.name, family, split))
            line += [_score_cell(row, axis, marked[family, split, axis]) for axis in AXES]
        lines.append(tuple(line))
    if ceilings:
        lines.append(Band(text="The frozen language model given the true words"))
        tops = {(row.family, row.split): row for row in ceilings}
        line = [*cells("ceiling", "", "")]
        for column in columns:
            line += [_score_cell(tops.get(column), axis, {}) for axis in AXES]
        lines.append(tuple(line))
    counts = "; ".join(
        f"{FAMILY_TITLES[family].lower()}, {split}: n = {_only(rows, family, split)}"
        for family, split in columns
    )
    seeds = max(row.seeds for row in rows)
    spread = "" if seeds == 1 else f" Means over {seeds} seeds, averaged per picture first."
    return Table(
        name="demo-main",
        caption="Exact scores on [0, 100]: mean [95% percentile bootstrap over pictures]; best "
        f"bold, second underlined. {counts}.{spread}",
        header=("Method", "Tokens", "Trained", *[AXIS_SHORT[a] for _ in columns for a in AXES]),
        groups=(("", 3), *[(f"{FAMILY_TITLES[f]}, {s}", 2) for f, s in columns]),
        rows=tuple(lines),
    )


def difference_table(differences: Sequence[DemoDifference]) -> Table:
    columns = list(dict.fromkeys((d.family, d.split) for d in differences))
    by_key = {(d.other, d.family, d.split): d for d in differences}
    lines = []
    for other in dict.fromkeys(d.other for d in differences):
        line = [Cell(text=f"paiq − {other}")]
        for family, split in columns:
            found = by_key.get((other, family, split))
            line += [
                _difference_cell(getattr(found, axis)) if found else Cell(text="–") for axis in AXES
            ]
        lines.append(tuple(line))
    return Table(
        name="demo-differences",
        caption="Paired differences on the same pictures, with 95% intervals; a positive number "
        "favours PAIQ on both axes (Hallucination is the other method's minus PAIQ's). ▲ and ▼ "
        "mark intervals that leave zero out.",
        header=("Comparison", *[name for _ in columns for name in ("Accuracy", "Hallucination")]),
        groups=(("", 1), *[(f"{FAMILY_TITLES[f]}, {s}", 2) for f, s in columns]),
        rows=tuple(lines),
    )


def probe_table(results: DemoResults) -> Table:
    lines = []
    for probe in results.probes:
        best = marks([probe.spatial, probe.semantic], higher=True)
        lines.append(
            (
                *cells(probe.attribute),
                Cell(text=f"{probe.spatial:.2f}", mark=_only_best(best[0])),
                Cell(text=f"{probe.semantic:.2f}", mark=_only_best(best[1])),
                *cells(f"{probe.chance:.2f}"),
            )
        )
    return Table(
        name="demo-probes",
        caption="Held-out accuracy of a linear probe at the patch of an object's centre.",
        header=("Attribute", "Spatial", "Semantic", "Chance"),
        rows=tuple(lines),
    )


def _only_best(mark: str) -> Mark:
    return "best" if mark == "best" else "none"


def _column_marks(rows: Sequence[DemoRow], family: str, split: str, axis: Axis) -> dict[str, Mark]:
    here = [row for row in rows if (row.family, row.split) == (family, split)]
    shown = [round(getattr(row, axis).mean, 1) for row in here]
    given = marks(shown, higher=axis == "accuracy")
    known: dict[str, Mark] = {"best": "best", "second": "second", "none": "none"}
    return {row.method: known[mark] for row, mark in zip(here, given, strict=True)}


def _score_cell(row: DemoRow | None, axis: Axis, marked: Mapping[str, Mark]) -> Cell:
    if row is None:
        return Cell(text="–")
    value: Estimate = getattr(row, axis)
    return Cell(
        text=f"{value.mean:.1f}",
        mark=marked.get(row.method, "none"),
        note=_interval(value),
        tone="muted",
    )


def _difference_cell(value: Estimate) -> Cell:
    if not value.excludes_zero:
        return Cell(text=f"{value.mean:+.1f}", note=_interval(value), tone="muted")
    up = value.mean > 0
    arrow = "▲" if up else "▼"
    return Cell(
        text=f"{value.mean:+.1f}",
        note=f"{arrow} {_interval(value)}",
        tone="good" if up else "bad",
    )


def _interval(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return f"n = {value.n}"
    return f"[{value.low:.1f}, {value.high:.1f}]"


def _only(rows: Sequence[DemoRow], family: str, split: str) -> str:
    counts = {row.n for row in rows if (row.family, row.split) == (family, split)}
    if len(counts) != 1:
        raise DataError(f"methods answered {sorted(counts)} records of {family}, {split}")
    return f"{counts.pop():,}"


def _pairs(name: str, caption: str, values: Mapping[str, str]) -> Table:
    return Table(
        name=f"demo-{name}",
        caption=caption,
        header=("Setting", "Value"),
        rows=tuple(cells(key, value) for key, value in values.items()),
        text_columns=2,
    )


def _facts(results: DemoResults) -> list[tuple[str, str]]:
    answers = sum(len(score.sample_ids) for score in results.scores)
    facts = [("interfaces", str(len(results.methods))), ("answers scored", f"{answers:,}")]
    if results.seconds is not None:
        minutes, seconds = divmod(round(results.seconds), 60)
        facts.append(("from start to page", f"{minutes} min {seconds:02d} s"))
    return [*facts, ("ran on", results.device)]


def _card(card: DemoCard) -> dict[str, Any]:
    return {
        "sample_id": card.sample_id,
        "image_png": card.image_png,
        "split": card.split,
        "family_title": FAMILY_TITLES[card.family],
        "prompt": card.prompt,
        "reference": card.reference,
        "answers": [
            {
                "method": answer.method,
                "accuracy": answer.accuracy,
                "hallucination": answer.hallucination,
                "parts": _parts(answer),
            }
            for answer in card.answers
        ],
        "maps": _maps(card.maps) if card.maps else [],
    }


def _parts(answer: DemoAnswer) -> list[dict[str, str]]:
    """The answer cut at its claims; spans must be in order and inside the text."""
    parts, at = [], 0
    for claim in sorted(answer.claims, key=lambda c: c.start):
        if not at <= claim.start < claim.end <= len(answer.text):
            raise DataError(f"claims of {answer.method} overlap or leave the text: {claim}")
        parts.append({"text": answer.text[at : claim.start], "state": ""})
        state = "right" if claim.right else "wrong"
        parts.append({"text": answer.text[claim.start : claim.end], "state": state})
        at = claim.end
    parts.append({"text": answer.text[at:], "state": ""})
    return [part for part in parts if part["text"]]


def _maps(maps: DemoMaps) -> list[dict[str, Any]]:
    shown = []
    for (row, column), allocation in maps.allocation.items():
        height, width = allocation.shape
        down, across = (height / maps.update.shape[0], width / maps.update.shape[1])
        frame = {"x": column * across, "y": row * down, "width": across, "height": down}
        title = f"Allocation for patch ({row}, {column})"
        most = f"at most {allocation.max():.1%} from one semantic patch (bright)"
        shown.append(_map(title, allocation, "magma") | {"frame": frame, "range": most})
    shown.append(_map("Concentration H", maps.concentration, "viridis"))
    shown.append(_map("Update ρ", maps.update, "viridis"))
    return shown


def _map(title: str, values: np.ndarray, scale: str) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    paint = mpl.colormaps[scale]
    tiles = []
    for (row, column), value in np.ndenumerate(values):
        if not np.isfinite(value):
            continue
        level = (float(value) - low) / (high - low) if high > low else 0.5
        opacity = f"{0.25 + 0.6 * level:.2f}" if scale == "magma" else "0.72"
        tiles.append({"x": column, "y": row, "fill": to_hex(paint(level)), "opacity": opacity})
    undefined = values.size - finite.size
    note = f"; {undefined} undefined" if undefined else ""
    return {
        "title": title,
        "range": f"{low:.3g} (dark) to {high:.3g} (bright){note}",
        "rows": values.shape[0],
        "columns": values.shape[1],
        "tiles": tiles,
        "frame": None,
    }
