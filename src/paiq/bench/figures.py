"""The plots of `bench interfaces`, as SVG."""

import importlib.util
import io
from collections.abc import Iterable
from typing import Any

from paiq.bench.tables import Row, best_folded, groups

COLOURS = {"paper": "#b2182b", "folded": "#2166ac", "mlp": "#762a83"}
LABELS = {
    "spatial_tokens": "spatial tokens n",
    "semantic_tokens": "semantic tokens m",
    "hidden_size": "hidden size d",
}


MISSING = "No plots: matplotlib is missing; pip install 'paiq[demo]'.\n"


def drawn(rows: list[Row]) -> dict[str, bytes]:
    """SVG by name; nothing without matplotlib, which the table then says."""
    if importlib.util.find_spec("matplotlib") is None:
        return {}
    return {"growth": growth_figure(rows), "ratios": ratio_figure(rows)}


def growth_figure(rows: Iterable[Row]) -> bytes:
    """Milliseconds against n, m and d, both axes logarithmic."""
    points = [row for row in rows if row.part == "growth"]
    figure, axes = _canvas(3)
    for axis, (size, label) in zip(axes, LABELS.items(), strict=True):
        for contender in ("paper", "folded"):
            chosen = [r for r in points if r.varied == size and r.contender == contender]
            axis.loglog(
                [row.at for row in chosen],
                [row.timing.median_ms for row in chosen],
                "o-",
                color=COLOURS[contender],
                label="paper's path" if contender == "paper" else "folded",
            )
        values = sorted({row.at for row in points if row.varied == size and row.at is not None})
        axis.set_xticks(values, [str(value) for value in values])
        axis.set_xticks([], minor=True)
        axis.set_xlabel(label)
    axes[0].set_ylabel("milliseconds, one image")
    axes[0].legend(frameon=False)
    return _svg(figure)


def ratio_figure(rows: Iterable[Row]) -> bytes:
    """How many times faster the folded form is than each reference."""
    found = {k: g for k, g in groups(rows, "inference").items() if k[0] == "float32"}
    figure, (axis,) = _canvas(1, width=max(6.0, 1.1 * len(found)))
    names = [f"d={d}\n{batch} image{'s' * (batch > 1)}" for _, d, batch in found]
    for shift, (contender, label) in enumerate(
        {"paper": "paper's path", "mlp": "LLaVA MLP"}.items()
    ):
        ratios = [
            group[contender].timing.median_ms / best_folded(group).timing.median_ms
            for group in found.values()
        ]
        places = [place + 0.4 * shift - 0.2 for place in range(len(names))]
        bars = axis.bar(places, ratios, 0.4, color=COLOURS[contender], label=label)
        axis.bar_label(bars, fmt="%.1f", fontsize=8)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("time over folded PAIQ's time")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return _svg(figure)


def _canvas(panels: int, width: float = 12.0) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.6), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _svg(figure: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
