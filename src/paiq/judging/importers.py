"""Predictions of other programs as ours, with their samples where the file tells enough.

Texts are taken as they are. A row twice, a failure notice in place of an answer and a text that a
spreadsheet has cut are errors: none of them is what a model said.
"""

import csv
import io
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from paiq.data.json_file import parse_json
from paiq.data.prompts import take_apart
from paiq.errors import DataError
from paiq.records import Prediction, Sample, Turn
from paiq.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What a file holds; `samples` is empty where it tells too little about them."""

    predictions: tuple[Prediction, ...]
    samples: tuple[Sample, ...] = ()


Importer = Callable[[Path, str, Sequence[Sample]], Imported]
FORMATS: Registry[Importer] = Registry("prediction format")

# Notices that the kits write where an answer should stand.
NOTICES = re.compile(
    r"\[LMMS_EVAL_REQUEST_FAILED|\[LMMS_EVAL_BUDGET_EXCEEDED\]|Failed to obtain answer via API"
)
LONGEST_CELL = 32_767
"""Characters a spreadsheet cell can hold; the rest of a longer text is gone."""
IDS = ("sample_id", "question_id", "id")
TEXTS = ("prediction", "text", "response", "output")


def read(path: Path, form: str, *, method: str, samples: Sequence[Sample] = ()) -> Imported:
    """The predictions of one method in a file of this format.

    `samples` is the slice that was answered; formats that number rows need it to find their ids.
    """
    imported = FORMATS[form](path, method, samples)
    if not imported.predictions:
        raise DataError(f"{path} holds no predictions")
    _refuse_repeats(path, imported.predictions)
    _refuse_notices(path, imported.predictions)
    return imported


@FORMATS.register("jsonl")
def read_jsonl(path: Path, method: str, samples: Sequence[Sample]) -> Imported:
    """One object per line with an id and a text; our own predictions are read as they are."""
    predictions = []
    for where, row in _lines(path):
        name, text = _one_of(row, IDS, where), _one_of(row, TEXTS, where)
        predictions.append(
            Prediction(
                sample_id=name,
                method=_text(row.get("method", method), "method", where),
                text=text,
                finish_reason="length" if row.get("finish_reason") == "length" else "stop",
                prompt_tokens=_count(row, "prompt_tokens", where),
                new_tokens=_count(row, "new_tokens", where),
                settings=_settings(row, path),
            )
        )
    return Imported(predictions=tuple(predictions))


@FORMATS.register("granulon")
def read_granulon(path: Path, method: str, samples: Sequence[Sample]) -> Imported:
    """The eval.json of Granulon's script: image path, question, reference, prediction.

    It keeps no ids and leaves out rows whose image was missing, so positions say nothing: an id is
    made of the image's name and the question.
    """
    rows = _json(_bytes(path), str(path))
    if not isinstance(rows, list):
        raise DataError(f"{path} must hold a list of records")
    found = [_granulon_row(row, method, f"{path} record {n}", path) for n, row in enumerate(rows)]
    return Imported(
        predictions=tuple(prediction for prediction, _ in found),
        samples=tuple(sample for _, sample in found),
    )


def _granulon_row(row: Any, method: str, where: str, path: Path) -> tuple[Prediction, Sample]:
    image, asked, reference, answer = (
        _field(row, name, where)
        for name in ("image_path", "human_question", "reference", "prediction")
    )
    name = re.split(r"[/\\]", image)[-1]
    prompt = asked.replace("<image>", "").strip("\n")
    digest = sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    question, options = take_apart(prompt)
    if options and reference not in options:
        raise DataError(f"{where}: the reference {reference!r} is none of the options")
    sample = Sample(
        id=f"{name.rpartition('.')[0] or name}-{digest}",
        image=name,
        family="vqa" if options else "description",
        turns=(Turn(prompt=prompt),),
        question=question if options else None,
        options=options,
        reference=reference if options else None,
    )
    return _imported(sample.id, method, answer, path), sample


@FORMATS.register("lmms-eval")
def read_lmms_eval(path: Path, method: str, samples: Sequence[Sample]) -> Imported:
    """A sample log of lmms-eval; `doc_id` is a position in the slice, given as `samples`.

    The unfiltered response counts; the log leaves it out where the filter changed nothing.
    """
    if not samples:
        raise DataError("a log of lmms-eval numbers its rows; give the samples that were answered")
    predictions = []
    for where, row in _lines(path):
        position = row.get("doc_id")
        if type(position) is not int or not 0 <= position < len(samples):
            raise DataError(
                f"{where}: doc_id {position!r} is no position among {len(samples)} samples"
            )
        text = _only_text(row.get("resps", row.get("filtered_resps")), where)
        predictions.append(_imported(samples[position].id, method, text, path))
    return Imported(predictions=tuple(predictions))


def _only_text(value: Any, where: str) -> str:
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise DataError(f"{where}: exactly one response is needed, the log holds {value!r:.80}")
    return value


@FORMATS.register("vlmevalkit")
def read_vlmevalkit(path: Path, method: str, samples: Sequence[Sample]) -> Imported:
    """A prediction table of VLMEvalKit as TSV: index, question, A, B, ..., answer, prediction.

    Where the samples are not given they are read from the table; pictures are then looked for under
    `image_path`, or as INDEX.jpg, the name under which the kit unpacks them.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".pkl"):
        raise DataError(f"{path.name}: save the table as tab-separated text (.tsv) and give that")
    rows = list(_table(path))
    known = {sample.id for sample in samples}
    predictions, found = [], []
    for where, row in rows:
        name = _field(row, "index", where)
        if known and name not in known:
            raise DataError(f"{where}: index {name!r} is no sample")
        text = _field(row, "prediction", where)
        if len(text) >= LONGEST_CELL:
            raise DataError(f"{where}: the prediction was cut at a spreadsheet's {LONGEST_CELL}")
        predictions.append(_imported(name, method, text, path))
        if not known:
            found.append(_vlmevalkit_sample(row, name, where))
    return Imported(predictions=tuple(predictions), samples=tuple(found))


def _vlmevalkit_sample(row: Mapping[str, str], name: str, where: str) -> Sample:
    lettered = {x: row[x] for x in string.ascii_uppercase if row.get(x, "") != ""}
    question, answer = _field(row, "question", where), _field(row, "answer", where)
    if list(lettered) != list(string.ascii_uppercase[: len(lettered)]):
        raise DataError(f"{where}: the options {', '.join(lettered)} have a gap")
    if lettered and answer not in lettered:
        raise DataError(f"{where}: the answer {answer!r} is none of {', '.join(lettered)}")
    hint = row.get("hint", "")
    asked = f"{hint}\n{question}" if hint else question
    return Sample(
        id=name,
        image=row.get("image_path") or f"{name}.jpg",
        family="vqa",
        turns=(Turn(prompt=asked),),
        question=asked,
        options=tuple(lettered.values()),
        reference=lettered.get(answer, answer),
    )


# What all of them refuse


def _refuse_repeats(path: Path, predictions: Iterable[Prediction]) -> None:
    texts: dict[tuple[str, str], str] = {}
    for prediction in predictions:
        name = prediction.sample_id, prediction.method
        if name in texts:
            how = "twice" if texts[name] == prediction.text else "twice with different texts"
            raise DataError(f"{path}: {name[1]!r} answers {name[0]!r} {how}; keep one row of each")
        texts[name] = prediction.text


def _refuse_notices(path: Path, predictions: Iterable[Prediction]) -> None:
    failed = [each.sample_id for each in predictions if NOTICES.search(each.text)]
    if failed:
        raise DataError(
            f"{path}: {len(failed)} rows hold the notice of a failed request instead of an answer, "
            f"the first for {failed[0]!r}; generate those again"
        )


# Small readers


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    content = _bytes(path).split(b"\n")
    if content[-1] == b"":
        content.pop()
    for number, line in enumerate(content, start=1):
        where = f"{path}:{number}"
        row = _json(line, where)
        if not isinstance(row, dict):
            raise DataError(f"{where} is no JSON object")
        yield where, row


def _table(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    try:
        lines = io.StringIO(_bytes(path).decode("utf-8"), newline="")
        rows = csv.reader(lines, delimiter="\t", strict=True)
        names = next(rows, [])
        if len(set(names)) != len(names):
            raise DataError(f"{path}: a column stands twice: {', '.join(names)}")
        for number, cells in enumerate(rows, start=2):
            if len(cells) != len(names):
                raise DataError(f"{path} row {number}: {len(cells)} cells, {len(names)} columns")
            yield f"{path} row {number}", dict(zip(names, cells, strict=True))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except csv.Error as error:
        raise DataError(f"{path} is no tab-separated table: {error}") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def _json(content: bytes, where: str) -> Any:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8: {error}") from error
    return parse_json(text, where)


def _one_of(row: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    present = [name for name in names if name in row]
    if len(present) != 1:
        raise DataError(
            f"{where} needs exactly one of {', '.join(names)}; it has {', '.join(row) or 'nothing'}"
        )
    value = row[present[0]]
    return str(value) if type(value) is int and names is IDS else _text(value, present[0], where)


def _field(row: Any, name: str, where: str) -> str:
    if not isinstance(row, dict) or name not in row:
        raise DataError(f"{where} has no {name!r}")
    return _text(row[name], name, where)


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {name!r} must be text, got {value!r:.80}")
    return value


def _count(row: Mapping[str, Any], name: str, where: str) -> int:
    value = row.get(name, 0)
    if type(value) is not int or value < 0:
        raise DataError(f"{where}: {name!r} must be a count, got {value!r:.80}")
    return value


def _settings(row: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    settings = row.get("settings")
    return settings if isinstance(settings, dict) else {"imported_from": path.name}


def _imported(name: str, method: str, text: str, path: Path) -> Prediction:
    """These formats say neither how the text ended nor how many tokens it took."""
    return Prediction(
        sample_id=name,
        method=method,
        text=text,
        finish_reason="stop",
        prompt_tokens=0,
        new_tokens=0,
        settings={"imported_from": path.name, "unknown": ["finish_reason", "tokens"]},
    )
