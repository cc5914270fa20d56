"""VLMEvalKit's tables: tab-separated, the picture as base64 in a cell or as a file's path.

A cell of at most 64 characters in `image` is the `index` of the row that holds the picture.
The pictures stay on disk; only where each row begins is remembered.
"""

import base64
import binascii
import csv
import string
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from paiq.data.images import MOST_BYTES, inside, read_bytes
from paiq.data.prompts import OPTION_CONTENT, ask, check_template
from paiq.data.reader import KINDS, Kind, Place, Reader
from paiq.errors import DataError
from paiq.records import Sample, Turn

LONGEST_REFERENCE = 64


@dataclass(frozen=True, kw_only=True)
class VlmEvalKitOptions:
    template: str = OPTION_CONTENT
    """The prompt, with places {question} and {options}."""

    def __post_init__(self) -> None:
        check_template(self.template)


class VlmEvalKitReader(Reader):
    def __init__(self, place: Place, options: VlmEvalKitOptions) -> None:
        if not place.path.is_file():
            raise DataError(f"{place.path} is no .tsv file")
        self.files = (place.path,)
        self.images = place.image_folder("images")
        self.options = options
        self.starts: list[int] = []
        self.columns: list[str] = []
        self._row_of: dict[str, int] = {}
        self._scan()

    def _scan(self) -> None:
        path = self.files[0]
        with path.open("rb") as file:
            for row, (start, cells) in enumerate(_rows(file, path), start=-1):
                if row < 0:
                    self.columns = cells
                    self._check_columns()
                    continue
                if len(cells) != len(self.columns):
                    raise DataError(
                        f"{path} row {row} has {len(cells)} cells for {len(self.columns)} columns"
                    )
                index = cells[self.columns.index("index")]
                if index in self._row_of:
                    raise DataError(f"{path} row {row}: index {index!r} stands twice")
                self._row_of[index] = row
                self.starts.append(start)
        if not self.columns:
            raise DataError(f"{path} is empty")

    def _check_columns(self) -> None:
        missing = {"index", "question"} - set(self.columns)
        if missing or not {"image", "image_path"} & set(self.columns):
            raise DataError(
                f"{self.files[0]} needs columns index, question and image or image_path; "
                f"has {', '.join(self.columns)}"
            )
        if len(set(self.columns)) < len(self.columns):
            raise DataError(f"{self.files[0]} has a column twice")

    def __len__(self) -> int:
        return len(self.starts)

    def _cells(self, row: int) -> Mapping[str, str]:
        with self.files[0].open("rb") as file:
            file.seek(self.starts[row])
            _, texts = next(_rows(file, self.files[0]), (0, []))
        cells = dict(zip(self.columns, texts, strict=False))
        if len(texts) != len(self.columns) or self._row_of.get(cells["index"]) != row:
            raise DataError(f"{self.files[0]} has changed since it was opened")
        return cells

    def __getitem__(self, row: int) -> Sample:
        cells, where = self._cells(row), f"{self.files[0]} row {row}"
        options = _options(cells, where)
        question = "\n".join(filter(None, (cells.get("hint"), cells["question"])))
        reference = _reference(cells.get("answer", ""), options)
        return Sample(
            id=cells["index"],
            image=cells["index"],
            family="vqa",
            turns=(Turn(prompt=ask(question, options, self.options.template), answer=reference),),
            question=question,
            options=options,
            reference=reference,
        )

    def image_name(self, sample: Sample) -> str:
        return f"{self.files[0]} index {sample.image}"

    def image_bytes(self, sample: Sample) -> bytes:
        where = self.image_name(sample)
        cells = self._cells(self._row_of[sample.image])
        text = cells.get("image", "")
        if text and len(text) <= LONGEST_REFERENCE:
            text = self._referenced(text, where)
        if text:
            return _decode(text, where)
        if cells.get("image_path"):
            return read_bytes(inside(self.images, cells["image_path"]))
        raise DataError(f"{where} has no picture")

    def _referenced(self, index: str, where: str) -> str:
        if index not in self._row_of:
            raise DataError(f"{where} takes the picture of row {index!r}, which is not there")
        text = self._cells(self._row_of[index])["image"]
        if len(text) <= LONGEST_REFERENCE:
            raise DataError(f"{where} takes the picture of row {index!r}, which has none itself")
        return text


def _options(cells: Mapping[str, str], where: str) -> tuple[str, ...]:
    """The texts of columns A, B, ... up to the last that is filled."""
    texts = [cells.get(letter, "") for letter in string.ascii_uppercase]
    while texts and not texts[-1]:
        texts.pop()
    if not all(texts):
        raise DataError(f"{where} has no option {string.ascii_uppercase[texts.index('')]}")
    return tuple(texts)


def _reference(answer: str, options: tuple[str, ...]) -> str | None:
    """The text of the option that the letter names; an answer in words stays as it is."""
    by_letter = dict(zip(string.ascii_uppercase, options, strict=False))
    return by_letter.get(answer, answer) or None


def _decode(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{where}: the picture is no base64: {error}") from error


# The csv module has one limit for the whole process.
_FIELD_LIMIT = threading.Lock()


def _rows(file: BinaryIO, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each row with the byte where it begins; a row may span lines within quotes."""
    with _FIELD_LIMIT:
        csv.field_size_limit(max(csv.field_size_limit(), 2 * MOST_BYTES))
    start = position = file.tell()

    def lines() -> Iterator[str]:
        nonlocal position
        for line in file:
            position += len(line)
            yield line.decode("utf-8-sig" if position == len(line) else "utf-8")

    rows = csv.reader(lines(), delimiter="\t", strict=True)
    try:
        for cells in rows:
            if cells:
                yield start, cells
            start = position
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is broken near byte {start}: {error}") from error


KINDS.register("vlmevalkit")(
    Kind(VlmEvalKitReader, VlmEvalKitOptions, "VLMEvalKit .tsv with base64 pictures or paths")
)
