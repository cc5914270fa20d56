"""Judging: predictions become requests, requests become accepted replies, replies become scores."""

from typing import Any


def __getattr__(name: str) -> Any:
    # For notebooks; the module behind it is heavy and loaded when it is asked for.
    if name == "judge_async":
        from paiq.judging.judge import judge_async

        return judge_async
    raise AttributeError(f"module 'paiq.judging' has no attribute {name!r}")
