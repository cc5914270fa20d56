"""Training: recipes, features, the loop, checkpoints, the run folder."""

from paiq.training.config import Run
from paiq.training.features import FeaturePlan
from paiq.training.folder import RunFolder
from paiq.training.loop import Outcome, Work, train
from paiq.training.prepare import Opened, folder_for, here, open_run
from paiq.training.recipes import RECIPES, find_run, paper, world
from paiq.training.samples import open_samples

__all__ = [
    "RECIPES",
    "FeaturePlan",
    "Opened",
    "Outcome",
    "Run",
    "RunFolder",
    "Work",
    "find_run",
    "folder_for",
    "here",
    "open_run",
    "open_samples",
    "paper",
    "train",
    "world",
]
