"""What the next forward passes need, made ready by threads while the present one runs."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from paiq.training.schedule import Plan, share

IGNORED = -100


class Rendered(Protocol):
    """A sample as tokens: the prompt with its image slots, the answer, and what is supervised."""

    @property
    def input_ids(self) -> Sequence[int]: ...

    @property
    def labels(self) -> Sequence[int]: ...


class Texts(NamedTuple):
    """The padded texts of one forward pass."""

    input_ids: Int[Tensor, "B L"]
    attention_mask: Bool[Tensor, "B L"]
    labels: Int[Tensor, "B L"]


@dataclass(frozen=True)
class MicroBatch:
    """One forward pass."""

    inputs: Mapping[str, Tensor]
    """The arguments of the model's `answer_loss`, by name."""
    samples: int
    """How many count; 0 for a pass that only keeps the other processes company."""

    def to(self, device: torch.device) -> Mapping[str, Tensor]:
        return {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}


def pad(rendered: Sequence[Rendered], padding: int) -> Texts:
    """Texts side by side, filled up at the right; what is filled is neither seen nor supervised."""
    longest = max(len(text.input_ids) for text in rendered)
    rows = [
        (
            [*text.input_ids, *[padding] * (longest - len(text.input_ids))],
            [True] * len(text.input_ids) + [False] * (longest - len(text.input_ids)),
            [*text.labels, *[IGNORED] * (longest - len(text.labels))],
        )
        for text in rendered
    ]
    return Texts(*(torch.tensor(column) for column in zip(*rows, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The forward passes of each step, for one process."""

    plan: Plan
    render: Callable[[int], Rendered]
    """The text of the sample at this position of the source."""
    vision: Callable[[Sequence[int]], Mapping[str, Tensor]]
    """The features, or the pixels, of the samples at these positions."""
    padding: int
    rank: int = 0
    processes: int = 1
    together: bool = False
    """Whether all processes must make the same number of passes."""

    def step(self, step: int) -> list[MicroBatch]:
        """This process's part of the step."""
        indices = self.plan.indices(step)
        texts = [self.render(index) for index in indices]
        lengths = [len(text.input_ids) for text in texts]
        mine = share(lengths, self.plan.batch.micro, self.rank, self.processes)
        batches = [self._collate(indices, texts, chosen) for chosen in mine.batches]
        if self.together and mine.idle:
            shortest = min(range(len(lengths)), key=lengths.__getitem__)
            company = self._collate(indices, texts, (shortest,))
            batches += [MicroBatch(company.inputs, samples=0)] * mine.idle
        return batches

    def steps(self, start: int, stop: int) -> Iterator[tuple[int, list[MicroBatch]]]:
        """Steps in order, a few of them made ahead."""
        ahead = self.plan.batch.workers
        waiting: deque[tuple[int, Future[list[MicroBatch]]]] = deque()
        with ThreadPoolExecutor(ahead, thread_name_prefix="feed") as pool:
            try:
                for step in range(start, stop):
                    while len(waiting) <= ahead and step + len(waiting) < stop:
                        coming = step + len(waiting)
                        waiting.append((coming, pool.submit(self.step, coming)))
                    number, future = waiting.popleft()
                    yield number, future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _collate(
        self, indices: Sequence[int], texts: Sequence[Rendered], chosen: Sequence[int]
    ) -> MicroBatch:
        padded = pad([texts[position] for position in chosen], self.padding)
        vision = self.vision([indices[position] for position in chosen])
        return MicroBatch({**padded._asdict(), **vision}, samples=len(chosen))
