"""Frozen vision encoders: what to load, which tokens to keep, how pictures are prepared."""

from paiq.towers.config import Preprocessing, Selection, TowerConfig
from paiq.towers.folder import weights_digest
from paiq.towers.images import prepare
from paiq.towers.tower import Tower, TowerPlan, load_tower, plan_tower, read_tower

__all__ = [
    "Preprocessing",
    "Selection",
    "Tower",
    "TowerConfig",
    "TowerPlan",
    "load_tower",
    "plan_tower",
    "prepare",
    "read_tower",
    "weights_digest",
]
