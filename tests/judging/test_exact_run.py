"""The exact judge through runner, ledger and score files, without any network."""

import dataclasses

from paiq.judging import routes
from paiq.judging.exact import ExactPayloads, ExactSender
from paiq.judging.judge import Plan, judge
from paiq.judging.ledger_state import Expected
from paiq.judging.runner import Job
from paiq.judging.types import Unsendable
from paiq.records import Judgment, Prediction, Sample, Turn, read_records

ROUTE = routes.load("world-exact")
TEXTS = ("blue", "red", "", " ")


def sample(number, facts=True):
    return Sample(
        id=f"w{number}",
        image="x",
        family="vqa",
        turns=(Turn(prompt="which colour?"),),
        question="which colour?",
        options=("red", "blue"),
        reference="blue",
        facts={"colour": "blue"} if facts else None,
    )


def prediction(number, text):
    return Prediction(
        sample_id=f"w{number}",
        method="paiq",
        text=text,
        finish_reason="stop",
        prompt_tokens=1,
        new_tokens=1,
    )


PAIRS = [(sample(n), prediction(n, text)) for n, text in enumerate(TEXTS)]


def scorer(scene, text):
    right = text == scene.facts["colour"]
    return {"accuracy": 100 * right, "hallucination": 100 * (not right and bool(text.strip()))}


def jobs(pairs):
    builder = ExactPayloads(route=ROUTE, rules="0" * 64)
    for built in builder.requests(pairs):
        expected = Expected(
            key=built.key,
            slice="vqa",
            sample_id=built.sample_id,
            method=built.method,
            axis=built.axis,
            family=built.family,
            empty_candidate=False,
        )
        unsendable = built if isinstance(built, Unsendable) else None
        yield Job(expected=expected, load=lambda built=built: built, unsendable=unsendable)


def run(folder, pairs=PAIRS):
    plan = Plan(
        route=ROUTE,
        jobs=list(jobs(pairs)),
        ledger=folder / "world-exact.sqlite",
        scores=folder / "scores",
    )
    return judge(plan, answerer=ExactSender(route=ROUTE, scorer=scorer))


def test_exact_scores_go_through_the_ledger_and_a_second_run_asks_nothing(tmp_path):
    first = run(tmp_path)
    assert (first.exit_code, first.sent) == (0, 8)
    path = tmp_path / "scores" / "vqa.jsonl"
    found = {(j.sample_id, j.axis): j.score for j in read_records(path, Judgment)}
    for number, (accuracy, hallucination) in enumerate([(100, 0), (0, 100), (0, 0), (0, 0)]):
        assert found[f"w{number}", "accuracy"] == accuracy
        assert found[f"w{number}", "hallucination"] == hallucination
    assert {j.evaluator for j in read_records(path, Judgment)} == {"world-exact"}
    ledger, before = tmp_path / "world-exact.sqlite", path.read_bytes()
    size = ledger.stat().st_size
    again = run(tmp_path)
    assert (again.exit_code, again.sent) == (0, 0)
    assert (path.read_bytes(), ledger.stat().st_size) == (before, size)


def test_a_sample_without_facts_ends_without_a_score_and_the_rest_is_scored(tmp_path):
    pairs = [*PAIRS[:1], (sample(9, facts=False), prediction(9, "blue"))]
    summary = run(tmp_path, pairs)
    assert summary.exit_code == 1
    assert dict(summary.coverage.terminal) == {"unsendable": 2}
    assert sum(summary.coverage.scored.values()) == 2


def test_a_changed_answer_is_judged_anew_and_the_old_score_is_gone(tmp_path):
    run(tmp_path, PAIRS[:1])
    changed = [(PAIRS[0][0], dataclasses.replace(PAIRS[0][1], text="red"))]
    summary = run(tmp_path, changed)
    assert summary.sent == 2
    scores = {j.axis: j.score for j in read_records(tmp_path / "scores" / "vqa.jsonl", Judgment)}
    assert scores == {"accuracy": 0, "hallucination": 100}
