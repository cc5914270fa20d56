"""Run folders read back: samples, predictions, scores, and what the ledgers say of the rest.

A folder holds predictions/SLICE.jsonl, samples/SLICE.jsonl, scores/SLICE.jsonl, pictures under
images/ and, where a judge was asked, judge/ROUTE.sqlite. Several runs of one group (language
model) stand in one table. A slice that holds descriptions and questions becomes two data sets.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from paiq.analysis.cells import SliceRecords
from paiq.errors import ConfigError, DataError
from paiq.interfaces import INTERFACES, split_settings
from paiq.judging.ledger_files import load_book
from paiq.judging.ledger_state import Book, State
from paiq.judging.prompts import SHIPPED
from paiq.records import Axis, Family, Judgment, Prediction, Sample, read_records
from paiq.towers.folder import BUILTIN

Key = tuple[str, str, Axis]
"""Method, sample id, axis, inside one slice."""
FAMILY_NAMES: Mapping[Family, str] = {"description": "descriptions", "vqa": "questions"}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A key that ended without a score."""

    failure: str
    attempts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The interface that a run trained."""

    name: str
    tokens: int
    parameters: int
    equation: str


@dataclass(frozen=True, kw_only=True)
class RunSlice:
    """One slice of one run."""

    records: SliceRecords
    images: Path
    """Root of the samples' image paths."""
    endings: Mapping[Key, Ending] = field(default_factory=dict)
    sends: Mapping[Key, int] | None = None
    """How often each key was sent; None where no ledger was kept."""
    models: frozenset[str] = frozenset()
    """What the evaluators called themselves in accepted replies."""
    trained: Trained | None = None
    """None where the folder holds no trained model, as with imported predictions."""
    own_templates: bool = False
    """Whether a description template of ours was used, whose scores are not the paper's."""


def read_runs(words: Sequence[str], *, images: Path | None = None) -> list[RunSlice]:
    """Every slice of every run; a word is a folder, or GROUP=FOLDER."""
    found = []
    for word in words:
        group, folder = _group_and_folder(word)
        names = sorted(path.stem for path in (folder / "predictions").glob("*.jsonl"))
        if not names:
            raise ConfigError(
                f"{folder} holds no predictions; a report needs predictions/SLICE.jsonl, "
                "samples/SLICE.jsonl and scores/SLICE.jsonl (run `paiq predict` and `paiq judge`)"
            )
        books, trained = _books(folder), _trained(folder)
        for name in names:
            whole = _read_slice(folder, group, name, books, images or folder)
            found += _by_family(replace(whole, trained=trained))
    return found


def _group_and_folder(word: str) -> tuple[str, Path]:
    group, equals, path = word.partition("=")
    folder = Path(path if equals else word)
    if not folder.is_dir():
        raise ConfigError(f"no run folder {folder}; give a folder, or GROUP=FOLDER to name it")
    return (group if equals and group else _group_of(folder)), folder


def _group_of(folder: Path) -> str:
    """The language model's name from the run's config, else the folder's own."""
    config = folder / "run.yaml"
    if not config.exists():
        return folder.resolve().name
    try:
        values = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"cannot read {config}: {error}") from error
    language = values.get("language") if isinstance(values, dict) else None
    name = language.get("name") if isinstance(language, dict) else None
    if not name:
        return folder.resolve().name
    if str(name).startswith(BUILTIN):  # a folder inside the package: named by its room
        return str(name).removeprefix(BUILTIN).partition("/")[0]
    return str(name).rstrip("/").rsplit("/", 1)[-1]


def _trained(folder: Path) -> Trained | None:
    if not (folder / "model" / "config.json").exists():
        return None
    from paiq.model import PaiqConfig

    config = PaiqConfig.from_pretrained(folder / "model")
    kind = INTERFACES[config.interface]
    sizes, options = split_settings(config.interface, config.interface_settings())
    return Trained(
        name=config.interface,
        tokens=kind.count_tokens(sizes, options),
        parameters=kind.count_parameters(sizes, options),
        equation=kind.equation,
    )


def _books(folder: Path) -> list[Book]:
    return [load_book(path) for path in sorted((folder / "judge").glob("*.sqlite"))]


def _read_slice(
    folder: Path, group: str, name: str, books: Sequence[Book], images: Path
) -> RunSlice:
    scores = folder / "scores" / f"{name}.jsonl"
    records = SliceRecords(
        group=group,
        dataset=name,
        samples=list(read_records(folder / "samples" / f"{name}.jsonl", Sample)),
        predictions=list(read_records(folder / "predictions" / f"{name}.jsonl", Prediction)),
        judgments=list(read_records(scores, Judgment)) if scores.exists() else [],
    )
    covering = [book for book in books if any(key[0] == name for key in book.expected)]
    if not covering:
        return RunSlice(records=records, images=images)
    book = _book_behind(records, covering, scores)
    wanted = [item for item in book.wanted() if item.slice == name]
    ours = {digest for origin, digest in SHIPPED.values() if origin == "ours"}
    return RunSlice(
        records=records,
        images=images,
        endings={
            (item.method, item.sample_id, item.axis): Ending(
                failure=str(book.key(item.key).terminal[book.primary]),
                attempts=tuple(book.key(item.key).attempts),
            )
            for item in wanted
            if book.state(item.key) is State.TERMINAL
        },
        sends={
            (item.method, item.sample_id, item.axis): book.key(item.key).sends.total()
            for item in wanted
        },
        models=frozenset(book.models),
        own_templates=any(item.template_sha256 in ours for item in wanted),
    )


def _by_family(part: RunSlice) -> list[RunSlice]:
    """The same records, a data set for each family: their scores mean different things."""
    records = part.records
    families = {sample.id: sample.family for sample in records.samples}
    if len(set(families.values())) < 2:
        return [part]
    lost = [p.sample_id for p in records.predictions if p.sample_id not in families]
    lost += [j.sample_id for j in records.judgments if j.sample_id not in families]
    if lost:
        raise DataError(f"{records.dataset}: a record for unknown sample {lost[0]!r}")
    found = []
    for family in dict.fromkeys(families.values()):
        own = {key for key, kind in families.items() if kind == family}
        found.append(
            replace(
                part,
                records=replace(
                    records,
                    dataset=f"{records.dataset} {FAMILY_NAMES[family]}",
                    samples=[sample for sample in records.samples if sample.id in own],
                    predictions=[p for p in records.predictions if p.sample_id in own],
                    judgments=[j for j in records.judgments if j.sample_id in own],
                ),
                endings={key: end for key, end in part.endings.items() if key[1] in own},
                sends=None
                if part.sends is None
                else {key: count for key, count in part.sends.items() if key[1] in own},
            )
        )
    return found


def _book_behind(records: SliceRecords, books: Sequence[Book], scores: Path) -> Book:
    """The ledger that the score file was written from; a file that fits none is stale."""
    written = Counter(_identity(judgment) for judgment in records.judgments)
    for book in books:
        told = Counter(_identity(j) for item, j in book.scores() if item.slice == records.dataset)
        if told == written:
            return book
    raise DataError(
        f"{scores} does not hold what its ledger says; run `paiq judge` again, which rewrites it"
    )


def _identity(judgment: Judgment) -> tuple[str, str, str, int, str]:
    return (
        judgment.method,
        judgment.sample_id,
        judgment.axis,
        judgment.score,
        judgment.evaluator,
    )
