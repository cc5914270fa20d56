"""The card beside each part's weights, from how it was made and what its probes say."""

import json
from pathlib import Path
from typing import Any

from paiq.files import write_atomically

PROBES = "probes.json"
PRETRAINING = "pretraining.json"

SUMMARY = {
    "spatial": (
        "spatial tower",
        "A DINOv3 vision transformer (112 pixels, patches of 16: 7 x 7 tokens, four registers). "
        "It learnt from pictures alone, without a word: from partly hidden pictures it predicts, "
        "per patch, pixels, edge and colour histograms, the extent of the blob a patch belongs to "
        "and the patch's place.",
    ),
    "semantic": (
        "semantic tower",
        "A SigLIP vision transformer (192 pixels, patches of 16: 12 x 12 tokens). It learnt from "
        "pictures and captions with the sigmoid image-text loss, for whole pictures and for the "
        "patches of single objects. Captions name the shape always, the colour often, and never "
        "pattern, size or place.",
    ),
    "language": (
        "language model",
        "A Llama of four layers over 80 words. It learnt to describe and to answer from text "
        "alone: in place of visual tokens it read word maps, per grid cell the sum of the "
        "embeddings of the words of what covers it, on 7 x 7 and 12 x 12 cells and both.",
    ),
}
_NOTE = {
    "tower": "Held-out accuracy of linear (ridge) probes at the patch of an object's centre. "
    "`shifted` holds only combinations of shape, colour and pattern that no training scene shows. "
    "There the shape follows from colour and pattern, and no training scene obeys that.",
    "language": "Part of first answers that are right word for word, from clean word maps of "
    "held-out scenes, by grid.",
}


def write_card(folder: Path, part: str) -> None:
    """Writes README.md from the two JSON files that lie in the folder."""
    made, probes = (_read(folder / name) for name in (PRETRAINING, PROBES))
    title, summary = SUMMARY[part]
    settings = ", ".join(f"{name} {value}" for name, value in made.items())
    note = _NOTE["language" if part == "language" else "tower"]
    text = (
        f"# The {title} of the embedded world\n\n{summary}\n\n"
        f"Made by `paiq world pretrain --part {part}` with {settings}; stored in bfloat16.\n\n"
        f"{table(probes)}\n\n{note}\n\n"
        "It knows generated pictures of simple shapes only, and is no evidence about natural "
        "images. Licence: Apache-2.0, as the package.\n"
    )
    write_atomically(folder / "README.md", text.encode())


def table(probes: dict[str, dict[str, float]]) -> str:
    """Markdown: a row per split or grid."""
    names = list(next(iter(probes.values())))
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row, scores in probes.items():
        cells = " | ".join(f"{scores[name]:.3f}" for name in names)
        lines.append(f"| {row} | {cells} |")
    return "\n".join(lines)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
