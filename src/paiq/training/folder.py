"""A run's folder: where each thing lies, and what is written before the first step.

docs/run-folder.md describes it to users.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paiq import __version__
from paiq.config import load_yaml, save_yaml, to_mapping
from paiq.errors import ConfigError
from paiq.files import write_atomically
from paiq.training.config import Run

PACKAGES = ("torch", "transformers", "accelerate", "safetensors", "numpy", "pillow")


@dataclass(frozen=True)
class RunFolder:
    """The parts of a run's folder by name."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "run.yaml"

    @property
    def versions(self) -> Path:
        return self.path / "versions.json"

    @property
    def weights(self) -> Path:
        return self.path / "weights.json"

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def predictions(self) -> Path:
        return self.path / "predictions"

    @property
    def scores(self) -> Path:
        return self.path / "scores"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def begun(self) -> bool:
        """Whether anything was trained here; before that, the settings may still change."""
        return self.config.exists() and (self.log.exists() or self.checkpoints.exists())

    def read_run(self) -> Run:
        if not self.config.exists():
            raise ConfigError(f"{self.path} is no run folder: it holds no {self.config.name}")
        return load_yaml(Run, self.config)

    def open(self, run: Run) -> None:
        """Writes what the run is, or checks that the folder holds this very run already."""
        if self.begun:
            self._must_match(run)
        elif self.config.exists():
            self.weights.unlink(missing_ok=True)  # of an attempt that failed before any step
        elif self.path.exists() and any(self.path.iterdir()):
            raise ConfigError(f"{self.path} is neither empty nor a run folder; give another --out")
        save_yaml(run, self.config)
        _write_json(self.versions, versions())

    def note_weights(self, digests: Mapping[str, str]) -> None:
        """Keeps the digests of the frozen parts; other weights than at the start are refused."""
        if self.weights.exists():
            before = json.loads(self.weights.read_text(encoding="utf-8"))
            changed = [name for name in digests if before.get(name) != digests[name]]
            if changed:
                raise ConfigError(
                    f"the weights of {', '.join(changed)} are not those {self.path} was begun "
                    "with; restore them or start a new run with another --out"
                )
        _write_json(self.weights, digests)

    def _must_match(self, run: Run) -> None:
        # Where numbers are logged and how often a run is saved may change on the way.
        before = replace(self.read_run(), logging=run.logging, saving=run.saving)
        changed = differences(to_mapping(before), to_mapping(run))
        if changed:
            raise ConfigError(
                f"{self.path} holds another run: {'; '.join(changed)}. Give another --out, "
                f"or go on with it as it is: paiq train {self.config} --out {self.path}"
            )


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """`path: before, now ...` for each setting that is not the same."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            line
            for key in dict.fromkeys([*before, *now])
            for line in differences(
                before.get(key), now.get(key), f"{path}.{key}" if path else str(key)
            )
        ]
    return [] if before == now else [f"{path} was {before!r}, now {now!r}"]


def versions() -> dict[str, str]:
    """What the run was made with."""
    return {
        "paiq": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processes": os.environ.get("WORLD_SIZE", "1"),
        **{name: version(name) for name in PACKAGES},
    }


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(dict(values), indent=1) + "\n").encode())
