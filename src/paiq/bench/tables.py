"""The rows of `bench interfaces` and the tables made of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paiq.bench.outcome import markdown, short
from paiq.bench.timing import Timing
from paiq.interfaces.features import Sizes


@dataclass(frozen=True, kw_only=True)
class Row:
    """One contender at one size."""

    part: str
    hidden_size: int
    batch: int
    precision: str
    contender: str
    timing: Timing
    mib: float | None = None
    """Peak memory of the call."""
    error: float | None = None
    """Relative to the reference of the part."""
    operations: float | None = None
    """Of the products that cannot be avoided."""
    varied: str | None = None
    """The size that grows."""
    at: int | None = None


def folded_operations(sizes: Sizes, batch: int) -> float:
    """Operations of the folded form's products, dense; the strips of a triangle do fewer."""
    n, m, d = sizes.spatial_tokens, sizes.semantic_tokens, sizes.hidden_size
    c, k = sizes.spatial_size, sizes.semantic_size
    r, q = min(d, k + 1), min(d, c + 1)
    per_image = m * k * r + n * c * (r + q) + n * m * r + n * m * k + n * d * (c + k)
    return 2.0 * batch * per_image


Group = dict[str, Row]


def groups(rows: Iterable[Row], part: str) -> dict[tuple[str, int, int], Group]:
    """Contenders by name for each precision, hidden size and batch of that part."""
    found: dict[tuple[str, int, int], Group] = {}
    for row in rows:
        if row.part == part:
            key = row.precision, row.hidden_size, row.batch
            found.setdefault(key, {})[row.contender] = row
    return found


def report_of(rows: list[Row], about: Mapping[str, Any], settings: Any) -> str:
    """Markdown: the machine, then a table for each part."""
    rates = about["products_per_second"]
    speed = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in rates.items())
    head = (
        f"{about['name']} ({about['device']}), torch {about['torch']}, {about['threads']} threads; "
        f"products: {speed}. n = {settings.spatial_tokens}, m = {settings.semantic_tokens}, "
        f"{settings.channels} channels. Milliseconds are medians of interleaved turns; spread is "
        "half the distance of the extremes over the median, of PAIQ's own time.\n"
    )
    sections = {
        "Inference": _inference(rows, rates),
        "Training step of the interface (forward and backward)": _training(rows),
        "Matching alone, from cosines to weights": _versus(rows, "matching", ["paper", "pot"]),
        "Rotation alone, forward and backward, weight new each time": _versus(
            rows, "rotation", ["torch"]
        ),
        "Growth, one image": _growth(rows),
    }
    return head + "".join(f"\n### {title}\n\n{table}" for title, table in sections.items())


def best_folded(group: Group) -> Row:
    """The folded form as one would run it: as a graph where there is one."""
    return group.get("folded graph", group["folded"])


def _ms(group: Group, contender: str) -> float | None:
    return group[contender].timing.median_ms if contender in group else None


def _inference(rows: list[Row], rates: Mapping[str, float]) -> str:
    header = [
        "d", "images", "products", "paper ms", "unfolded ms", "folded ms", "folded, graph ms",
        "LLaVA MLP ms", "floor ms", "paper / folded", "MLP / folded", "folded / floor", "spread",
        "error",
    ]  # fmt: skip
    lines = []
    for (precision, d, batch), group in groups(rows, "inference").items():
        best, eager = best_folded(group).timing, group["folded"]
        floor = 1e3 * (eager.operations or 0.0) / rates[precision]
        paper, mlp = group["paper"].timing.median_ms, group["mlp"].timing.median_ms
        times = [_ms(group, c) for c in ("paper", "unfolded", "folded", "folded graph", "mlp")]
        ratios = [paper / best.median_ms, mlp / best.median_ms, best.median_ms / floor]
        line = [d, batch, precision, *map(short, times), short(floor), *map(short, ratios)]
        lines.append([*line, f"{best.spread:.0%}", f"{eager.error:.0e}"])
    return markdown(header, lines)


def _training(rows: list[Row]) -> str:
    header = [
        "d", "images", "products", "paper ms", "PAIQ ms", "LLaVA MLP ms", "paper / PAIQ", "spread",
        "paper MiB", "PAIQ MiB", "LLaVA MLP MiB", "gradient error",
    ]  # fmt: skip
    lines = []
    for (precision, d, batch), group in groups(rows, "training").items():
        paper, paiq, mlp = (group[name] for name in ("paper", "paiq", "mlp"))
        times = [row.timing.median_ms for row in (paper, paiq, mlp)]
        line = [d, batch, precision, *map(short, times), short(times[0] / times[1])]
        line += [f"{paiq.timing.spread:.0%}", *(short(row.mib) for row in (paper, paiq, mlp))]
        lines.append([*line, f"{paiq.error:.1e}"])
    return markdown(header, lines)


def _versus(rows: list[Row], part: str, others: list[str]) -> str:
    header = ["d", "images", "products", "PAIQ ms", "spread"]
    header += [column for other in others for column in (f"{other} ms", f"{other} / PAIQ")]
    lines = []
    for (precision, d, batch), group in groups(rows, part).items():
        paiq = group["paiq"].timing
        line = [d, batch, precision, short(paiq.median_ms), f"{paiq.spread:.0%}"]
        for other in others:
            time = _ms(group, other)
            line += [short(time), short(None if time is None else time / paiq.median_ms)]
        lines.append(line)
    return markdown(header, lines)


def _growth(rows: list[Row]) -> str:
    lines: dict[tuple[str | None, int | None], list[object]] = {}
    for row in rows:
        if row.part == "growth":
            line = lines.setdefault((row.varied, row.at), [row.varied, row.at])
            line.append(short(row.timing.median_ms))
    return markdown(["size", "value", "paper ms", "folded ms"], list(lines.values()))
