"""What the demo found, as the page needs it: raw aligned scores, curves, cards and maps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float

from paiq.errors import DataError
from paiq.records import Axis, Family


@dataclass(frozen=True, kw_only=True)
class DemoMethod:
    """One interface of the comparison."""

    name: str
    """The registry's name; keys everything else."""
    tokens: int
    parameters: int
    equation: str = ""


@dataclass(frozen=True, kw_only=True)
class DemoScores:
    """Exact scores of one trained model on one slice, aligned by sample."""

    method: str
    split: str
    family: Family
    seed: int
    sample_ids: tuple[str, ...]
    accuracy: tuple[int, ...]
    hallucination: tuple[int, ...]

    def __post_init__(self) -> None:
        counts = {len(self.sample_ids), len(self.accuracy), len(self.hallucination)}
        if len(counts) != 1 or 0 in counts:
            raise DataError(
                f"{self.method}, {self.split}, {self.family}: {len(self.sample_ids)} samples, "
                f"{len(self.accuracy)} accuracy and {len(self.hallucination)} hallucination scores"
            )
        if len(set(self.sample_ids)) != len(self.sample_ids):
            raise DataError(f"{self.method}, {self.split}, {self.family}: a sample occurs twice")

    def on(self, axis: Axis) -> tuple[int, ...]:
        return self.accuracy if axis == "accuracy" else self.hallucination


@dataclass(frozen=True, kw_only=True)
class DemoCurve:
    """Training loss of one method and seed."""

    method: str
    seed: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    validation_steps: tuple[int, ...] = ()
    validation_losses: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DemoProbe:
    """What a linear probe reads from each frozen tower, and what guessing would reach."""

    attribute: str
    spatial: float
    semantic: float
    chance: float


@dataclass(frozen=True, kw_only=True)
class ClaimSpan:
    """Characters [start, end) of an answer that make one claim."""

    start: int
    end: int
    right: bool


@dataclass(frozen=True, kw_only=True)
class DemoAnswer:
    """What one method said about one card's picture."""

    method: str
    text: str
    accuracy: int
    hallucination: int
    claims: tuple[ClaimSpan, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DemoMaps:
    """Diagnostics of the trained PAIQ interface on one picture."""

    allocation: Mapping[tuple[int, int], Float[np.ndarray, "h w"]]
    """For a few output patches (row, column): how much each semantic patch gives to it."""
    concentration: Float[np.ndarray, "a b"]
    """H of each output patch."""
    update: Float[np.ndarray, "a b"]
    """rho of each output patch; NaN where the base norm is zero."""


@dataclass(frozen=True, kw_only=True)
class DemoCard:
    """One held-out picture with every method's answer."""

    sample_id: str
    split: str
    family: Family
    image_png: bytes
    prompt: str
    reference: str
    answers: tuple[DemoAnswer, ...]
    maps: DemoMaps | None = None


@dataclass(frozen=True, kw_only=True)
class DemoResults:
    """Everything on the demo's page; the page itself averages and rounds."""

    methods: tuple[DemoMethod, ...]
    """In the order of the tables; `paiq` is the one compared with the others."""
    scores: tuple[DemoScores, ...]
    cards: tuple[DemoCard, ...]
    curves: tuple[DemoCurve, ...] = ()
    ceilings: tuple[DemoScores, ...] = ()
    """The frozen language model given the true words: what any interface could reach."""
    probes: tuple[DemoProbe, ...] = ()
    recipe: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    """Sentences on what the numbers do not say; the page adds its standing ones."""
    title: str = "PAIQ, small and for real"
    mode: Literal["quick", "default", "full"] = "default"
    seconds: float | None = None
    device: str = "CPU"

    def __post_init__(self) -> None:
        if not self.scores:
            raise DataError("there is nothing to show: no method has scores")
        known = {method.name for method in self.methods}
        used = {s.method for s in self.scores} | {c.method for c in self.curves}
        used |= {answer.method for card in self.cards for answer in card.answers}
        if used - known:
            raise DataError(f"results for methods that are not listed: {sorted(used - known)}")
