"""Clocks and memory for contenders that are measured side by side.

Contenders take turns, so that a busy machine slows all of them alike; what counts is the median
and the ratio of medians within one run.
"""

import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from paiq.errors import ConfigError

Call = Callable[[], object]

WINDOW_SECONDS = {"cpu": 0.02, "cuda": 0.002}  # shorter calls are repeated inside one reading
SLOW_SECONDS = 3.0  # a first call longer than this is warm enough to count
MOST_ROUNDS = 25
LEAST_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one contender took."""

    median_ms: float
    low_ms: float
    high_ms: float
    rounds: int

    @property
    def spread(self) -> float:
        """Half the distance of the extremes, relative to the median."""
        return (self.high_ms - self.low_ms) / 2 / self.median_ms


def side_by_side(
    calls: Mapping[str, Call], device: torch.device, seconds: float
) -> dict[str, Timing]:
    """The time of each call, in turns, for about that long and at least twice each."""
    readings: dict[str, list[float]] = {}
    inner = {}
    for name, call in calls.items():
        first = _reading(call, device, 1)
        readings[name] = [first] if first > SLOW_SECONDS else []
        # The shortest of three: a call that was interrupted must not look like a long one.
        again = first if readings[name] else min(_reading(call, device, 1) for _ in range(3))
        inner[name] = max(1, min(100, math.ceil(WINDOW_SECONDS[device.type] / again)))
    started, rounds = time.perf_counter(), 0
    while rounds < MOST_ROUNDS:
        late = time.perf_counter() - started > seconds
        if late and min(map(len, readings.values())) >= LEAST_ROUNDS:
            break
        for name, call in calls.items():
            if not late or len(readings[name]) < LEAST_ROUNDS:
                readings[name].append(_reading(call, device, inner[name]))
        rounds += 1
    return {name: _timing(values) for name, values in readings.items()}


def _timing(seconds: list[float]) -> Timing:
    return Timing(
        median_ms=1e3 * statistics.median(seconds),
        low_ms=1e3 * min(seconds),
        high_ms=1e3 * max(seconds),
        rounds=len(seconds),
    )


def _reading(call: Call, device: torch.device, repeats: int) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / 1e3 / repeats
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats


def captured(call: Callable[[], Tensor]) -> Call:
    """The call as a CUDA graph: one launch replays all its kernels on the same tensors."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def product_rate(device: torch.device, dtype: torch.dtype, width: int) -> float:
    """Operations per second of a square matrix product, the floor of everything here."""
    a, b = torch.randn(2, width, width, device=device).to(dtype)
    timing = side_by_side({"product": lambda: a @ b}, device, seconds=1.0)["product"]
    return 2 * width**3 / (timing.median_ms / 1e3)


def peak_memory(call: Call, device: torch.device) -> int:
    """Bytes that live at the same time in tensors made during the call, at the most."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with LiveTensors() as live:
        call()
    return live.most


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of storages that operations return, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in given:  # not a view of an input
                    self._known[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        self._known = {key: known for key, known in self._known.items() if not known[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._known.values()))
        return result


def device_named(name: str | None) -> torch.device:
    """That device, or CUDA where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in WINDOW_SECONDS:
        raise ConfigError(f"device must be 'cpu' or 'cuda', got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("no CUDA device here; `paiq doctor` shows what there is")
    return torch.device(name)


def machine(device: torch.device) -> dict[str, Any]:
    """What a reader must know to read the numbers."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "device": device.type,
        "name": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """A block that computes with so many threads; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def tensor_float32(allowed: bool) -> Iterator[None]:
    """A block whose float32 products on CUDA are TF32 or IEEE."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
