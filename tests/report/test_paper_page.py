import csv
import io

import pytest

from paiq.analysis.published import main_table
from paiq.report.paper_page import paper_document
from paiq.report.tables import to_csv
from report.pages import assert_self_contained


@pytest.fixture(scope="module")
def document():
    return paper_document()


def test_the_page_is_self_contained_and_shows_every_published_mean(document):
    page = assert_self_contained(document.page)
    for row in main_table().values():
        assert str(row.value) in page.text


def test_the_main_tables_differences_are_the_printed_ones(document):
    (table,) = [t for t in document.tables if t.name == "main"]
    rows = {
        (row["group"], row["Method"]): row for row in csv.DictReader(io.StringIO(to_csv(table)))
    }
    heads = {"accuracy": "Acc. ↑", "hallucination": "Hall. ↓"}
    arrows = {"up": "↑", "down": "↓"}
    compared = 0
    for place, printed in main_table().items():
        row, head = rows[place.backbone, place.method], f"{place.dataset} {heads[place.axis]}"
        assert row[head] == str(printed.value)
        assert row[f"{head} mark"] == printed.mark
        if printed.delta is not None:
            assert row[f"{head} note"] == f"{arrows[printed.arrow]} {printed.delta}"
            compared += 1
    assert compared == 192


def test_every_table_and_figure_is_written_on_its_own(document, tmp_path):
    page = document.write(tmp_path)
    assert page.read_text() == document.page
    written = {path.name for path in tmp_path.rglob("*.*")}
    for table in document.tables:
        assert {f"{table.name}.{kind}" for kind in ("md", "tex", "csv")} <= written
    for drawing in document.drawings:
        assert {f"{drawing.name}.svg", f"{drawing.name}.pdf"} <= written
    assert len({table.name for table in document.tables}) == len(document.tables)


def test_the_page_names_what_cannot_be_derived(document):
    page = assert_self_contained(document.page)
    assert page.text.count("not derivable") >= 3
    assert "wrong way round" in page.text
