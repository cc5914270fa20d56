"""Side-by-side measurements, each against a reference in the same run."""
