import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

import tiny
from paiq.cli.main import main
from paiq.training.checkpoints import newest
from paiq.training.log import read_log

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A recipe turned to tiny checkpoints and eight pictures by words alone."""
    folder = tmp_path_factory.mktemp("train")
    lines = []
    for number in range(8):
        Image.new("RGB", (30, 30), (number * 30, 99, 0)).save(folder / f"{number}.png")
        turn = {"prompt": "what?", "answer": "a" * (number + 1)}
        line = {"id": str(number), "image": f"{number}.png", "family": "vqa", "turns": [turn]}
        lines.append(json.dumps(line) + "\n")
    (folder / "data.jsonl").write_text("".join(lines))
    return [
        "paper/llama-3.1-8b/spatial",
        f"data.source=jsonl:{folder / 'data.jsonl'}",
        f"spatial.name={tiny.dinov3(folder / 'spatial')}",
        f"semantic.name={tiny.siglip(folder / 'semantic')}",
        f"language.name={tiny.llama(folder / 'language')}",
        f"features.folder={folder / 'features'}",
        "batch.size=4",
        "batch.micro=2",
        "saving.every=3",
    ]


def test_a_run_its_repeat_and_its_ending(words, tmp_path, capsys):
    assert main(["features", *words]) == 0
    assert "8 images are in" in capsys.readouterr().out
    out = tmp_path / "run"
    assert main(["train", *words, "--out", str(out)]) == 0
    assert f"next: paiq predict {out}" in capsys.readouterr().out
    again = tmp_path / "again"
    assert main(["train", str(out / "run.yaml"), "--out", str(again)]) == 0
    ours, theirs = (read_log(path / "log.jsonl") for path in (out, again))
    assert [line["loss"] for line in ours] == [line["loss"] for line in theirs]
    assert len(ours) == 4
    assert main(["train", str(out)]) == 0  # it is done already
    assert len(read_log(out / "log.jsonl")) == 4
    assert main(["train", str(out), "seed=1"]) == 2
    assert "seed was 42, now 1" in capsys.readouterr().err


def test_ctrl_c_saves_and_says_what_to_type(words, tmp_path):
    out = tmp_path / "run"
    endless = ("schedule.epochs=null", "schedule.steps=100000")
    child = subprocess.Popen(
        [sys.executable, "-m", "paiq", "train", *words, "--out", str(out), *endless],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    while not read_log(out / "log.jsonl") and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    shown, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert f"go on with: paiq train {out}" in shown
    assert newest(out / "checkpoints").step == read_log(out / "log.jsonl")[-1]["step"]


def test_a_killed_command_typed_again_ends_where_it_would_have(words, tmp_path):
    longer = ("schedule.epochs=null", "schedule.steps=60", "saving.every=7")
    out = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-m", "paiq", "train", *words, *longer, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    while len(read_log(out / "log.jsonl")) < 10 and child.poll() is None:
        time.sleep(0.005)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert len(read_log(out / "log.jsonl")) < 60
    assert main(["train", *words, *longer, "--out", str(out)]) == 0
    whole = tmp_path / "whole"
    assert main(["train", *words, *longer, "--out", str(whole)]) == 0
    ours, theirs = (read_log(path / "log.jsonl") for path in (out, whole))
    assert [line["loss"] for line in ours] == [line["loss"] for line in theirs]
    weights = [(path / "model" / "interface.safetensors").read_bytes() for path in (out, whole)]
    assert weights[0] == weights[1]


def test_the_list_and_a_whole_run_are_shown(capsys):
    assert main(["train", "--list"]) == 0
    assert "world/paiq" in capsys.readouterr().out
    assert main(["train", "world/paiq", "seed=7", "--show"]) == 0
    assert "seed: 7" in capsys.readouterr().out


def test_typing_mistakes_are_told_at_once(capsys):
    assert main(["train", "world/paiq", "sed=1", "batch.sise=3"]) == 2
    shown = capsys.readouterr().err
    assert "Did you mean 'seed'" in shown
    assert "Did you mean 'size'" in shown


def test_a_folder_whose_first_try_failed_takes_the_mended_settings(words, tmp_path, capsys):
    out = tmp_path / "run"
    wrong = next(word for word in words if word.startswith("spatial.name="))
    assert main(["train", *words, wrong.replace("spatial", "language", 1), "--out", str(out)]) == 2
    assert main(["train", *words, "--out", str(out)]) == 0
    assert "trained" in capsys.readouterr().out


def test_an_unwritable_place_is_a_sentence(words, capsys):
    assert main(["train", *words, "--out", "/proc/nowhere/run"]) == 2
    assert capsys.readouterr().err.startswith("paiq: /proc/nowhere")
