"""Rules of the house: a class name, and a module's, is there once."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import empriv
from empriv.cli.main import COMMANDS

SOURCE = Path(empriv.__file__).parent
ENGINES = SOURCE / "collecting" / "engines"
"""The folder of each engine has the same files, since each answers the same questions."""


def test_every_class_name_is_there_once() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_module_name_is_there_once() -> None:
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        command = path.parent == SOURCE / "cli" and path.stem in COMMANDS
        engine = path.parent.parent == ENGINES
        if path.stem not in ("__init__", "__main__") and not command and not engine:
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_command_has_a_file_of_its_name() -> None:
    files = {path.stem for path in (SOURCE / "cli").glob("*.py")}
    assert set(COMMANDS) - {"app"} <= files
    assert (SOURCE / "app" / "command.py").is_file()  # a room of its own
