"""Rules of the house: a class name, and a module's, is there once; functions can be searched for."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import empriv
from empriv.cli.main import COMMANDS

pytestmark = pytest.mark.slow

SOURCE = Path(empriv.__file__).parent
ENGINES = SOURCE / "collecting" / "engines"
"""The folder of each engine has the same files, since each answers the same questions."""
ROOMS_WITH_NAMES = (
    "base", "collecting", "comparing", "judge", "ledger", "measuring", "noise", "protocols", "validate",
    "words",
)  # fmt: skip


@cache
def _definitions() -> list[tuple[Path, ast.ClassDef | ast.FunctionDef]]:
    """Every class and function, with the file that it is in."""
    return [
        (path.relative_to(SOURCE), node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]


def test_every_class_name_is_there_once() -> None:
    places = defaultdict(list)
    for path, node in _definitions():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(str(path))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_module_name_is_there_once() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        command = path.parent == SOURCE / "cli" and path.stem in COMMANDS
        engine = path.parent.parent == ENGINES
        if path.stem not in ("__init__", "__main__") and not command and not engine:
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_functions_have_names_that_can_be_searched_for() -> None:
    unnamed = [
        f"{path}:{node.lineno}"
        for path, node in _definitions()
        if path.parts[0] in ROOMS_WITH_NAMES and isinstance(node, ast.FunctionDef) and node.name == "_"
    ]
    assert unnamed == []
