import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from paiq.model import LanguageConfig, Setup, look_over
from paiq.model.checkup import Finding


def texts(findings):
    return {finding.subject: finding.text for finding in findings}


@pytest.fixture
def setup(towers, languages, family):
    spatial, semantic = towers
    language = LanguageConfig(name=str(languages[family]))
    return Setup(language=language, spatial=spatial, semantic=semantic)


def test_a_sound_setup_is_found_sound_without_reading_weights(setup, build, family):
    findings = look_over(setup)
    assert all(isinstance(f, Finding) and f.fine for f in findings)
    found, model = texts(findings), build(family)
    count = sum(p.numel() for p in model.model.language_model.parameters())
    count += 0 if model.config.tie_word_embeddings else model.lm_head.weight.numel()
    assert f"{count:,} parameters" in found["language model"]
    trainable = sum(p.numel() for p in model.interface.parameters())
    assert f"{trainable:,} trainable parameters, 16 placeholders" in found["interface"]
    assert "x 16" in found["prompt"]
    assert "as in one piece" in found["prompt"]
    assert "samples/s" in found["speed"]


def test_every_mistake_is_found_at_once(setup, tmp_path):
    folder = tiny.qwen3(tmp_path / "lm")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tower = tiny.dinov3(tmp_path / "tower")
    (tower / "model.safetensors").write_bytes(b"\0" * 20)
    from paiq.towers import TowerConfig

    broken = Setup(
        language=LanguageConfig(name=str(folder)),
        spatial=TowerConfig(name=str(tower)),
        semantic=setup.semantic,
    )
    findings = look_over(broken)
    wrong = {f.subject for f in findings if not f.fine}
    assert wrong == {"spatial tower", "language model"}
    assert "up_proj" in texts(findings)["language model"]
    assert texts(findings)["semantic tower"].startswith("siglip_vision_model")


def test_a_language_model_alone_can_be_looked_at(languages):
    findings = look_over(Setup(language=LanguageConfig(name=str(languages["llama"]))))
    assert [f.subject for f in findings] == ["language model", "tokenizer"]
    assert "'<|reserved_special_token_0|>'" in texts(findings)["tokenizer"]


def test_what_does_not_fit_is_said(setup, monkeypatch):
    monkeypatch.setattr("paiq.model.checkup.devices", lambda: [("cuda:0", 1000)])
    (finding,) = [f for f in look_over(setup) if f.subject == "cuda:0"]
    assert not finding.fine
    assert "too little" in finding.text


def test_more_checkpointing_needs_less_memory(setup):
    from dataclasses import replace

    from paiq.model.checkup import _activations, load_language

    text = load_language(setup.language, torch.float32, device_map="meta").config
    kept = [_activations(replace(setup, checkpointing=on), text, 400, 2) for on in (True, False)]
    assert kept[0] < kept[1]
