import csv
import html
import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paiq.report import safe
from report.pages import HOSTILE, Page


@given(st.text())
def test_nothing_hidden_survives_and_nothing_visible_changes(text):
    shown = safe.visible(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    if all(unicodedata.category(c) not in safe.HIDDEN_CATEGORIES for c in text):
        assert shown == text


@given(st.text())
def test_html_reads_back_as_the_visible_text_and_holds_no_tag(text):
    escaped = safe.to_html(text)
    assert not set(escaped) & set("<>\"'")
    assert html.unescape(escaped) == safe.visible(text, keep_newlines=True)
    page = Page(f"<p title='{escaped}'>{escaped}</p>")
    assert [tag for tag, _ in page.elements] == ["p"]
    assert page.text == safe.visible(text, keep_newlines=True)


@pytest.mark.parametrize(
    ("char", "spelled"),
    [
        ("\x1b", "\\u001b"),
        ("\u202e", "\\u202e"),
        ("\u2066", "\\u2066"),
        ("\u200b", "\\u200b"),
        ("\ufeff", "\\ufeff"),
        ("\x00", "\\u0000"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_characters_that_steer_a_display_are_spelled_out(char, spelled):
    assert safe.visible(f"a{char}b") == f"a{spelled}b"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "  =", "＝", "\r@"])
def test_a_spreadsheet_runs_no_field(start):
    field = safe.to_csv_field(f'{start}HYPERLINK("http://evil.example")')
    assert field.lstrip()[0] not in "=+-@＝"


@pytest.mark.parametrize("number", ["-1.50", "+3", "12,345", "7 %", "40.59", "-0.3%"])
def test_numbers_stay_numbers(number):
    assert safe.to_csv_field(number) == number


@given(st.text(max_size=40))
def test_csv_reads_back_as_what_is_shown(text):
    out = io.StringIO()
    csv.writer(out).writerow([safe.to_csv_field(text), "end"])
    (row,) = csv.reader(io.StringIO(out.getvalue()))
    assert row[1] == "end"
    assert row[0].removeprefix("'") == safe.visible(text).removeprefix("'")


@given(st.text(alphabet=st.characters(max_codepoint=126, min_codepoint=32), max_size=60))
def test_latex_sees_no_command_but_our_escapes(text):
    rest = safe.to_latex(text)
    for escape in sorted(set(safe.LATEX.values()), key=len, reverse=True):
        rest = rest.replace(escape, "")
    assert not set(rest) & set("\\{}$&#%_~^")


def unescaped(text: str, chars: str) -> list[str]:
    """The characters among `chars` that no backslash takes the meaning of."""
    found, index = [], 0
    while index < len(text):
        if text[index] == "\\":
            index += 2
            continue
        if text[index] in chars:
            found.append(text[index])
        index += 1
    return found


@given(st.text(alphabet=st.sampled_from("[]()<>!*_`~|\\&$@#-+. 1ab\n"), max_size=30))
def test_markdown_has_no_link_tag_emphasis_or_border_left(text):
    shown = safe.to_markdown(text)
    assert "\n" not in shown
    assert not unescaped(shown, "*_`~|<>&$@")
    for link in ("](", "][", "]:"):
        assert link not in shown.replace("\\]", "")
    assert not shown.lstrip().startswith(("-", "+", "#", "="))


@pytest.mark.parametrize("text", ["http://a.b", "https://a.b", "www.a.b", "mailto:a", "HTTP://A"])
def test_markdown_makes_no_address_a_link(text):
    shown = safe.to_markdown(f"see {text} now")
    assert not re.search(r"(?i)(https?:|www\.|mailto:)", shown)
    assert shown.replace("\\", "") == f"see {text} now"


@pytest.mark.parametrize("text", HOSTILE)
def test_every_hostile_text_stays_in_its_place(text):
    assert not set(safe.to_html(text)) & set("<>\"'")
    assert "\n" not in safe.to_markdown(text)
    assert not unescaped(safe.to_markdown(text), "|<>`")
