"""Small slices with known scores."""

from paiq.analysis.cells import SliceRecords, collect
from paiq.analysis.comparisons import index
from paiq.records import AXES, Judgment, Prediction, Sample, Turn


def sample(key, family="vqa", image=None):
    return Sample(
        id=key, image=image or f"{key}.png", family=family, turns=(Turn(prompt="What is it?"),)
    )


def prediction(key, method, text="a cat"):
    return Prediction(
        sample_id=key, method=method, text=text, finish_reason="stop", prompt_tokens=9, new_tokens=3
    )


def judgment(key, method, axis, score, evaluator="judge"):
    return Judgment(sample_id=key, method=method, axis=axis, score=score, evaluator=evaluator)


def slice_records(scores, **changes):
    """`scores` maps a method to a list of (accuracy, hallucination); None leaves a score out."""
    count = max(len(pairs) for pairs in scores.values())
    keys = [f"s{index:04d}" for index in range(count)]
    values = {
        "group": "tiny",
        "dataset": "pets",
        "samples": [sample(key) for key in keys],
        "predictions": [prediction(key, method) for method in scores for key in keys],
        "judgments": [
            judgment(key, method, axis, value)
            for method, pairs in scores.items()
            for key, pair in zip(keys, pairs, strict=True)
            for axis, value in zip(AXES, pair, strict=True)
            if value is not None
        ],
    }
    return SliceRecords(**{**values, **changes})


def cells_of(scores, **changes):
    return index(collect(slice_records(scores, **changes)))
