"""Checkpoints that are whole or not there: safetensors and JSON, a digest for each file.

    checkpoints/step-000200/tensors.safetensors   interface, optimiser, random states
                            state.json            where the run stands
                            checksums.json        SHA-256 of the two

A checkpoint is written beside its place, synced and renamed, so that a kill at any moment leaves
the ones before it. What is found damaged is passed over for the one before, with a warning.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from paiq.errors import DataError
from paiq.files import sha256_of, sync_folder

TENSORS, STATE, CHECKSUMS = "tensors.safetensors", "state.json", "checksums.json"
PREFIX = "step-"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All a run needs to go on as if it had never stopped."""

    step: int
    """Optimiser steps done."""
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]


def write(folder: Path, snapshot: Snapshot, *, keep: int) -> Path:
    """The finished checkpoint's place; older ones than the newest `keep` are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    target = folder / f"{PREFIX}{snapshot.step:06d}"
    try:
        _replace(target, snapshot)
    except OSError as error:
        _sweep(folder)
        raise DataError(_sentence(folder, target, error)) from error
    for old in found(folder)[keep:]:
        _remove(old)
    return target


def newest(folder: Path) -> Snapshot | None:
    """The newest whole checkpoint; None where there is none at all."""
    candidates = found(folder)
    for path in candidates:
        try:
            return read(path)
        except DataError as error:
            log.warning("%s; going back to the checkpoint before", error)
    if candidates:
        raise DataError(
            f"every checkpoint in {folder} is damaged; remove the folder to start again from step 0"
        )
    return None


def read(path: Path) -> Snapshot:
    """The checkpoint in this folder; anything missing or changed is an error that names it."""
    try:
        checksums = json.loads((path / CHECKSUMS).read_text(encoding="utf-8"))
        for name in (TENSORS, STATE):
            if checksums[name] != sha256_of(path / name):
                raise DataError(f"{path / name} is damaged: its contents do not match its digest")
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        return Snapshot(
            step=state.pop("step"), tensors=load((path / TENSORS).read_bytes()), state=state
        )
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is no whole checkpoint: {error}") from error


def found(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    finished = (path for path in folder.glob(f"{PREFIX}*") if _step_of(path) is not None)
    return sorted(finished, key=lambda path: _step_of(path) or 0, reverse=True)


def _step_of(path: Path) -> int | None:
    digits = path.name.removeprefix(PREFIX)
    return int(digits) if digits.isdecimal() else None


def _replace(target: Path, snapshot: Snapshot) -> None:
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    for name, data in _files(snapshot):
        _write_synced(temporary / name, data)
    sync_folder(temporary)
    temporary.chmod(0o755)
    if target.exists():  # a damaged one that was passed over, reached again
        target.rename(temporary.with_name(f"{temporary.name}.old"))
    temporary.rename(target)
    sync_folder(target.parent)
    _sweep(target.parent)


def _files(snapshot: Snapshot) -> Iterator[tuple[str, bytes]]:
    state = {**snapshot.state, "step": snapshot.step}
    files = {
        TENSORS: save({name: tensor.contiguous() for name, tensor in snapshot.tensors.items()}),
        STATE: json.dumps(state, indent=1).encode(),
    }
    yield from files.items()
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    yield CHECKSUMS, json.dumps(digests, indent=1).encode()


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sweep(folder: Path) -> None:
    """Removes what a kill left half written."""
    for path in folder.glob(f".{PREFIX}*"):
        shutil.rmtree(path)


def _remove(path: Path) -> None:
    # Renamed first: a kill in the middle leaves a hidden rest, never half a checkpoint.
    hidden = path.with_name(f".{path.name}.gone")
    path.rename(hidden)
    shutil.rmtree(hidden)


def _sentence(folder: Path, target: Path, error: OSError) -> str:
    whole = found(folder)
    kept = f"the last whole one is {whole[0]}" if whole else "there is none before it"
    return (
        f"could not write checkpoint {target}: {error.strerror}; {kept}. "
        "Make room and run the same command again to go on"
    )
