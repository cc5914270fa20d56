"""The model card beside a checkpoint: what it is, how it was made, how to use it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from paiq.files import write_atomically
from paiq.interfaces import INTERFACES, split_settings
from paiq.model.configuration import PaiqConfig

PARTS = {
    "spatial": "spatial tower",
    "semantic": "semantic tower",
    "language": "language model",
}


def write_card(
    folder: Path, recipe: Mapping[str, Any] | None = None, results: str | None = None
) -> Path:
    """README.md beside a checkpoint's config; the recipe and the results where they are given."""
    path = folder / "README.md"
    config = PaiqConfig.from_pretrained(folder)
    sections = [_head(config), _parts(config), _interface(config), _use(config, folder.name)]
    if recipe:
        text = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
        sections.append(f"## Recipe\n\n```yaml\n{text}```\n")
    sections.append(
        f"## Results\n\n{results or 'No results were recorded with this checkpoint.'}\n"
    )
    write_atomically(path, "\n".join(sections).encode())
    return path


def _head(config: PaiqConfig) -> str:
    kind = "every weight" if config.merged else "the trained interface alone"
    front = {"library_name": "paiq", "pipeline_tag": "image-text-to-text"}
    return (
        f"---\n{yaml.safe_dump(front)}---\n\n# {config.interface}: a visual interface\n\n"
        f"Visual tokens for a frozen language model out of two frozen vision encoders. This folder "
        f"holds {kind}.\n"
    )


def _parts(config: PaiqConfig) -> str:
    rows = [
        "## Frozen parts",
        "",
        "| part | name | revision | weights |",
        "| --- | --- | --- | --- |",
    ]
    for part, title in PARTS.items():
        source = getattr(config, f"{part}_source") or {}
        digest = str(source.get("digest", "unknown"))
        rows.append(
            f"| {title} | {source.get('name', 'unknown')} | {source.get('revision') or '-'} "
            f"| `{digest[:19]}` |"
        )
    return "\n".join(rows) + "\n"


def _interface(config: PaiqConfig) -> str:
    kind = INTERFACES[config.interface]
    sizes, options = split_settings(config.interface, config.interface_settings())
    count = kind.count_parameters(sizes, options)
    folded = " Its parameters are folded for inference." if config.folded else ""
    return (
        f"## Interface\n\n    {kind.equation}\n\n"
        f"{count:,} trainable parameters, {kind.count_tokens(sizes, options)} visual tokens per "
        f"image. Options: `{json.dumps(config.interface_options)}`.{folded}\n"
    )


def _use(config: PaiqConfig, name: str) -> str:
    return (
        "## Use\n\n```python\nimport paiq\nfrom transformers import pipeline\n\n"
        f'answer = pipeline("image-text-to-text", model="{name}")\n'
        'answer(images="picture.jpg", text=prompt, max_new_tokens=64)\n```\n'
    )
