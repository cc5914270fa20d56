"""Our own form: one `Sample` as JSON on each line, pictures as files beside it."""

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from paiq.data.reader import KINDS, FolderReader, Kind, Place
from paiq.errors import DataError
from paiq.records import Sample

SAMPLE = TypeAdapter(Sample)


@dataclass(frozen=True, kw_only=True)
class JsonlOptions:
    """There is nothing to set."""


class JsonlReader(FolderReader):
    def __init__(self, place: Place, options: JsonlOptions) -> None:
        if not place.path.is_file():
            raise DataError(f"{place.path} is no file of JSON lines")
        super().__init__(place.image_folder("images"))
        self.files = (place.path,)
        self.lines = place.path.read_bytes().split(b"\n")
        if self.lines[-1] == b"":
            self.lines.pop()

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, row: int) -> Sample:
        try:
            return SAMPLE.validate_json(self.lines[row])
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the line"
            where = f"{self.files[0]} row {row}"
            raise DataError(f"{where} is no Sample: {place}: {first['msg']}") from error


KINDS.register("jsonl")(
    Kind(JsonlReader, JsonlOptions, "one Sample of ours per line, pictures as files")
)
