"""The paper's figures as presets: each takes data and returns a drawing.

accuracy against compute, score distributions, the fixed-rotation ablation, the reliance maps; and
the paired intervals, which the paper prints as a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes

from paiq.analysis.statistics import histogram
from paiq.records import AXES, Axis
from paiq.report.style import INK, LINE, MARKERS, MUTED, OURS, Drawing, canvas, colours

AXIS_NAMES = {"accuracy": "Accuracy", "hallucination": "Hallucination"}
DIRECTION = {"accuracy": "higher is better", "hallucination": "lower is better"}


@dataclass(frozen=True, kw_only=True)
class ComputePoint:
    """One interface on one backbone."""

    backbone: str
    method: str
    percent: float
    """Analytical compute relative to the spatial route."""
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class ForestLine:
    """A paired difference with its interval; positive favours ours."""

    label: str
    low: float
    high: float
    mean: float | None = None


def compute_figure(points: Sequence[ComputePoint], dataset: str) -> Drawing:
    """Accuracy against analytical compute; colour for the method, shape for the backbone."""
    methods = list(dict.fromkeys(point.method for point in points))
    backbones = list(dict.fromkeys(point.backbone for point in points))
    paint = colours(methods)
    with canvas(7.4, 4.4) as (figure, grid):
        axes = grid[0][0]
        for index, backbone in enumerate(backbones):
            for point in (p for p in points if p.backbone == backbone):
                axes.plot(
                    [point.percent],
                    [point.accuracy],
                    color=paint[point.method],
                    marker=MARKERS[index % len(MARKERS)],
                    markersize=8,
                    linestyle="none",
                )
        for index, backbone in enumerate(backbones):
            marker = MARKERS[index % len(MARKERS)]
            axes.plot([], [], marker=marker, color=MUTED, linestyle="none", label=backbone)
        for method in methods:
            axes.plot([], [], color=paint[method], linewidth=5, label=method)
        axes.set_xlabel("Analytical compute, % of the spatial route")
        axes.set_ylabel(f"{dataset} Accuracy")
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return Drawing(
        name="accuracy-compute",
        caption=f"{dataset} Accuracy against normalised analytical compute. The proxy counts the "
        "vision towers and the text tower and leaves the fusion out.",
        figure=figure,
    )


def distribution_figure(
    pooled: Mapping[str, Mapping[Axis, Float[np.ndarray, " n"]]], what: str
) -> Drawing:
    """Score histograms of each method on both axes, one method a row."""
    methods = list(pooled)
    paint = colours(methods)
    with canvas(8.6, 0.7 + 0.85 * len(methods), len(methods), 2) as (figure, grid):
        for line, method in zip(grid, methods, strict=True):
            for axes, axis in zip(line, AXES, strict=True):
                values = pooled[method][axis]
                shares = np.asarray(histogram(values), dtype=np.float64) / len(values)
                axes.bar(np.arange(5, 105, 10), shares, width=9, color=paint[method])
                axes.axvline(float(values.mean()), color=INK, linewidth=1.2)
                axes.set(xlim=(0, 100), ylim=(0, 1), yticks=(), xticks=(0, 20, 40, 60, 80, 100))
                if line is grid[0]:
                    axes.set_title(f"{AXIS_NAMES[axis]}, {DIRECTION[axis]}")
                if line is not grid[-1]:
                    axes.tick_params(labelbottom=False)
            line[0].set_ylabel(method, rotation=0, ha="right", va="center", color=INK)
    counts = sorted({len(values["accuracy"]) for values in pooled.values()})
    shown = " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))
    return Drawing(
        name="score-distributions",
        caption=f"Distributions of single scores, {what} (n = {shown} per method), in bins of ten; "
        "full height is all scores. The line is the mean.",
        figure=figure,
    )


def ablation_figure(
    pairs: Sequence[tuple[str, Axis, float, float]], before: str, after: str
) -> Drawing:
    """From (label, axis, before, after): an open and a filled dot with the way between them."""
    labels = list(dict.fromkeys(label for label, *_ in pairs))
    with canvas(8.6, 0.9 + 0.42 * len(labels), 1, 2) as (figure, grid):
        for axes, axis in zip(grid[0], AXES, strict=True):
            for label, of_axis, first, last in pairs:
                if of_axis != axis:
                    continue
                at = labels.index(label)
                axes.plot([first, last], [at, at], color=LINE, linewidth=3, zorder=1)
                axes.plot([first], [at], marker="o", markersize=8, color=MUTED, fillstyle="none")
                axes.plot([last], [at], marker="o", markersize=8, color=OURS)
            axes.set_yticks(range(len(labels)), labels)
            axes.set(ylim=(len(labels) - 0.5, -0.5), xlim=(0, 100))
            axes.set_title(f"{AXIS_NAMES[axis]}, {DIRECTION[axis]}")
            axes.grid(visible=False, axis="y")
        grid[0][1].tick_params(labelleft=False)
        axes = grid[0][0]
        axes.plot([], [], marker="o", color=MUTED, fillstyle="none", linestyle="none", label=before)
        axes.plot([], [], marker="o", color=OURS, linestyle="none", label=after)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return Drawing(
        name="ablation", caption=f"Mean scores with {before} and with {after}.", figure=figure
    )


def forest_figure(lines: Mapping[Axis, Sequence[ForestLine]], ours: str) -> Drawing:
    """Paired intervals on both axes, by setting; those that hold zero are drawn open."""
    longest = max(len(found) for found in lines.values())
    with canvas(9.2, 0.9 + 0.26 * longest, 1, 2) as (figure, grid):
        for axes, axis in zip(grid[0], AXES, strict=True):
            for at, line in enumerate(lines[axis]):
                _forest_line(axes, line, at)
            axes.axvline(0, color=INK, linewidth=1)
            axes.set_yticks(range(len(lines[axis])), [line.label for line in lines[axis]])
            axes.set_ylim(len(lines[axis]) - 0.4, -0.6)
            axes.set_title(f"{AXIS_NAMES[axis]}, positive favours {ours}")
            axes.grid(visible=False, axis="y")
        grid[0][1].tick_params(labelleft=False)
    return Drawing(
        name="paired-intervals",
        caption="Paired 95% bootstrap intervals against the single encoder with the higher "
        "Accuracy. Open marks: the interval holds zero.",
        figure=figure,
    )


def reliance_figure(
    image: UInt8[np.ndarray, "h w 3"],
    update: Float[np.ndarray, "a b"],
    reliance: Float[np.ndarray, "p q"],
) -> Drawing:
    """The picture, its relative update map, and the positive part of its answer reliance."""
    height, width = image.shape[:2]
    extent = (0.0, float(width), float(height), 0.0)
    with canvas(9.2, 3.5, 1, 3) as (figure, grid):
        for axes in grid[0]:
            axes.imshow(image, extent=extent)
            axes.set_axis_off()
        shown = (
            (update, r"Relative update ρ"),
            (np.maximum(reliance, 0.0), "Answer reliance R(B)"),
        )
        for axes, (values, title) in zip(grid[0][1:], shown, strict=True):
            drawn = axes.imshow(
                values, extent=extent, alpha=0.65, cmap="viridis", interpolation="nearest"
            )
            axes.set_title(title)
            figure.colorbar(drawn, ax=axes, shrink=0.7)
        grid[0][0].set_title("Input")
    negative = int((reliance < 0).sum())
    return Drawing(
        name="reliance",
        caption=f"Input, relative update and answer reliance. {negative} of {reliance.size} blocks "
        "with negative R(B) are drawn as zero: there, removal makes the answer likelier. The maps "
        "describe one fixed model and answer; they are no phrase-level causes.",
        figure=figure,
    )


def _forest_line(axes: Axes, line: ForestLine, at: int) -> None:
    clear = line.low > 0 or line.high < 0
    colour = OURS if line.low > 0 else "#D55E00" if line.high < 0 else MUTED
    axes.plot([line.low, line.high], [at, at], color=colour, linewidth=2)
    middle = line.mean if line.mean is not None else (line.low + line.high) / 2
    face = colour if clear else "none"
    axes.plot([middle], [at], marker="o", markersize=5.5, color=colour, markerfacecolor=face)
