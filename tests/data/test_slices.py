import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paiq.data.slices import PAPER_SLICES, paper_slice, rows_of
from paiq.errors import ConfigError


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_a_range_means_what_python_means_or_is_refused(first, end, length):
    text = f"{first}:{end}"
    if first < end <= length:
        assert list(rows_of(text, length)) == list(range(length))[first:end]
    else:
        with pytest.raises(ConfigError, match=r"does not fit"):
            rows_of(text, length)


@given(st.integers(0, 3000), st.integers(1, 200), st.data())
def test_a_wrapped_slice_takes_each_row_once_in_order(start, length, data):
    count = data.draw(st.integers(1, length))
    rows = rows_of(f"({start}+i)%{length} for {count}", length)
    assert len(rows) == len(set(rows)) == count
    assert rows[0] == start % length
    assert all((b - a) % length == 1 % length for a, b in itertools.pairwise(rows))


def test_the_a_okvqa_slice_is_rows_500_to_1144_and_then_0_to_354():
    assert list(rows_of("paper/a-okvqa", 1145)) == [*range(500, 1145), *range(355)]


@pytest.mark.parametrize("name", ["flux", "caption", "seed"])
def test_the_other_paper_slices_are_rows_500_to_1499(name):
    assert list(rows_of(f"paper/{name}", 19_242)) == list(range(500, 1500))


@pytest.mark.parametrize("name", PAPER_SLICES)
def test_a_paper_slice_on_data_of_another_size_is_refused(name):
    with pytest.raises(ConfigError):
        rows_of(f"paper/{name}", 1144)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "no slice"),
        ("-5:", "no slice"),
        ("1:9:2", "no slice"),
        ("1,2", "no slice"),
        ("٣:٥", "no slice"),
        ("5:5", "does not fit"),
        ("0:11", "does not fit"),
        ("(5+i)%9 for 3", "another split"),
        ("(5+i)%10 for 11", "twice"),
        ("(5+i)%10 for 0", "1 to 10"),
        ("paper/sed", "Did you mean 'seed'"),
    ],
)
def test_a_slice_that_means_nothing_here_says_what_is_allowed(text, message):
    with pytest.raises(ConfigError, match=message):
        rows_of(text, 10)


def test_a_paper_slice_that_gives_another_count_is_refused(monkeypatch):
    wrong = dataclasses.replace(PAPER_SLICES["flux"], rows="500:1499")
    monkeypatch.setitem(PAPER_SLICES, "flux", wrong)
    with pytest.raises(ConfigError, match=r"must give 1000 rows and gives 999"):
        rows_of("paper/flux", 5000)


def test_an_empty_slice_is_everything_and_open_ends_reach_the_ends():
    assert list(rows_of("", 3)) == [0, 1, 2]
    assert list(rows_of(":2", 3)) == [0, 1]
    assert list(rows_of("2:", 3)) == [2]


def test_only_names_of_the_paper_are_paper_slices():
    assert paper_slice("500:1500") is None
    assert paper_slice("paper/flux") is PAPER_SLICES["flux"]
