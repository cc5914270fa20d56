"""PAIQ: visual interfaces between frozen vision encoders and a frozen language model.

Importing the package loads no torch: rooms are imported when they are named, and the model is
registered with transformers' Auto classes once those are imported.
"""

import importlib
from types import ModuleType

from paiq.model import hook as _hook

__version__ = "0.1.0"

ROOMS = (
    "interfaces",
    "towers",
    "data",
    "model",
    "world",
    "training",
    "generation",
    "judging",
    "analysis",
    "report",
    "bench",
)


def __getattr__(name: str) -> ModuleType:
    if name in ROOMS:
        return importlib.import_module(f"paiq.{name}")
    raise AttributeError(f"module 'paiq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *ROOMS])


_hook.install()
