from dataclasses import replace

import numpy as np
import pytest
import torch

from paiq.cli.main import main
from paiq.errors import ConfigError
from paiq.world import PARTS, pretrain_language, pretrain_semantic, pretrain_spatial
from paiq.world.drawing import draw, lay_out
from paiq.world.parts import load, recipe
from paiq.world.pretrain import Album
from paiq.world.scenes import COLOURS, SHAPES, scene

MODULES = {
    "spatial": pretrain_spatial,
    "semantic": pretrain_semantic,
    "language": pretrain_language,
}


def losses_of(part, folder, steps):
    seen = []

    def report(done, note=""):
        seen.append(float(note.split()[1]))

    tiny = recipe(part, {"steps": 1, "batch_size": 8, "scenes": 24})
    make = getattr(MODULES[part], f"pretrain_{part}")
    assert make(folder, replace(tiny, steps=steps, warmup=0.0), report=report) == steps
    return seen


@pytest.mark.parametrize("part", PARTS)
def test_a_few_steps_lower_the_loss_and_leave_a_loadable_folder(part, tmp_path):
    losses = losses_of(part, tmp_path, 8)
    assert losses[-1] < losses[0]
    assert load(part, tmp_path).config.dtype == torch.float32


def test_gradients_reach_every_weight_of_the_towers():
    from transformers import DINOv3ViTModel, SiglipVisionModel

    album, rng = Album("train", 16), np.random.default_rng(0)
    spatial = DINOv3ViTModel(pretrain_spatial.configuration())
    pictures = pretrain_spatial.see(album.batch(4, rng, "cpu")[1])
    pretrain_spatial.Masked(spatial, pictures)(pictures).backward()
    semantic = SiglipVisionModel(pretrain_semantic.configuration())
    batch = pretrain_semantic.make_batch(album, 4, rng, "cpu")
    pretrain_semantic.Pairs(semantic)(batch).backward()
    for tower in (spatial, semantic):
        untouched = [name for name, p in tower.named_parameters() if p.grad is None]
        assert untouched == []


def test_the_same_seed_makes_the_same_weights(tmp_path):
    for name in ("a", "b"):
        losses_of("language", tmp_path / name, 2)
    first, second = (tmp_path / name / "model.safetensors" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_an_album_draws_any_selection_as_the_scenes_themselves():
    album = Album("train", 30)
    rows = np.array([7, 3, 28, 7])
    expected = draw(lay_out([scene("train", int(row)) for row in rows]))
    assert torch.equal(draw(album.pick(rows)), expected)


def test_several_processes_make_the_same_album():
    one, two = Album("val", 40), Album("val", 40, workers=2)
    assert all((a == b).all() for a, b in zip(one.sheet, two.sheet, strict=True))


def test_a_caption_holds_exactly_for_pictures_it_is_true_of():
    sheet = Album("train", 60).sheet
    whole, _ = pretrain_semantic.captions(sheet, np.random.default_rng(0))
    known, _ = pretrain_semantic.truth(sheet)
    found = pretrain_semantic.holds(whole.says, known)
    for caption in range(60):
        words = [pretrain_language.WORDS[i] for i in whole.words[caption].tolist() if i]
        said = parse(words)
        for picture in range(60):
            there = {t.shape: t.colour for t in scene("train", picture).things}
            true = set(said) == set(there) and all(
                colour in (None, there[shape]) for shape, colour in said.items()
            )
            assert bool(found[picture, caption]) == true
    assert found.diagonal().all()


def parse(words):
    said, colour = {}, None
    for word in words:
        if word in COLOURS:
            colour = word
        if word in SHAPES:
            said[word], colour = colour, None
    return said


def test_captions_never_name_pattern_size_or_place():
    whole, single = pretrain_semantic.captions(Album("train", 200).sheet, np.random.default_rng(1))
    allowed = {"<pad>", "a", "and", *COLOURS, *SHAPES}
    for said in (whole, single):
        assert {pretrain_language.WORDS[i] for i in said.words.unique().tolist()} <= allowed


def test_a_word_map_puts_each_object_where_it_lies():
    texts = pretrain_language.write_down([(scene("test", i), []) for i in range(20)])
    for grid in (7, 12):
        cover = pretrain_language.coverage(texts.discs, grid)
        middles = (torch.arange(grid) + 0.5) * 192 / grid
        where = torch.cartesian_prod(middles, middles)  # n (y, x)
        for row in range(20):
            for column, thing in enumerate(scene("test", row).things):
                part = cover[row, :, column, None]
                y, x = ((part * where).sum(0) / part.sum()).tolist()
                assert abs(y - thing.y) < 8
                assert abs(x - thing.x) < 8


def test_of_two_grids_at_least_one_has_every_word():
    missing = pretrain_language._share_out(200, 2, 6, torch.device("cpu"))
    assert missing.any()
    assert not missing.all(1).any()


def test_a_nonsense_schedule_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        recipe("spatial", {"steps": 0})


def test_the_command_shows_samples_and_writes_their_pictures(tmp_path, capsys):
    from PIL import Image

    out = tmp_path / "world.png"
    assert main(["world", "show", "--split", "shifted", "--count", "9", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "world/shifted/0/8: a " in shown
    assert Image.open(out).size == (8 * 196 - 4, 2 * 196 - 4)
    assert main(["world", "show", "--split", "tests"]) == 2
    assert "Did you mean 'test'" in capsys.readouterr().err
