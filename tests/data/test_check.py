import json
import statistics
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from paiq.cli.main import main
from paiq.data import KINDS, PAPER_SLICES, open_source
from paiq.data.check import AHEAD, PERCENTILES, THREADS, check, percentiles
from paiq.data.opening import DataConfig
from paiq.data.sheet import CELL, COLUMNS, contact_sheet, spread


@pytest.fixture
def troubled(make, rows, picture):
    """Eight rows: 2 has no text, 3 a cut picture, 4 none at all, 5 repeats the id of 1; 6 and 7
    show the same picture under two names."""
    records = [rows.chat(n) for n in range(8)]
    path = make.llava(records=records)
    records[2] = {"id": "x", "image": "x.jpg"}
    make.file("images/GCC_train_000000003.jpg", picture(3)[:300])
    (make.root / "images/GCC_train_000000004.jpg").unlink()
    records[5]["id"] = records[1]["id"]
    make.file("images/GCC_train_000000007.jpg", picture(6))
    make.json("chat.json", records)
    return path


def test_without_opening_pictures_only_the_records_are_judged(troubled):
    findings = check(open_source(f"llava:{troubled}"))
    assert [entry.row for entry in findings.bad] == [2]
    assert dict(findings.duplicates) == {"GCC_train_000000001": [1, 5]}
    assert (findings.rows, len(findings.keys), findings.pictures) == (8, 7, {})


def test_every_broken_picture_is_found_and_equal_ones_count_once(troubled):
    findings = check(open_source(f"llava:{troubled}"), pictures=True)
    assert [entry.row for entry in findings.bad] == [2, 3, 4]
    assert "000000003.jpg is broken" in findings.bad[1].problem
    assert "000000004.jpg does not exist" in findings.bad[2].problem
    assert len(findings.pictures) == 5
    assert findings.distinct_pictures == 4


def test_rows_are_those_of_the_file_and_not_of_the_slice(troubled):
    findings = check(open_source(f"llava:{troubled}[2:4]"), pictures=True)
    assert [entry.row for entry in findings.bad] == [2, 3]


def test_many_pictures_are_all_settled(make):
    source = open_source(DataConfig(kind="flux", path=make.flux(shards=3, rows=50, group=20)))
    seen = []
    findings = check(source, pictures=True, report=lambda done, note="": seen.append(done))
    assert len(findings.pictures) == 150
    assert seen == list(range(1, 151))


def test_only_a_few_pictures_wait_in_memory(make, monkeypatch):
    longest = 0

    class Watched(deque):
        def append(self, item):
            nonlocal longest
            super().append(item)
            longest = max(longest, len(self))

    monkeypatch.setattr("paiq.data.check.deque", Watched)
    source = open_source(DataConfig(kind="flux", path=make.flux(shards=2, rows=40)))
    check(source, pictures=True)
    assert longest == THREADS * AHEAD < len(source)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_percentiles_are_values_that_enough_do_not_exceed(values):
    found = percentiles(values)
    assert found[0] == min(values)
    assert found[-1] == max(values)
    assert found[1] == statistics.median_low(values)
    for p, value in zip(PERCENTILES, found, strict=True):
        assert sum(v <= value for v in values) >= len(values) * p / 100


@given(st.integers(1, 500), st.integers(1, 50))
def test_the_sheet_spreads_over_the_whole(length, most):
    places = spread(length, most)
    assert len(places) == len(set(places)) == min(length, most)
    assert places[0] == 0
    assert places[-1] >= length - -(-length // most) - 1


def test_the_sheet_shows_pictures_and_marks_the_broken(troubled):
    page = contact_sheet(open_source(f"llava:{troubled}"))
    assert page.width > COLUMNS * CELL
    colours = {colour: count for count, colour in page.getcolors(10**7)}
    assert colours.get((190, 20, 20), 0) > 50
    assert page.getpixel((10, 10)) != (255, 255, 255)


def test_the_verb_prints_counts_and_fails_on_bad_data(troubled, capsys):
    assert main(["data", "check", str(troubled), "--kind", "llava", "--images"]) == 1
    shown = capsys.readouterr().out
    assert "8 rows, 3 bad (7 description)" in shown
    assert "5 read, 4 distinct" in shown
    assert "row 3:" in shown
    assert "'GCC_train_000000001': rows 1, 5" in shown
    assert "answer characters: least 20, median 20" in shown


def test_a_list_of_bad_rows_is_written_and_then_skipped(troubled, make, capsys):
    words = ["data", "check", str(troubled), "--kind", "llava", "--images"]
    listed = make.root / "bad.json"
    assert main([*words, "--write-bad", str(listed)]) == 1
    assert [entry["row"] for entry in json.loads(listed.read_text())["bad"]] == [2, 3, 4]
    capsys.readouterr()
    assert main([*words, "--skip-bad", str(listed)]) == 1
    shown = capsys.readouterr().out
    assert "llava without 3 bad: 5 rows, 0 bad" in shown


def test_good_data_passes_and_the_sheet_is_an_image(make, capsys):
    path, sheet = make.llava(), make.root / "sheet.png"
    words = ["data", "check", str(path), "--kind", "llava", "--slice", "1:4"]
    assert main([*words, "--sheet", str(sheet)]) == 0
    assert "llava[1:4]: 3 rows, 0 bad" in capsys.readouterr().out
    assert Image.open(sheet).width > 0
    assert main([*words, "--sheet", str(make.root / "sheet.txt")]) == 2


def test_options_of_the_format_are_set_by_words(make, capsys):
    words = ["data", "check", str(make.flux()), "--kind", "flux"]
    assert main([*words, "--option", "caption=caption_detail"]) == 0
    assert main([*words, "--option", "caption=caption_text"]) == 1
    assert main([*words, "--option", "captoin=x"]) == 2
    assert "Did you mean 'caption'" in capsys.readouterr().err


def test_the_list_names_every_format_and_every_slice(capsys):
    assert main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in KINDS)
    assert all(f"paper/{name}" in shown for name in PAPER_SLICES)
