import pytest

from paiq.data import open_source
from paiq.data.opening import DataConfig
from paiq.errors import DataError

COLUMNS = ["index", "image", "question", "hint", "A", "B", "C", "D", "answer", "category"]


def opened(path, **settings):
    return open_source(DataConfig(kind="vlmevalkit", path=path, **settings))


def row(index, image, **changes):
    cells = dict.fromkeys(COLUMNS, "") | {
        "index": str(index),
        "image": image,
        "question": f"What is {index}?",
        "A": "left",
        "B": "right",
        "answer": "B",
    }
    return list((cells | changes).values())


def test_a_row_becomes_a_question_with_its_picture(make, rows, picture):
    source = opened(make.tsv([row(n, rows.base64(n)) for n in range(4)], COLUMNS))
    sample = source[2]
    assert (sample.id, sample.options, sample.reference) == ("2", ("left", "right"), "right")
    assert source.image_bytes(sample) == picture(2)
    assert sample.turns[0].prompt.startswith("What is 2?\nOptions:\nA. left\nB. right\n")


def test_a_short_cell_takes_the_picture_of_the_row_it_names(make, rows, picture):
    source = opened(
        make.tsv([row(7, rows.base64(7)), row(8, "7"), row(9, "8"), row(10, "77")], COLUMNS)
    )
    assert source.image_bytes(source[1]) == picture(7)
    with pytest.raises(DataError, match=r"which has none itself"):
        source.image_bytes(source[2])
    with pytest.raises(DataError, match=r"'77', which is not there"):
        source.image_bytes(source[3])


def test_a_row_without_a_picture_is_an_error_and_not_left_out(make, rows):
    source = opened(make.tsv([row(0, rows.base64(0)), row(1, "")], COLUMNS))
    assert len(source) == 2
    with pytest.raises(DataError, match=r"index 1 has no picture"):
        source.image(source[1])


def test_a_path_column_is_read_below_the_image_folder_only(make, picture):
    make.file("images/a.jpg", picture(3))
    columns = ["index", "image_path", "question", "answer"]
    path = make.tsv([["0", "a.jpg", "Q?", "yes"], ["1", "../bench.tsv", "Q?", ""]], columns)
    source = opened(path)
    assert source.image_bytes(source[0]) == picture(3)
    assert (source[0].reference, source[0].options) == ("yes", ())
    assert source[1].reference is None
    with pytest.raises(DataError, match=r"no path inside"):
        source.image(source[1])


def test_quoted_cells_may_hold_tabs_lines_and_quotes(make, rows, picture):
    odd = row(0, rows.base64(0), question='Two\nlines,\ta tab and "quotes"', hint="Look.")
    source = opened(make.tsv([odd, row(1, rows.base64(1))], COLUMNS))
    assert source[0].question == 'Look.\nTwo\nlines,\ta tab and "quotes"'
    assert source.image_bytes(source[1]) == picture(1)


def test_a_byte_order_mark_is_no_part_of_the_first_column(make, rows):
    path = make.tsv([row(0, rows.base64(0))], COLUMNS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert opened(path)[0].id == "0"


def test_an_answer_in_letters_is_not_taken_for_one_letter(make, rows):
    assert opened(make.tsv([row(0, rows.base64(0), answer="AB")], COLUMNS))[0].reference == "AB"


def test_a_gap_in_the_options_is_refused(make, rows):
    source = opened(make.tsv([row(0, rows.base64(0), B="", C="up")], COLUMNS))
    with pytest.raises(DataError, match=r"no option B"):
        source[0]


def test_what_is_no_base64_is_refused_by_its_row(make):
    source = opened(make.tsv([row(5, "['not', 'one', 'picture']" * 4)], COLUMNS))
    with pytest.raises(DataError, match=r"index 5: the picture is no base64"):
        source.image(source[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a\tb\n1\t2\n", "needs columns"),
        (b"index\tquestion\timage\n1\tq\n", "2 cells for 3"),
        (b"index\tquestion\timage\n1\tq\tx\n1\tq\tx\n", "twice"),
        (b'index\tquestion\timage\n1\t"open\tx\n', "broken near byte 21"),
        (b"index\tquestion\timage\n1\t\xff\tx\n", "broken near byte 21"),
        (b"index\tquestion\timage\timage\n", "column twice"),
        (b"index\tquestion\timage\n", "no rows"),
    ],
)
def test_a_broken_table_is_refused_by_name(make, content, message):
    with pytest.raises(DataError, match=message):
        opened(make.file("bench.tsv", content))


def test_a_table_that_changes_while_in_use_is_noticed(make, rows):
    source = opened(make.tsv([row(n, rows.base64(n)) for n in range(2)], COLUMNS))
    for content in (b"", b"short\tlines\n" * 400):
        (make.root / "bench.tsv").write_bytes(content)
        with pytest.raises(DataError, match=r"has changed since it was opened"):
            source[1]


def test_a_cell_larger_than_the_csv_limit_of_python_is_read(make, rows):
    import base64

    large = base64.b64encode(b"x" * 200_000).decode()
    source = opened(make.tsv([row(0, large)], COLUMNS))
    assert len(source.image_bytes(source[0])) == 200_000
