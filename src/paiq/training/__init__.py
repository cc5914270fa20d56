"""Training: recipes, the loop, checkpoints, the run folder."""

from paiq.training.config import Run
from paiq.training.folder import RunFolder
from paiq.training.recipes import RECIPES, find_run, paper, world

__all__ = ["RECIPES", "Run", "RunFolder", "find_run", "paper", "world"]
