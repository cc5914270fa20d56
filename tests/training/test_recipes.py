import pytest

from paiq.config import load_yaml, save_yaml
from paiq.errors import ConfigError
from paiq.interfaces import available
from paiq.training import RECIPES, Run, find_run, paper, world
from paiq.training.recipes import PAPER_BACKBONES


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_is_complete_and_survives_yaml(name, tmp_path):
    run = find_run(name)
    assert run.name == name
    save_yaml(run, tmp_path / "run.yaml")
    assert load_yaml(Run, tmp_path / "run.yaml") == run
    assert find_run(str(tmp_path / "run.yaml")) == find_run(str(tmp_path)) == run


@pytest.mark.parametrize("backbone", PAPER_BACKBONES)
def test_the_papers_recipe_is_the_papers(backbone):
    run = paper(backbone, "paiq")
    assert (run.optimizer.learning_rate, run.optimizer.weight_decay) == (1e-4, 0.0)
    assert (run.schedule.epochs, run.schedule.warmup, run.schedule.decay) == (2, 0.05, "cosine")
    assert (run.batch.size, run.seed, run.dtype) == (128, 42, "bfloat16")
    assert run.generation.limit == (512 if backbone == "qwen3.5-27b" else 128)
    assert run.memory.shard == (backbone == "qwen3.5-27b")


def test_one_recipe_serves_every_interface_of_the_world():
    def rest(run):
        return {k: v for k, v in vars(run).items() if k not in ("name", "interface")}

    assert all(rest(world(name)) == rest(world("paiq")) for name in available())


def test_words_change_a_run_and_all_mistakes_are_told_at_once():
    run = find_run("world/paiq", ["optimizer.learning_rate=3e-4", "interface.options.scale=0.5"])
    assert run.optimizer.learning_rate == 3e-4
    assert run.interface.options["scale"] == 0.5
    with pytest.raises(ConfigError) as caught:
        find_run(
            "world/paiq", ["optimizer.learning_rte=1", "batch.sise=2", "interface.options.scal=1"]
        )
    for near in ("learning_rate", "size", "scale"):
        assert f"Did you mean {near!r}" in str(caught.value)


def test_another_interface_brings_its_own_options():
    run = find_run("world/paiq", ["interface.options.head=mlp", "interface.name=spatial"])
    assert (run.interface.name, run.interface.options["head"]) == ("spatial", "mlp")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("optimizer.learning_rate=-1", "learning_rate must be positive, got -1"),
        ("schedule.steps=5", "give epochs or steps"),
        ("interface.options.scale=2", "scale must lie in"),
        ("interface.name=pak", "Did you mean 'pa"),
        ("batch.micro=0", "batch.micro must be at least 1"),
        ("dtype=float16", "dtype"),
        ("name=../x", "relative path"),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_given(word, words):
    with pytest.raises(ConfigError, match=words):
        find_run("paper/qwen3.5-2b/paiq", [word])


def test_an_unknown_recipe_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'world/paiq'"):
        find_run("world/piaq")
