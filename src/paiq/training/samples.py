"""Where a run's samples come from: the generated world, or files."""

from dataclasses import dataclass

from paiq.data import SampleSource, open_source
from paiq.training.config import Data
from paiq.world import WorldSource

WORLD = "world"


@dataclass(frozen=True)
class Samples:
    """A source, and what tells it from every other, the contents of its files included."""

    source: SampleSource
    identity: str


def open_samples(data: Data) -> Samples:
    """The samples that a run trains on."""
    if data.source == WORLD:
        made = WorldSource(data.world.split, data.world.size, data.world.seed)
        return Samples(made, made.name)
    chosen = open_source(data.source)
    return Samples(chosen, f"{chosen.name} {chosen.data}")
