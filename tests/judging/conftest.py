import pytest

from judging.fault_server import CANARY, VARIABLE


@pytest.fixture(autouse=True)
def key_in_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, CANARY)
