"""The shipped towers and language model: whole, small, and as good as their cards say."""

import json
import shutil

import pytest
import torch

from paiq.errors import ConfigError, DataError
from paiq.world import PARTS, WorldSource, backbones, pretrain_language
from paiq.world.cards import PROBES, table
from paiq.world.parts import examine, load
from paiq.world.pretrain_language import IDS
from paiq.world.scoring import score

MOST_BYTES = 10_500_000


@pytest.mark.parametrize("part", PARTS)
def test_weights_load_strictly_into_the_library_classes(part):
    model = load(part, backbones()[part])
    assert type(model).__module__.startswith("transformers.models.")
    assert sum(p.numel() for p in model.parameters()) > 10**6


def test_all_parts_together_are_small():
    sizes = [file.stat().st_size for folder in backbones().values() for file in folder.rglob("*")]
    assert sum(sizes) < MOST_BYTES


@pytest.mark.parametrize("part", PARTS)
def test_cards_show_the_probes_that_lie_beside_them(part):
    folder = backbones()[part]
    assert table(json.loads((folder / PROBES).read_text())) in (folder / "README.md").read_text()


def test_the_towers_see_different_things():
    seen = {
        part: examine(part, backbones()[part], scenes=240, save=False)["test"]
        for part in ("spatial", "semantic")
    }
    assert min(seen["spatial"][name] for name in ("pattern", "place", "colour")) > 0.85
    assert seen["spatial"]["size"] > 0.75
    assert seen["spatial"]["shape"] < 0.5
    assert min(seen["semantic"][name] for name in ("shape", "colour")) > 0.85
    assert seen["semantic"]["pattern"] < 0.75
    assert seen["semantic"]["place"] < 0.6


def test_the_language_model_reads_clean_word_maps_on_every_grid():
    found = examine("language", backbones()["language"], scenes=120, save=False)
    assert set(found) == {"7x7", "12x12", "7x7+12x12"}
    assert min(value for scores in found.values() for value in scores.values()) > 0.9


def test_greedy_decoding_of_a_clean_map_describes_the_scene():
    source = WorldSource("test", 12)
    model = load("language", backbones()["language"])
    for index in range(0, 12, 2):
        texts = pretrain_language.write_down([(source.scene(index), [])])
        prefix = pretrain_language.word_prefix(model, texts, (12,), rough=False)
        asked = pretrain_language.encode(f"{source[index].turns[0].prompt}<assistant>")
        embed = model.get_input_embeddings()
        head = embed(torch.tensor([[IDS["<bos>"], IDS["<user>"]]]))
        inputs = torch.cat([head, prefix, embed(torch.tensor([asked]))], dim=1)
        ids = model.generate(inputs_embeds=inputs, max_new_tokens=40, do_sample=False)[0].tolist()
        said = " ".join(pretrain_language.WORDS[i] for i in ids[: ids.index(IDS["<eos>"])])
        assert score(source[index], said).axes == {"accuracy": 100, "hallucination": 0}


def test_a_damaged_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="no transformers folder"):
        load("spatial", tmp_path)
    folder = tmp_path / "spatial"
    shutil.copytree(backbones()["spatial"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 7}))
    with pytest.raises(DataError, match="does not hold a DINOv3ViTModel"):
        load("spatial", folder)


def test_an_unknown_part_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="Did you mean 'spatial'"):
        load("spacial", backbones()["spatial"])
