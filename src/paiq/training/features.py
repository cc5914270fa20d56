"""From a source of samples to the features of its images, stored or made anew in each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from accelerate import PartialState
from PIL import Image
from torch import Tensor

from paiq.data import SampleSource
from paiq.progress import Report, silent
from paiq.records import Sample
from paiq.towers import Tower, TowerPlan, plan_tower, prepare, read_tower, weights_digest
from paiq.towers.store import Contents, Features, FeatureStore, Stream
from paiq.training.config import Run
from paiq.training.samples import Samples

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Catalogue:
    """The distinct images of a source; samples that share a picture share a row."""

    images: tuple[str, ...]
    rows: tuple[int, ...]
    """The row of each sample."""
    first: tuple[int, ...]
    """A sample that shows the image, for each row."""
    samples: tuple[Sample, ...] = field(repr=False)
    """Kept, because every format reads in order quickly, and few in a training order."""

    @classmethod
    def of(cls, source: SampleSource) -> "Catalogue":
        row_of: dict[str, int] = {}
        first: list[int] = []
        rows: list[int] = []
        samples: list[Sample] = []
        for index in range(len(source)):
            sample = replace(source[index], facts=None)  # large, and nothing is trained on them
            if sample.image not in row_of:
                row_of[sample.image] = len(first)
                first.append(index)
            rows.append(row_of[sample.image])
            samples.append(sample)
        return cls(tuple(row_of), tuple(rows), tuple(first), tuple(samples))


@dataclass(frozen=True)
class TowerPair:
    """Both towers, loaded, with the preprocessing of each."""

    spatial: Tower
    semantic: Tower
    plans: tuple[TowerPlan, TowerPlan]
    device: torch.device

    @classmethod
    def load(
        cls, plans: tuple[TowerPlan, TowerPlan], dtype: torch.dtype, device: torch.device
    ) -> "TowerPair":
        spatial, semantic = (read_tower(plan, dtype).to(device) for plan in plans)
        return cls(spatial, semantic, plans, device)

    def encode(self, images: Sequence[Image.Image]) -> Features:
        """The features of these pictures in bfloat16, as the store keeps them."""
        return self.see(*(prepare(images, plan.preprocessing) for plan in self.plans))

    def see(self, spatial: Tensor, semantic: Tensor) -> Features:
        """The features of prepared pictures."""
        return Features(
            self.spatial(spatial.to(self.device)).to(torch.bfloat16),
            self.semantic(semantic.to(self.device)).to(torch.bfloat16),
        )


@dataclass(frozen=True, kw_only=True)
class FeaturePlan:
    """What a run needs of its towers, known before any is loaded."""

    samples: Samples
    catalogue: Catalogue
    towers: tuple[TowerPlan, TowerPlan]
    digests: Mapping[str, str]
    """Of the towers' weights, by stream."""
    store: FeatureStore
    run: Run

    @classmethod
    def of(cls, run: Run, samples: Samples) -> "FeaturePlan":
        towers = plan_tower(run.spatial), plan_tower(run.semantic)
        digests = [weights_digest(plan.folder) for plan in towers]
        catalogue = Catalogue.of(samples.source)
        spatial, semantic = (
            _stream(plan, f"{digest} {run.dtype}")
            for plan, digest in zip(towers, digests, strict=True)
        )
        contents = Contents(
            source=samples.identity, images=catalogue.images, spatial=spatial, semantic=semantic
        )
        return cls(
            samples=samples,
            catalogue=catalogue,
            towers=towers,
            digests=dict(zip(("spatial", "semantic"), digests, strict=True)),
            store=FeatureStore(Path(run.features.folder), contents),
            run=run,
        )

    def load_towers(self, device: torch.device) -> TowerPair:
        return TowerPair.load(self.towers, DTYPES[self.run.dtype], device)

    def build(self, processes: PartialState, *, report: Report = silent) -> None:
        """Runs the towers over the images that are not stored yet; all processes share the work."""
        if self.store.missing():
            towers = self.load_towers(processes.device)
            self.store.build(
                lambda rows: towers.encode(self._pictures([self.catalogue.first[r] for r in rows])),
                batch=self.run.features.batch,
                rank=processes.process_index,
                processes=processes.num_processes,
                report=report,
            )
        processes.wait_for_everyone()

    def stored(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """The features of the samples at these positions of the source."""
        spatial, semantic = self.store.read([self.catalogue.rows[index] for index in indices])
        return {"spatial_features": spatial, "semantic_features": semantic}

    def pixels(self, indices: Sequence[int]) -> Mapping[str, Tensor]:
        """The prepared pictures of the samples at these positions of the source."""
        pictures = self._pictures(indices)
        spatial, semantic = (prepare(pictures, plan.preprocessing) for plan in self.towers)
        return {"pixel_values": spatial, "pixel_values_semantic": semantic}

    def _pictures(self, indices: Sequence[int]) -> list[Image.Image]:
        return [self.samples.source.image(self.catalogue.samples[index]) for index in indices]


def _stream(plan: TowerPlan, made_by: str) -> Stream:
    return Stream(
        origin=f"{made_by} {plan.preprocessing} {plan.selection}",
        tokens=plan.selection.num_tokens,
        width=plan.vision.hidden_size,
    )
