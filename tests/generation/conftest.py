import pytest
import torch

import tiny
from paiq.model import LanguageConfig, build_model, load_renderer
from paiq.records import Sample, Turn
from paiq.towers import TowerConfig

COUNT = 9


@pytest.fixture(scope="session")
def towers(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    return (
        TowerConfig(name=str(tiny.dinov3(root / "spatial"))),
        TowerConfig(name=str(tiny.siglip(root / "semantic"))),
    )


@pytest.fixture(scope="session")
def models(towers, tmp_path_factory):
    root = tmp_path_factory.mktemp("languages")
    made = {}

    def get(family):
        if family not in made:
            folder = tiny.LANGUAGES[family](root / family, noise=0.3)
            model = build_model(*towers, LanguageConfig(name=str(folder)), "paiq", {})
            with torch.no_grad():  # a large interface makes answers depend on their images
                for parameter in model.interface.parameters():
                    parameter.mul_(4.0)
            made[family] = model, load_renderer(model.config)
        return made[family]

    return get


@pytest.fixture(scope="session")
def samples():
    prompts = [("Where? " * (1 + i % 4)).strip() for i in range(COUNT)]
    return [
        Sample(id=f"s{i}", image=f"{i}.png", family="vqa", turns=(Turn(prompt=p),))
        for i, p in enumerate(prompts)
    ]


@pytest.fixture(scope="session")
def vision():
    rng = torch.Generator().manual_seed(3)
    spatial = 3 * torch.randn(COUNT, 16, 16, generator=rng)
    semantic = 3 * torch.randn(COUNT, 36, 24, generator=rng)
    return lambda rows: {
        "spatial_features": spatial[list(rows)],
        "semantic_features": semantic[list(rows)],
    }
