"""What a benchmark hands back: a table to read, the numbers behind it, and figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paiq.files import write_atomically


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Written as NAME.md, NAME.json and one SVG per figure."""

    name: str
    table: str
    """Markdown."""
    numbers: Mapping[str, Any]
    figures: Mapping[str, bytes] = field(default_factory=dict)
    """SVG by name."""

    def save(self, folder: Path) -> list[Path]:
        files = {
            f"{self.name}.md": self.table.encode(),
            f"{self.name}.json": (json.dumps(self.numbers, indent=1) + "\n").encode(),
        } | {f"{self.name}-{figure}.svg": data for figure, data in self.figures.items()}
        for name, data in files.items():
            write_atomically(folder / name, data)
        return [folder / name for name in files]


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with the first column to the left and numbers to the right."""
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def short(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
