"""Pictures of scenes, many at a time, on any device.

A thing lies inside its quarter of the picture, so only that quarter is computed; things of one
shape are drawn together. Everything per pixel is arithmetic that IEEE fixes exactly, and noise is
a hash of position and seed: a picture is the same alone, in a batch and in any order.

Axes     B scenes, N things, w pixels of a quarter's side, h pixels of a picture's side
Symbols  u, v: position in the thing's own frame, the outline inside the unit circle; v points down
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from paiq.world.scenes import COLOURS, PATTERNS, PLACES, SHAPES, SIDE, Scene, Thing

QUARTER = SIDE // 2

PALETTE = {
    "red": (0.86, 0.13, 0.13),
    "orange": (0.98, 0.55, 0.08),
    "yellow": (0.97, 0.90, 0.16),
    "green": (0.13, 0.65, 0.20),
    "cyan": (0.15, 0.83, 0.85),
    "blue": (0.14, 0.25, 0.88),
    "purple": (0.50, 0.14, 0.68),
    "pink": (0.99, 0.52, 0.77),
}
_SECOND_TONE = 0.35  # the pattern's other colour, as a part of the first

Plane = Float[Tensor, "N w w"]


class Sheet(NamedTuple):
    """Scenes as plain numbers: what the drawing and the pretraining need, in arrays."""

    words: Int[np.ndarray, "N 3"]
    """Index of shape, colour and pattern of every thing."""
    owner: Int[np.ndarray, "N 2"]
    """Scene and place of every thing."""
    look: Float[np.ndarray, "N 11"]
    """x, y, 1/radius, cos, sin, tint (3), phase (2), 1/period."""
    ground: Float[np.ndarray, "B 6"]
    """Colour (3), slope (2), strength of the noise."""
    grain: Int[np.ndarray, "B"]


def lay_out(scenes: Sequence[Scene]) -> Sheet:
    things = [(row, thing) for row, scene in enumerate(scenes) for thing in scene.things]
    return Sheet(
        words=np.array(
            [
                (SHAPES.index(t.shape), COLOURS.index(t.colour), PATTERNS.index(t.pattern))
                for _, t in things
            ]
        ),
        owner=np.array([(row, PLACES.index(t.place)) for row, t in things]),
        look=np.array([_look(t) for _, t in things], dtype=np.float32),
        ground=np.array([(*s.ground, *s.slope, s.noise) for s in scenes], dtype=np.float32),
        grain=np.array([s.grain for s in scenes]),
    )


def _look(thing: Thing) -> tuple[float, ...]:
    row, column = divmod(PLACES.index(thing.place), 2)
    x, y = thing.x - QUARTER * column, thing.y - QUARTER * row
    cos, sin = math.cos(thing.turn), math.sin(thing.turn)
    return (x, y, 1 / thing.radius, cos, sin, *thing.tint, *thing.phase, 1 / thing.period)


def draw(sheet: Sheet, device: torch.device | str = "cpu") -> UInt8[Tensor, "B 3 h h"]:
    """The pictures, RGB."""
    quarters = _grounds(sheet, device)  # B 4 3 w w
    by_shape = np.argsort(sheet.words[:, 0], kind="stable")
    owner = torch.from_numpy(sheet.owner[by_shape]).to(device)
    words, look = sheet.words[by_shape], torch.from_numpy(sheet.look[by_shape]).to(device)
    mask = _outlines(words[:, 0], look)[:, None]  # N 1 w w
    paint = _paint(words, look)  # N 3 w w
    under = quarters[owner[:, 0], owner[:, 1]]
    quarters[owner[:, 0], owner[:, 1]] = under + mask * (paint - under)
    whole = _join(quarters)
    whole += _noise(sheet, device)
    return (whole.clamp_(0, 1) * 255 + 0.5).to(torch.uint8)


def _grounds(sheet: Sheet, device: torch.device | str) -> Float[Tensor, "B 4 3 w w"]:
    ground = torch.from_numpy(sheet.ground).to(device)
    steps = (torch.arange(SIDE, device=device) + 0.5) / SIDE - 0.5
    light = ground[:, 3, None, None] * steps + ground[:, 4, None, None] * steps[:, None]
    whole = ground[:, :3, None, None] + light[:, None]  # B 3 h h
    parts = whole.unflatten(3, (2, QUARTER)).unflatten(2, (2, QUARTER))  # B 3 2 w 2 w
    return parts.permute(0, 2, 4, 1, 3, 5).flatten(1, 2).contiguous()


def _join(quarters: Float[Tensor, "B 4 3 w w"]) -> Float[Tensor, "B 3 h h"]:
    parts = quarters.unflatten(1, (2, 2)).permute(0, 3, 1, 4, 2, 5)
    return parts.reshape(len(quarters), 3, SIDE, SIDE)


def _noise(sheet: Sheet, device: torch.device | str) -> Float[Tensor, "B 1 h h"]:
    """Triangular noise in [-1, 1] times the scene's strength, from an integer hash."""
    place = torch.arange(SIDE * SIDE, device=device, dtype=torch.int32).view(SIDE, SIDE)
    seeds = torch.from_numpy(sheet.grain).to(device, torch.int32)[:, None, None]
    mixed = place * 40503 + seeds * 69069  # 32-bit arithmetic wraps, the same everywhere
    for shift in (15, 13):
        mixed = (mixed ^ ((mixed >> shift) & 0x1FFFF)) * 73244475
    mixed = mixed ^ ((mixed >> 16) & 0xFFFF)
    sides = (mixed & 0xFFFF) + ((mixed >> 16) & 0xFFFF)
    strength = torch.from_numpy(sheet.ground[:, 5]).to(device)[:, None, None]
    return ((sides.float() / 65535 - 1) * strength)[:, None]


def _grid(device: torch.device) -> Float[Tensor, "w"]:
    return torch.arange(QUARTER, device=device) + 0.5


def _outlines(shapes: Int[np.ndarray, "N"], look: Float[Tensor, "N 11"]) -> Plane:
    """How much of each pixel the thing covers; `shapes` must be sorted."""
    steps = _grid(look.device)
    x, y, inverse, cos, sin = (look[:, i, None, None] for i in range(5))
    right, down = (steps - x) * inverse, (steps[:, None] - y) * inverse
    u, v = right * cos + down * sin, down * cos - right * sin
    counts = np.bincount(shapes, minlength=len(SHAPES)).tolist()
    distance = [
        OUTLINES[name](p, q)
        for name, p, q in zip(SHAPES, u.split(counts), v.split(counts), strict=True)
        if len(p)
    ]
    return (0.5 - torch.cat(distance) / inverse).clamp(0, 1)


def _paint(words: Int[np.ndarray, "N 3"], look: Float[Tensor, "N 11"]) -> Float[Tensor, "N 3 w w"]:
    palette = torch.tensor([PALETTE[name] for name in COLOURS], device=look.device)
    colour = palette[torch.from_numpy(words[:, 1]).to(look.device)] + look[:, 5:8]
    steps = _grid(look.device)
    phase_x, phase_y, inverse = (look[:, i, None, None] for i in (8, 9, 10))
    across = _wave(steps * inverse + phase_x)  # N 1 w
    along = _wave(steps[:, None] * inverse + phase_y)  # N w 1
    kind = torch.from_numpy(words[:, 2]).to(look.device)[:, None, None]
    zero = torch.zeros_like(across + along)
    planes = {
        "plain": zero - 1,
        "barred": zero + along,
        "striped": zero + across,
        "dotted": across + along - 0.75,
        "checked": across * along * 2,
    }
    wave = torch.stack([planes[name] for name in PATTERNS]).gather(0, kind.expand_as(zero)[None])[0]
    # One period holds two flanks of two units each: a pixel wide edge.
    second = (0.5 + wave / inverse / 4).clamp(0, 1)[:, None]
    return colour[:, :, None, None] * (1 - (1 - _SECOND_TONE) * second)


def _wave(t: Tensor) -> Tensor:
    """A triangle between -1 and 1 with period 1."""
    return 4 * (t - t.floor() - 0.5).abs() - 1


# -- outlines: signed distance, or nearly, negative inside ---------------------------------------


def _circle(u: Plane, v: Plane) -> Plane:
    return (u * u + v * v).sqrt() - 0.92


def _square(u: Plane, v: Plane) -> Plane:
    return torch.maximum(u.abs(), v.abs()) - 0.70


def _triangle(u: Plane, v: Plane) -> Plane:
    return torch.maximum(_half(u.abs(), v, (0.0, -1.0), (0.87, 0.55)), v - 0.55)


def _star(u: Plane, v: Plane) -> Plane:
    """Five points; the plane is folded onto one flank, between a tip and an inner corner."""
    u = u.abs()
    for angle in (math.pi / 5, 2 * math.pi / 5, math.pi / 5):
        # Mirror what lies beyond the ray at this angle from the upper tip.
        over = (u * math.cos(angle) + v * math.sin(angle)).clamp(min=0)
        u, v = u - 2 * math.cos(angle) * over, v - 2 * math.sin(angle) * over
        u = u.abs()
    corner = (0.48 * math.sin(math.pi / 5), -0.48 * math.cos(math.pi / 5))
    return _half(u, v, (0.0, -1.0), corner)


def _heart(u: Plane, v: Plane) -> Plane:
    u = u.abs()
    middle, radius, tip = (0.45, -0.32), 0.46, (0.0, 0.92)
    lobe = ((u - middle[0]) ** 2 + (v - middle[1]) ** 2).sqrt() - radius
    dx, dy = middle[0] - tip[0], middle[1] - tip[1]
    reach = math.hypot(dx, dy)
    outward = math.atan2(dx, -dy) + math.asin(radius / reach)
    along = (tip[0] + math.sin(outward), tip[1] - math.cos(outward))
    body = torch.maximum(_half(u, v, along, tip), middle[1] - v)
    # The flank ends where it touches the lobe.
    touch = tip[0] + math.sqrt(reach**2 - radius**2) * math.sin(outward)
    body = torch.maximum(body, u - touch)
    return torch.minimum(lobe, body)


def _cross(u: Plane, v: Plane) -> Plane:
    u, v = u.abs(), v.abs()
    upright = torch.maximum(u - 0.30, v - 0.92)
    return torch.minimum(upright, torch.maximum(u - 0.92, v - 0.30))


def _diamond(u: Plane, v: Plane) -> Plane:
    return _half(u.abs(), v.abs(), (0.0, 1.0), (0.60, 0.0), flip=True)


def _arrow(u: Plane, v: Plane) -> Plane:
    u = u.abs()
    head = torch.maximum(_half(u, v, (0.0, -1.0), (0.85, 0.05)), v - 0.05)
    return torch.minimum(head, torch.maximum(u - 0.30, (v - 0.45).abs() - 0.47))


def _half(
    u: Plane, v: Plane, a: tuple[float, float], b: tuple[float, float], flip: bool = False
) -> Plane:
    """Distance from the line through a and b, positive on the right of a -> b seen on screen."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy) * (-1 if flip else 1)
    return ((u - a[0]) * dy - (v - a[1]) * dx) / length


OUTLINES: dict[str, Callable[[Plane, Plane], Plane]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "cross": _cross,
    "diamond": _diamond,
    "arrow": _arrow,
}
