import pytest
from hypothesis import given
from hypothesis import strategies as st

from paiq.data.prompts import ask, check_template, take_apart
from paiq.errors import ConfigError

LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=("Cs",)), max_size=20)


def test_the_default_layout_to_the_letter():
    assert ask("What is it?", ("a cat", "a dog")) == (
        "What is it?\nOptions:\nA. a cat\nB. a dog\n(Answer with the option content)"
    )


@given(LINE, st.lists(LINE, min_size=1, max_size=6))
def test_a_default_prompt_comes_apart_into_what_it_was_made_of(question, options):
    assert take_apart(ask(question, options)) == (question, tuple(options))


@pytest.mark.parametrize(
    "text",
    [
        "What is it?",
        "Q\nOptions:\nA. x\nC. y\n(Answer with the option content)",
        "Q\nOptions:\nx\n(Answer with the option content)",
        "Q\nOptions:\nA. x\n(Answer with the option content)\nand why",
    ],
)
def test_another_layout_is_a_question_without_options(text):
    assert take_apart(text) == (text, ())


def test_a_question_that_looks_like_a_template_is_asked_as_it_stands():
    asked = ask("is {options} a {question}?", ("{question}", "%s"), "{question} :: {options}")
    assert asked == "is {options} a {question}? :: A. {question}\nB. %s"


def test_a_question_without_options_stands_alone():
    assert ask("Where?") == "Where?"


def test_a_template_needs_its_question():
    with pytest.raises(ConfigError, match=r"one {question}"):
        check_template("{options}")


def test_more_options_than_letters_are_refused():
    with pytest.raises(ConfigError, match=r"27 options"):
        ask("?", ["x"] * 27)
