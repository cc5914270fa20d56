"""The demo's figures: scores with intervals, loss curves, distributions."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes

from paiq.analysis.statistics import Estimate, histogram
from paiq.records import AXES
from paiq.report.demo_results import DemoResults, DemoScores
from paiq.report.demo_summary import DemoRow
from paiq.report.style import INK, MARKERS, MUTED, Drawing, canvas, colours

FAMILY_TITLES = {"description": "Descriptions", "vqa": "Questions"}
AXIS_TITLES = {"accuracy": "Accuracy, higher is better", "hallucination": "Hallucination, lower"}
CEILING_CAPTION = " The dashed line is the frozen language model given the true words."
SMOOTHING = 0.9


def score_figure(
    results: DemoResults, rows: Sequence[DemoRow], ceilings: Sequence[DemoRow]
) -> Drawing:
    """Every method's mean with its interval, by family and axis; one marker shape per split."""
    names = [method.name for method in results.methods]
    families = list(dict.fromkeys(row.family for row in rows))
    splits = list(dict.fromkeys(row.split for row in rows))
    paint = colours(names)
    height = 0.9 + len(families) * (0.55 + 0.36 * len(names))
    with canvas(9.2, height, len(families), 2) as (figure, grid):
        for (line, family), axis in product(zip(grid, families, strict=True), AXES):
            axes = line[AXES.index(axis)]
            for row in rows:
                if row.family == family:
                    at = names.index(row.method) + 0.28 * _shift(splits, row.split)
                    _dot(axes, getattr(row, axis), at, (paint[row.method], splits.index(row.split)))
            for top in ceilings:
                if (top.family, top.split) == (family, splits[0]):
                    mean = getattr(top, axis).mean
                    axes.axvline(mean, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.1)
            _frame(axes, names, f"{FAMILY_TITLES[family]} · {AXIS_TITLES[axis]}")
        _split_legend(grid[0][0], splits, ceiling=bool(ceilings))
    return Drawing(
        name="scores",
        caption="Mean scores with 95% intervals over pictures."
        + (CEILING_CAPTION if ceilings else ""),
        figure=figure,
    )


def curve_figure(results: DemoResults) -> Drawing:
    """Smoothed training losses, each labelled at its end."""
    names = [method.name for method in results.methods]
    paint = colours(names)
    ends: list[tuple[float, str]] = []
    with canvas(9.2, 3.4) as (figure, grid):
        axes = grid[0][0]
        for curve in results.curves:
            if not curve.steps:
                continue
            first = curve.method not in {name for _, name in ends}
            smooth = _smoothed(curve.losses)
            axes.plot(
                curve.steps,
                smooth,
                color=paint[curve.method],
                linewidth=2.2 if curve.method == "paiq" else 1.4,
                alpha=1.0 if first else 0.45,
            )
            if first:
                ends.append((float(smooth[-1]), curve.method))
        last = max((curve.steps[-1] for curve in results.curves if curve.steps), default=1)
        beyond = last * 1.03
        for height, name in _spread(ends, axes.get_ylim()):
            end = next(value for value, ended in ends if ended == name)
            axes.plot([last, beyond], [end, height], color=paint[name], linewidth=1.2)
            axes.text(beyond * 1.005, height, name, va="center", color=INK)
        axes.set_xlabel("step")
        axes.set_title("Loss on answer tokens, training")
    return Drawing(
        name="curves",
        caption="Training loss by step, exponentially smoothed; faint lines are further seeds.",
        figure=figure,
    )


def distribution_figure(results: DemoResults, split: str) -> Drawing:
    """How many answers reach which Accuracy, method by method."""
    names = [method.name for method in results.methods]
    chosen = [score for score in results.scores if score.split == split]
    families = list(dict.fromkeys(score.family for score in chosen))
    paint = colours(names)
    with canvas(9.2, 0.6 + 1.5 * len(families), len(families), len(names)) as (figure, grid):
        for line, family in zip(grid, families, strict=True):
            most = max(_shares(chosen, name, family).max() for name in names)
            for axes, name in zip(line, names, strict=True):
                shares = _shares(chosen, name, family)
                axes.bar(np.arange(5, 105, 10), shares, width=9, color=paint[name])
                axes.set(ylim=(0, most * 1.08), xticks=(0, 50, 100), yticks=())
                axes.grid(visible=False)
                if line is grid[0]:
                    axes.set_title(name)
            line[0].set_ylabel(FAMILY_TITLES[family], color=INK)
        for axes in grid[-1]:
            axes.set_xlabel("Accuracy")
    return Drawing(
        name="distributions",
        caption=f"Distribution of per-answer Accuracy on the {split} split, in bins of ten.",
        figure=figure,
    )


def _shift(splits: list[str], split: str) -> float:
    return splits.index(split) - (len(splits) - 1) / 2


def _dot(axes: Axes, value: Estimate, at: float, look: tuple[str, int]) -> None:
    colour, index = look
    if value.low is not None and value.high is not None:
        axes.plot([value.low, value.high], [at, at], color=colour, linewidth=2.2, alpha=0.75)
    axes.plot(
        [value.mean],
        [at],
        marker=MARKERS[index % len(MARKERS)],
        markersize=6.5,
        color=colour,
        markerfacecolor=colour if index == 0 else "none",
        markeredgewidth=1.6,
    )


def _frame(axes: Axes, names: list[str], title: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.grid(visible=False, axis="y")
    axes.set_title(title)
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == "paiq" else "normal")


def _split_legend(axes: Axes, splits: list[str], *, ceiling: bool) -> None:
    handles = [
        axes.plot(
            [],
            [],
            linestyle="none",
            marker=MARKERS[index % len(MARKERS)],
            color=MUTED,
            markerfacecolor=MUTED if index == 0 else "none",
            label=split,
        )[0]
        for index, split in enumerate(splits)
    ]
    if ceiling:
        handles += axes.plot([], [], color=MUTED, linestyle=(0, (4, 3)), label="ceiling")
    axes.figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False
    )


def _smoothed(losses: Sequence[float]) -> np.ndarray:
    # A running average with the start's bias taken out.
    kept, weight, out = 0.0, 0.0, []
    for loss in losses:
        kept = SMOOTHING * kept + (1 - SMOOTHING) * loss
        weight = SMOOTHING * weight + (1 - SMOOTHING)
        out.append(kept / weight)
    return np.asarray(out)


def _spread(ends: list[tuple[float, str]], limits: tuple[float, float]) -> list[tuple[float, str]]:
    """The labels' heights, moved apart so that none covers another."""
    least = (limits[1] - limits[0]) * 0.07
    placed: list[tuple[float, str]] = []
    for height, name in sorted(ends):
        floor = placed[-1][0] + least if placed else height
        placed.append((max(height, floor), name))
    return placed


def _shares(scores: Sequence[DemoScores], method: str, family: str) -> np.ndarray:
    values = [
        value
        for score in scores
        if (score.method, score.family) == (method, family)
        for value in score.accuracy
    ]
    counts = np.asarray(histogram(np.asarray(values, dtype=np.float64)), dtype=np.float64)
    return counts / max(1.0, counts.sum())
