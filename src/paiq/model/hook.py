"""Registers the model with transformers' Auto classes as soon as those are imported.

`import paiq` must not import transformers, yet `AutoModelForImageTextToText` must know us after
it. So each module that holds an Auto class is watched, and our classes are added right after it.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

AUTO = "transformers.models.auto"


def _config(module: Any) -> None:
    from paiq.model.configuration import PaiqConfig

    module.AutoConfig.register("paiq", PaiqConfig, exist_ok=True)


def _models(module: Any) -> None:
    from paiq.model.configuration import PaiqConfig
    from paiq.model.modeling import PaiqForConditionalGeneration, PaiqModel

    module.AutoModel.register(PaiqConfig, PaiqModel, exist_ok=True)
    module.AutoModelForImageTextToText.register(
        PaiqConfig, PaiqForConditionalGeneration, exist_ok=True
    )


def _image_processors(module: Any) -> None:
    from paiq.model.configuration import PaiqConfig
    from paiq.model.processing import PaiqImageProcessor

    module.AutoImageProcessor.register(
        PaiqConfig, slow_image_processor_class=PaiqImageProcessor, exist_ok=True
    )


def _processors(module: Any) -> None:
    from paiq.model.configuration import PaiqConfig
    from paiq.model.processing import PaiqProcessor

    module.AutoProcessor.register(PaiqConfig, PaiqProcessor, exist_ok=True)


ACTIONS: dict[str, Callable[[Any], None]] = {
    f"{AUTO}.configuration_auto": _config,
    f"{AUTO}.modeling_auto": _models,
    f"{AUTO}.image_processing_auto": _image_processors,
    f"{AUTO}.processing_auto": _processors,
}


class _After(importlib.abc.Loader):
    """A loader that runs an action once the module is there."""

    def __init__(self, inner: importlib.abc.Loader, action: Callable[[Any], None]) -> None:
        self.inner = inner
        self.action = action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        self.action(module)


class _Watch(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in ACTIONS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _After(spec.loader, ACTIONS[name])
        return spec


def install() -> None:
    """Registers now what is imported already, and the rest when it comes."""
    for name, action in ACTIONS.items():
        if name in sys.modules:
            action(sys.modules[name])
    if not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())
