import random
from pathlib import Path

import pytest

from paiq.world import backbones
from paiq.world.language import (
    CHAT_TEMPLATE,
    DESCRIBE,
    IMAGE,
    KINDS,
    WORDS,
    conversation,
    describe,
    messages,
    question,
)
from paiq.world.pretrain_language import IDS, encode, render
from paiq.world.scenes import scene


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(backbones()["language"])


def talks(count):
    return [conversation(scene("train", i), random.Random(i)) for i in range(count)]


def test_the_shipped_tokenizer_is_the_one_the_code_builds(tokenizer):
    from paiq.world.tokenizer import build_tokenizer

    built = build_tokenizer()
    assert tokenizer.get_vocab() == built.get_vocab()
    assert list(WORDS) == sorted(built.get_vocab(), key=built.get_vocab().get)
    assert tokenizer.padding_side == "left"
    assert tokenizer.chat_template == CHAT_TEMPLATE
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    assert [getattr(tokenizer, name) for name in names] == ["<bos>", "<eos>", "<pad>", "<unk>"]


def test_everything_that_is_said_survives_the_tokenizer(tokenizer):
    for talk in talks(200):
        for text in (text for turn in talk for text in turn):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.unk_token_id not in ids
            assert tokenizer.decode(ids) == text


def test_fast_encoding_and_rendering_equal_the_chat_template(tokenizer):
    for talk in talks(100):
        text = tokenizer.apply_chat_template(messages(talk), tokenize=False)
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert encode(text) == expected
        tokens, answers = render(talk)
        assert tokens == [token for token in expected if token != IDS[IMAGE]]
        said = [token for token, answer in zip(tokens, answers, strict=True) if answer]
        assert tokenizer.decode(said) == " ".join(f"{turn.answer} <eos>" for turn in talk)


def test_the_general_renderer_lays_conversations_out_as_in_pretraining(tokenizer):
    from paiq.model.language import LanguageConfig
    from paiq.model.losses import IGNORED
    from paiq.model.prompts import Renderer
    from paiq.world import WorldSource

    for number in (49, 144, 193):
        language = LanguageConfig(name=str(backbones()["language"]))
        renderer = Renderer(tokenizer, language, number)
        source = WorldSource("train", 30)
        for index in range(30):
            sample = source[index]
            rendered = renderer.for_training(sample)
            tokens, answers = render(list(talk_of(sample)))
            assert rendered.input_ids == [*tokens[:2], *[IDS[IMAGE]] * number, *tokens[2:]]
            answers = [*answers[:2], *[False] * number, *answers[2:]]
            assert [label != IGNORED for label in rendered.labels] == answers
            prompt = renderer.for_generation(WorldSource("test", 30)[index]).input_ids
            assert prompt[: 2 + number] == [*tokens[:2], *[IDS[IMAGE]] * number]
            assert prompt[-1] == IDS["<assistant>"]


def talk_of(sample):
    from paiq.world.language import Exchange

    return (Exchange(turn.prompt, turn.answer) for turn in sample.turns)


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_has_four_options_and_exactly_one_is_true(kind):
    asked_of = 0
    for index in range(150):
        seen = scene("test", index)
        asked = question(seen, kind, random.Random(index))
        if asked is None:
            assert kind == "relation"
            continue
        asked_of += 1
        assert len(set(asked.options)) == 4
        assert [option for option in asked.options if holds(seen, asked, option)] == [asked.answer]
    assert asked_of > 80


def holds(seen, asked, option):
    """A second path to the truth, from the words of the question."""
    words = asked.text.rstrip("?").split()
    named = {thing.shape: thing for thing in seen.things}
    if asked.kind in ("colour", "pattern"):
        return getattr(named[words[-1]], asked.kind) == option
    if asked.kind == "position":
        return named[words[-1]].place == option
    if asked.kind == "shape":
        return option in named and named[option].place == " ".join(words[-2:])
    if asked.kind == "counting":
        count = ("none", "one", "two", "three").index(option)
        said = [{"there", t.colour, t.pattern} for t in seen.things]
        return count == sum(words[-1] in each for each in said)
    one, other = named[words[3]], named[words[-1]]
    return {
        "left": one.x < other.x - 60,
        "right": one.x > other.x + 60,
        "above": one.y < other.y - 60,
        "below": one.y > other.y + 60,
    }[option]


def test_every_option_letter_is_right_equally_often():
    places = [
        asked.options.index(asked.answer)
        for index in range(600)
        if (asked := question(scene("val", index), "colour", random.Random(index)))
    ]
    assert all(100 < places.count(place) < 200 for place in range(4))


def test_a_description_names_every_fact_once():
    for index in range(50):
        seen = scene("shifted", index)
        text = describe(seen)
        for thing in seen.things:
            assert text.count(thing.shape) == 1
            assert f"{thing.colour} {thing.pattern} {thing.shape} at the {thing.place}" in text


def test_conversations_shuffle_one_description_among_three_or_four_questions():
    positions = set()
    for talk in talks(100):
        described = [i for i, turn in enumerate(talk) if turn.prompt in DESCRIBE]
        assert len(described) == 1
        assert 3 <= len(talk) <= 5
        positions.add(described[0])
    assert positions == {0, 1, 2, 3, 4}


def test_the_weights_lie_inside_the_package():
    import paiq

    package = Path(paiq.__file__).parent
    for folder in backbones().values():
        assert folder.is_relative_to(package)
        assert (folder / "model.safetensors").is_file()
