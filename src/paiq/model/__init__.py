"""The transformers citizen: configuration, model, processor, prompts, checkpoints.

Names load on first use, so that `import paiq` stays quick while it registers them (`hook`).
"""

import importlib
from typing import Any

_HOMES = {
    "PaiqConfig": "configuration",
    "PaiqImageProcessor": "pictures",
    "PaiqProcessor": "processing",
    "PaiqModel": "modeling",
    "PaiqForConditionalGeneration": "modeling",
    "LanguageConfig": "language",
    "load_language": "language",
    "build_model": "build",
    "load_renderer": "build",
    "load_processor": "build",
    "Renderer": "prompts",
    "Rendered": "prompts",
    "collate": "prompts",
    "save_interface": "checkpoint",
    "export_merged": "export",
    "write_card": "card",
    "Setup": "checkup",
    "look_over": "checkup",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"paiq.model.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'paiq.model' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
