from dataclasses import replace

import pytest
import torch

import tiny
from paiq.errors import ConfigError, DataError
from paiq.model import LanguageConfig, Renderer, collate
from paiq.model.language import load_tokenizer
from paiq.model.prompts import IGNORED, image_block
from paiq.records import Sample, Turn

N = 5
BLOCKS = {
    "qwen3": ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", ""),
    "qwen3_5": ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", ""),
    "internvl": ("<img>", "<IMG_CONTEXT>", "</img>", "\n"),
    "llama": ("", "<|reserved_special_token_0|>", "", "\n"),
    "chatml": ("", "<image>", "", "\n"),
}
ENDS = {"llama": "<|eot_id|>"}


@pytest.fixture
def renderer(languages, family):
    config = LanguageConfig(name=str(languages[family]))
    return Renderer(load_tokenizer(config), config, N)


def test_each_family_has_its_own_image_block(renderer, family):
    block = renderer.block
    assert (block.start, block.placeholder, block.end, block.separator) == BLOCKS[family]


def written(renderer, turns, **options):
    """The template's own text, the image block put into the first prompt by hand."""
    block = renderer.block
    image = block.start + block.placeholder * N + block.end + block.separator
    messages = []
    for index, turn in enumerate(turns):
        messages.append({"role": "user", "content": (image if index == 0 else "") + turn.prompt})
        if turn.answer is not None:
            messages.append({"role": "assistant", "content": turn.answer})
    return renderer.tokenizer.apply_chat_template(
        messages, tokenize=False, enable_thinking=False, **options
    )


def test_a_prompt_is_what_the_chat_template_writes(renderer, single):
    asked = replace(single, turns=(Turn(prompt=single.turns[0].prompt),))
    expected = written(renderer, asked.turns, add_generation_prompt=True)
    ids = renderer.tokenizer(expected, add_special_tokens=False)["input_ids"]
    assert renderer.for_generation(asked).input_ids == ids


def test_a_training_example_is_what_the_chat_template_writes_up_to_the_last_end(renderer, single):
    expected = written(renderer, single.turns)
    ids = renderer.tokenizer(expected, add_special_tokens=False)["input_ids"]
    rendered = renderer.for_training(single).input_ids
    assert rendered == ids[: len(rendered)]
    assert ids[len(rendered) :] in ([], renderer.tokenizer("\n")["input_ids"])


def test_training_continues_exactly_the_generation_prompt(renderer, sample):
    training = renderer.for_training(sample).input_ids
    prompt = renderer.for_generation(sample).input_ids
    assert training[: len(prompt)] == prompt
    first = renderer.for_generation(replace(sample, turns=sample.turns[:1])).input_ids
    assert training[: len(first)] == first


def test_answers_and_their_ends_are_supervised_and_nothing_else(renderer, sample, family):
    rendered = renderer.for_training(sample)
    end = ENDS.get(family, "<|im_end|>")
    supervised = [i for i in rendered.labels if i != IGNORED]
    assert renderer.tokenizer.decode(supervised) == f"A cat.{end}A dog!{end}"
    assert rendered.answer_tokens == len(supervised)
    pairs = zip(rendered.input_ids, rendered.labels, strict=True)
    assert all(label in (IGNORED, token) for token, label in pairs)


def test_every_conversation_holds_one_image_of_n_placeholders(renderer, sample):
    for rendered in (renderer.for_training(sample), renderer.for_generation(sample)):
        ids = rendered.input_ids
        assert ids.count(renderer.image_token_id) == N
        first = ids.index(renderer.image_token_id)
        assert set(ids[first : first + N]) == {renderer.image_token_id}


def test_an_open_turn_is_answered_after_the_answered_ones(renderer):
    turns = (Turn(prompt="a", answer="b"), Turn(prompt="c"), Turn(prompt="d"))
    sample = Sample(id="x", image="x", family="vqa", turns=turns)
    text = renderer.tokenizer.decode(renderer.for_generation(sample).input_ids)
    assert "b" in text
    assert "c" in text
    with pytest.raises(DataError, match="'x' has no answer to 'c'"):
        renderer.for_training(sample)


def test_a_prompt_with_an_image_slot_of_its_own_is_refused(renderer):
    turn = Turn(prompt=f"{renderer.block.placeholder} what?", answer="a")
    sample = Sample(id="two", image="x", family="vqa", turns=(turn,))
    with pytest.raises(DataError, match="sample 'two' holds"):
        renderer.for_training(sample)


@pytest.mark.parametrize("where", ["prompt", "answer"])
def test_control_tokens_in_the_data_are_refused(renderer, where):
    end = renderer.tokenizer.convert_ids_to_tokens(renderer.end_id)
    turn = Turn(**{"prompt": "p", "answer": "a", where: f"one {end} two"})
    sample = Sample(id="sly", image="x", family="vqa", turns=(turn,))
    with pytest.raises(DataError, match=r"sample 'sly' holds .* control token"):
        renderer.for_training(sample)


def test_a_system_message_comes_first(languages):
    config = LanguageConfig(name=str(languages["chatml"]), system="Be brief.")
    renderer = Renderer(load_tokenizer(config), config, N)
    sample = Sample(id="x", image="x", family="vqa", turns=(Turn(prompt="Hi"),))
    text = renderer.tokenizer.decode(renderer.for_generation(sample).input_ids)
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<image>")


def test_a_template_that_places_images_decides_what_follows_them():
    template = (
        "{% for message in messages %}{{ '<user>' if message.role == 'user' else '<says>' }}"
        "{% if message.content is string %}{{ message.content }}{% else %}"
        "{% for part in message.content %}"
        "{{ '<image>' if part.type == 'image' else part.text }}{% endfor %}{% endif %}"
        "{{ eos_token if message.role == 'assistant' else '' }}{% endfor %}"
        "{{ '<says>' if add_generation_prompt else '' }}"
    )
    tokenizer = tiny.tokenizer(["<image>", "<user>", "<says>", "<end>"], template, eos="<end>")
    renderer = Renderer(tokenizer, LanguageConfig(name="any"), 2)
    turns = (Turn(prompt="p", answer="a"), Turn(prompt="q", answer="b"))
    rendered = renderer.for_training(Sample(id="x", image="x", family="vqa", turns=turns))
    text = tokenizer.decode(rendered.input_ids)
    assert text == "<user><image><image>p<says>a<end><user>q<says>b<end>"


def test_a_tokenizer_without_a_template_or_a_placeholder_says_so():
    plain = tiny.tokenizer(["<image>"], None, eos="<end>")
    with pytest.raises(ConfigError, match="no chat template"):
        Renderer(plain, LanguageConfig(name="any"), 2)
    bare = tiny.tokenizer([], tiny.CHATML, eos="<end>")
    with pytest.raises(ConfigError, match=r"name a reserved one with language\.placeholder"):
        image_block(bare, LanguageConfig(name="any"))
    with pytest.raises(ConfigError, match="'<pic>' is no single token"):
        image_block(bare, LanguageConfig(name="any", placeholder="<pic>"))


def test_single_parts_of_the_block_can_be_set(languages):
    config = LanguageConfig(name=str(languages["qwen3"]), image_start="", image_end="")
    block = image_block(load_tokenizer(config), config)
    assert (block.start, block.placeholder, block.end) == ("", "<|image_pad|>", "")


def test_a_template_that_drops_messages_is_refused():
    forgetful = "{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}"
    tokenizer = tiny.tokenizer(["<image>"], forgetful, eos="<end>")
    with pytest.raises(ConfigError, match="exactly once"):
        Renderer(tokenizer, LanguageConfig(name="any"), 2)


def test_an_answer_is_ended_by_eos_where_the_template_forgets():
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    template += "{% if add_generation_prompt %}[assistant]{% endif %}"
    tokenizer = tiny.tokenizer(["<image>", "<end>"], template, eos="<end>")
    renderer = Renderer(tokenizer, LanguageConfig(name="any", separator=""), 1)
    turns = (Turn(prompt="p", answer="a"), Turn(prompt="q", answer="b"))
    rendered = renderer.for_training(Sample(id="x", image="x", family="vqa", turns=turns))
    text = tokenizer.decode(rendered.input_ids)
    assert text == "[user]<image>p[assistant]a<end>[user]q[assistant]b<end>"
    assert tokenizer.decode([i for i in rendered.labels if i != IGNORED]) == "a<end>b<end>"


@pytest.mark.parametrize("side", ["left", "right"])
def test_collating_pads_one_side_and_masks_it(renderer, sample, single, side):
    items = [renderer.for_training(sample), renderer.for_training(single)]
    batch = collate(items, renderer.pad_id, side)
    longest = max(map(len, items))
    for row, item in enumerate(items):
        kept = batch["attention_mask"][row].bool()
        assert batch["input_ids"][row][kept].tolist() == item.input_ids
        assert batch["labels"][row][kept].tolist() == item.labels
        assert (batch["labels"][row][~kept] == IGNORED).all()
        edge = kept[-1] if side == "left" else kept[0]
        assert edge
    assert batch["input_ids"].shape == (2, longest)
    assert batch["input_ids"].dtype == torch.long
