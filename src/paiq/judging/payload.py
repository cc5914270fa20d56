"""Requests: one per prediction and axis, their bytes and their key fixed before the first send."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

from paiq.data.prompts import lettered
from paiq.errors import ConfigError, DataError
from paiq.judging.pictures import UnfitPicture, mime_of
from paiq.judging.prompts import Prompts, Template
from paiq.judging.routes import Route, primary_of
from paiq.judging.types import Request, Unsendable
from paiq.records import AXES, Axis, Prediction, Sample

MOST_CANDIDATE_BYTES = 200_000
"""A response beyond this cannot be judged with room for the answer; it is not cut."""
NO_OPTIONS = "(none were given)"
"""Ours: the paper's questions all have options."""

ImageBytes = Callable[[Sample], bytes]
"""The untouched bytes of a sample's picture file; raises DataError where there are none."""
Pair = tuple[Sample, Prediction]


def pair(predictions: Iterable[Prediction], samples: Iterable[Sample]) -> list[Pair]:
    """Each prediction with its sample; duplicates, strangers and unusable samples are errors."""
    known: dict[str, Sample] = {}
    for sample in samples:
        if sample.id in known:
            raise DataError(f"two samples have the id {sample.id!r}")
        known[sample.id] = sample
    pairs: dict[tuple[str, str], Pair] = {}
    for prediction in predictions:
        name = prediction.sample_id, prediction.method
        if name in pairs:
            same = pairs[name][1].text == prediction.text
            how = "twice" if same else "twice, with different texts"
            raise DataError(f"{prediction.method!r} answers sample {name[0]!r} {how}")
        if name[0] not in known:
            raise DataError(f"a prediction of {name[1]!r} is for {name[0]!r}, which is no sample")
        pairs[name] = _complete(known[name[0]]), prediction
    return list(pairs.values())


def _complete(sample: Sample) -> Sample:
    if sample.family == "vqa" and (sample.question is None or sample.reference is None):
        raise DataError(f"sample {sample.id!r} is a question and needs question and reference")
    return sample


def text_digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Payloads:
    """Builds the requests of one route. A recovery route's requests keep its primary's keys."""

    route: Route
    prompts: Prompts
    image_bytes: ImageBytes
    run: str = ""
    """Which generation the predictions are of, such as the slice of the benchmark."""
    _verdicts: dict[str, str | UnfitPicture] = field(default_factory=dict, repr=False)

    @cached_property
    def primary(self) -> Route:
        return primary_of(self.route)

    def requests(self, pairs: Iterable[Pair]) -> Iterator[Request | Unsendable]:
        """Two per pair, Accuracy and Hallucination, built as they are asked for."""
        for sample, prediction in pairs:
            picture = self._picture(sample)
            for axis in AXES:
                yield self._build(sample, prediction, axis, picture)

    def build(self, sample: Sample, prediction: Prediction, axis: Axis) -> Request | Unsendable:
        """One request; the same bytes whenever the same things are given."""
        return self._build(sample, prediction, axis, self._picture(sample))

    def _build(
        self, sample: Sample, prediction: Prediction, axis: Axis, picture: "_Picture"
    ) -> Request | Unsendable:
        if sample.family not in self.route.families:
            raise ConfigError(
                f"route {self.route.name!r} judges {', '.join(self.route.families)}; "
                f"sample {sample.id!r} is {sample.family}"
            )
        template = self.prompts[sample.family, axis]
        prompt = template.render(_values(sample, prediction, template))
        digests: dict[str, Any] = {
            "candidate_sha256": text_digest(prediction.text),
            "image_sha256": picture.sha256,
            "prompt_sha256": text_digest(prompt),
            "template_sha256": template.sha256,
        }
        common: dict[str, Any] = {
            "key": self._key(sample, prediction, axis, digests),
            "sample_id": sample.id,
            "method": prediction.method,
            "axis": axis,
            "family": sample.family,
            "route": self.route.name,
        }
        problem = picture.problem or _unfit_text(prediction.text, prompt)
        if problem:
            return Unsendable(**common, reason=problem.reason, detail=problem.detail)
        body = body_of(self.route, prompt, picture.url)
        return Request(**common, **digests, body=body)

    def _key(
        self, sample: Sample, prediction: Prediction, axis: Axis, digests: Mapping[str, str]
    ) -> str:
        """What can change the answer, and nothing else: no host, time-out or concurrency."""
        return sha256(
            canonical(
                {
                    **digests,
                    "axis": axis,
                    "sample_id": sample.id,
                    "generation": [self.run, prediction.method],
                    "evaluator": self.primary.evaluator,
                    "settings": {**settings_of(self.primary), "detail": self.primary.detail},
                }
            )
        ).hexdigest()

    def _picture(self, sample: Sample) -> "_Picture":
        try:
            content = self.image_bytes(sample)
        except DataError as error:
            return _Picture(sha256(b"").hexdigest(), problem=UnfitPicture("no_image", str(error)))
        digest = sha256(content).hexdigest()
        if digest not in self._verdicts:
            self._verdicts[digest] = _verdict(content)
        verdict = self._verdicts[digest]
        if isinstance(verdict, UnfitPicture):
            return _Picture(digest, problem=verdict)
        return _Picture(digest, url=data_url(verdict, content))


@dataclass(frozen=True)
class _Picture:
    sha256: str
    url: str = ""
    problem: UnfitPicture | None = None


def settings_of(route: Route) -> dict[str, Any]:
    """The fields of a body that are the same for every request of a route."""
    return {
        **route.extra,
        "model": route.model,
        "temperature": route.temperature,
        "max_tokens": route.max_tokens,
        "response_format": {"type": "json_object"},
    }


def body_of(route: Route, prompt: str, url: str) -> bytes:
    """The bytes of a request: one user message, the prompt and one picture, no system message."""
    picture = {"type": "image_url", "image_url": {"url": url, "detail": route.detail}}
    content = [{"type": "text", "text": prompt}, picture]
    return canonical({**settings_of(route), "messages": [{"role": "user", "content": content}]})


def data_url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"


def canonical(value: Any) -> bytes:
    """One spelling of a JSON value: sorted fields, no spaces, UTF-8."""
    text = json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return text.encode("utf-8")


def _verdict(content: bytes) -> str | UnfitPicture:
    try:
        return mime_of(content)
    except UnfitPicture as problem:
        return problem


def _values(sample: Sample, prediction: Prediction, template: Template) -> dict[str, str]:
    values = {
        "<<QUESTION>>": sample.question or "",
        "<<OPTIONS>>": lettered(sample.options) or NO_OPTIONS,
        "<<REFERENCE>>": sample.reference or "",
        "<<PREDICTION>>": prediction.text,
    }
    return {mark: values[mark] for mark in template.marks}


def _unfit_text(candidate: str, prompt: str) -> UnfitPicture | None:
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        return UnfitPicture("not_unicode", "the prompt holds half a surrogate pair")
    size = len(candidate.encode("utf-8"))
    if size > MOST_CANDIDATE_BYTES:
        return UnfitPicture(
            "candidate_too_long",
            f"the response has {size:,} bytes; the most is {MOST_CANDIDATE_BYTES:,}, and it is "
            "never cut",
        )
    return None
