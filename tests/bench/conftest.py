from training.conftest import parts, run  # noqa: F401 fixtures of another room
