"""From samples to predictions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from paiq.errors import ConfigError
from paiq.generation.greedy import greedy
from paiq.model import Rendered, Renderer, collate
from paiq.records import Prediction, Sample

Vision = Callable[[Sequence[int]], Mapping[str, Tensor]]
"""The images of the samples at these positions, as the model takes them: `spatial_features` and
`semantic_features`, or `pixel_values` and `pixel_values_semantic`."""


class Samples(Protocol):
    """Anything with samples by position; a list of them is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How answers are decoded; the choice of token is always greedy."""

    max_new_tokens: int = 128
    """The limit of the paper's recipe; 512 for its 27B rows."""
    batch_size: int = 16
    """Samples decoded together; it changes the speed, not the answers."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.batch_size < 1:
            raise ConfigError(f"generation needs positive numbers, got {asdict(self)}")


def generate(
    model: Any,
    renderer: Renderer,
    samples: Samples,
    vision: Vision,
    config: GenerationConfig,
    start: int = 0,
) -> Iterator[Prediction]:
    """The predictions for the samples from `start` on, in their order, text exactly as decoded."""
    stop_ids = stops(model, renderer)
    settings = {"decoding": "greedy", "max_new_tokens": config.max_new_tokens}
    for first in range(start, len(samples), config.batch_size):
        positions = range(first, min(first + config.batch_size, len(samples)))
        chosen = [samples[position] for position in positions]
        prompts = [renderer.for_generation(sample) for sample in chosen]
        inputs = _inputs(model, prompts, vision(positions), renderer.pad_id)
        answers = greedy(model, inputs, limit=config.max_new_tokens, stop_ids=stop_ids)
        for sample, prompt, answer in zip(chosen, prompts, answers, strict=True):
            yield Prediction(
                sample_id=sample.id,
                method=model.config.interface,
                text=renderer.decode(answer.ids),
                finish_reason=answer.finish_reason,
                prompt_tokens=len(prompt),
                new_tokens=answer.new_tokens,
                settings=settings,
            )


def stops(model: Any, renderer: Renderer) -> frozenset[int]:
    """Every id that ends an answer: the template's own and those of the generation config."""
    known = model.generation_config.eos_token_id
    several = known if isinstance(known, list) else [known]
    ids = [renderer.end_id, renderer.tokenizer.eos_token_id, *several]
    return frozenset(int(token) for token in ids if token is not None)


def _inputs(
    model: Any, prompts: Sequence[Rendered], vision: Mapping[str, Tensor], pad_id: int
) -> dict[str, Tensor]:
    batch = collate(prompts, pad_id, "left")
    del batch["labels"]
    moved = {name: tensor.to(model.device) for name, tensor in {**batch, **vision}.items()}
    for name, tensor in moved.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ConfigError(f"{name} of this batch are not finite")
    return moved
