import socket

import pytest

from paiq.data import open_source
from paiq.data.opening import DataConfig
from paiq.errors import ConfigError, DataError


def opened(path, **options):
    return open_source(DataConfig(kind="llava", path=path, options=options))


def human(text):
    return {"from": "human", "value": text}


def gpt(text):
    return {"from": "gpt", "value": text}


def test_a_record_becomes_a_sample_with_its_picture(make, picture):
    source = opened(make.llava())
    sample = source[2]
    assert sample.id == "GCC_train_000000002"
    assert sample.turns[0].prompt == "Describe the given image."
    assert sample.turns[0].answer == "a thing , number 2 ."
    assert source.image_bytes(sample) == picture(2)
    assert source.image(sample).size == (16, 12)
    assert (source.name, len(source)) == ("llava", 6)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("<image>\nSay it.", "Say it."),
        ("Say it.\n<image>", "Say it."),
        ("Say <image> it.", "Say\nit."),
        ("<image>", ""),
    ],
)
def test_the_marker_may_stand_anywhere_in_the_first_turn(make, rows, text, prompt):
    record = rows.chat(0, conversations=[human(text), gpt("x")])
    assert opened(make.llava(records=[record]))[0].turns[0].prompt == prompt


def test_every_turn_of_a_conversation_is_kept_and_the_last_answer_may_be_open(make, rows):
    says = [human("<image>\nOne?"), gpt("1"), human("Two?"), gpt("2"), human("Three?")]
    turns = opened(make.llava(records=[rows.chat(0, conversations=says)]))[0].turns
    assert [(t.prompt, t.answer) for t in turns] == [("One?", "1"), ("Two?", "2"), ("Three?", None)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conversations": [human("no marker"), gpt("x")]}, "must have one <image>"),
        ({"conversations": [human("<image> <image>"), gpt("x")]}, "has 2"),
        ({"conversations": [human("<image>"), gpt("<image>")]}, "has 2"),
        ({"conversations": [human("x"), gpt("y"), human("<image>")]}, "first human turn"),
        ({"conversations": [gpt("<image>"), human("x")]}, "must be from 'human'"),
        ({"conversations": [human("<image>"), human("x")]}, "must be from 'gpt'"),
        ({"conversations": []}, "no conversation"),
        ({"conversations": ["hi"]}, "must be an object"),
        ({"conversations": [{"from": "human"}]}, "no 'value'"),
        ({"conversations": "hi"}, "must be list"),
        ({"id": 7}, "'id' must be str"),
    ],
)
def test_a_bad_record_is_an_error_with_its_row_and_the_others_stay_good(
    make, rows, changes, message
):
    source = opened(make.llava(records=[rows.chat(0), rows.chat(1, **changes)]))
    assert source[0].id
    with pytest.raises(DataError, match=message) as error:
        source[1]
    assert "chat.json row 1" in str(error.value)


def test_a_record_without_a_picture_is_an_error(make, rows):
    record = rows.chat(0)
    del record["image"]
    with pytest.raises(DataError, match=r"no 'image'"):
        opened(make.json("chat.json", [record]))[0]


@pytest.mark.parametrize("image", ["../chat.json", "/etc/passwd", "file:///etc/passwd"])
def test_a_hostile_image_path_is_refused(make, rows, image):
    source = opened(make.json("chat.json", [rows.chat(0, image=image)]))
    with pytest.raises(DataError):
        source.image(source[0])


def test_an_image_address_is_refused_and_its_server_hears_nothing(make, rows):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x.jpg"
        source = opened(make.json("chat.json", [rows.chat(0, image=address)]))
        with pytest.raises(DataError, match=r"nothing is fetched"):
            source.image(source[0])
        server.settimeout(0.05)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_instruction_can_be_set_for_all(make):
    sample = opened(make.llava(), prompt="Caption this.")[1]
    assert (sample.turns[0].prompt, sample.turns[0].answer) == (
        "Caption this.",
        "a thing , number 1 .",
    )


def test_a_question_in_the_known_layout_gives_question_options_and_reference(make, rows):
    asked = "Which?\nOptions:\nA. left\nB. right\n(Answer with the option content)\n<image>"
    record = rows.chat(0, conversations=[human(asked), gpt("right")])
    sample = opened(make.llava(records=[record]), family="vqa")[0]
    assert (sample.question, sample.options, sample.reference) == (
        "Which?",
        ("left", "right"),
        "right",
    )
    assert sample.turns[0].prompt == asked.removesuffix("\n<image>")


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[{}", '[{"id": NaN}]', '[{"id": 1, "id": 2}]', "[" * 100_000, "\ufeff[]"],
    ids=["empty", "object", "cut", "nan", "twice", "deep", "bom"],
)
def test_a_broken_file_is_refused_by_name(make, text):
    with pytest.raises(DataError, match=r"chat.json"):
        opened(make.file("chat.json", text.encode()))


def test_a_file_that_is_not_utf8_is_refused_by_name(make):
    with pytest.raises(DataError, match=r"chat.json is not UTF-8"):
        opened(make.file("chat.json", b'["\xff"]'))


def test_an_unknown_option_is_answered_with_the_nearest(make):
    with pytest.raises(ConfigError, match=r"Did you mean 'prompt'"):
        opened(make.llava(), promt="x")


def test_a_setting_that_contradicts_the_family_is_refused(make):
    with pytest.raises(ConfigError, match=r"for descriptions"):
        opened(make.llava(), prompt="x", family="vqa")
