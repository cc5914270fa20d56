import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tiny
from paiq.cli.main import main
from paiq.records import Prediction, Sample, Turn, read_records, write_records

COUNT = 6


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("predict")
    tiny.dinov3(root / "spatial")
    tiny.siglip(root / "semantic")
    tiny.qwen3(root / "language", noise=0.3)
    (root / "images").mkdir()
    samples = []
    for i in range(COUNT):
        levels = np.random.default_rng(i).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(levels).save(root / "images" / f"{i}.png")
        turn = Turn(prompt=f"What is {i}?", answer=f"It is {i}.")
        samples.append(Sample(id=f"s{i}", image=f"{i}.png", family="vqa", turns=(turn,)))
    write_records(root / "data.jsonl", samples)
    words = [
        f"data.source=jsonl:{root}/data.jsonl",
        *(f"{part}.name={root}/{part}" for part in ("spatial", "semantic", "language")),
        f"features.folder={root}/features",
        "schedule.steps=2",
        "batch.size=3",
        "batch.micro=3",
        "generation.limit=7",
    ]
    assert main(["train", "world/paiq", *words, "--out", str(root / "run")]) == 0
    return root


def predict(place, rows, *more):
    name = more[more.index("--name") + 1] if "--name" in more else "answers"
    options = [] if "--name" in more else ["--name", name]
    text = f"jsonl:{place}/data.jsonl[{rows}]"
    code = main(["predict", str(place / "run"), "--slice", text, *options, *more])
    return code, place / "run" / "predictions" / f"{name}.jsonl"


def test_a_trained_run_answers_a_slice(place):
    code, path = predict(place, "1:5")
    assert code == 0
    found = list(read_records(path, Prediction))
    assert [p.sample_id for p in found] == ["s1", "s2", "s3", "s4"]
    assert {p.method for p in found} == {"paiq"}
    assert all(p.settings["max_new_tokens"] == 7 for p in found)


def test_a_kill_in_the_middle_changes_nothing_in_the_end(place):
    _, whole = predict(place, "0:6", "--name", "whole", "--batch", "4")
    data = whole.read_bytes()
    (place / "run" / "predictions" / "cut.jsonl.partial").write_bytes(data[: len(data) // 2])
    code, path = predict(place, "0:6", "--name", "cut", "--batch", "1")
    assert code == 0
    assert path.read_bytes() == data


def test_the_same_name_for_other_samples_or_settings_is_refused(place, capsys):
    predict(place, "0:2", "--name", "mine")
    assert predict(place, "1:3", "--name", "mine")[0] == 2
    assert "answers 's0', not 's1'" in capsys.readouterr().err
    assert predict(place, "0:2", "--name", "mine", "--limit", "9")[0] == 2
    assert "other settings (max_new_tokens)" in capsys.readouterr().err


def test_a_picture_that_is_none_is_named(place, capsys):
    bad = place / "bad"
    (bad / "images").mkdir(parents=True)
    (bad / "images" / "x.png").write_text("no picture")
    write_records(
        bad / "d.jsonl",
        [Sample(id="b", image="x.png", family="vqa", turns=(Turn(prompt="?"),))],
    )
    code = main(["predict", str(place / "run"), "--slice", f"jsonl:{bad}/d.jsonl"])
    assert code == 2
    assert "x.png" in capsys.readouterr().err


def test_changed_frozen_weights_are_refused(place, capsys):
    path = place / "semantic" / "model.safetensors"
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        assert predict(place, "0:2", "--name", "changed")[0] == 2
    finally:
        path.write_bytes(before)
    assert "not those this interface was trained with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--slice", "world/test"], "world/SPLIT:SIZE"),
        (["--slice", "nonsense"], "KIND:PATH"),
        (["--slice", "a:b", "--slice", "c:d", "--name", "x"], "--name is for one slice"),
        (["--slice", "jsonl:x", "--limit", "0"], "positive"),
    ],
)
def test_wrong_words_are_answered(place, capsys, words, said):
    assert main(["predict", str(place / "run"), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_was_never_trained_says_how_to(place, tmp_path, capsys):
    assert main(["predict", str(tmp_path), "--slice", "a:b"]) == 2
    assert "is no run folder" in capsys.readouterr().err


@pytest.mark.parametrize("folded", [False, True])
def test_an_export_answers_like_the_run(place, tmp_path, folded):
    from transformers import AutoModelForImageTextToText

    target = tmp_path / "merged"
    words = ["export", str(place / "run"), "--merged", str(target)]
    assert main([*words, *(["--folded"] if folded else [])]) == 0
    model = AutoModelForImageTextToText.from_pretrained(target)
    assert model.config.folded == folded
    card = (target / "README.md").read_text()
    assert "schedule:" in card
    assert "every weight" in card
    assert main(words) == 2  # never over what is there


def test_the_card_goes_beside_the_interface(place, tmp_path):
    results = tmp_path / "results.md"
    results.write_text("| accuracy |")
    assert main(["export", str(place / "run"), "--card", "--results", str(results)]) == 0
    assert "| accuracy |" in (place / "run" / "model" / "README.md").read_text()


def test_doctor_looks_a_run_over(place, capsys):
    assert main(["doctor", "--run", str(place / "run")]) == 0
    assert "16 placeholders an image" in capsys.readouterr().out
    assert main(["doctor", "--model", str(place / "nothing")]) == 1
    assert "NO  language model" in capsys.readouterr().out


def test_the_config_of_a_checkpoint_names_its_parts(place):
    config = json.loads((place / "run" / "model" / "config.json").read_text())
    for part in ("spatial", "semantic", "language"):
        source = config[f"{part}_source"]
        assert Path(source["name"]).name == part
        assert source["digest"].startswith("sha256:")
