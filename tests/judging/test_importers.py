import json

import pytest

from paiq.errors import ConfigError, DataError
from paiq.judging.importers import FORMATS, LONGEST_CELL, read
from paiq.judging.payload import pair
from paiq.records import Prediction, Sample, Turn, write_records

ASKED = (
    "What is on the table?\nOptions:\nA. a cup\nB. a book\nC. a hat\nD. a cat\n"
    "(Answer with the option content)\n<image>"
)


def granulon_row(**changes):
    row = {
        "image_path": "eval/reason/model/images/1454426_2591111986.jpg",
        "human_question": ASKED,
        "reference": "a book",
        "prediction": "a book",
    }
    return {**row, **changes}


def lmms_row(**changes):
    row = {
        "doc_id": 0,
        "target": "B",
        "filtered_resps": ["B"],
        "doc_hash": "0" * 64,
        "input": "What?",
        "seed_all": {"pred": "B"},
    }
    return {**row, **changes}


TABLE = (
    "index\tquestion\thint\tA\tB\tanswer\tcategory\tprediction\n"
    '7\tWhat is it?\t\ta cat\t"a ""dog"""\tB\tanimal\t"two\nlines"\n'
    "8\tWho?\tlook closely\tAnn\tBob\tA\tperson\tx\u2028y\x0b\x85\n"
)


def samples(count=2):
    return [
        Sample(id=f"s{n}", image="x", family="description", turns=(Turn(prompt="p"),))
        for n in range(count)
    ]


def write(tmp_path, name, content):
    path = tmp_path / name
    if isinstance(content, list):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_plain_lines_need_an_id_and_a_text(tmp_path):
    rows = [{"id": "a", "text": " x\r\n"}, {"question_id": 7, "prediction": "", "method": "other"}]
    found = read(write(tmp_path, "p.jsonl", rows), "jsonl", method="mine").predictions
    assert [(p.sample_id, p.method, p.text) for p in found] == [
        ("a", "mine", " x\r\n"),
        ("7", "other", ""),
    ]


def test_our_own_predictions_come_back_unchanged(tmp_path):
    prediction = Prediction(
        sample_id="a",
        method="paiq",
        text="é\u2028🐶",
        finish_reason="length",
        prompt_tokens=9,
        new_tokens=3,
        settings={"seed": 1},
    )
    write_records(tmp_path / "p.jsonl", [prediction])
    assert read(tmp_path / "p.jsonl", "jsonl", method="x").predictions == (prediction,)


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "a"}],
        [{"text": "x"}],
        [{"id": "a", "sample_id": "a", "text": "x"}],
        [{"id": "a", "text": "x", "prediction": "x"}],
        [{"id": "a", "text": None}],
        [{"id": "a", "text": ["x"]}],
        [{"id": "a", "text": "x", "new_tokens": -1}],
        ["x"],
        [{"id": "a", "text": "x"}, {"id": "a", "text": "x"}],
        [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}],
    ],
)
def test_plain_lines_that_are_unclear_are_refused(tmp_path, rows):
    with pytest.raises(DataError):
        read(write(tmp_path, "p.jsonl", rows), "jsonl", method="mine")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\n", b"{\n", b'{"id": "a", "id": "b", "text": "x"}\n', b"[" * 100_000]
)
def test_a_broken_file_is_named(tmp_path, content):
    with pytest.raises(DataError, match=r"p\.jsonl"):
        read(write(tmp_path, "p.jsonl", content), "jsonl", method="mine")


def test_a_granulon_file_gives_predictions_and_their_samples(tmp_path):
    rows = [
        granulon_row(),
        granulon_row(human_question="Describe the image.\n<image>", prediction="A room."),
    ]
    imported = read(write(tmp_path, "eval.json", json.dumps(rows)), "granulon", method="g")
    question, description = imported.samples
    assert (question.question, question.reference) == ("What is on the table?", "a book")
    assert question.options == ("a cup", "a book", "a hat", "a cat")
    assert question.image == "1454426_2591111986.jpg"
    assert (description.family, description.reference) == ("description", None)
    assert len(pair(imported.predictions, imported.samples)) == 2


def test_granulon_ids_do_not_depend_on_the_position(tmp_path):
    rows = [granulon_row(), granulon_row(human_question="Other?\n<image>")]
    forward = read(write(tmp_path, "a.json", json.dumps(rows)), "granulon", method="g")
    backward = read(write(tmp_path, "b.json", json.dumps(rows[::-1])), "granulon", method="g")
    ids = [sample.id for sample in forward.samples]
    assert ids == [sample.id for sample in backward.samples][::-1]


@pytest.mark.parametrize(
    "rows",
    [
        [granulon_row(), granulon_row()],
        [granulon_row(), granulon_row(prediction="a cup")],
        [granulon_row(reference="a dog")],
        [{"image_path": "x", "human_question": "y", "reference": "z"}],
        ["x"],
        {"rows": []},
        [],
    ],
)
def test_a_granulon_file_with_a_fault_is_refused(tmp_path, rows):
    with pytest.raises(DataError):
        read(write(tmp_path, "eval.json", json.dumps(rows)), "granulon", method="g")


def test_a_log_of_lmms_eval_is_matched_by_position_and_unfiltered_text(tmp_path):
    rows = [lmms_row(doc_id=1, resps=[["It is B."]]), lmms_row()]
    path = write(tmp_path, "log.jsonl", rows)
    found = read(path, "lmms-eval", method="m", samples=samples()).predictions
    assert [(p.sample_id, p.text) for p in found] == [("s1", "It is B."), ("s0", "B")]


@pytest.mark.parametrize(
    "rows",
    [
        [lmms_row(doc_id=2)],
        [lmms_row(doc_id=-1)],
        [lmms_row(doc_id="0")],
        [lmms_row(doc_id=True)],
        [lmms_row(), lmms_row()],
        [lmms_row(filtered_resps=["a", "b"])],
        [lmms_row(filtered_resps=[])],
        [lmms_row(filtered_resps=[0.5])],
        [lmms_row(filtered_resps=["[LMMS_EVAL_REQUEST_FAILED after 3 retries] 503"])],
        [lmms_row(filtered_resps=["[LMMS_EVAL_BUDGET_EXCEEDED]"])],
    ],
)
def test_a_log_of_lmms_eval_with_a_fault_is_refused(tmp_path, rows):
    with pytest.raises(DataError):
        read(write(tmp_path, "log.jsonl", rows), "lmms-eval", method="m", samples=samples())


def test_a_log_of_lmms_eval_needs_the_samples_it_numbers(tmp_path):
    with pytest.raises(DataError, match="give the samples"):
        read(write(tmp_path, "log.jsonl", [lmms_row()]), "lmms-eval", method="m")


def test_a_table_of_vlmevalkit_gives_predictions_and_their_samples(tmp_path):
    imported = read(write(tmp_path, "t.tsv", TABLE), "vlmevalkit", method="v")
    assert [p.text for p in imported.predictions] == ["two\nlines", "x\u2028y\x0b\x85"]
    first, second = imported.samples
    assert (first.id, first.image, first.reference) == ("7", "7.jpg", 'a "dog"')
    assert second.question == "look closely\nWho?"
    assert len(pair(imported.predictions, imported.samples)) == 2


def test_a_table_of_vlmevalkit_can_be_matched_with_known_samples(tmp_path):
    known = [Sample(id=name, image="x", family="description", turns=(Turn(prompt="p"),))
             for name in ("7", "8")]  # fmt: skip
    path = write(tmp_path, "t.tsv", TABLE)
    imported = read(path, "vlmevalkit", method="v", samples=known)
    assert imported.samples == ()
    with pytest.raises(DataError, match="no sample"):
        read(path, "vlmevalkit", method="v", samples=known[:1])


@pytest.mark.parametrize(
    "content",
    [
        TABLE + TABLE.splitlines(keepends=True)[-1],
        TABLE.replace("two\nlines", "Failed to obtain answer via API."),
        TABLE.replace("two\nlines", "x" * LONGEST_CELL),
        TABLE.replace("\tB\tanimal", "\tE\tanimal"),
        TABLE.replace("\ta cat\t", "\t\t"),
        TABLE.replace("prediction", "answer"),
        TABLE.replace("prediction", "guess"),
        TABLE + "9\tshort\n",
        TABLE.replace('"two', '"two" x'),
        "",
        b"index\tprediction\n1\t\xff\n",
    ],
)
def test_a_table_of_vlmevalkit_with_a_fault_is_refused(tmp_path, content):
    with pytest.raises(DataError):
        read(write(tmp_path, "t.tsv", content), "vlmevalkit", method="v")


def test_a_spreadsheet_is_answered_with_what_to_do(tmp_path):
    with pytest.raises(DataError, match="tab-separated"):
        read(tmp_path / "t.xlsx", "vlmevalkit", method="v")


@pytest.mark.parametrize("form", list(FORMATS))
def test_a_missing_file_is_named_by_every_format(tmp_path, form):
    with pytest.raises(DataError, match="nowhere"):
        read(tmp_path / "nowhere", form, method="m", samples=samples())


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'granulon'"):
        read(tmp_path / "x", "granulom", method="m")
