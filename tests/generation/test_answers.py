import random

import pytest
import torch
import transformers

import tiny
from paiq.errors import ConfigError
from paiq.generation import GenerationConfig, generate, greedy
from paiq.generation.answers import stops
from paiq.model import collate


@pytest.fixture(params=sorted(tiny.LANGUAGES))
def pair(request, models):
    return models(request.param)


class Permuted:
    """The same samples and images in another order."""

    def __init__(self, samples, vision, order):
        self.samples, self.inner, self.order = samples, vision, order

    def __len__(self):
        return len(self.order)

    def __getitem__(self, index):
        return self.samples[self.order[index]]

    def vision(self, rows):
        return self.inner([self.order[row] for row in rows])


def answers(pair, samples, vision, limit=24, batch=4):
    config = GenerationConfig(max_new_tokens=limit, batch_size=batch)
    return list(generate(*pair, samples, vision, config))


@pytest.mark.parametrize("batch", [2, 5, 9])
def test_a_batch_answers_as_its_samples_alone_do(pair, samples, vision, batch):
    assert answers(pair, samples, vision, batch=batch) == answers(pair, samples, vision, batch=1)


def test_order_changes_no_answer(pair, samples, vision):
    order = list(range(len(samples)))
    random.Random(0).shuffle(order)
    shuffled = Permuted(samples, vision, order)
    found = answers(pair, shuffled, shuffled.vision, batch=4)
    assert sorted(found, key=lambda p: p.sample_id) == answers(pair, samples, vision, batch=9)


def test_answers_depend_on_their_images(pair, samples, vision):
    here = answers(pair, samples, vision, limit=8)
    turned = answers(pair, samples, lambda rows: vision([8 - row for row in rows]), limit=8)
    assert {p.sample_id: p.text for p in here} != {p.sample_id: p.text for p in turned}


def test_answers_are_those_of_the_librarys_greedy_generate(pair, samples, vision):
    model, renderer = pair
    batch = collate([renderer.for_generation(s) for s in samples], renderer.pad_id, "left")
    del batch["labels"]
    config = transformers.GenerationConfig(
        do_sample=False,
        max_new_tokens=24,
        eos_token_id=sorted(stops(model, renderer)),
        pad_token_id=renderer.pad_id,
    )
    rows = range(len(samples))
    found = model.generate(**batch, **vision(rows), generation_config=config)
    texts = [renderer.decode(row[batch["input_ids"].shape[1] :].tolist()) for row in found]
    assert [p.text for p in answers(pair, samples, vision)] == texts


def test_rows_stop_at_their_own_end_token_and_leave_it_out(pair, samples, vision):
    model, renderer = pair
    batch = collate([renderer.for_generation(s) for s in samples], renderer.pad_id, "left")
    del batch["labels"]
    inputs = {**batch, **vision(range(len(samples)))}
    free = [answer.ids for answer in greedy(model, inputs, limit=24, stop_ids=())]
    assert all(len(ids) == 24 for ids in free)
    ends = {free[0][5], free[-1][9]}
    found = greedy(model, inputs, limit=24, stop_ids=ends)
    for answer, ids in zip(found, free, strict=True):
        stop = next((place for place, token in enumerate(ids) if token in ends), None)
        assert answer.ids == ids[:stop]
        assert answer.finish_reason == ("length" if stop is None else "stop")
        assert answer.new_tokens == (24 if stop is None else stop + 1)
    assert any(answer.finish_reason == "stop" for answer in found)


def test_the_limit_is_kept_and_said(models, samples, vision):
    found = answers(models("chatml"), samples[:2], vision, limit=1)
    assert [(p.new_tokens, p.finish_reason) for p in found] == [(1, "length")] * 2
    assert found[0].settings["max_new_tokens"] == 1


def test_generation_starts_where_it_is_told(models, samples, vision):
    pair = models("qwen3")
    config = GenerationConfig(max_new_tokens=6, batch_size=4)
    later = list(generate(*pair, samples, vision, config, start=3))
    assert later == answers(pair, samples, vision, limit=6)[3:]


def test_features_that_are_not_finite_are_refused(models, samples, vision):
    def broken(rows):
        return {name: f.clone().fill_(float("nan")) for name, f in vision(rows).items()}

    with pytest.raises(ConfigError, match="not finite"):
        answers(models("chatml"), samples, broken)


def test_prompt_tokens_count_placeholders_and_no_padding(models, samples, vision):
    pair = models("chatml")
    for prediction, sample in zip(answers(pair, samples, vision, limit=1), samples, strict=True):
        assert prediction.prompt_tokens == len(pair[1].for_generation(sample))


def test_bfloat16_models_answer(towers, tmp_path, samples, vision):
    from paiq.model import LanguageConfig, build_model, load_renderer

    language = LanguageConfig(name=str(tiny.qwen3_5(tmp_path / "lm")))
    model = build_model(*towers, language, "paiq", {}, torch.bfloat16)
    found = answers((model, load_renderer(model.config)), samples, vision, limit=4)
    assert [p.sample_id for p in found] == [s.id for s in samples]


@pytest.mark.parametrize("values", [{"max_new_tokens": 0}, {"batch_size": -1}])
def test_settings_that_make_no_sense_are_refused(values):
    with pytest.raises(ConfigError, match="positive"):
        GenerationConfig(**values)
