"""Measurements side by side, each against a reference in the same run."""
