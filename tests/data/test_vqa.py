import pyarrow as pa
import pytest

from paiq.data import open_source
from paiq.data.a_okvqa import parse_direct_answers
from paiq.data.opening import DataConfig
from paiq.errors import ConfigError, DataError


def opened(kind, path, **settings):
    return open_source(DataConfig(kind=kind, path=path, **settings))


def seed_parquet(make, rows, picture, count=6, **changes):
    values = [
        {**rows.seed(n, **changes), "image": [{"bytes": picture(n), "path": None}]}
        for n in range(count)
    ]
    return make.parquet("data/test-00000-of-00001.parquet", values)


def test_seed_bench_says_the_same_from_json_and_from_parquet(make, rows, picture):
    from_json = opened("seed-bench", make.seed())
    from_parquet = opened("seed-bench", seed_parquet(make, rows, picture).parent)
    assert len(from_json) == len(from_parquet) == 6
    for number in range(6):
        one, other = from_json[number], from_parquet[number]
        assert (one.id, one.turns, one.options) == (other.id, other.turns, other.options)
        assert from_json.image_bytes(one) == from_parquet.image_bytes(other) == picture(number)


def test_a_seed_bench_question_is_asked_in_the_default_layout(make):
    sample = opened("seed-bench", make.seed())[1]
    assert sample.id == "100001"
    assert sample.reference == sample.turns[0].answer == "b1"
    assert sample.turns[0].prompt == (
        "What is thing 1?\nOptions:\nA. a1\nB. b1\nC. c1\nD. d1\n(Answer with the option content)"
    )
    assert (sample.family, sample.question) == ("vqa", "What is thing 1?")


def test_the_layout_is_a_setting(make):
    source = opened(
        "seed-bench", make.seed(), options={"template": "{options}\n{question} Letter:"}
    )
    assert source[0].turns[0].prompt.endswith("D. d0\nWhat is thing 0? Letter:")
    with pytest.raises(ConfigError, match=r"one {question}"):
        opened("seed-bench", make.seed(), options={"template": "{options}"})


def test_a_picture_name_may_be_a_list_of_one(make, rows):
    questions = [rows.seed(0), rows.seed(1), rows.seed(2)]
    path = make.seed(questions=questions)
    questions[1]["data_id"] = [questions[1]["data_id"]]
    questions[2]["data_id"] = ["a", "b"]
    source = opened("seed-bench", make.json("SEED-Bench.json", {"questions": questions}))
    assert source[1].image == "14544_1"
    with pytest.raises(DataError, match=r"name one picture"):
        source[2]
    assert path.is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "E"}, "one of A, B, C, D"),
        ({"answer": "AB"}, "one of A, B, C, D"),
        ({"answer": ""}, "one of A, B, C, D"),
        ({"choice_c": None}, "'choice_c' must be str"),
        ({"data_type": "video"}, "video"),
        ({"question_id": None}, "'question_id'"),
        ({"question_id": True}, "'question_id'"),
    ],
)
def test_a_bad_question_is_named(make, rows, changes, message):
    source = opened("seed-bench", make.seed(questions=[rows.seed(0), rows.seed(1, **changes)]))
    with pytest.raises(DataError, match=message) as error:
        source[1]
    assert "row 1" in str(error.value)


def test_a_question_number_that_a_tool_made_an_integer_is_read(make, rows):
    source = opened("seed-bench", make.seed(questions=[rows.seed(0, question_id=101669)]))
    assert source[0].id == "101669"


def test_several_frames_are_refused_unless_the_first_is_asked_for(make, rows, picture):
    frames = [{"bytes": picture(n), "path": None} for n in range(3)]
    path = make.parquet("test-00000-of-00001.parquet", [{**rows.seed(0), "image": frames}])
    source = opened("seed-bench", path)
    with pytest.raises(DataError, match=r"3 pictures"):
        source.image(source[0])
    source = opened("seed-bench", path, first_frame=True)
    assert source.image_bytes(source[0]) == picture(0)


def test_a_seed_bench_file_of_another_shape_is_refused(make):
    with pytest.raises(DataError, match=r"questions"):
        opened("seed-bench", make.json("SEED-Bench.json", {"records": []}))
    with pytest.raises(DataError, match=r"object"):
        opened("seed-bench", make.json("SEED-Bench.json", []))


def a_okvqa_parquet(make, rows, picture, direct, split="validation"):
    values = []
    for number in range(6):
        record = rows.a_okvqa(number)
        for key in ("split", "image_id"):
            del record[key]
        record["direct_answers"] = direct(record["direct_answers"])
        values.append({**record, "image": {"bytes": picture(number), "path": None}})
    return make.parquet(f"data/{split}-00000-of-00001.parquet", values)


@pytest.mark.parametrize("direct", [list, repr], ids=["list", "printed"])
def test_a_okvqa_says_the_same_from_json_and_from_both_mirrors(make, rows, picture, direct):
    from_json = opened("a-okvqa", make.a_okvqa())
    from_parquet = opened("a-okvqa", a_okvqa_parquet(make, rows, picture, direct))
    for number in range(6):
        one, other = from_json[number], from_parquet[number]
        assert (one.id, one.turns, one.options) == (other.id, other.turns, other.options)
        assert from_json.image_bytes(one) == from_parquet.image_bytes(other)
        answers = from_json.reader.direct_answers(number)
        assert answers == from_parquet.reader.direct_answers(number)
        assert answers[-3:] == ("it's", 'a "b"', "ü")


def test_the_reference_is_the_text_of_the_right_choice(make):
    sample = opened("a-okvqa", make.a_okvqa())[2]
    assert sample.reference == "y2"
    assert sample.image == "val2017/000000461753.jpg"


def test_the_test_split_has_no_reference(make):
    source = opened("a-okvqa", make.a_okvqa(split="test"), options={"split": "test"})
    assert source[0].reference is None
    assert source[0].turns[0].answer is None


def test_another_split_than_asked_for_is_refused(make):
    source = opened("a-okvqa", make.a_okvqa(split="test"))
    with pytest.raises(DataError, match=r"set option split=test"):
        source[0]


def test_a_missing_answer_is_not_taken_for_a_test_record(make, rows):
    record = rows.a_okvqa(0)
    del record["correct_choice_idx"]
    source = opened("a-okvqa", make.json("aokvqa_v1p0_val.json", [record]))
    with pytest.raises(DataError, match=r"no 'correct_choice_idx'"):
        source[0]


@pytest.mark.parametrize("index", [4, -1, True, "0", None])
def test_a_choice_that_does_not_exist_is_refused(make, rows, index):
    record = rows.a_okvqa(0, correct_choice_idx=index)
    source = opened("a-okvqa", make.json("aokvqa_v1p0_val.json", [record]))
    with pytest.raises(DataError, match=r"row 0"):
        source[0]


def test_a_folder_of_mixed_splits_gives_the_split_asked_for(make, rows, picture):
    a_okvqa_parquet(make, rows, picture, list, "train")
    folder = a_okvqa_parquet(make, rows, picture, list).parent
    assert len(opened("a-okvqa", folder)) == 6
    with pytest.raises(DataError, match=r"no test-\*.parquet"):
        opened("a-okvqa", folder, options={"split": "test"})


def test_flat_coco_folders_are_a_setting(make, picture):
    path = make.a_okvqa(count=1)
    make.file("flat/000000461751.jpg", picture(9))
    source = opened("a-okvqa", path, images=make.root / "flat", options={"flat": True})
    assert source.image_bytes(source[0]) == picture(9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("['a', \"it's\", 'b\\'s']", ("a", "it's", "b's")),
        ('["a", "b"]', ("a", "b")),
        ("[]", ()),
        ("['a',]", ("a",)),
        ("['\\u00fc']", ("ü",)),
    ],
)
def test_printed_lists_are_read(text, words):
    assert parse_direct_answers(text, "x") == words


@pytest.mark.parametrize(
    "text",
    [
        "['a' 'b']",
        "__import__('os').system('true')",
        "[__import__('os')]",
        "['a', 1]",
        "['a'",
        "'a'",
        "a, b",
        "",
        "[" * 50_000 + "]" * 50_000,
        "{'a': 1}",
        "['a', f'{1}']",
        "['a' * 9]",
    ],
)
def test_anything_but_a_printed_list_of_words_is_refused(text):
    with pytest.raises(DataError, match=r"no list of texts"):
        parse_direct_answers(text, "x")


def test_a_mirror_that_lacks_a_column_is_refused_by_name(make):
    schema = pa.schema([("image", pa.binary()), ("question", pa.string())])
    path = make.parquet("validation-00000-of-00001.parquet", [], schema=schema)
    with pytest.raises(DataError, match=r"no column 'question_id'"):
        opened("a-okvqa", path)
