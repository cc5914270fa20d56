"""A file of predictions that grows batch by batch and is put in place when whole.

While it grows it is called `NAME.jsonl.partial`. A kill leaves whole lines and perhaps a damaged
last one, which is cut; the next run goes on after the last whole line.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from paiq.errors import ConfigError, DataError
from paiq.files import sha256_of, sync_folder
from paiq.generation.answers import GenerationConfig, Samples, Vision, generate
from paiq.model import PaiqForConditionalGeneration, Renderer, load_renderer
from paiq.model.checkpoint import WEIGHTS
from paiq.progress import Report, silent
from paiq.records import Prediction, read_records, to_line

ADAPTER = TypeAdapter(Prediction)


class PredictionFile:
    """The predictions of one method for one slice."""

    def __init__(self, path: Path, samples: Samples, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.samples = samples
        self.settings = dict(settings)

    def done(self) -> int:
        """How many predictions are kept already; others than these samples' are refused."""
        if self.path.exists():
            found = list(read_records(self.path, Prediction))
            self._check(found, self.path)
            if len(found) != len(self.samples):
                raise DataError(
                    f"{self.path} holds {len(found)} predictions for {len(self.samples)} samples; "
                    "remove it to start again"
                )
            return len(found)
        found = self._repaired()
        self._check(found, self.partial)
        return len(found)

    def append(self, predictions: list[Prediction]) -> None:
        """Adds a batch; on disk when this returns."""
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(to_line(self.stamped(p)) + "\n" for p in predictions)
        try:
            with self.partial.open("ab") as file:
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"cannot write {self.partial}: {error.strerror}; what is there is kept, "
                "make room and run the same command again"
            ) from error

    def finish(self) -> None:
        self.partial.replace(self.path)
        sync_folder(self.path.parent)

    def stamped(self, prediction: Prediction) -> Prediction:
        """The prediction with the run's settings, as they are read back from JSON."""
        settings = {**prediction.settings, **self.settings}
        method = self.settings.get("method", prediction.method)
        return replace(prediction, method=method, settings=json.loads(json.dumps(settings)))

    def _repaired(self) -> list[Prediction]:
        if not self.partial.exists():
            return []
        found, whole = [], 0
        for line in self.partial.read_bytes().splitlines(keepends=True):
            try:
                found.append(ADAPTER.validate_json(line))
            except ValidationError:
                break
            if not line.endswith(b"\n"):
                found.pop()
                break
            whole += len(line)
        with self.partial.open("r+b") as file:
            file.truncate(whole)
        return found

    def _check(self, found: list[Prediction], path: Path) -> None:
        for position, prediction in enumerate(found):
            expected = self.samples[position].id if position < len(self.samples) else None
            if prediction.sample_id != expected:
                raise DataError(
                    f"line {position + 1} of {path} answers {prediction.sample_id!r}, not "
                    f"{expected!r}; it belongs to other samples: remove it or choose another name"
                )
            changed = [
                name
                for name, value in self.settings.items()
                if prediction.settings.get(name) != json.loads(json.dumps(value))
            ]
            if changed:
                raise DataError(
                    f"{path} was made with other settings ({', '.join(changed)}); "
                    "remove it or choose another name"
                )


@dataclass(frozen=True)
class Predictor:
    """A loaded model that answers slices into files."""

    model: Any
    renderer: Renderer
    config: GenerationConfig
    settings: Mapping[str, Any]
    """What else decides the answers, kept with each of them; `method` names the method."""

    @classmethod
    def load(
        cls, folder: Path, config: GenerationConfig, *, method: str | None = None
    ) -> "Predictor":
        """A predictor around a trained interface, on the best device there is."""
        if not (folder / WEIGHTS).is_file():
            raise ConfigError(
                f"{folder} holds no trained interface; train it to the end first: "
                f"paiq train {folder.parent}"
            )
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = PaiqForConditionalGeneration.from_pretrained(folder, device_map=device)
        settings = {
            "method": method or model.config.interface,
            "interface_digest": f"sha256:{sha256_of(folder / WEIGHTS)}",
            "dtype": str(model.lm_head.weight.dtype).removeprefix("torch."),
        }
        return cls(model, load_renderer(model.config), config, settings)

    def into(self, path: Path, samples: Samples, vision: Vision, report: Report = silent) -> int:
        """Writes the predictions that are missing; how many were made now."""
        decoding = {"max_new_tokens": self.config.max_new_tokens}
        file = PredictionFile(path, samples, {**self.settings, **decoding})
        start = done = file.done()
        report(done)
        if path.exists():
            return 0
        answers = generate(self.model, self.renderer, samples, vision, self.config, start)
        while batch := list(islice(answers, self.config.batch_size)):
            file.append(batch)
            done += len(batch)
            report(done)
        file.finish()
        return done - start
