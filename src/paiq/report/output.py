"""A report's files: the page, and every table and figure on its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paiq.files import write_atomically
from paiq.report.style import Drawing
from paiq.report.tables import Table, to_csv, to_latex, to_markdown


@dataclass(frozen=True, kw_only=True)
class Document:
    """A page with the tables and figures that stand on it."""

    page: str
    tables: Sequence[Table]
    drawings: Sequence[Drawing]

    def write(self, folder: Path) -> Path:
        """Writes report.html, tables/ and figures/; returns the page's path."""
        for table in self.tables:
            place = folder / "tables" / table.name
            write_atomically(place.with_suffix(".md"), to_markdown(table).encode())
            write_atomically(place.with_suffix(".tex"), to_latex(table).encode())
            write_atomically(place.with_suffix(".csv"), to_csv(table).encode())
        for drawing in self.drawings:
            place = folder / "figures" / drawing.name
            write_atomically(place.with_suffix(".svg"), drawing.svg().encode())
            write_atomically(place.with_suffix(".pdf"), drawing.pdf())
        page = folder / "report.html"
        write_atomically(page, self.page.encode())
        return page
