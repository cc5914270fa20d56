"""A run on tiny checkpoints in the real formats, and five pictures."""

import json

import pytest
import torch
from PIL import Image

import tiny
from paiq.model import LanguageConfig
from paiq.towers import TowerConfig
from paiq.training import Run
from paiq.training.config import (
    Batch,
    Data,
    Features,
    InterfaceChoice,
    Optimizer,
    Saving,
    Schedule,
)


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    made = {
        "spatial": tiny.dinov3(folder / "spatial"),
        "semantic": tiny.siglip(folder / "semantic"),
        "llama": tiny.llama(folder / "llama"),
        "qwen3_5": tiny.qwen3_5(folder / "qwen3_5"),
    }
    generator = torch.Generator().manual_seed(0)
    lines = []
    for number in range(10):
        pixels = torch.randint(0, 256, (40, 50, 3), generator=generator, dtype=torch.uint8)
        # Two samples share a picture.
        name = f"{number // 2}.png"
        Image.fromarray(pixels.numpy()).save(folder / name)
        turn = {"prompt": f"what is {number}?", "answer": "it is " + "very " * (number % 4) + "red"}
        lines.append({"id": str(number), "image": name, "family": "description", "turns": [turn]})
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder, made


@pytest.fixture(scope="session")
def run(parts):
    folder, made = parts
    return Run(
        name="tiny",
        data=Data(source=f"jsonl:{folder / 'data.jsonl'}"),
        spatial=TowerConfig(name=str(made["spatial"])),
        semantic=TowerConfig(name=str(made["semantic"])),
        language=LanguageConfig(name=str(made["llama"])),
        interface=InterfaceChoice.named("paiq"),
        optimizer=Optimizer(learning_rate=0.01),
        schedule=Schedule(epochs=2),
        batch=Batch(size=4, micro=4),
        features=Features(folder=str(folder / "features"), batch=5),
        saving=Saving(every=2),
        dtype="float32",
    )
