"""From a run's folder to the jobs of a route: predictions/ and samples/ in, two jobs per answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from paiq.data.images import inside, read_bytes
from paiq.errors import ConfigError, suggest
from paiq.judging.judge import Plan
from paiq.judging.ledger_files import slices_of
from paiq.judging.ledger_state import Expected
from paiq.judging.limits import text_bytes_of
from paiq.judging.payload import Pair, Payloads, pair
from paiq.judging.prompts import Prompts
from paiq.judging.routes import Route
from paiq.judging.runner import Job
from paiq.judging.types import Request, Unsendable
from paiq.judging.world_pictures import drawn
from paiq.progress import Report, silent
from paiq.records import Prediction, Sample, read_records

MOST_KEPT = 4
"""Pairs of a slice whose requests are kept, megabytes each; both axes of one are asked in a row."""


class Builder(Protocol):
    """Builds two requests per pair: `Payloads`, or `ExactPayloads` where nothing is sent."""

    def requests(self, pairs: Iterable[Pair]) -> Iterator[Request | Unsendable]: ...


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A run's folder as the judge sees it."""

    path: Path
    images: Path
    """Root of the paths that samples give."""

    def slices(self, chosen: Sequence[str] = ()) -> list[str]:
        """Names of the slices with predictions, or of those chosen among them."""
        have = sorted(path.stem for path in (self.path / "predictions").glob("*.jsonl"))
        if not have:
            raise ConfigError(
                f"{self.path} holds no predictions; there should be predictions/SLICE.jsonl and "
                "samples/SLICE.jsonl"
            )
        for name in chosen:
            if name not in have:
                raise ConfigError(
                    f"no slice {name!r}; have {', '.join(have)}.{suggest(name, have)}"
                )
        return list(chosen) or have

    def pairs(self, name: str) -> list[Pair]:
        predictions = read_records(self.path / "predictions" / f"{name}.jsonl", Prediction)
        samples = read_records(self.path / "samples" / f"{name}.jsonl", Sample)
        return pair(predictions, samples)

    def image_bytes(self, sample: Sample) -> bytes:
        """The picture's file; a scene of the embedded world has none and is drawn."""
        path = inside(self.images, sample.image)
        if sample.image.startswith("world/") and not path.exists():
            return drawn(sample)
        return read_bytes(path)

    def ledger(self, route: Route) -> Path:
        return self.path / "judge" / f"{route.recovers or route.name}.sqlite"

    def plan(
        self,
        route: Route,
        builders: Mapping[str, Builder],
        *,
        scores: Path | None = None,
        report: Report = silent,
    ) -> Plan:
        """Everything to be judged, each request built once to learn its key."""
        folder = scores or self.path / "scores"
        if scores is None:
            self._refuse_second_judge(route, list(builders))
        jobs: list[Job] = []
        for name, builder in builders.items():
            batch = Batch(name, self.pairs(name), builder)
            for job in batch.jobs():
                jobs.append(job)
                report(len(jobs))
        return Plan(route=route, jobs=jobs, ledger=self.ledger(route), scores=folder)

    def _refuse_second_judge(self, route: Route, slices: Sequence[str]) -> None:
        own = self.ledger(route)
        for other in sorted(own.parent.glob("*.sqlite")):
            both = sorted(slices_of(other) & set(slices)) if other != own else []
            if both:
                raise ConfigError(
                    f"{', '.join(both)} is judged by route {other.stem!r} already, and one score "
                    "file holds the scores of one judge; to have both, add "
                    f"--scores {self.path / ('scores-' + route.name)}"
                )


@dataclass
class Batch:
    """The pairs of one slice; a request is built again each time it is sent."""

    slice: str
    pairs: list[Pair]
    builder: Builder
    _kept: dict[int, list[Request | Unsendable]] = field(default_factory=dict)

    def jobs(self) -> Iterator[Job]:
        for index, (_, prediction) in enumerate(self.pairs):
            for axis, request in enumerate(self._requests(index)):
                body = request.body if isinstance(request, Request) else b""
                yield Job(
                    expected=expected(request, self.slice, prediction),
                    load=partial(self._request, index, axis),
                    unsendable=None if isinstance(request, Request) else request,
                    body_bytes=len(body),
                    text_bytes=text_bytes_of(body),
                )

    def _request(self, index: int, axis: int) -> Request | Unsendable:
        return self._requests(index)[axis]

    def _requests(self, index: int) -> list[Request | Unsendable]:
        if index not in self._kept:
            while len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[index] = list(self.builder.requests([self.pairs[index]]))
        return self._kept[index]


def expected(request: Request | Unsendable, name: str, prediction: Prediction) -> Expected:
    """The score that a request is to bring, with the digests of what it depends on."""
    digests = {}
    if isinstance(request, Request):
        digests = {
            "prompt_sha256": request.prompt_sha256,
            "image_sha256": request.image_sha256,
            "candidate_sha256": request.candidate_sha256,
            "template_sha256": request.template_sha256,
        }
    return Expected(
        key=request.key,
        slice=name,
        sample_id=request.sample_id,
        method=request.method,
        axis=request.axis,
        family=request.family,
        empty_candidate=not prediction.text.strip(),
        **digests,
    )


def payloads(
    folder: Folder, route: Route, prompts: Prompts, names: Iterable[str]
) -> dict[str, Builder]:
    """A builder per slice, for a route over the network."""
    return {
        name: Payloads(route=route, prompts=prompts, image_bytes=folder.image_bytes, run=name)
        for name in names
    }
