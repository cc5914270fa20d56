"""The embedded world: generated scenes, exact scores, and tiny frozen backbones of its own.

Nothing here loads torch before a picture is drawn or a tower is trained.
"""

from pathlib import Path

from paiq.world.scenes import SPLITS
from paiq.world.source import WorldSource

__all__ = ["PARTS", "SPLITS", "WEIGHTS", "WorldSource", "backbones"]

WEIGHTS = Path(__file__).parent / "weights"
PARTS = ("spatial", "semantic", "language")


def backbones() -> dict[str, Path]:
    """The folders of the frozen parts, each an ordinary transformers folder."""
    return {part: WEIGHTS / part for part in PARTS}
