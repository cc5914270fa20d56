import dataclasses

import pytest

from paiq.judging import prompts, routes
from paiq.judging.exact import ExactPayloads, ExactSender
from paiq.judging.jobs import jobs
from paiq.judging.judge import Plan, judge
from paiq.judging.payload import Payloads
from paiq.judging.types import Request, Unsendable
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


def builder():
    return ExactPayloads(route=ROUTE, rules="0" * 64)


def run(folder, pairs=PAIRS):
    plan = Plan(
        route=ROUTE,
        jobs=jobs(builder(), pairs, slice_name="vqa"),
        ledger=folder / "world-exact.sqlite",
        scores=folder / "scores",
    )
    return judge(plan, answerer=ExactSender(route=ROUTE, scorer=scorer))


def test_each_pair_is_wanted_twice_and_empty_answers_are_marked():
    found = jobs(builder(), PAIRS, slice_name="vqa")
    assert [job.expected.axis for job in found] == ["accuracy", "hallucination"] * 4
    assert [job.expected.empty_candidate for job in found] == [False] * 4 + [True] * 4
    assert all(job.load() == job.load() and job.load().key == job.expected.key for job in found)


def test_what_cannot_be_built_is_a_job_that_says_so():
    payloads = Payloads(
        route=routes.load("local-vllm"), prompts=prompts.shipped(), image_bytes=lambda _: b""
    )
    found = jobs(payloads, PAIRS[:1], slice_name="vqa")
    assert [type(job.unsendable) for job in found] == [Unsendable, Unsendable]
    assert [job.unsendable.key for job in found] == [job.expected.key for job in found]


def test_the_expected_digests_are_those_of_the_request():
    (job, _) = jobs(builder(), PAIRS[:1], slice_name="vqa")
    request = job.load()
    assert isinstance(request, Request)
    for name in ("prompt_sha256", "image_sha256", "candidate_sha256", "template_sha256"):
        assert getattr(job.expected, name) == getattr(request, name)


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


@pytest.mark.parametrize("name", ["openrouter-gpt-4o", "local-vllm"])
def test_exact_answers_never_serve_another_route(name):
    with pytest.raises(ValueError, match="over the network"):
        ExactSender(route=routes.load(name), scorer=scorer)
