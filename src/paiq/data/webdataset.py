"""Tars in the webdataset form: files of one sample share the name up to the first dot.

A picture (`.jpg`, `.png`, ...) and either a caption (`.txt`) or an object (`.json`) that holds
LLaVA's `conversations` or a caption. Shards are indexed once; then any sample is one seek away.
"""

import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from paiq.data.json_file import parse_json
from paiq.data.llava import turns_of
from paiq.data.parquet import shards
from paiq.data.prompts import DESCRIBE
from paiq.data.reader import KINDS, Kind, Place, Reader, require
from paiq.errors import DataError
from paiq.records import Sample, Turn

PICTURES = ("jpg", "jpeg", "png", "webp")
BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True, kw_only=True)
class WebdatasetOptions:
    prompt: str = DESCRIBE
    """The instruction of samples that hold a caption only."""
    caption: str = "caption"
    """The field of a `.json` member that holds the caption."""


class Member(NamedTuple):
    tar: Path
    offset: int
    size: int

    def read(self) -> bytes:
        with self.tar.open("rb") as file:
            file.seek(self.offset)
            content = file.read(self.size)
        if len(content) < self.size:
            raise DataError(f"{self.tar} has become shorter since it was opened")
        return content


class WebdatasetReader(Reader):
    def __init__(self, place: Place, options: WebdatasetOptions) -> None:
        self.files = shards(place.path, "*.tar")
        self.options = options
        self.keys: list[str] = []
        self.members: list[dict[str, Member]] = []
        for tar in self.files:
            self._index(tar)
        self._row_of = {key: row for row, key in enumerate(self.keys)}

    def _index(self, tar: Path) -> None:
        seen: set[str] = set()
        current = None
        for name, member in _members(tar):
            stem, _, extension = name.rpartition("/")[2].partition(".")
            key = name[: len(name) - len(extension) - 1] if extension else name
            if not stem or not extension:
                raise DataError(f"{tar}: member {name!r} has no name before or after its dot")
            if key != current:
                if key in seen:
                    raise DataError(f"{tar}: the files of {key!r} do not stand together")
                seen.add(key)
                current = key
                self.keys.append(f"{tar.name}/{key}")
                self.members.append({})
            if extension.lower() in self.members[-1]:
                raise DataError(f"{tar}: member {name!r} stands twice")
            self.members[-1][extension.lower()] = member

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: int) -> Sample:
        key, members = self.keys[row], self.members[row]
        where = f"{members[next(iter(members))].tar}: {key.partition('/')[2]}"
        return Sample(id=key, image=key, family="description", turns=self._turns(members, where))

    def _turns(self, members: Mapping[str, Member], where: str) -> tuple[Turn, ...]:
        if "json" in members and "txt" not in members:
            return self._json_turns(members["json"].read(), where)
        if "txt" not in members:
            raise DataError(f"{where} has neither .txt nor .json, only {', '.join(members)}")
        return (Turn(prompt=self.options.prompt, answer=_text(members["txt"].read(), where)),)

    def _json_turns(self, content: bytes, where: str) -> tuple[Turn, ...]:
        values: Any = parse_json(_text(content, where), f"{where}.json")
        if not isinstance(values, dict):
            raise DataError(f"{where}.json must hold an object")
        if "conversations" in values:
            return turns_of(require(values, "conversations", list, where), where)
        caption = require(values, self.options.caption, str, where)
        return (Turn(prompt=self.options.prompt, answer=caption),)

    def image_bytes(self, sample: Sample) -> bytes:
        members = self.members[self._row_of[sample.image]]
        found = [name for name in members if name.rpartition(".")[2] in PICTURES]
        if len(found) != 1:
            raise DataError(f"{sample.image} has {len(found)} pictures, not one: {found}")
        return members[found[0]].read()


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8: {error}") from error


def _members(tar: Path) -> Iterator[tuple[str, Member]]:
    """The plain files of a tar that is whole."""
    try:
        with tarfile.open(tar, "r:") as file:
            for info in file:
                if info.isdir():
                    continue
                if not info.isreg():
                    raise DataError(f"{tar}: member {info.name!r} is a link or a device")
                yield info.name, Member(tar, info.offset_data, info.size)
            end = file.offset
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{tar} is no plain (uncompressed) tar: {error}") from error
    with tar.open("rb") as content:
        _require_end(content, end, tar)


def _require_end(content: BinaryIO, end: int, tar: Path) -> None:
    """A whole tar ends in empty blocks; Python's reader just stops at a broken header."""
    content.seek(end)
    if content.read(BLOCK) != bytes(BLOCK):
        raise DataError(f"{tar} is cut or broken at byte {end}: its end mark is missing")


KINDS.register("webdataset")(
    Kind(WebdatasetReader, WebdatasetOptions, "webdataset tars of pictures with .txt or .json")
)
