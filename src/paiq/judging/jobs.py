"""From predictions to the jobs of a run: what is wanted of a slice, and how each is asked for."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from paiq.judging.ledger_state import Expected
from paiq.judging.limits import text_bytes_of
from paiq.judging.payload import Pair
from paiq.judging.runner import Job
from paiq.judging.types import Request, Unsendable
from paiq.progress import Report, silent
from paiq.records import AXES, Axis, Prediction, Sample


class Builder(Protocol):
    """Builds requests: `Payloads` for a route over the network, `ExactPayloads` for one without."""

    def requests(self, pairs: Iterable[Pair]) -> Iterator[Request | Unsendable]: ...

    def build(self, sample: Sample, prediction: Prediction, axis: Axis) -> Request | Unsendable: ...


def jobs(
    builder: Builder, pairs: Sequence[Pair], *, slice_name: str, report: Report = silent
) -> list[Job]:
    """Two jobs per pair. A request is built here for its key, and again when it is sent."""
    wanted = [(sample, prediction, axis) for sample, prediction in pairs for axis in AXES]
    found = []
    for (sample, prediction, axis), built in zip(wanted, builder.requests(pairs), strict=True):
        found.append(
            Job(
                expected=_expected(built, slice_name, empty=not prediction.text.strip()),
                load=partial(builder.build, sample, prediction, axis),
                unsendable=built if isinstance(built, Unsendable) else None,
                body_bytes=len(built.body) if isinstance(built, Request) else 0,
                text_bytes=text_bytes_of(built.body) if isinstance(built, Request) else 0,
            )
        )
        report(len(found))
    return found


def _expected(built: Request | Unsendable, slice_name: str, *, empty: bool) -> Expected:
    digests = {}
    if isinstance(built, Request):
        digests = {
            "prompt_sha256": built.prompt_sha256,
            "image_sha256": built.image_sha256,
            "candidate_sha256": built.candidate_sha256,
            "template_sha256": built.template_sha256,
        }
    return Expected(
        key=built.key,
        slice=slice_name,
        sample_id=built.sample_id,
        method=built.method,
        axis=built.axis,
        family=built.family,
        empty_candidate=empty,
        **digests,
    )
