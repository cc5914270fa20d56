"""What holds for every test."""

from hypothesis import settings

# The same examples on every machine and in every run: a red suite is a change, never a dice roll.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
