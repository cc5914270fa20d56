import asyncio
import dataclasses
import json

import pytest

from paiq.errors import ConfigError
from paiq.judging import routes
from paiq.judging.exact import ExactPayloads, ExactSender
from paiq.judging.types import Unsendable, judgment
from paiq.judging.verdict import classify
from paiq.records import Prediction, Sample, Turn

ROUTE = routes.load("world-exact")
RULES = "0" * 64


def sample(**changes):
    fields = {
        "id": "w1",
        "image": "world/test/1",
        "family": "vqa",
        "turns": (Turn(prompt="which colour is it?"),),
        "question": "which colour is it?",
        "options": ("red", "blue"),
        "reference": "blue",
        "facts": {"objects": [{"colour": "blue"}]},
    }
    return Sample(**{**fields, **changes})


def answer(text="blue", method="paiq"):
    return Prediction(
        sample_id="w1",
        method=method,
        text=text,
        finish_reason="stop",
        prompt_tokens=1,
        new_tokens=1,
    )


def scorer(scene, text):
    known = [thing["colour"] for thing in scene.facts["objects"]]
    return {"accuracy": 100 if text in known else 0, "hallucination": 0 if text in known else 100}


def build(scene=None, prediction=None, rules=RULES, run=""):
    payloads = ExactPayloads(route=ROUTE, rules=rules, run=run)
    return list(payloads.requests([(scene or sample(), prediction or answer())]))


def judge(request, route=ROUTE):
    reply = asyncio.run(ExactSender(route=ROUTE, scorer=scorer).send(request))
    return classify(reply, axis=request.axis, route=route)


@pytest.mark.parametrize(
    ("text", "scores"), [("blue", [100, 0]), ("red", [0, 100]), ("", [0, 100])]
)
def test_exact_scores_pass_through_the_same_verdict(text, scores):
    outcomes = [judge(request) for request in build(prediction=answer(text))]
    assert [outcome.accepted.score for outcome in outcomes] == scores
    assert {outcome.accepted.model for outcome in outcomes} == {"world-exact"}


def test_the_same_content_gives_the_same_reply_and_each_request_its_own_id():
    first, second = build()
    assert judge(first) == judge(build()[0])
    assert judge(first).response_id != judge(second).response_id


def test_a_judgment_names_its_evaluator_and_fits_its_request_only():
    first, second = build()
    accepted = judge(first).accepted
    made = judgment(first, accepted, evaluator=ROUTE.evaluator, attempts=())
    assert (made.score, made.axis, made.evaluator) == (100, "accuracy", "world-exact")
    with pytest.raises(ValueError, match="asks for hallucination"):
        judgment(second, accepted, evaluator=ROUTE.evaluator, attempts=())


@pytest.mark.parametrize(
    "change",
    [
        {"scene": sample(facts={"objects": []})},
        {"scene": sample(reference="red")},
        {"prediction": answer("red")},
        {"prediction": answer(method="pai")},
        {"rules": "1" * 64},
        {"run": "seed 2"},
    ],
)
def test_other_facts_answers_or_rules_make_other_keys(change):
    assert {r.key for r in build()}.isdisjoint(r.key for r in build(**change))


def test_the_request_shows_no_method_and_opens_no_file():
    body = json.loads(build()[0].body)
    assert "paiq" not in json.dumps(body)
    assert "image" not in body


@pytest.mark.parametrize(
    ("scene", "text", "reason"),
    [(sample(facts=None), "blue", "no_facts"), (sample(), "\ud800", "not_unicode")],
)
def test_what_cannot_be_scored_exactly_is_unsendable(scene, text, reason):
    results = build(scene, answer(text))
    assert [type(result) for result in results] == [Unsendable, Unsendable]
    assert {result.reason for result in results} == {reason}


@pytest.mark.parametrize("score", [True, 85.0, 101, -1, None, "85"])
def test_a_scorer_that_returns_no_whole_number_gives_no_score(score):
    sender = ExactSender(route=ROUTE, scorer=lambda *_: {"accuracy": score})
    request = build()[0]
    outcome = classify(asyncio.run(sender.send(request)), axis="accuracy", route=ROUTE)
    assert outcome.accepted is None


def test_only_the_offline_route_is_answered_here():
    assert [name for name in routes.available() if routes.load(name).offline] == ["world-exact"]
    with pytest.raises(ConfigError, match="over the network"):
        ExactSender(route=routes.load("local-vllm"), scorer=scorer)
    with pytest.raises(ConfigError):
        dataclasses.replace(ROUTE, endpoint="offline:elsewhere")


def test_no_other_evaluator_passes_for_the_exact_one():
    outcome = judge(build()[0], route=dataclasses.replace(ROUTE, accepted_model="gpt-4o"))
    assert outcome.kind == "stop_route"
