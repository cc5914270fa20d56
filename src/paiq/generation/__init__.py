"""Greedy answers to samples, and their files."""

from paiq.generation.answers import GenerationConfig, Samples, Vision, generate
from paiq.generation.greedy import Answer, greedy
from paiq.generation.ledger import PredictionFile, Predictor
from paiq.generation.slices import Slice

__all__ = [
    "Answer",
    "GenerationConfig",
    "PredictionFile",
    "Predictor",
    "Samples",
    "Slice",
    "Vision",
    "generate",
    "greedy",
]
