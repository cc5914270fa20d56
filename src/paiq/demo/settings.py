"""How large a demo is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paiq.errors import ConfigError

Mode = Literal["quick", "default", "full"]
METHODS = ("paiq", "pai", "spatial", "semantic", "concat")
SPLITS = ("test", "shifted")


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """One recipe for all methods; only the size of the experiment is chosen here."""

    mode: Mode
    steps: int
    """Optimiser steps per method."""
    train: int
    """Scenes that are trained on."""
    held_out: int
    """Scenes per split that are answered."""
    seeds: tuple[int, ...] = (42,)
    methods: tuple[str, ...] = METHODS
    cards: int = 8
    """Pictures shown with every method's answer: the first of the test split, unselected."""

    def __post_init__(self) -> None:
        if self.cards > self.held_out:
            raise ConfigError(
                f"{self.cards} cards need as many held-out scenes, got {self.held_out}"
            )


MODES: Mapping[str, DemoSettings] = {
    "quick": DemoSettings(mode="quick", steps=10, train=128, held_out=16, cards=4),
    "default": DemoSettings(mode="default", steps=190, train=2400, held_out=200),
    "full": DemoSettings(
        mode="full", steps=400, train=6000, held_out=400, seeds=(42, 43, 44), cards=16
    ),
}
