"""Samples: where they come from, and their images."""

from paiq.data.source import SampleSource

__all__ = ["SampleSource"]
