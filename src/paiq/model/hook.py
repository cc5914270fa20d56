"""Registers the model with transformers' Auto classes as soon as those are imported.

`import paiq` must not import transformers, yet `AutoModelForImageTextToText` must know us after
it. So each module that holds an Auto class is watched, and ours, which registers itself at its
end, is imported right after it.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

AUTO = "transformers.models.auto"
FOLLOWERS = {
    f"{AUTO}.configuration_auto": "paiq.model.configuration",
    f"{AUTO}.modeling_auto": "paiq.model.modeling",
    f"{AUTO}.image_processing_auto": "paiq.model.pictures",
    f"{AUTO}.processing_auto": "paiq.model.processing",
}


class _Then(importlib.abc.Loader):
    """A loader that imports another module once its own is there."""

    def __init__(self, inner: importlib.abc.Loader, follower: str) -> None:
        self.inner = inner
        self.follower = follower

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        # A follower that is being imported right now, and so led here, is left to finish.
        importlib.import_module(self.follower)


class _Watch(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in FOLLOWERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, FOLLOWERS[name])
        return spec


def install() -> None:
    """Registers at once where the Auto classes are imported already, and later where not."""
    if not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())
    for name, follower in FOLLOWERS.items():
        if name in sys.modules:
            importlib.import_module(follower)
