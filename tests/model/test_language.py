import json

import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file

import tiny
from paiq.errors import ConfigError, DataError
from paiq.model import LanguageConfig, load_language
from paiq.model.losses import finish_logits

FULL = {
    "qwen3_5": t.Qwen3_5ForConditionalGeneration,
    "internvl": t.InternVLForConditionalGeneration,
}


def logits_of(language, ids):
    hidden = language.decoder(input_ids=ids).last_hidden_state
    return finish_logits(language.head(hidden), language.config)


@torch.no_grad()
def test_logits_are_those_of_the_upstream_class(languages, family):
    ids = torch.randint(0, 250, (2, 11), generator=torch.Generator().manual_seed(0))
    upstream = FULL.get(family, t.AutoModelForCausalLM)
    expected = upstream.from_pretrained(languages[family]).eval()(input_ids=ids).logits
    language = load_language(LanguageConfig(name=str(languages[family])))
    torch.testing.assert_close(logits_of(language, ids), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", sorted(FULL))
def test_the_head_is_found_tied_or_not(tmp_path, family, tied):
    folder = getattr(tiny, family)(tmp_path / "lm", tied=tied)
    language = load_language(LanguageConfig(name=str(folder)))
    embedding = language.decoder.get_input_embeddings().weight
    assert (language.head.weight is embedding) == tied
    ids = torch.arange(7)[None]
    expected = FULL[family].from_pretrained(folder).eval()(input_ids=ids).logits
    torch.testing.assert_close(logits_of(language, ids), expected, rtol=1e-5, atol=1e-5)


POST = {
    "gemma2": (t.Gemma2Config, t.Gemma2ForCausalLM, {"final_logit_softcapping": 0.5}),
    "granite": (t.GraniteConfig, t.GraniteForCausalLM, {"logits_scaling": 7.0}),
    "cohere": (t.CohereConfig, t.CohereForCausalLM, {"logit_scale": 0.25}),
    "gpt2": (t.GPT2Config, t.GPT2LMHeadModel, {}),
    "phi": (t.PhiConfig, t.PhiForCausalLM, {}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(POST))
def test_other_causal_models_keep_what_they_do_after_the_head(tmp_path, name):
    config, cls, extra = POST[name]
    common = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2}
    common |= {"num_attention_heads": 2, "intermediate_size": 24, "pad_token_id": 0}
    if name != "gpt2":
        common |= {"num_key_value_heads": 2}
    if name == "gemma2":
        common |= {"head_dim": 8}
    torch.manual_seed(0)
    upstream = cls(config(**common, **extra)).eval()
    upstream.save_pretrained(tmp_path)
    ids = torch.arange(1, 9)[None]
    language = load_language(LanguageConfig(name=str(tmp_path)))
    expected = upstream(input_ids=ids).logits
    torch.testing.assert_close(logits_of(language, ids), expected, rtol=1e-5, atol=1e-5)


def test_frozen_language_models_lose_their_dropout(tmp_path):
    config = t.GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2)
    assert config.resid_pdrop > 0
    t.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    decoder = load_language(LanguageConfig(name=str(tmp_path))).decoder.train()
    ids = torch.arange(9)[None]
    first, second = (decoder(input_ids=ids).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)


def without(folder, name):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    (key,) = [key for key in tensors if key.endswith(name)]
    del tensors[key]
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("family", sorted(tiny.LANGUAGES))
def test_a_missing_weight_is_an_error_that_names_it(tmp_path, family):
    folder = tiny.LANGUAGES[family](tmp_path / "lm")
    without(folder, "layers.1.mlp.up_proj.weight")
    with pytest.raises(DataError, match=r"1 missing: .*layers\.1\.mlp\.up_proj\.weight"):
        load_language(LanguageConfig(name=str(folder)))


def test_a_missing_head_is_never_made_up(tmp_path):
    folder = tiny.llama(tmp_path / "lm")
    without(folder, "lm_head.weight")
    with pytest.raises(DataError, match=r"lm_head\.weight"):
        load_language(LanguageConfig(name=str(folder)))


@torch.no_grad()
def test_disagreeing_flags_of_a_composite_config_are_settled_by_the_files(tmp_path):
    folder = tiny.internvl(tmp_path / "lm", tied=False)
    path = folder / "config.json"
    values = json.loads(path.read_text())
    values["tie_word_embeddings"] = True
    path.write_text(json.dumps(values))
    language = load_language(LanguageConfig(name=str(folder)))
    stored = load_file(folder / "model.safetensors")
    (head,) = [tensor for name, tensor in stored.items() if name.endswith("lm_head.weight")]
    assert torch.equal(language.head.weight, head)


@torch.no_grad()
def test_the_original_internvl_layout_is_read_too(tmp_path):
    source = tiny.internvl(tmp_path / "hf")
    target = tmp_path / "chat"
    target.mkdir()
    stored = load_file(source / "model.safetensors")
    renamed = {name: t for name, t in stored.items() if name.startswith("language_model.")}
    save_file(renamed, target / "model.safetensors", metadata={"format": "pt"})
    values = json.loads((source / "config.json").read_text())
    config = {"model_type": "internvl_chat", "llm_config": values["text_config"]}
    (target / "config.json").write_text(json.dumps(config))
    ids = torch.arange(9)[None]
    one, other = (load_language(LanguageConfig(name=str(f))) for f in (source, target))
    assert torch.equal(logits_of(one, ids), logits_of(other, ids))


def test_what_is_no_language_model_is_refused(tmp_path):
    folder = tiny.siglip(tmp_path / "tower")
    with pytest.raises(ConfigError, match="is no causal language model"):
        load_language(LanguageConfig(name=str(folder)))
