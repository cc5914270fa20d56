"""The whole way on tiny checkpoints in the real formats: run.yaml to trained interface."""

import json
from dataclasses import replace

import pytest
import torch
from torch.distributed.tensor import DTensor

from paiq.errors import ConfigError
from paiq.model import LanguageConfig, PaiqForConditionalGeneration
from paiq.training import RunFolder, find_run, open_run, train
from paiq.training.checkpoints import newest
from paiq.training.config import (
    Batch,
    Memory,
    Optimizer,
    Saving,
)
from paiq.training.log import read_log
from training.toy import in_processes


def go(run, path):
    opened = open_run(run, path)
    opened.features.build(opened.processes)
    return train(opened.load())


def go_in_process(rank, run, path):
    opened = open_run(run, path)
    opened.features.build(opened.processes)
    work = opened.load()
    split = [p for p in work.answer_loss.model.parameters() if isinstance(p, DTensor)]
    assert bool(split) == run.memory.shard
    assert all(p.to_local().numel() < p.numel() for p in split)
    train(work)


def losses(path):
    return [line["loss"] for line in read_log(path / "log.jsonl")]


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    assert go(run, path).steps == 6
    return path


def assert_close(path, other):
    assert losses(path) == pytest.approx(losses(other), rel=1e-4)
    ours, theirs = (newest(p / "checkpoints").tensors for p in (path, other))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)


def test_the_loss_falls_and_the_folder_is_complete(whole, run):
    assert losses(whole)[-1] < losses(whole)[0]
    names = {path.name for path in whole.iterdir()}
    assert names == {
        "run.yaml",
        "versions.json",
        "weights.json",
        "log.jsonl",
        "checkpoints",
        "model",
    }
    assert set(json.loads((whole / "weights.json").read_text())) == {
        "spatial",
        "semantic",
        "language",
    }


def test_the_saved_model_is_the_trained_one(whole):
    model = PaiqForConditionalGeneration.from_pretrained(whole / "model")
    tensors = newest(whole / "checkpoints").tensors
    for name, tensor in model.interface.state_dict().items():
        assert torch.equal(tensor, tensors[f"interface.{name}"])


def test_a_run_is_repeated_from_its_folder_alone(whole, tmp_path):
    go(find_run(str(whole / "run.yaml")), tmp_path)
    assert losses(tmp_path) == losses(whole)


def test_the_store_changes_nothing(whole, run, tmp_path):
    go(replace(run, features=replace(run.features, store=False)), tmp_path)
    assert_close(tmp_path, whole)


@pytest.mark.parametrize("language", ["llama", "qwen3_5"])
def test_padding_at_the_right_needs_no_mask(run, parts, tmp_path, language):
    opened = open_run(replace(run, language=LanguageConfig(name=str(parts[1][language]))), tmp_path)
    opened.features.build(opened.processes)
    work = opened.load()
    for batch in work.feed.step(0):
        assert not batch.inputs["attention_mask"].all()
        masked, tokens = work.answer_loss.model.answer_loss(**batch.inputs)
        loss, same = work.answer_loss(**batch.inputs)
        assert same == tokens
        torch.testing.assert_close(loss, masked, rtol=1e-5, atol=1e-5)


def test_checkpointing_the_language_model_changes_nothing(whole, run, tmp_path):
    go(replace(run, memory=Memory(gradient_checkpointing=True)), tmp_path)
    assert losses(tmp_path) == losses(whole)


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_processes_and_sharding_change_nothing_but_rounding(whole, run, tmp_path, count, shard):
    changed = replace(run, memory=Memory(shard=shard, gradient_checkpointing=shard))
    in_processes(count, go_in_process, replace(changed, batch=Batch(size=4, micro=1)), tmp_path)
    assert_close(tmp_path, whole)


def test_the_hybrid_language_model_trains_sharded(run, parts, tmp_path):
    run = replace(run, language=LanguageConfig(name=str(parts[1]["qwen3_5"])))
    go(run, tmp_path / "one")
    sharded = replace(run, memory=Memory(shard=True))
    in_processes(2, go_in_process, sharded, tmp_path / "two")
    assert_close(tmp_path / "two", tmp_path / "one")


def test_stored_features_are_the_towers_to_the_bit(run, whole, tmp_path):
    plan = open_run(run, tmp_path).features
    assert not plan.store.missing()
    towers = plan.load_towers(torch.device("cpu"))
    images = [plan.samples.source.image(plan.samples.source[index]) for index in range(0, 10, 2)]
    spatial, semantic = towers.encode(images)
    stored = plan.stored(range(0, 10, 2))
    assert torch.equal(stored["spatial_features"], spatial)
    assert torch.equal(stored["semantic_features"], semantic)
    assert len(plan.catalogue.images) == 5


def test_another_run_in_the_same_folder_is_refused(whole, run):
    other = replace(run, optimizer=Optimizer(learning_rate=0.02), seed=1)
    with pytest.raises(ConfigError) as caught:
        open_run(other, whole)
    assert "optimizer.learning_rate was 0.01, now 0.02; seed was 42, now 1" in str(caught.value)
    open_run(replace(run, saving=Saving(every=5)), whole)


def test_changed_weights_are_refused_on_the_way(whole, run, tmp_path):
    RunFolder(tmp_path).note_weights({"spatial": "sha256:1", "language": "sha256:2"})
    with pytest.raises(ConfigError, match="the weights of language are not those"):
        RunFolder(tmp_path).note_weights({"spatial": "sha256:1", "language": "sha256:3"})


def test_sharding_alone_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="torchrun"):
        go(replace(run, memory=Memory(shard=True)), tmp_path)


def test_a_tracker_that_is_not_installed_is_refused_before_anything(run, tmp_path):
    changed = find_run_words(run, ["logging.wandb=project"])
    with pytest.raises(ConfigError, match="pip install wandb"):
        open_run(changed, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def find_run_words(run, words):
    from paiq.training.recipes import change

    return change(run, words)
