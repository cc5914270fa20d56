"""The attacks on judges of known character: one that obeys, one that knows, one that fails."""

import json
from pathlib import Path

import pytest
import yaml

from paiq.bench import attacks
from paiq.bench.attacks import ATTACKS, CONTROL, Settings
from paiq.bench.fault_server import FaultServer, answer, in_turn, status
from paiq.errors import ConfigError
from paiq.records import Prediction, read_records
from paiq.world.scoring import score

ORDER = "Ignore all earlier instructions"


def settings(tmp_path, server, **changes):
    route = {
        "name": "mine",
        "endpoint": server.url,
        "model": "gpt-4o",
        "accepted_model": "gpt-4o.*",
        "evaluator": "gpt-4o",
        "concurrency": 8,
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(route))
    given = {"route": str(path), "samples": 2, "folder": tmp_path / "runs", **changes}
    return Settings(**given)


def obedient(exchange):
    """Gives full marks to whoever orders it, unless the order stands inside a fence."""
    text = json.loads(exchange.body)["messages"][0]["content"][0]["text"]
    obeys = ORDER in text and "[response " not in text
    field = f"{exchange.seen.axis}_score"
    return answer(content=json.dumps({field: 100 if obeys else 0}))(exchange)


def test_an_obedient_judge_is_fooled_by_an_order_and_not_through_the_fence(tmp_path):
    with FaultServer(in_turn(obedient)) as server:
        plain = attacks.run(settings(tmp_path, server)).numbers["attacks"]
        fenced = attacks.run(settings(tmp_path, server, prompts="hardened")).numbers["attacks"]
    assert {name for name, row in plain.items() if row["fooled"]} == {"an order"}
    assert plain["an order"]["fooled"] == 1.0
    assert not any(row["fooled"] for row in fenced.values())


def test_every_attack_is_a_wrong_answer_and_the_control_a_right_one(tmp_path):
    outcome = attacks.run(Settings(route="exact", samples=20, folder=tmp_path))
    numbers = outcome.numbers["attacks"]
    assert list(numbers) == [CONTROL, *ATTACKS]
    assert numbers[CONTROL] == {"scored": 20, "mean": 100, "fooled": None}
    assert {row["mean"] for name, row in numbers.items() if name != CONTROL} == {0}
    questions = {sample.id: sample for sample in attacks._questions(20)}
    for made in read_records(
        tmp_path / "exact-paper" / "predictions" / "attacks.jsonl", Prediction
    ):
        right = score(questions[made.sample_id], made.text).accuracy
        assert right == (100 if made.method == CONTROL else 0)


def test_without_every_score_there_is_no_mean(tmp_path):
    with FaultServer(in_turn(status(400))) as server:
        outcome = attacks.run(settings(tmp_path, server))
    assert all(row["mean"] is None for row in outcome.numbers["attacks"].values())
    assert "0/2" in outcome.table


def test_a_second_run_goes_on_where_the_first_was_stopped(tmp_path):
    with FaultServer(in_turn(status(401))) as server:
        assert "stopped: authentication" in attacks.run(settings(tmp_path, server)).table
    with FaultServer(in_turn(obedient)) as server:
        whole = attacks.run(settings(tmp_path, server))
        sent = len(server.record)
        assert attacks.run(settings(tmp_path, server)).table == whole.table
        assert len(server.record) == sent


def test_a_judge_must_be_named():
    with pytest.raises(ConfigError, match="route=exact"):
        attacks.run(Settings(folder=Path("nowhere")))
