import pytest
import torch

import tiny
from paiq.model import LanguageConfig, build_model, load_renderer
from paiq.records import Sample, Turn
from paiq.towers import TowerConfig

N, M, C, K = 16, 36, 16, 24


@pytest.fixture(scope="session")
def towers(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    return (
        TowerConfig(name=str(tiny.dinov3(root / "spatial"))),
        TowerConfig(name=str(tiny.siglip(root / "semantic"))),
    )


@pytest.fixture(scope="session")
def languages(tmp_path_factory):
    root = tmp_path_factory.mktemp("languages")
    return {name: write(root / name) for name, write in tiny.LANGUAGES.items()}


@pytest.fixture(params=sorted(tiny.LANGUAGES))
def family(request):
    return request.param


@pytest.fixture(scope="session")
def build(towers, languages):
    def make(family="chatml", interface="paiq", dtype=torch.float32, **options):
        torch.manual_seed(0)
        language = LanguageConfig(name=str(languages[family]))
        return build_model(*towers, language, interface, options, dtype)

    return make


@pytest.fixture(scope="session")
def sample():
    turns = (Turn(prompt="What is this?", answer="A cat."), Turn(prompt="And?", answer="A dog!"))
    return Sample(id="s", image="s.png", family="vqa", turns=turns)


@pytest.fixture(scope="session")
def single():
    return Sample(
        id="one", image="s.png", family="vqa", turns=(Turn(prompt="What?", answer="Nothing."),)
    )


def features(count, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return {
        "spatial_features": torch.randn(count, N, C, generator=rng),
        "semantic_features": torch.randn(count, M, K, generator=rng),
    }


@pytest.fixture(scope="session")
def make_features():
    return features


@pytest.fixture(scope="session")
def renderer_of():
    return lambda model: load_renderer(model.config)
