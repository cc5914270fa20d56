import csv
import io
import re

import pytest

from paiq.report.tables import (
    Band,
    Cell,
    Table,
    cells,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_text,
)
from report.pages import HOSTILE, Page

TABLE = Table(
    name="tiny",
    caption="Two methods",
    header=("Method", "Acc.", "Hall."),
    groups=(("", 1), ("Pets", 2)),
    rows=(
        Band(text="Small models"),
        (
            *cells("a"),
            Cell(text="1.00", note="↑ 2.00", tone="good"),
            Cell(text="9.00", mark="second"),
        ),
        (*cells("b"), Cell(text="3.00", mark="best"), Cell(text="5.00", mark="best")),
    ),
)


def test_html_marks_the_best_and_names_the_direction():
    page = Page(to_html(TABLE))
    assert not page.open
    assert page.text.count("3.00") == 1
    assert [tag for tag, _ in page.elements].count("strong") == 2
    assert ("small", {"class": "good"}) in page.elements
    spans = [a["colspan"] for tag, a in page.elements if tag == "th" and "colspan" in a]
    assert spans == ["1", "2", "3"]


def test_markdown_has_one_width():
    lines = [line for line in to_markdown(TABLE).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {4}
    assert "**3.00**" in lines[-1]


def test_latex_is_booktabs_and_balanced():
    text = to_latex(TABLE)
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert text.count("{") == text.count("}")
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    rows = [
        line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {line.count("&") for line in rows} == {2}
    assert r"\textcolor{PAIQGreen}{\scriptsize $\uparrow$ 2.00}" in text


def test_csv_keeps_numbers_alone_and_marks_beside_them():
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0]["group"] == "Small models"
    assert rows[0]["Pets Acc."] == "1.00"
    assert rows[0]["Pets Acc. note"] == "↑ 2.00"
    assert rows[1]["Pets Hall. mark"] == "best"


def test_text_columns_stand_under_their_heads():
    lines = to_text(TABLE).splitlines()
    assert lines[0].strip() == "Pets"
    assert lines[1].index("Acc.") + 4 == lines[4].index("3.00*") + 5


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="2 under 3 headers"):
        Table(name="x", caption="", header=("a", "b", "c"), rows=(cells("1", "2"),))
    with pytest.raises(ValueError, match="do not cover"):
        Table(name="x", caption="", header=("a", "b"), groups=(("g", 1),), rows=())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_breaks_out_of_no_writer(text):
    hostile = Table(
        name=text,
        caption=text,
        header=(text, "n"),
        groups=((text, 2),),
        rows=(Band(text=text), (Cell(text=text, note=text, mark="best"), Cell(text="1"))),
    )
    page = Page(to_html(hostile))
    assert not page.open
    allowed = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "strong", "small"}
    assert page.tags() <= allowed
    assert not page.comments
    (row,) = csv.DictReader(io.StringIO(to_csv(hostile)))
    assert len(row) == 5
    assert not any((value or "").lstrip().startswith(("=", "+", "@")) for value in row.values())
    body = [line for line in to_markdown(hostile).splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line.replace("\\\\", ""))) for line in body} == {3}
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2066]", to_text(hostile) + to_latex(hostile))
