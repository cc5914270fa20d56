"""One look for every figure: colours safe for colour-blind readers, text as text, light and dark.

Ink, muted and line are drawn in stand-in colours; inside a page they become the page's own.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, LINE = "#1b1f24", "#6b7280", "#d5d9df"
PAGE_COLOURS = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)"}

# Okabe and Ito's palette; PAIQ keeps the blue everywhere.
PALETTE = ("#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#D55E00", "#8C8C8C", "#B7A100")
OURS = "#0072B2"
FIXED = {
    "paiq": OURS,
    "PAIQ": OURS,
    "pai": "#56B4E9",
    "PAI": "#56B4E9",
    "spatial": "#009E73",
    "DINOv3": "#009E73",
    "semantic": "#E69F00",
    "SigLIP": "#E69F00",
    "concat": "#CC79A7",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": INK,
    "text.parse_math": False,  # names and labels are text, whatever they hold
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A finished figure and its words."""

    name: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        """A stand-alone SVG file; the same data give the same bytes."""
        with mpl.rc_context({**SETTINGS, "svg.hashsalt": self.name}):
            out = io.StringIO()
            self.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return out.getvalue()

    def inline(self) -> str:
        """The <svg> element for a page, in the page's colours and with names of its own."""
        text = self.svg()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        for colour, variable in PAGE_COLOURS.items():
            text = text.replace(colour, variable)
        seen: Counter[str] = Counter()
        text = re.sub(r'\bid="([^"]*)"', lambda found: self._own_id(found[1], seen), text)
        text = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'role="img"', text, count=1)
        return text.replace("'DejaVu Sans', ", "").replace("'DejaVu Sans'", "sans-serif")

    def _own_id(self, name: str, seen: Counter[str]) -> str:
        # Equal contents have equal ids; those that are repeated are told apart, the first is kept.
        seen[name] += 1
        again = f"-{seen[name]}" if seen[name] > 1 else ""
        return f'id="{self.name}-{name}{again}"'

    def pdf(self) -> bytes:
        with mpl.rc_context(SETTINGS):
            out = io.BytesIO()
            self.figure.savefig(out, format="pdf", metadata={"CreationDate": None})
        return out.getvalue()


@contextmanager
def canvas(
    width: float, height: float, rows: int = 1, columns: int = 1
) -> Iterator[tuple[Figure, list[list[Axes]]]]:
    """A figure in inches and its axes by row and column, in the house style."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, [list(line) for line in figure.subplots(rows, columns, squeeze=False)]
        # Laid out once: every later rendering, whatever its format, finds the same places.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def colours(names: list[str]) -> dict[str, str]:
    """A colour for each name: the fixed ones, then the palette in order."""
    fixed = {name: FIXED[name] for name in names if name in FIXED}
    free = [colour for colour in PALETTE if colour not in fixed.values()]
    others = [name for name in names if name not in fixed]
    return fixed | {name: free[i % len(free)] for i, name in enumerate(others)}
