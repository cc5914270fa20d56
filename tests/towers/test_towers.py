import json

import numpy as np
import pytest
import torch
import transformers as t
from PIL import Image
from safetensors.torch import load_file, save_file

import tiny
from paiq.errors import ConfigError, DataError
from paiq.towers import TowerConfig, load_tower, plan_tower, prepare, weights_digest
from paiq.towers.folder import BUILTIN, portable_name, resolve

UPSTREAM = {
    "dinov3": (t.DINOv3ViTModel, 5),
    "siglip": (t.SiglipVisionModel, 0),
    "dinov2": (t.Dinov2Model, 1),
    "clip": (t.CLIPVisionModel, 1),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    return {name: write(root / name) for name, write in tiny.TOWERS.items()}


@pytest.fixture(params=sorted(tiny.TOWERS))
def kind(request):
    return request.param


def picture(width=61, height=47, seed=0):
    levels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(levels)


def pixels_for(tower, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, tower.image_size, tower.image_size, generator=rng)


def test_a_tower_gives_what_the_upstream_class_gives_for_its_patches(folders, kind):
    tower = load_tower(TowerConfig(name=str(folders[kind])))
    cls, skipped = UPSTREAM[kind]
    upstream = cls.from_pretrained(folders[kind]).eval()
    pixels = pixels_for(tower)
    with torch.no_grad():
        out = upstream(pixels, output_hidden_states=True)
    torch.testing.assert_close(
        tower(pixels), out.last_hidden_state[:, skipped:], rtol=1e-5, atol=1e-5
    )
    assert tower(pixels).shape == (2, tower.num_tokens, tower.width)
    before = load_tower(TowerConfig(name=str(folders[kind]), layer="pre_norm"))
    torch.testing.assert_close(
        before(pixels), out.hidden_states[-1][:, skipped:], rtol=1e-5, atol=1e-5
    )


def test_the_two_layers_differ_by_the_last_norm_where_there_is_one(folders):
    for name, differs in (("siglip", True), ("dinov3", True), ("clip", False)):
        last, before = (
            load_tower(TowerConfig(name=str(folders[name]), layer=layer))
            for layer in ("last", "pre_norm")
        )
        pixels = pixels_for(last)
        assert torch.equal(last(pixels), before(pixels)) != differs


def test_a_tower_stays_in_eval_and_gives_the_same_after_train(folders, kind):
    tower = load_tower(TowerConfig(name=str(folders[kind])))
    pixels = pixels_for(tower)
    before = tower(pixels)
    outer = torch.nn.Sequential(tower).train()
    assert outer.training
    assert not any(module.training for module in tower.modules())
    assert torch.equal(tower(pixels), before)
    assert not any(p.requires_grad for p in tower.parameters())
    assert not tower(pixels.requires_grad_()).requires_grad


def test_dinov3_without_registers_drops_the_class_token_alone(tmp_path):
    tower = load_tower(TowerConfig(name=str(tiny.dinov3(tmp_path / "d", registers=0))))
    assert tower.selection.skip_tokens == 1
    assert tower(pixels_for(tower)).shape[1] == 16


def test_dinov3_takes_another_size_and_siglip_refuses(folders):
    tower = load_tower(TowerConfig(name=str(folders["dinov3"]), image_size=48))
    assert tower(pixels_for(tower)).shape[1] == 36
    with pytest.raises(ConfigError, match="takes 48 pixels, not 64"):
        load_tower(TowerConfig(name=str(folders["siglip"]), image_size=64))


def test_an_encoder_of_another_kind_is_used_by_config(tmp_path):
    config = t.DeiTConfig(**tiny.VIT, image_size=32, patch_size=8)
    torch.manual_seed(0)
    upstream = t.DeiTModel(config, add_pooling_layer=False).eval()
    upstream.save_pretrained(tmp_path)
    t.SiglipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = upstream(pixels).last_hidden_state
    counted = load_tower(TowerConfig(name=str(tmp_path)))
    assert torch.allclose(counted(pixels), expected[:, 2:], atol=1e-5)
    with pytest.raises(ConfigError, match="gave 18 tokens; without the first 3 that is 15, not 16"):
        load_tower(TowerConfig(name=str(tmp_path), skip_tokens=3))(pixels)


def test_bfloat16_weights_give_bfloat16_features_near_the_exact_ones(folders, kind):
    config = TowerConfig(name=str(folders[kind]))
    exact, rounded = load_tower(config), load_tower(config, dtype=torch.bfloat16)
    pixels = pixels_for(exact)
    assert rounded(pixels).dtype == torch.bfloat16
    torch.testing.assert_close(rounded(pixels).float(), exact(pixels), rtol=0.1, atol=0.1)


def broken(folder, target, change):
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return TowerConfig(name=str(target))


def test_a_missing_weight_is_an_error_that_names_it(folders, tmp_path):
    config = broken(folders["dinov3"], tmp_path / "x", lambda t: t.pop("norm.weight"))
    with pytest.raises(DataError, match=r"1 missing: .*norm\.weight"):
        load_tower(config)


def test_a_weight_of_another_shape_is_refused(folders, tmp_path):
    def shrink(tensors):
        tensors["norm.weight"] = tensors["norm.weight"][:3].clone()

    with pytest.raises(DataError, match=r"1 of another shape: norm.weight is .*3.*, not .*16"):
        load_tower(broken(folders["dinov3"], tmp_path / "x", shrink))


def test_a_cut_weight_file_is_refused_with_its_folder(folders, tmp_path):
    config = broken(folders["siglip"], tmp_path / "x", lambda t: None)
    path = tmp_path / "x" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=str(tmp_path / "x")):
        load_tower(config)


def test_a_folder_without_weights_or_config_says_so(folders, tmp_path):
    config = broken(folders["siglip"], tmp_path / "x", lambda t: None)
    (tmp_path / "x" / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"no \*\.safetensors"):
        load_tower(config)
    (tmp_path / "x" / "config.json").write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        load_tower(config)
    with pytest.raises(ConfigError, match="there is no folder"):
        load_tower(TowerConfig(name=str(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match="has no revision 'main'"):
        load_tower(TowerConfig(name=str(folders["clip"]), revision="main"))


def test_the_digest_follows_the_weights_and_nothing_else(folders, tmp_path):
    copied = broken(folders["clip"], tmp_path / "x", lambda t: None)
    first = weights_digest(copied.name)
    (tmp_path / "x" / "notes.txt").write_text("hello")
    assert weights_digest(copied.name) == first
    path = tmp_path / "x" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert weights_digest(copied.name) != first


def test_a_shard_that_the_index_names_must_be_there(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "dinov3_vit"}')
    index = {"weight_map": {"norm.weight": "model-00001-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"lacks weights: model-00001-of-00002\.safetensors"):
        load_tower(TowerConfig(name=str(tmp_path)))


def test_what_ships_inside_the_package_has_the_same_name_everywhere(tmp_path):
    inside = resolve(f"{BUILTIN}towers")
    assert (inside / "folder.py").is_file()
    assert portable_name(str(inside)) == f"{BUILTIN}towers"
    assert portable_name(str(tmp_path)) == str(tmp_path.resolve())
    with pytest.raises(ConfigError, match="there is no folder builtin:nothing"):
        resolve(f"{BUILTIN}nothing")


PROCESSORS = {
    "siglip": t.SiglipImageProcessorPil,
    "clip": t.CLIPImageProcessorPil,
    "dinov2": t.BitImageProcessorPil,
}


@pytest.mark.parametrize("kind", sorted(PROCESSORS))
@pytest.mark.parametrize("size", [(61, 47), (47, 90), (200, 133), (33, 33)])
def test_prepared_pixels_are_bit_equal_to_the_library_processor(folders, kind, size):
    processor = PROCESSORS[kind].from_pretrained(folders[kind])
    plan = plan_tower(TowerConfig(name=str(folders[kind])))
    images = [picture(*size, seed=seed) for seed in range(2)]
    expected = processor(images, return_tensors="pt")["pixel_values"]
    assert torch.equal(prepare(images, plan.preprocessing), expected)


def test_dinov3_pixels_are_the_vit_processor_with_its_statistics(folders):
    plan = plan_tower(TowerConfig(name=str(folders["dinov3"])))
    statistics = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    processor = t.ViTImageProcessorPil(size={"height": 32, "width": 32}, resample=2, **statistics)
    expected = processor(picture(), return_tensors="pt")["pixel_values"]
    assert torch.equal(prepare([picture()], plan.preprocessing), expected)


@pytest.mark.parametrize("kind", sorted(tiny.TOWERS))
def test_the_quick_path_is_at_most_one_grey_level_off(folders, kind):
    preprocessing = plan_tower(TowerConfig(name=str(folders[kind]))).preprocessing
    exact = prepare([picture(320, 240)], preprocessing)
    quick = prepare([picture(320, 240)], preprocessing, backend="torch")
    level = preprocessing.rescale / min(preprocessing.std)
    difference = (exact - quick).abs()
    assert difference.max() <= 1.001 * level
    assert (difference > 0).float().mean() < 0.01


def test_preprocessing_comes_from_the_folder_then_the_kind_then_the_config(folders, tmp_path):
    config = TowerConfig(name=str(folders["dinov2"]))
    plan = plan_tower(config)
    assert (plan.preprocessing.shortest_edge, plan.preprocessing.height) == (36, 32)
    target = tmp_path / "bare"
    target.mkdir()
    for name in ("config.json", "model.safetensors"):
        (target / name).write_bytes((folders["siglip"] / name).read_bytes())
    bare = plan_tower(TowerConfig(name=str(target), resample="bilinear", mean=(0.1, 0.2, 0.3)))
    assert (bare.preprocessing.height, bare.preprocessing.resample) == (48, "bilinear")
    assert bare.preprocessing.mean == (0.1, 0.2, 0.3)
    assert bare.preprocessing.std == (0.5, 0.5, 0.5)


def test_published_preprocessing_is_the_papers():
    from paiq.towers.kinds import KINDS

    spatial, semantic = KINDS["dinov3_vit"].defaults, KINDS["siglip_vision_model"].defaults
    assert spatial["mean"] == (0.485, 0.456, 0.406)
    assert spatial["std"] == (0.229, 0.224, 0.225)
    assert semantic["mean"] == semantic["std"] == (0.5, 0.5, 0.5)


def test_what_is_no_picture_is_refused(folders):
    preprocessing = plan_tower(TowerConfig(name=str(folders["siglip"]))).preprocessing
    with pytest.raises(ConfigError, match="expected a PIL image, got str"):
        prepare(["cat.jpg"], preprocessing)
    with pytest.raises(ConfigError, match="mode I;16 must become 8 bits before"):
        prepare([Image.new("I;16", (8, 8))], preprocessing)
    with pytest.raises(ConfigError, match="no images"):
        prepare([], preprocessing)


def test_pixels_of_the_wrong_size_are_refused(folders):
    tower = load_tower(TowerConfig(name=str(folders["siglip"])))
    with pytest.raises(ConfigError, match=r"\(batch, 3, 48, 48\), got \(1, 3, 32, 32\)"):
        tower(torch.zeros(1, 3, 32, 32))


def test_a_flexible_resolution_siglip_2_is_refused_with_advice(tmp_path):
    values = {"model_type": "siglip2", "vision_config": {"model_type": "siglip2_vision_model"}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="use a fixed-resolution one"):
        plan_tower(TowerConfig(name=str(tmp_path)))
