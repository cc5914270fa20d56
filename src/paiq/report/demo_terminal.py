"""The demo's table on a terminal."""

from rich.markup import escape
from rich.table import Table

from paiq.report.demo_results import DemoResults
from paiq.report.demo_summary import DemoRow, demo_rows


def terminal_table(results: DemoResults) -> Table:
    """Means with half the width of their intervals, a line per method."""
    rows = {(row.method, row.family, row.split): row for row in demo_rows(results.scores)}
    columns = list(dict.fromkeys((family, split) for _, family, split in rows))
    table = Table(
        title=results.title, caption="Accuracy / Hallucination, 95 % interval of Accuracy"
    )
    table.add_column("interface")
    table.add_column("tokens", justify="right")
    for family, split in columns:
        table.add_column(f"{family}\n{split}", justify="right")
    for method in results.methods:
        cells = [_cell(rows[method.name, family, split]) for family, split in columns]
        table.add_row(method.name, str(method.tokens), *cells)
    return table


def _cell(row: DemoRow) -> str:
    accuracy, hallucination = row.accuracy, row.hallucination
    if accuracy.low is None or accuracy.high is None:
        return f"{accuracy.mean:.1f} / {hallucination.mean:.1f}"
    interval = escape(f"[{accuracy.low:.0f}, {accuracy.high:.0f}]")
    return f"{accuracy.mean:.1f} / {hallucination.mean:.1f}\n{interval}"
