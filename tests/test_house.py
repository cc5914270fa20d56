"""The rules of the house: layers, sizes, quick start, names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "paiq"
MODULES = sorted(SOURCE.rglob("*.py"))

# A room may import rooms of lower rows only; rooms of one row do not know each other.
LAYERS = (
    {"errors", "registry", "files", "config", "records", "progress"},
    {"interfaces"},
    {"towers", "data"},
    {"model"},
    {"world"},
    {"training", "generation"},
    {"judging"},
    {"analysis"},
    {"report"},
    {"demo", "bench"},
    {"cli"},
)
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}

MOST_LINES = 400
MOST_STATEMENT_LINES = 60
MOST_PARAMETERS = 6
MOST_NESTING = 4

# Rare exceptions, each with its reason.
ALLOWED: dict[str, str] = {}


def room_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "paiq":
            names += [f"paiq.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.split(".")[1] for name in names if name.startswith("paiq.")} & set(RANK)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(module):
    room = room_of(module)
    if room in ("__init__", "__main__"):
        return
    for other in imported_rooms(ast.parse(module.read_text())) - {room}:
        same_ground = RANK[room] == RANK[other] == 0
        assert RANK[other] < RANK[room] or same_ground, f"{room} must not import {other}"


def nesting(node: ast.AST, depth: int = 0) -> int:
    blocks = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith)
    deepest = depth
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                # `elif` is an If in an orelse: as deep as the `if` it belongs to.
                chained = field == "orelse" and isinstance(node, ast.If) and len(value) == 1
                inner = depth + (isinstance(child, blocks) and not chained)
                deepest = max(deepest, nesting(child, inner))
    return deepest


def complaints(module: Path) -> list[str]:
    text = module.read_text()
    found = []
    if len(text.splitlines()) > MOST_LINES:
        found.append(f"{len(text.splitlines())} lines")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        body = node.body[1:] if ast.get_docstring(node) else node.body
        length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        count = len([a for a in arguments if a.arg not in ("self", "cls")])
        if length > MOST_STATEMENT_LINES:
            found.append(f"{node.name}: {length} lines")
        if count > MOST_PARAMETERS:
            found.append(f"{node.name}: {count} parameters")
        if nesting(node) > MOST_NESTING:
            found.append(f"{node.name}: nested {nesting(node)} deep")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_sizes_stay_small(module):
    name = str(module.relative_to(SOURCE))
    if name not in ALLOWED:
        assert not complaints(module)


@pytest.mark.parametrize("words", [["-c", "import paiq"], ["-m", "paiq", "--help"]])
def test_start_loads_no_torch(words):
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", *words], capture_output=True, text=True, check=True
    )
    loaded = {line.rsplit("|", 1)[-1].strip() for line in shown.stderr.splitlines()}
    assert not loaded & {"torch", "transformers", "numpy"}
