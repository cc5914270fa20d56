import pytest
import torch

from paiq.world.drawing import PALETTE, draw, lay_out
from paiq.world.scenes import COLOURS, SHAPES, SIDE, scene


def test_a_picture_is_the_same_alone_in_a_batch_and_in_any_order():
    scenes = [scene("train", index) for index in range(12)]
    together = draw(lay_out(scenes))
    backwards = draw(lay_out(scenes[::-1])).flip(0)
    alone = torch.cat([draw(lay_out([one])) for one in scenes])
    assert torch.equal(together, backwards)
    assert torch.equal(together, alone)


def test_pictures_differ_from_scene_to_scene():
    pictures = draw(lay_out([scene("train", index) for index in range(12)]))
    assert pictures.shape == (12, 3, SIDE, SIDE)
    assert len({picture.numpy().tobytes() for picture in pictures}) == 12


def test_a_plain_thing_shows_its_colour_at_its_middle():
    seen = 0
    for index in range(150):
        one = scene("val", index)
        picture = draw(lay_out([one]))[0].float() / 255
        for thing in one.things:
            if thing.pattern != "plain":
                continue
            x, y = int(thing.x), int(thing.y)
            middle = picture[:, y - 3 : y + 4, x - 3 : x + 4].mean((1, 2))
            nearest = min(
                COLOURS, key=lambda name: (middle - torch.tensor(PALETTE[name])).abs().sum()
            )
            assert nearest == thing.colour
            seen += 1
    assert seen > 30


@pytest.mark.parametrize("shape", SHAPES)
def test_an_outline_lies_inside_the_circle_of_its_radius_and_nearly_fills_its_height(shape):
    from paiq.world.drawing import OUTLINES

    steps = torch.linspace(-1.3, 1.3, 201)
    u, v = steps.expand(1, 201, 201), steps[:, None].expand(1, 201, 201)
    inside = OUTLINES[shape](u, v)[0] < 0
    far = (u[0] ** 2 + v[0] ** 2).sqrt()
    assert far[inside].max() < 1.06
    assert inside[100, 100]
    assert v[0][inside].max() - v[0][inside].min() > 1.35
