"""Samples: where they come from, which of them, and their images."""

# Importing a reader registers it; a new format is a new file and a name in this line.
from paiq.data import a_okvqa, flux, jsonl, llava, seed_bench, vlmevalkit, webdataset
from paiq.data.images import inside, read_image
from paiq.data.opening import DataConfig, Selection, open_source, parse_source
from paiq.data.reader import KINDS
from paiq.data.slices import PAPER_SLICES
from paiq.data.source import SampleSource

__all__ = [
    "KINDS",
    "PAPER_SLICES",
    "DataConfig",
    "SampleSource",
    "Selection",
    "a_okvqa",
    "flux",
    "inside",
    "jsonl",
    "llava",
    "open_source",
    "parse_source",
    "read_image",
    "seed_bench",
    "vlmevalkit",
    "webdataset",
]
