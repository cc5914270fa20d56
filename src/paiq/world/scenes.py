"""Scenes: which objects a picture holds, where and how they look, drawn from a seed.

A scene is decided by (seed, split, index) alone. What can be said about it, its *graph*, belongs to
exactly one of train, val and test (by a digest of the graph), so no scene of one split can come up
in another. One eighth of all (shape, colour, pattern) combinations is kept out of those three
splits; `shifted` holds nothing else.
"""

import math
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paiq.errors import ConfigError, suggest

SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "diamond", "arrow")
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
PATTERNS = ("plain", "barred", "striped", "dotted", "checked")
SIZES = ("small", "large")
PLACES = ("top left", "top right", "bottom left", "bottom right")
ATTRIBUTES = ("size", "colour", "pattern", "shape", "place")
"""What a scene graph says of an object, in the order of speech."""
VALUES = dict(zip(ATTRIBUTES, (SIZES, COLOURS, PATTERNS, SHAPES, PLACES), strict=True))

SPLITS = ("train", "val", "test", "shifted")
MOST_OBJECTS = 3

SIDE = 192
"""Pixels of a picture's side; each place is one quarter of it."""
_QUARTER = SIDE // 2
# Every object spans more than two patches of a 7 x 7 grid (27.4 pixels each).
_RADIUS = {"small": (28.0, 31.0), "large": (40.0, 43.0)}


@dataclass(frozen=True, kw_only=True)
class Thing:
    """One object: five words, and how it happens to be drawn."""

    size: str
    colour: str
    pattern: str
    shape: str
    place: str
    x: float
    y: float
    radius: float
    turn: float
    """Rotation of the outline in radians."""
    tint: tuple[float, float, float]
    phase: tuple[float, float]
    """Where the pattern starts, in periods."""
    period: float
    """Length of one period of the pattern in pixels."""

    @property
    def words(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ATTRIBUTES}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One to three things of different shapes in different places, in reading order."""

    things: tuple[Thing, ...]
    ground: tuple[float, float, float]
    slope: tuple[float, float]
    """How much lighter the ground is at the right and at the bottom."""
    noise: float
    grain: int
    """Seed of the noise."""

    @property
    def facts(self) -> dict[str, Any]:
        """The scene graph: the words of every thing, and its centre in the unit square."""
        things = [
            thing.words | {"centre": [round(thing.x / SIDE, 4), round(thing.y / SIDE, 4)]}
            for thing in self.things
        ]
        return {"objects": things}


def scene(split: str, index: int, seed: int = 0) -> Scene:
    """The scene at this position of a split; the same for ever."""
    if split not in SPLITS:
        raise ConfigError(
            f"no split {split!r} of the world; have {', '.join(SPLITS)}.{suggest(split, SPLITS)}"
        )
    if index < 0:
        raise ConfigError(f"scenes are counted from 0, got {index}")
    rng = random.Random(f"world/{seed}/{split}/{index}")
    graph = next(graph for graph in _graphs(rng, split) if split_of(graph) == split)
    return _draw_up(graph, rng)


def is_held_out(shape: str, colour: str, pattern: str) -> bool:
    """Whether this combination is seen in the shifted split only: one in eight."""
    number = SHAPES.index(shape) + 3 * COLOURS.index(colour) + 5 * PATTERNS.index(pattern)
    return number % 8 == 0


def split_of(graph: list[dict[str, str]]) -> str | None:
    """The one split a scene graph belongs to; None mixes kept-out and other combinations."""
    held = {is_held_out(thing["shape"], thing["colour"], thing["pattern"]) for thing in graph}
    if held == {True}:
        return "shifted"
    if True in held:
        return None
    spelled = ";".join(",".join(thing[name] for name in ATTRIBUTES) for thing in graph)
    return {0: "test", 1: "val"}.get(zlib.crc32(spelled.encode()) % 8, "train")


def _graphs(rng: random.Random, split: str) -> Iterator[list[dict[str, str]]]:
    """Endless graphs of seen or, for `shifted`, of kept-out combinations."""
    while True:
        count = rng.choices((1, 2, 3), (2, 4, 4))[0]
        places = sorted(rng.sample(range(len(PLACES)), count))
        shapes = rng.sample(SHAPES, count)
        # A scene prefers few colours and patterns, so that counting them is a question.
        colours = rng.sample(COLOURS, 2)
        patterns = rng.sample(PATTERNS, 2)
        yield [
            _combination(rng, shape, (colours, patterns), split == "shifted")
            | {"size": rng.choice(SIZES), "place": PLACES[place]}
            for shape, place in zip(shapes, places, strict=True)
        ]


def _combination(
    rng: random.Random, shape: str, liked: tuple[list[str], list[str]], held_out: bool
) -> dict[str, str]:
    while True:
        colour = rng.choice(liked[0] if rng.random() < 0.5 else COLOURS)
        pattern = rng.choice(liked[1] if rng.random() < 0.5 else PATTERNS)
        if is_held_out(shape, colour, pattern) == held_out:
            return {"shape": shape, "colour": colour, "pattern": pattern}


def _draw_up(graph: list[dict[str, str]], rng: random.Random) -> Scene:
    level = rng.uniform(0.25, 0.85)
    return Scene(
        things=tuple(_thing(words, rng) for words in graph),
        ground=(_near(rng, level, 0.08), _near(rng, level, 0.08), _near(rng, level, 0.08)),
        slope=(rng.uniform(-0.12, 0.12), rng.uniform(-0.12, 0.12)),
        noise=rng.uniform(0.0, 0.10),
        grain=rng.randrange(1 << 20),
    )


def _thing(words: dict[str, str], rng: random.Random) -> Thing:
    radius = rng.uniform(*_RADIUS[words["size"]])
    room = _QUARTER / 2 - radius - 1.0
    row, column = divmod(PLACES.index(words["place"]), 2)
    return Thing(
        **words,
        x=_QUARTER * (column + 0.5) + rng.uniform(-room, room),
        y=_QUARTER * (row + 0.5) + rng.uniform(-room, room),
        radius=radius,
        turn=rng.uniform(-math.pi / 10, math.pi / 10),
        tint=(_near(rng, 0.0, 0.06), _near(rng, 0.0, 0.06), _near(rng, 0.0, 0.06)),
        phase=(rng.random(), rng.random()),
        period=rng.uniform(12.0, 15.0),
    )


def _near(rng: random.Random, middle: float, reach: float) -> float:
    return middle + rng.uniform(-reach, reach)
