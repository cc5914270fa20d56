"""What every source of samples offers, be it a folder, a parquet shard or the generated world."""

from typing import Protocol

from PIL import Image

from paiq.records import Sample


class SampleSource(Protocol):
    """Samples by position, and the picture of each."""

    @property
    def name(self) -> str:
        """Says which samples these are, slice included: `flux[500:1500]`, `world/test`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def image(self, sample: Sample) -> Image.Image:
        """The picture as RGB, upright; an error names the file."""
