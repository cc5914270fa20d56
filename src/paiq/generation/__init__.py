"""Greedy answers to samples, and their files."""

from paiq.generation.answers import GenerationConfig, Samples, Vision, generate
from paiq.generation.greedy import Answer, greedy
from paiq.generation.ledger import PredictionFile, Predictor

__all__ = [
    "Answer",
    "GenerationConfig",
    "PredictionFile",
    "Predictor",
    "Samples",
    "Vision",
    "generate",
    "greedy",
]
