"""The judge that needs no network: exact scores from a known scene, by the same types and checks.

A request carries the facts instead of a picture; the answer to it is a chat completion like any
other, made here, and goes through the same verdict into the same ledger.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

from paiq.errors import ConfigError, DataError
from paiq.judging.payload import Pair, canonical, text_digest
from paiq.judging.routes import Route
from paiq.judging.types import Reply, Request, Unsendable
from paiq.judging.verdict import FIELD
from paiq.records import AXES, Axis, Prediction, Sample, Turn
from paiq.world.scoring import rules_digest, score

Scorer = Callable[[Sample, str], Mapping[Axis, int]]
"""Accuracy and Hallucination of a text about a sample whose facts are known."""


def by_the_rules_of_the_world(sample: Sample, text: str) -> Mapping[Axis, int]:
    return score(sample, text).axes


@dataclass(frozen=True, kw_only=True)
class ExactPayloads:
    """Builds the requests of an offline route."""

    route: Route
    rules: str = field(default_factory=rules_digest)
    """SHA-256 of the scoring rules: other rules are other requests."""
    run: str = ""

    def requests(self, pairs: Iterable[Pair]) -> Iterator[Request | Unsendable]:
        """Two per pair, as for any other route."""
        for sample, prediction in pairs:
            for axis in AXES:
                yield self.build(sample, prediction, axis)

    def build(self, sample: Sample, prediction: Prediction, axis: Axis) -> Request | Unsendable:
        """One request, holding everything that its score follows from."""
        facts = canonical(sample.facts)
        evidence = {
            "axis": axis,
            "sample_id": sample.id,
            "family": sample.family,
            "facts": sample.facts,
            "question": sample.question,
            "options": list(sample.options),
            "reference": sample.reference,
        }
        identity = {
            **evidence,
            "candidate": text_digest(prediction.text),
            "evaluator": self.route.evaluator,
            "generation": [self.run, prediction.method],
            "rules": self.rules,
        }
        common: dict[str, Any] = {
            "key": sha256(canonical(identity)).hexdigest(),
            "sample_id": sample.id,
            "method": prediction.method,
            "axis": axis,
            "family": sample.family,
            "route": self.route.name,
        }
        if sample.facts is None:
            detail = "the sample has no known facts; only scenes of the world have them"
            return Unsendable(**common, reason="no_facts", detail=detail)
        try:
            body = canonical({**evidence, "candidate": prediction.text})
        except UnicodeEncodeError:
            return Unsendable(
                **common, reason="not_unicode", detail="the response holds half a surrogate pair"
            )
        return Request(
            **common,
            body=body,
            prompt_sha256=sha256(body).hexdigest(),
            image_sha256=sha256(facts).hexdigest(),
            candidate_sha256=text_digest(prediction.text),
            template_sha256=self.rules,
        )


@dataclass(frozen=True, kw_only=True)
class ExactSender:
    """Answers requests of an offline route, in place of an HTTP client."""

    route: Route
    scorer: Scorer = by_the_rules_of_the_world

    def __post_init__(self) -> None:
        if not self.route.offline:
            raise ConfigError(f"route {self.route.name!r} is answered over the network")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def send(self, request: Request) -> Reply:
        """A completion whose id follows from the request alone."""
        asked = json.loads(request.body)
        scores = self.scorer(_sample(asked), asked["candidate"])
        completion = {
            "id": f"{self.route.model}-{request.key}",
            "model": self.route.model,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {
                        "role": "assistant",
                        "content": json.dumps({FIELD[request.axis]: scores[request.axis]}),
                    },
                }
            ],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0},
        }
        return Reply(status=200, body=canonical(completion))


def _sample(asked: Mapping[str, Any]) -> Sample:
    if asked.get("facts") is None:
        raise DataError(f"the request for {asked.get('sample_id')!r} holds no facts")
    return Sample(
        id=asked["sample_id"],
        image="",
        family=asked["family"],
        turns=(Turn(prompt=asked["question"] or ""),),
        question=asked["question"],
        options=tuple(asked["options"]),
        reference=asked["reference"],
        facts=asked["facts"],
    )
