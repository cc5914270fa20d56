"""What a slice is called: in a command, in a run's settings, as a file.

world/SPLIT:SIZE      so many scenes of a split of the generated world
KIND:PATH[ROWS]       published data, as `paiq data` reads it
"""

import json
import re
from dataclasses import dataclass

from paiq.errors import ConfigError

WORLD = re.compile(r"world/([a-z_-]+):([1-9][0-9]*)")
UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True)
class Slice:
    """Some samples to answer."""

    text: str
    words: tuple[str, ...]
    """The settings that make a run's data be this slice."""

    @property
    def file_name(self) -> str:
        """The slice's name as a file, without an ending."""
        return UNSAFE.sub("-", self.text).strip("-.")

    @classmethod
    def parse(cls, text: str) -> "Slice":
        match = WORLD.fullmatch(text)
        if match:
            split, size = match.groups()
            return cls(
                text, ("data.source=world", f"data.world.split={split}", f"data.world.size={size}")
            )
        if text.startswith("world"):
            raise ConfigError(
                f"{text!r} is no slice of the world; write world/SPLIT:SIZE, as world/test:200"
            )
        return cls(text, (f"data.source={json.dumps(text)}",))
