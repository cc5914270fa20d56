"""FLUX-Reason-6M: parquet shards with pictures inside and eight kinds of caption.

A folder is read as one long table: all shards under it in the order of their names.
"""

from dataclasses import dataclass

from paiq.data.parquet import TableReader, shards
from paiq.data.prompts import DESCRIBE
from paiq.data.reader import KINDS, Kind, Place, require
from paiq.records import Sample, Turn


@dataclass(frozen=True, kw_only=True)
class FluxOptions:
    caption: str = "caption_original"
    """The column that holds the target; the paper does not say which one it trained on."""
    prompt: str = DESCRIBE
    """The instruction; the paper does not print its own."""


class FluxReader(TableReader):
    def __init__(self, place: Place, options: FluxOptions) -> None:
        super().__init__(shards(place.path))
        self.table.need("id", options.caption)
        self.options = options

    def __getitem__(self, row: int) -> Sample:
        where = self.table.where(row)
        values = self.table.read(row, ("id", self.options.caption))
        answer = require(values, self.options.caption, str, where)
        return Sample(
            id=require(values, "id", str, where),
            image=f"row {row}",
            family="description",
            turns=(Turn(prompt=self.options.prompt, answer=answer),),
        )


KINDS.register("flux")(
    Kind(FluxReader, FluxOptions, "FLUX-Reason-6M parquet shards, caption column of your choice")
)
