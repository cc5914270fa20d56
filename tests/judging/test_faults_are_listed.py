"""docs/judge_faults.md names a test, or a reason, for every fault; every test it names exists."""

import ast
import fnmatch
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (ROOT / "docs" / "judge_faults.md").read_text().splitlines()
    if re.match(r"\| F\d\d ", line)
]


def names_in(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef)]


def test_every_fault_has_its_row():
    assert [row[0] for row in ROWS] == [f"F{number:02}" for number in range(1, 80)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_named_test_exists(row):
    named = row[2]
    assert named, "a fault without a test needs its reason"
    files = re.findall(r"((?:tests/\w+/)?test_\w+\.py)(?:: ([^;)]*))?", named)
    assert files or named.startswith("left out: ")
    for name, patterns in files:
        path = ROOT / name if "/" in name else ROOT / "tests" / "judging" / name
        have = names_in(path)
        wanted = re.findall(r"test_[\w*]+", patterns)
        assert wanted, f"which test of {name}?"
        for pattern in wanted:
            assert fnmatch.filter(have, pattern), f"{path.name} has no {pattern}"
