import random

import pytest

from paiq.errors import ConfigError
from paiq.world.scenes import (
    COLOURS,
    PATTERNS,
    SHAPES,
    SIDE,
    SPLITS,
    is_held_out,
    scene,
    split_of,
)


def words_of(found):
    return [thing.words for thing in found.things]


@pytest.mark.parametrize("split", SPLITS)
def test_a_scene_depends_on_seed_split_and_index_alone(split):
    first = [scene(split, index) for index in range(20)]
    random.seed(1)
    assert [scene(split, index) for index in reversed(range(20))][::-1] == first
    assert scene(split, 3, seed=1) != first[3]


def test_no_scene_graph_stands_in_two_splits():
    graphs = {
        split: {str(words_of(scene(split, index))) for index in range(1500)} for split in SPLITS
    }
    for one in SPLITS:
        for other in SPLITS:
            assert one == other or not graphs[one] & graphs[other]


@pytest.mark.parametrize("split", SPLITS)
def test_every_scene_belongs_to_its_split(split):
    for index in range(200):
        assert split_of(words_of(scene(split, index))) == split


def test_shifted_holds_nothing_but_kept_out_combinations_and_the_others_none():
    for split in SPLITS:
        for index in range(200):
            for thing in scene(split, index).things:
                kept_out = is_held_out(thing.shape, thing.colour, thing.pattern)
                assert kept_out == (split == "shifted")


def test_an_eighth_of_the_combinations_is_kept_out_and_every_word_stays_known():
    kept = [(s, c, p) for s in SHAPES for c in COLOURS for p in PATTERNS if is_held_out(s, c, p)]
    assert len(kept) * 8 == len(SHAPES) * len(COLOURS) * len(PATTERNS)
    for number, values in enumerate((SHAPES, COLOURS, PATTERNS)):
        assert {combination[number] for combination in kept} == set(values)


def test_things_differ_in_shape_and_place_and_lie_inside_their_quarter():
    for index in range(300):
        things = scene("train", index).things
        assert 1 <= len(things) <= 3
        assert len({thing.shape for thing in things}) == len(things)
        assert len({thing.place for thing in things}) == len(things)
        for thing in things:
            upper, left = thing.place.startswith("top"), thing.place.endswith("left")
            y = thing.y if upper else thing.y - SIDE / 2
            x = thing.x if left else thing.x - SIDE / 2
            assert thing.radius <= min(x, y, SIDE / 2 - x, SIDE / 2 - y)


def test_every_object_spans_two_patches_of_the_coarse_grid():
    radii = [thing.radius for index in range(300) for thing in scene("test", index).things]
    assert 2 * min(radii) > 2 * SIDE / 7


def test_an_unknown_split_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        scene("trian", 0)
