"""The world's language model reads conversations as it was pretrained to."""

import random

import pytest

from paiq.model import LanguageConfig, Renderer
from paiq.model.language import load_tokenizer
from paiq.model.prompts import IGNORED
from paiq.records import Sample, Turn
from paiq.world import language
from paiq.world.scenes import scene

N = 49


@pytest.fixture(scope="module")
def renderer():
    config = LanguageConfig(name="builtin:world/weights/language")
    return Renderer(load_tokenizer(config), config, N)


@pytest.mark.parametrize("index", range(6))
def test_a_conversation_is_rendered_as_in_pretraining(renderer, index):
    seen = scene("train", index, 0)
    turns = language.conversation(seen, random.Random(index))
    text = renderer.tokenizer.apply_chat_template(language.messages(turns), tokenize=False)
    expected = renderer.tokenizer(text.replace("<image>", "<image>" * N), add_special_tokens=False)[
        "input_ids"
    ]
    sample = Sample(
        id="w",
        image="w",
        family="description",
        turns=tuple(Turn(prompt=t.prompt, answer=t.answer) for t in turns),
    )
    rendered = renderer.for_training(sample)
    assert rendered.input_ids == expected
    assert renderer.tokenizer.unk_token_id not in rendered.input_ids
    end = renderer.tokenizer.eos_token_id
    answers = [i for i in rendered.labels if i != IGNORED]
    assert answers.count(end) == len(turns)
    said = [renderer.tokenizer(t.answer, add_special_tokens=False)["input_ids"] for t in turns]
    assert answers == [i for ids in said for i in [*ids, end]]


def test_answers_come_back_as_they_were_written(renderer):
    answer = language.describe(scene("test", 3, 0))
    ids = renderer.tokenizer(answer, add_special_tokens=False)["input_ids"]
    assert renderer.decode(ids) == answer
