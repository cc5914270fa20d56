"""Work that can run beside other work on a CUDA device."""

from functools import cache

import torch
from torch import Tensor


class Side:
    """A second CUDA stream for what does not depend on the first; nothing on a processor."""

    def __init__(self, tensor: Tensor) -> None:
        self.main = self.stream = None
        if tensor.is_cuda:
            self.main = torch.cuda.current_stream(tensor.device)
            self.stream = _side_stream(tensor.device)

    def __enter__(self) -> None:
        if self.stream is not None and self.main is not None:
            self.stream.wait_stream(self.main)
            torch.cuda.set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self.main is not None:
            torch.cuda.set_stream(self.main)

    def mark(self) -> torch.cuda.Event | None:
        return None if self.stream is None else self.stream.record_event()

    def wait(self, event: torch.cuda.Event | None, made: Tensor) -> None:
        """The first stream goes on when the event has passed, and may then use what was made."""
        if self.main is not None and event is not None:
            self.main.wait_event(event)
            made.record_stream(self.main)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
