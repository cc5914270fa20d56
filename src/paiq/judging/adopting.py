"""Imported predictions put into a run's folder, beside what other methods answered there."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from paiq.errors import ConfigError, DataError
from paiq.judging.importers import read
from paiq.judging.payload import pair
from paiq.records import Prediction, Sample, read_records, write_records

SLICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,100}")
R = TypeVar("R", Sample, Prediction)


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """A file of predictions and the place where they belong."""

    file: Path
    form: str
    method: str
    folder: Path
    slice: str

    def __post_init__(self) -> None:
        if not SLICE_NAME.fullmatch(self.slice):
            raise ConfigError(
                f"{self.slice!r} is no name of a slice; use letters, digits, '.', '_', '+' and '-'"
            )
        if not self.method.strip():
            raise ConfigError("name the method that made the predictions with --method")


def adopt(wanted: Adoption) -> list[str]:
    """Adds the predictions and samples to the run's files, whole or not at all; lines to show."""
    samples_file = wanted.folder / "samples" / f"{wanted.slice}.jsonl"
    predictions_file = wanted.folder / "predictions" / f"{wanted.slice}.jsonl"
    samples = list(read_records(samples_file, Sample)) if samples_file.exists() else []
    before = list(read_records(predictions_file, Prediction)) if predictions_file.exists() else []
    imported = read(wanted.file, wanted.form, method=wanted.method, samples=samples)
    together = _union(samples, imported.samples, samples_file)
    if not together:
        raise DataError(
            f"{wanted.file} tells too little about its samples; put them into {samples_file} "
            f"first, as with: paiq data export ... --to {wanted.folder} --name {wanted.slice}"
        )
    predictions = _union(before, imported.predictions, predictions_file)
    pair(predictions, together)
    if len(together) > len(samples):
        write_records(samples_file, together)
    if len(predictions) > len(before):
        write_records(predictions_file, predictions)
    added, known = len(predictions) - len(before), len(imported.predictions)
    lines = [f"{predictions_file}: {added} predictions added, {known - added} were there already"]
    answered = {prediction.sample_id for prediction in imported.predictions}
    if len(answered) < len(together):
        lines.append(f"attention: {len(together) - len(answered)} samples have no answer here")
    return lines


def _union(old: Iterable[R], new: Iterable[R], path: Path) -> list[R]:
    """All of both, the old in front; one name with two contents is an error."""
    found: dict[tuple[str, ...], R] = {}
    for record in chain(old, new):
        name = _name(record)
        if found.setdefault(name, record) != record:
            raise DataError(f"{path} holds {' by '.join(name)} already, with another content")
    return list(found.values())


def _name(record: Sample | Prediction) -> tuple[str, ...]:
    if isinstance(record, Sample):
        return (record.id,)
    return record.sample_id, record.method
