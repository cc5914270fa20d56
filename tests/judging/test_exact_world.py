"""`paiq judge --route exact` over scenes of the world, against the rules themselves."""

import pytest

from paiq.cli.main import main
from paiq.judging import routes
from paiq.judging.exact import ExactPayloads
from paiq.records import Judgment, Prediction, read_records, write_records
from paiq.world.scoring import rules_digest, score
from paiq.world.source import WorldSource

SOURCE = WorldSource("test", 12)
SAMPLES = [SOURCE[index] for index in range(12)]
ANSWERS = {
    "right": lambda sample: sample.reference or "a red circle",
    "wrong": lambda sample: "nothing like it, a small pink star at the top left",
    "silent": lambda sample: "",
}


@pytest.fixture
def folder(tmp_path):
    predictions = [
        Prediction(
            sample_id=sample.id,
            method=method,
            text=answer(sample),
            finish_reason="stop",
            prompt_tokens=1,
            new_tokens=1,
        )
        for method, answer in ANSWERS.items()
        for sample in SAMPLES
    ]
    write_records(tmp_path / "run" / "samples" / "world.jsonl", SAMPLES)
    write_records(tmp_path / "run" / "predictions" / "world.jsonl", predictions)
    return tmp_path / "run"


def scores(folder):
    found = read_records(folder / "scores" / "world.jsonl", Judgment)
    return {(one.sample_id, one.method, one.axis): one for one in found}


@pytest.mark.parametrize("words", [["--route", "exact"], ["--exact"], ["--route", "world-exact"]])
def test_every_score_is_the_one_the_rules_give(folder, capsys, words):
    assert main(["judge", str(folder), *words]) == 0
    assert rules_digest() in capsys.readouterr().out
    found = scores(folder)
    assert len(found) == 2 * len(ANSWERS) * len(SAMPLES)
    for sample in SAMPLES:
        for method, answer in ANSWERS.items():
            for axis, expected in score(sample, answer(sample)).axes.items():
                assert found[sample.id, method, axis].score == expected
    assert {one.evaluator for one in found.values()} == {"world-exact"}


def test_a_second_run_changes_no_file(folder):
    assert main(["judge", str(folder), "--exact"]) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["judge", str(folder), "--exact"]) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_dry_run_of_the_exact_judge_costs_nothing_and_writes_nothing(folder, capsys):
    assert main(["judge", str(folder), "--exact", "--dry-run"]) == 0
    assert "72" in capsys.readouterr().out
    assert not (folder / "scores").exists()


def test_other_rules_are_another_question():
    route = routes.load("world-exact")
    prediction = Prediction(
        sample_id=SAMPLES[0].id,
        method="paiq",
        text="a circle",
        finish_reason="stop",
        prompt_tokens=1,
        new_tokens=1,
    )
    own, other = ExactPayloads(route=route), ExactPayloads(route=route, rules="0" * 64)
    keys = [made.build(SAMPLES[0], prediction, "accuracy").key for made in (own, other)]
    assert keys[0] != keys[1]
    assert own.rules == rules_digest()
