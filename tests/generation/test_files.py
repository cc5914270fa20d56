import json
import os

import pytest

from paiq.errors import ConfigError, DataError
from paiq.generation import GenerationConfig, PredictionFile, Predictor, Slice
from paiq.records import Prediction, read_records


@pytest.fixture
def predictor(models):
    model, renderer = models("chatml")
    config = GenerationConfig(max_new_tokens=5, batch_size=4)
    return Predictor(model, renderer, config, {"method": "mine", "interface_digest": "sha256:1"})


@pytest.fixture
def whole(predictor, samples, vision, tmp_path):
    path = tmp_path / "whole" / "p.jsonl"
    assert predictor.into(path, samples, vision) == len(samples)
    return path.read_bytes()


def test_answers_are_kept_with_what_made_them(predictor, samples, vision, tmp_path):
    path = tmp_path / "predictions" / "p.jsonl"
    seen = []
    predictor.into(path, samples, vision, lambda done, note="": seen.append(done))
    found = list(read_records(path, Prediction))
    assert [p.sample_id for p in found] == [s.id for s in samples]
    assert {p.method for p in found} == {"mine"}
    assert found[0].settings["interface_digest"] == "sha256:1"
    assert seen == [0, 4, 8, 9]
    assert not path.with_name("p.jsonl.partial").exists()


@pytest.mark.parametrize("cut", [1, 40, 1000, 1500])
def test_a_cut_file_is_mended_and_ends_up_the_same(
    predictor, samples, vision, tmp_path, whole, cut
):
    path = tmp_path / "p.jsonl"
    path.with_name("p.jsonl.partial").write_bytes(whole[:-cut])
    assert 0 < predictor.into(path, samples, vision) < len(samples)
    assert path.read_bytes() == whole


def test_a_damaged_line_and_what_follows_it_are_made_again(
    predictor, samples, vision, tmp_path, whole
):
    lines = whole.splitlines(keepends=True)
    path = tmp_path / "p.jsonl"
    path.with_name("p.jsonl.partial").write_bytes(b"".join([*lines[:2], b"{oops\n", *lines[3:5]]))
    assert predictor.into(path, samples, vision) == len(samples) - 2
    assert path.read_bytes() == whole


def test_an_interruption_keeps_the_batches_before_it(predictor, samples, vision, tmp_path, whole):
    path = tmp_path / "p.jsonl"

    def stop(rows):
        if 4 in rows:
            raise KeyboardInterrupt
        return vision(rows)

    with pytest.raises(KeyboardInterrupt):
        predictor.into(path, samples, stop)
    partial = path.with_name("p.jsonl.partial")
    assert partial.read_bytes() == b"".join(whole.splitlines(keepends=True)[:4])
    assert predictor.into(path, samples, vision) == 5
    assert path.read_bytes() == whole


def test_a_finished_file_is_left_alone(predictor, samples, vision, tmp_path):
    path = tmp_path / "p.jsonl"
    predictor.into(path, samples, vision)
    before = path.stat()
    assert predictor.into(path, samples, lambda rows: pytest.fail("looked again")) == 0
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_other_samples_or_settings_never_mix(predictor, samples, vision, tmp_path):
    path = tmp_path / "p.jsonl"
    predictor.into(path, samples, vision)
    with pytest.raises(DataError, match=r"line 1 of .* answers 's0', not 's1'"):
        predictor.into(path, samples[1:], vision)
    with pytest.raises(DataError, match="holds 9 predictions for 10 samples"):
        predictor.into(path, [*samples, samples[0]], vision)
    other = Predictor(
        predictor.model,
        predictor.renderer,
        GenerationConfig(max_new_tokens=6),
        {**predictor.settings, "interface_digest": "sha256:2"},
    )
    with pytest.raises(DataError, match=r"other settings \(interface_digest, max_new_tokens\)"):
        other.into(path, samples, vision)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told_and_nothing_kept_is_lost(samples, tmp_path):
    file = PredictionFile(tmp_path / "p.jsonl", samples, {})
    file.partial.symlink_to("/dev/full")
    prediction = Prediction(
        sample_id="s0", method="m", text="t", finish_reason="stop", prompt_tokens=1, new_tokens=1
    )
    with pytest.raises(DataError, match=r"No space left.*run the same command again"):
        file.append([prediction])


def test_a_folder_without_an_interface_says_how_to_get_one(tmp_path):
    with pytest.raises(ConfigError, match=r"paiq train .*run"):
        Predictor.load(tmp_path / "run" / "model", GenerationConfig())


def test_a_saved_model_answers_like_the_one_in_memory(predictor, samples, vision, tmp_path, whole):
    predictor.model.save_pretrained(tmp_path / "model")
    again = Predictor.load(tmp_path / "model", predictor.config, method="mine")
    path = tmp_path / "p.jsonl"
    again.into(path, samples, vision)
    texts = [
        [json.loads(line)["text"] for line in data.splitlines()]
        for data in (whole, path.read_bytes())
    ]
    assert texts[0] == texts[1]
    assert next(read_records(path, Prediction)).settings["interface_digest"].startswith("sha256:")


def test_slices_name_settings_and_files():
    world = Slice.parse("world/test:200")
    assert world.words == ("data.source=world", "data.world.split=test", "data.world.size=200")
    assert world.file_name == "world-test-200"
    named = Slice.parse("seed-bench:data/SEED.json[0:1000]")
    assert named.words == ('data.source="seed-bench:data/SEED.json[0:1000]"',)
    assert named.file_name == "seed-bench-data-SEED.json-0-1000"
    for wrong in ("world", "world/test", "world/test:0", "world/test:x"):
        with pytest.raises(ConfigError, match="world/SPLIT:SIZE"):
            Slice.parse(wrong)
