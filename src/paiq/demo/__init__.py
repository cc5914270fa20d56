"""The pipeline behind `paiq demo`."""
