"""Held-out pictures with every method's answer, and what PAIQ did with a few of them."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from paiq.analysis.diagnostics import as_grid, concentration, relative_update
from paiq.config import override
from paiq.demo.pipeline import Demo, Trained
from paiq.generation import Slice
from paiq.model import PaiqForConditionalGeneration
from paiq.records import Prediction, Sample, read_records
from paiq.report.demo_results import ClaimSpan, DemoAnswer, DemoCard, DemoMaps
from paiq.training import FeaturePlan, RunFolder, open_samples
from paiq.world.scoring import score

SPLIT = "test"
WITH_MAPS = 3
"""Cards that also show maps of the trained PAIQ."""
MOST_PATCHES = 3
"""Output patches whose sources are shown: those at the objects' centres."""


def cards_of(demo: Demo) -> Iterator[DemoCard]:
    """The first samples of the held-out split, unselected, with the first seed's answers."""
    runs = [run for run in demo.runs() if run.seed == demo.settings.seeds[0]]
    held_out = Slice.parse(demo.slices[SPLIT])
    name = f"{held_out.file_name}.jsonl"
    folder = RunFolder(runs[0].folder)
    samples = list(read_records(folder.samples / name, Sample))[: demo.settings.cards]
    answers = {run.method: _texts(run, name) for run in runs}
    trained = override(folder.read_run(), held_out.words)
    plan = FeaturePlan.of(trained, open_samples(trained.data))
    explained = Explained.load(runs, plan)
    for index, sample in enumerate(samples):
        yield DemoCard(
            sample_id=sample.id,
            split=SPLIT,
            family=sample.family,
            image_png=png_of(plan.samples.source.image(sample)),
            prompt=sample.turns[-1].prompt,
            reference=sample.reference or "",
            answers=tuple(
                _answer(method, sample, texts[sample.id]) for method, texts in answers.items()
            ),
            maps=explained.maps(index, sample) if explained and index < WITH_MAPS else None,
        )


def _texts(run: Trained, name: str) -> Mapping[str, str]:
    predictions = read_records(run.folder / "predictions" / name, Prediction)
    return {prediction.sample_id: prediction.text for prediction in predictions}


def _answer(method: str, sample: Sample, text: str) -> DemoAnswer:
    judged = score(sample, text)
    return DemoAnswer(
        method=method,
        text=text,
        accuracy=judged.accuracy,
        hallucination=judged.hallucination,
        claims=tuple(
            ClaimSpan(start=claim.start, end=claim.end, right=claim.right)
            for claim in judged.claims
        ),
    )


def png_of(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@dataclass(frozen=True)
class Explained:
    """The trained PAIQ interface and the features it is shown."""

    interface: Any
    plan: FeaturePlan

    @classmethod
    def load(cls, runs: list[Trained], plan: FeaturePlan) -> "Explained | None":
        """None where PAIQ is not among the methods."""
        for run in runs:
            if run.method == "paiq":
                model = PaiqForConditionalGeneration.from_pretrained(RunFolder(run.folder).model)
                return cls(model.interface, plan)
        return None

    @torch.inference_mode()
    def maps(self, index: int, sample: Sample) -> DemoMaps:
        features = self.plan.stored([index])
        spatial, semantic = (features[f"{one}_features"].float() for one in ("spatial", "semantic"))
        trace = self.interface.trace(spatial, semantic)
        update = as_grid(relative_update(trace))[0]
        side, fine = len(update), round(trace.allocation.shape[2] ** 0.5)
        patches = dict.fromkeys(_patch(thing["centre"], side) for thing in _things(sample))
        return DemoMaps(
            allocation={
                (row, column): _array(trace.allocation[0, row * side + column].view(fine, fine))
                for row, column in list(patches)[:MOST_PATCHES]
            },
            concentration=_array(as_grid(concentration(trace))[0]),
            update=_array(update),
        )


def _things(sample: Sample) -> list[dict[str, Any]]:
    return list((sample.facts or {}).get("objects", []))


def _patch(centre: tuple[float, float], side: int) -> tuple[int, int]:
    """Row and column of the output patch at a point of the unit square."""
    x, y = centre
    return min(int(y * side), side - 1), min(int(x * side), side - 1)


def _array(values: torch.Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
