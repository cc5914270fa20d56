"""One table model, written as HTML, Markdown, LaTeX (booktabs), CSV and plain text.

A cell holds plain text and says what is special about it; each writer escapes the text itself.
"""

import csv
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paiq.report import safe

Mark = Literal["best", "second", "none"]
Tone = Literal["good", "bad", "muted", "none"]

LATEX_TONES = {"good": "PAIQGreen", "bad": "PAIQRed", "muted": "gray"}
LATEX_COLOURS = (
    "% needs booktabs and xcolor\n"
    "\\providecolor{PAIQGreen}{HTML}{147344}\n\\providecolor{PAIQRed}{HTML}{B6313C}\n"
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in one place of a table."""

    text: str
    mark: Mark = "none"
    note: str = ""
    """A short addition in small print, such as a difference with its arrow or an interval."""
    tone: Tone = "none"
    """The note's colour; the arrow or the word in the note says the same without colour."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """A line across the table that opens a group of rows."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Header, rows and what the caption says; bands split the rows into groups."""

    name: str
    """File name without its ending."""
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...] | Band, ...]
    groups: tuple[tuple[str, int], ...] = ()
    """Titles over several columns, with how many each spans; spans add up to the header."""
    text_columns: int = 1
    """How many columns at the left hold words; the others hold numbers."""

    def __post_init__(self) -> None:
        width = len(self.header)
        for row in self.rows:
            if not isinstance(row, Band) and len(row) != width:
                raise ValueError(f"{self.name}: a row of {len(row)} under {width} headers")
        if self.groups and sum(span for _, span in self.groups) != width:
            raise ValueError(f"{self.name}: the column groups do not cover {width} columns")


def cells(*texts: object) -> tuple[Cell, ...]:
    """A row of plain cells."""
    return tuple(text if isinstance(text, Cell) else Cell(text=str(text)) for text in texts)


def to_html(table: Table) -> str:
    lines = [f'<table id="table-{safe.to_html(table.name)}">']
    lines.append(f"<caption>{safe.to_html(table.caption)}</caption><thead>")
    if table.groups:
        spans = "".join(
            f'<th scope="colgroup" colspan="{span}">{safe.to_html(title)}</th>'
            for title, span in table.groups
        )
        lines.append(f'<tr class="groups">{spans}</tr>')
    heads = "".join(
        f'<th scope="col" class="{_kind(index, table)}">{safe.to_html(title)}</th>'
        for index, title in enumerate(table.header)
    )
    lines.append(f"<tr>{heads}</tr></thead><tbody>")
    lines += [_html_row(row, table) for row in table.rows]
    lines.append("</tbody></table>")
    return f'<div class="scroll">{"".join(lines)}</div>'


def _html_row(row: tuple[Cell, ...] | Band, table: Table) -> str:
    if isinstance(row, Band):
        return (
            f'<tr class="band"><th scope="rowgroup" colspan="{len(table.header)}">'
            f"{safe.to_html(row.text)}</th></tr>"
        )
    shown = []
    for index, cell in enumerate(row):
        kind = f"{_kind(index, table)} {cell.mark}"
        shown.append(f'<td class="{kind}">{_html_cell(cell)}</td>')
    return f"<tr>{''.join(shown)}</tr>"


def _kind(index: int, table: Table) -> str:
    return "word" if index < table.text_columns else "number"


def _html_cell(cell: Cell) -> str:
    text = safe.to_html(cell.text)
    if cell.mark == "best":
        text = f"<strong>{text}</strong>"
    elif cell.mark == "second":
        text = f"<u>{text}</u>"
    if cell.note:
        text += f' <small class="{cell.tone}">{safe.to_html(cell.note)}</small>'
    return text


def to_markdown(table: Table) -> str:
    head = [
        f"{group}: {title}" if group else title
        for group, title in zip(_group_of_columns(table), table.header, strict=True)
    ]
    sides = ["---" if i < table.text_columns else "---:" for i in range(len(head))]
    lines = [_markdown_line([safe.to_markdown(title) for title in head]), _markdown_line(sides)]
    for row in table.rows:
        if isinstance(row, Band):
            texts = [f"**{safe.to_markdown(row.text)}**", *[""] * (len(head) - 1)]
        else:
            texts = [_markdown_cell(cell) for cell in row]
        lines.append(_markdown_line(texts))
    return "\n".join([*lines, "", safe.to_markdown(table.caption), ""])


def _markdown_cell(cell: Cell) -> str:
    text = safe.to_markdown(cell.text)
    if text:
        text = {"best": f"**{text}**", "second": f"_{text}_"}.get(cell.mark, text)
    return f"{text} {safe.to_markdown(cell.note)}" if cell.note else text


def _markdown_line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def to_latex(table: Table) -> str:
    columns = "l" * table.text_columns + "r" * (len(table.header) - table.text_columns)
    lines = [
        LATEX_COLOURS + "\\begin{table}[t]\n\\centering",
        f"\\caption{{{safe.to_latex(table.caption)}}}\n\\label{{tab:{_label(table.name)}}}",
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule",
    ]
    if table.groups:
        spans = [
            f"\\multicolumn{{{span}}}{{c}}{{{safe.to_latex(title)}}}"
            for title, span in table.groups
        ]
        lines.append(f"{' & '.join(spans)} \\\\")
    heads = [f"\\textbf{{{safe.to_latex(title)}}}" for title in table.header]
    lines.append(f"{' & '.join(heads)} \\\\\n\\midrule")
    for row in table.rows:
        if isinstance(row, Band):
            width = len(table.header)
            lines.append(
                f"\\multicolumn{{{width}}}{{l}}{{\\textit{{{safe.to_latex(row.text)}}}}} \\\\"
            )
        else:
            lines.append(f"{' & '.join(map(_latex_cell, row))} \\\\")
    return "\n".join([*lines, "\\bottomrule\n\\end{tabular}\n\\end{table}", ""])


def _latex_cell(cell: Cell) -> str:
    text = safe.to_latex(cell.text)
    command = {"best": "textbf", "second": "underline"}.get(cell.mark)
    if command:
        text = f"\\{command}{{{text}}}"
    if not cell.note:
        return text
    note = f"\\scriptsize {safe.to_latex(cell.note)}"
    if cell.tone in LATEX_TONES:
        note = f"\\textcolor{{{LATEX_TONES[cell.tone]}}}{{{note}}}"
    return f"{text} {{{note}}}"


def _label(name: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else "-" for char in name)


def to_csv(table: Table) -> str:
    """Bands become a first column; notes and marks are columns where a table has any."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    banded = any(isinstance(row, Band) for row in table.rows)
    groups = _group_of_columns(table)
    titles = [f"{g} {t}".strip() for g, t in zip(groups, table.header, strict=True)]
    noted = [_noted(table, index) for index in range(len(titles))]
    head = ["group"] if banded else []
    for title, has_note in zip(titles, noted, strict=True):
        head += [title, f"{title} mark", f"{title} note"] if has_note else [title]
    writer.writerow([safe.to_csv_field(title) for title in head])
    band = ""
    for row in table.rows:
        if isinstance(row, Band):
            band = row.text
            continue
        fields = [band] if banded else []
        for cell, has_note in zip(row, noted, strict=True):
            fields += [cell.text, cell.mark, cell.note] if has_note else [cell.text]
        writer.writerow([safe.to_csv_field(field) for field in fields])
    return out.getvalue()


def to_text(table: Table) -> str:
    """Aligned columns for a terminal, in which no escape sequence survives."""
    groups = _group_of_columns(table)
    head = [safe.visible(title) for title in table.header]
    lines = [head]
    for row in table.rows:
        if isinstance(row, Band):
            lines.append([safe.visible(row.text)])
        else:
            lines.append([_text_cell(cell) for cell in row])
    whole = [line for line in lines if len(line) == len(head)]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    shown = [_text_line(line, widths, table.text_columns) for line in lines]
    if table.groups:
        starts = [g if i == 0 or groups[i - 1] != g else "" for i, g in enumerate(groups)]
        shown.insert(0, _text_groups(starts, widths))
    return "\n".join([*shown, "", *textwrap.wrap(safe.visible(table.caption), 100), ""])


def _text_cell(cell: Cell) -> str:
    sign = {"best": "*", "second": "+"}.get(cell.mark, "")
    return safe.visible(f"{cell.text}{sign} {cell.note}".strip())


def _text_line(line: Sequence[str], widths: Sequence[int], words: int) -> str:
    if len(line) != len(widths):
        return line[0]
    parts = [
        text.ljust(width) if index < words else text.rjust(width)
        for index, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()


def _text_groups(starts: Sequence[str], widths: Sequence[int]) -> str:
    line = ""
    for index, title in enumerate(starts):
        at = sum(widths[:index]) + 2 * index
        if title:
            line = line.ljust(at) + safe.visible(title)
    return line


def _noted(table: Table, index: int) -> bool:
    rows = [row for row in table.rows if not isinstance(row, Band)]
    return any(row[index].note or row[index].mark != "none" for row in rows)


def _group_of_columns(table: Table) -> list[str]:
    if not table.groups:
        return [""] * len(table.header)
    return [title for title, span in table.groups for _ in range(span)]


WRITERS = {"txt": to_text, "html": to_html, "md": to_markdown, "tex": to_latex, "csv": to_csv}
