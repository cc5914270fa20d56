import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForImageTextToText

import paiq
import tiny
from paiq.errors import ConfigError, DataError
from paiq.model import LanguageConfig, PaiqForConditionalGeneration, build_model, export_merged
from paiq.model.checkpoint import WEIGHTS
from paiq.towers import TowerConfig


@pytest.fixture
def trained(build):
    def make(family="chatml", **options):
        model = build(family, **options)
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.interface.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=rng))
        return model

    return make


def logits_of(model, features):
    ids = torch.tensor([[*[model.config.image_token_id] * model.num_image_tokens, 5, 6, 7]])
    with torch.no_grad():
        return model(input_ids=ids, **features).logits


def test_a_checkpoint_is_the_interface_and_nothing_else(trained, tmp_path):
    model = trained()
    model.save_pretrained(tmp_path)
    found = load_file(tmp_path / WEIGHTS)
    assert {name: t.shape for name, t in found.items()} == {
        name: t.shape for name, t in model.interface.state_dict().items()
    }
    assert {p.name for p in tmp_path.iterdir()} == {
        WEIGHTS,
        "config.json",
        "generation_config.json",
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_comes_back_exactly(trained, family, dtype, tmp_path, make_features):
    model = trained(family, dtype=dtype)
    model.save_pretrained(tmp_path)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert type(again) is PaiqForConditionalGeneration
    assert not again.training
    features = make_features(1)
    assert torch.equal(logits_of(again, features), logits_of(model, features))
    assert {n for n, p in again.named_parameters() if p.requires_grad} == {
        n for n, p in model.named_parameters() if p.requires_grad
    }
    assert {n: p.dtype for n, p in again.named_parameters()} == {
        n: p.dtype for n, p in model.named_parameters()
    }


def test_the_composite_without_a_head_loads_from_a_checkpoint_too(trained, tmp_path):
    model = trained()
    model.save_pretrained(tmp_path)
    base = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(base.interface.rotation.weight, model.interface.rotation.weight)
    tower = model.model.spatial_tower.state_dict()
    assert all(torch.equal(t, tower[n]) for n, t in base.spatial_tower.state_dict().items())


def change(folder, edit):
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS)


def test_missing_extra_and_misshapen_tensors_are_all_named(trained, tmp_path):
    trained().save_pretrained(tmp_path)

    def spoil(tensors):
        tensors["other.weight"] = tensors.pop("key.weight")
        tensors["query.weight"] = tensors["query.weight"][:3].clone()

    change(tmp_path, spoil)
    with pytest.raises(DataError) as caught:
        PaiqForConditionalGeneration.from_pretrained(tmp_path)
    for words in ("missing key.weight", "extra other.weight", "query.weight is (3, 32), not (32,"):
        assert words in str(caught.value)


def test_a_cut_or_absent_interface_is_refused_with_its_path(trained, tmp_path):
    trained().save_pretrained(tmp_path)
    path = tmp_path / WEIGHTS
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="cannot read the interface in"):
        PaiqForConditionalGeneration.from_pretrained(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="cannot read the interface in"):
        PaiqForConditionalGeneration.from_pretrained(tmp_path)


@pytest.fixture
def movable(tmp_path):
    """A model whose parts lie in folders that a test may touch."""
    parts = {
        "spatial": tiny.dinov3(tmp_path / "spatial"),
        "semantic": tiny.siglip(tmp_path / "semantic"),
        "language": tiny.chatml(tmp_path / "language"),
    }
    spatial, semantic = (TowerConfig(name=str(parts[s])) for s in ("spatial", "semantic"))
    model = build_model(spatial, semantic, LanguageConfig(name=str(parts["language"])), "paiq", {})
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model", parts


@pytest.mark.parametrize("part", ["spatial", "semantic", "language"])
def test_a_changed_backbone_is_refused(movable, part):
    folder, parts = movable
    path = parts[part] / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match=f"the {part} weights of .* are not those"):
        PaiqForConditionalGeneration.from_pretrained(folder)


def test_moved_backbones_are_found_by_sources(movable, make_features):
    folder, parts = movable
    before = logits_of(PaiqForConditionalGeneration.from_pretrained(folder), make_features(1))
    moved = parts["spatial"].rename(parts["spatial"].with_name("elsewhere"))
    with pytest.raises(ConfigError, match="there is no folder"):
        PaiqForConditionalGeneration.from_pretrained(folder)
    model = PaiqForConditionalGeneration.from_pretrained(folder, sources={"spatial": str(moved)})
    assert torch.equal(logits_of(model, make_features(1)), before)


def test_a_device_map_over_several_devices_is_answered_with_export(movable):
    with pytest.raises(ConfigError, match="export"):
        PaiqForConditionalGeneration.from_pretrained(movable[0], device_map={"model": 0, "x": 1})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_folder_needs_nothing_else(family, towers, tmp_path, dtype, make_features):
    language = tiny.LANGUAGES[family](tmp_path / "lm")
    model = build_model(*towers, LanguageConfig(name=str(language)), "paiq", {}, dtype)
    export_merged(model, tmp_path / "merged")
    shutil.rmtree(language)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path / "merged", dtype=dtype)
    expected = model.state_dict()
    assert {n: t.dtype for n, t in again.state_dict().items()} == {
        n: t.dtype for n, t in expected.items()
    }
    assert all(torch.equal(t, expected[n]) for n, t in again.state_dict().items())
    assert torch.equal(logits_of(again, make_features(1)), logits_of(model, make_features(1)))
    trainable = {n for n, p in again.named_parameters() if p.requires_grad}
    assert trainable == {f"model.interface.{n}" for n, _ in model.interface.named_parameters()}
    assert str(tmp_path) not in (tmp_path / "merged" / "config.json").read_text()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("interface", ["paiq", "pai", "concat"])
def test_the_folded_export_makes_the_same_tokens(
    trained, tmp_path, make_features, interface, dtype
):
    model = trained(interface=interface, dtype=dtype).eval()
    export_merged(model, tmp_path / "folded", folded=True)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path / "folded", dtype=dtype)
    tokens = [m.model.fuse(*make_features(2).values()).tokens for m in (again, model)]
    torch.testing.assert_close(*tokens, rtol=1e-4, atol=1e-4)
    assert again.model.language_model.dtype == dtype


def test_a_merged_folder_that_lost_a_weight_is_refused(trained, tmp_path):
    export_merged(trained(), tmp_path / "merged")
    path = tmp_path / "merged" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.extra"] = tensors.pop("model.interface.query.weight")
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(DataError) as caught:
        PaiqForConditionalGeneration.from_pretrained(tmp_path / "merged")
    assert "missing model.interface.query.weight" in str(caught.value)
    assert "extra model.extra" in str(caught.value)


def test_large_exports_are_cut_into_shards(trained, tmp_path, monkeypatch, make_features):
    monkeypatch.setattr("paiq.model.export.SHARD_BYTES", 60_000)
    model = trained()
    export_merged(model, tmp_path / "merged")
    index = json.loads((tmp_path / "merged" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    again = PaiqForConditionalGeneration.from_pretrained(tmp_path / "merged")
    assert torch.equal(logits_of(again, make_features(1)), logits_of(model, make_features(1)))


def test_an_export_never_mixes_with_what_is_there(trained, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        export_merged(trained(), tmp_path)


def test_the_card_says_what_the_model_is(trained, tmp_path):
    from paiq.model import write_card

    model = trained()
    model.save_pretrained(tmp_path)
    text = write_card(tmp_path, {"seed": 42}, "| a | b |").read_text()
    digest = model.config.spatial_source["digest"]
    for words in ("seed: 42", "| a | b |", digest[:19], "Z = D + 0.6", "the trained interface"):
        assert words in text
    assert paiq.__name__ in text


def test_a_flipped_byte_of_the_interface_is_noticed(trained, tmp_path):
    trained().save_pretrained(tmp_path)
    data = bytearray((tmp_path / WEIGHTS).read_bytes())
    data[-5] ^= 1
    (tmp_path / WEIGHTS).write_bytes(bytes(data))
    with pytest.raises(DataError, match="is damaged"):
        PaiqForConditionalGeneration.from_pretrained(tmp_path)
