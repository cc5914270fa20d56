import csv
import io

import pytest

from paiq.analysis.published import DATASETS, Place, main_table
from paiq.records import AXES
from paiq.report.paper_page import paper_document
from paiq.report.tables import Band, to_csv
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


def test_green_favours_paiq_and_red_the_baseline_as_printed(document):
    (table,) = [t for t in document.tables if t.name == "main"]
    columns = [(dataset, axis) for dataset in DATASETS for axis in AXES]
    tones, backbone = {}, ""
    for row in table.rows:
        if isinstance(row, Band):
            backbone = row.text
            continue
        for (dataset, axis), cell in zip(columns, row[1:], strict=True):
            tones[Place(backbone, dataset, row[0].text, axis)] = cell.tone
    colours = {"good": "green", "bad": "red", "none": ""}
    assert {place: colours[tone] for place, tone in tones.items()} == {
        place: row.colour for place, row in main_table().items()
    }


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
