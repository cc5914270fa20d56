"""The run's numbers: JSON lines always, other trackers where asked for."""

import errno
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from paiq.config import to_mapping
from paiq.errors import ConfigError, DataError
from paiq.files import write_atomically
from paiq.training.config import Logging, Run
from paiq.training.folder import RunFolder

Line = Mapping[str, float | int]
Sink = Callable[[Line], None]


@contextmanager
def sinks(run: Run, folder: RunFolder, *, start: int, main: bool = True) -> Iterator[Sink]:
    """Writes a line everywhere the run asks for; lines after step `start` are cut off first."""
    with ExitStack() as stack:
        if not main:
            yield lambda line: None
            return
        each = [stack.enter_context(_jsonl(folder.log, start))]
        if run.logging.tensorboard:
            each.append(stack.enter_context(_tensorboard(folder.path)))
        for package in ("wandb", "trackio"):
            project = getattr(run.logging, package)
            if project:
                each.append(stack.enter_context(_tracker(package, project, run)))

        def write(line: Line) -> None:
            for sink in each:
                sink(line)

        yield write


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    try:
        return [json.loads(line) for line in lines[:-1]]
    except ValueError as error:
        raise DataError(f"{path} holds a line that is not JSON: {error}") from error


@contextmanager
def _jsonl(path: Path, start: int) -> Iterator[Sink]:
    # A kill leaves lines of steps that no checkpoint remembers; they will be made again.
    kept = [line for line in read_log(path) if line["step"] <= start]
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
    # Unbuffered: a line that does not fit fails where it is written, not when the file is closed.
    with path.open("ab", buffering=0) as file:

        def write(line: Line) -> None:
            data = (json.dumps(dict(line)) + "\n").encode()
            try:
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                raise DataError(
                    f"could not write {path}: {error.strerror}; make room and run the same "
                    "command again to go on from the last checkpoint"
                ) from error

        yield write


@contextmanager
def _tensorboard(folder: Path) -> Iterator[Sink]:
    module = importlib.import_module("torch.utils.tensorboard")
    writer = module.SummaryWriter(str(folder / "tensorboard"))

    def write(line: Line) -> None:
        for name, value in line.items():
            writer.add_scalar(name, value, line["step"])

    try:
        yield write
    finally:
        writer.close()


@contextmanager
def _tracker(package: str, project: str, run: Run) -> Iterator[Sink]:
    # Both packages offer the same three calls.
    module = importlib.import_module(package)
    session = module.init(project=project, name=run.name, config=to_mapping(run))

    def write(line: Line) -> None:
        values = {name: value for name, value in line.items() if name != "step"}
        session.log(values, step=line["step"])

    try:
        yield write
    finally:
        session.finish()


def check_packages(logging: Logging) -> None:
    """Stops before the first step where a wanted tracker is not installed."""
    wanted = {
        "tensorboard": logging.tensorboard,
        "wandb": logging.wandb,
        "trackio": logging.trackio,
    }
    missing = [name for name, on in wanted.items() if on and importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"logging to {', '.join(missing)} needs packages that are not here; "
            f"pip install {' '.join(missing)}, or leave it off"
        )
