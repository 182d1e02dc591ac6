"""Prints figures about the source: its size, its concepts, and how much one audit imports.

.venv/bin/python scripts/house_figures.py                                # this revision
git worktree add ../before REVISION
.venv/bin/python scripts/house_figures.py ../before . --most 5           # two side by side, with the largest modules
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
AUDIT = """
import sys
import empriv
audit = empriv.audit(empriv.databases(sys.argv[1], database="day", individual="who"), "sum(x)", epsilon=0.1)
audit.bounds(0.1)
audit.checks
opened = [m for name, m in sys.modules.items() if name.split(".")[0] == "empriv" and getattr(m, "__file__", None)]
print(sum(m.__file__.endswith(".py") for m in opened))
"""
OPTIONS = """
import click
from importlib import import_module
print(sum(isinstance(p, click.Option) for p in import_module("empriv.cli.audit").audit.params))
"""


def python_in(project: Path, script: str, *arguments: str) -> int:
    """The number that a script prints with the package of a project."""
    environment = {**os.environ, "PYTHONPATH": str((project / "src").resolve())}
    command = [sys.executable, "-c", script, *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"a script failed in {project}:\n{run.stderr}")
    return int(run.stdout)


def modules_of_one_audit(project: Path) -> int:
    """The modules of empriv that a small audit with bounds and checks imports."""
    draws = random.Random(0)
    lines = [f"{day},{who},{draws.expovariate(1.0)}" for day in range(200) for who in range(20)]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.csv"
        data.write_text("\n".join(["day,who,x", *lines]))
        return python_in(project, AUDIT, str(data))


def lines_of(paths: Iterator[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def is_dataclass(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(at) for at in node.decorator_list)


def public_names(package: Path) -> int:
    """The names that ``import empriv`` offers, as its stub lists them."""
    tree = ast.parse((package / "__init__.pyi").read_text(encoding="utf-8"))
    listed = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return len(ast.literal_eval(listed[0].value))


def figures_of(project: Path) -> dict[str, int]:
    """All figures of a project's folder."""
    package = project / "src" / "empriv"
    if not package.is_dir():
        sys.exit(f"A project must hold the package src/empriv, got {project}.")
    paths = sorted(package.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    nodes = [node for text in texts.values() for node in ast.walk(ast.parse(text))]
    called = "\n".join(texts.values())
    dataclasses = [node.name for node in nodes if isinstance(node, ast.ClassDef) and is_dataclass(node)]
    functions = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    dispatchers = [
        node for node in nodes if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(at).startswith("singledispatch") for at in node.decorator_list)
    ]  # fmt: skip
    return {
        "lines in src": sum(text.count("\n") for text in texts.values()),
        "modules": len(paths),
        "modules over 600 lines": sum(text.count("\n") > 600 for text in texts.values()),
        "folders": len({path.parent for path in paths}),
        "lines of C": lines_of(package.rglob("*.c")),
        "public names": public_names(package),
        "functions": len(functions),
        "functions named _": functions.count("_"),
        "singledispatch functions": len(dispatchers),
        "dataclasses": len(dataclasses),
        "dataclasses built once": sum(len(re.findall(rf"\b{name}\(", called)) <= 1 for name in dataclasses),
        "modules imported by one audit": modules_of_one_audit(project),
        "options of audit": python_in(project, OPTIONS),
        "lines of tests": lines_of((project / "tests").rglob("*.py")),
        "lines of documents": lines_of(path for path in (project / "docs").glob("*.md")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("projects", type=Path, nargs="*", help="Folders of the project; default this one.")
    parser.add_argument("--most", type=int, default=0, help="Name so many of the largest modules, too.")
    asked = parser.parse_args()
    projects = asked.projects or [ROOT]
    columns = [figures_of(project) for project in projects]
    for name in columns[0]:
        print(f"{name:32}" + "".join(f"{column[name]:>10,}" for column in columns))
    sizes = {path: lines_of(iter([path])) for path in (projects[-1] / "src").rglob("*.py")}
    for path in sorted(sizes, key=lambda path: -sizes[path])[: asked.most]:
        print(f"{sizes[path]:6} {path.relative_to(projects[-1])}")


if __name__ == "__main__":
    main()
