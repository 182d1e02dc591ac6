"""Prints figures about the source: how large it is, how much one audit opens, where variants are told apart.

.venv/bin/python scripts/house_figures.py                       # this revision
git worktree add ../before REVISION
.venv/bin/python scripts/house_figures.py --src ../before/src   # another one
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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What a variant is called in code. Spark also counts where it stands in a name, as in `spark_session`.
VARIANTS = {
    "AdversaryRisk": r"\bAdversaryRisk\b",
    "Spark": r"(?i)spark",
}
AUDIT = """
import sys
import empriv
audit = empriv.audit(empriv.databases(sys.argv[1], database="day", individual="who"), "sum(x)", epsilon=0.1)
audit.bounds(0.1)
audit.checks
opened = [m for name, m in sys.modules.items() if name.split(".")[0] == "empriv" and getattr(m, "__file__", None)]
print(sum(m.__file__.endswith(".py") for m in opened))
"""


def trees(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def modules_opened(source: Path) -> int:
    """The modules of empriv that a small audit with bounds and checks imports."""
    draws = random.Random(0)
    lines = [f"{day},{who},{draws.expovariate(1.0)}" for day in range(200) for who in range(20)]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.csv"
        data.write_text("\n".join(["day,who,x", *lines]))
        environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
        command = [sys.executable, "-c", AUDIT, str(data)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"the audit failed:\n{run.stderr}")
    return int(run.stdout)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _kinds_of_risk(package: Path) -> set[str]:
    classes = {node.name for _, tree in trees(package) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {name for name in classes if name.endswith("Risk")}


def questions_of_kind(package: Path) -> Counter[str]:
    """Files, and how often each asks by `isinstance` which kind of risk it has."""
    kinds, asked = _kinds_of_risk(package), Counter[str]()
    for path, tree in trees(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node) == "isinstance" and len(node.args) == 2:
                words = set(re.findall(r"\w+", ast.unparse(node.args[1])))
                asked[str(path.relative_to(package))] += bool(words & kinds)
    return +asked


def dynamic_imports(package: Path) -> Counter[str]:
    """Files, and how often each imports a module by a name that import rules cannot see."""
    calls = Counter[str]()
    for path, tree in trees(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node) in {"import_module", "__import__"}:
                calls[str(path.relative_to(package))] += 1
    return calls


def places(package: Path, pattern: str) -> Counter[str]:
    """Files, and how many lines of each name a variant in code: strings and comments do not count."""
    lines = Counter[str]()
    for path, tree in trees(package):
        named = {
            node.lineno
            for node in ast.walk(tree)
            for word in _words(node)
            if re.search(pattern, word) and hasattr(node, "lineno")
        }
        lines[str(path.relative_to(package))] = len(named)
    return +lines


def _words(node: ast.AST) -> list[str]:
    """The names that one node of a syntax tree holds."""
    words = [getattr(node, field, None) for field in ("id", "attr", "name", "arg", "module", "asname")]
    return [word for word in words if isinstance(word, str)]


def megabytes(folder: Path) -> int:
    """As `du` counts: files with several names once, links not followed."""
    sizes = {(s.st_dev, s.st_ino): s.st_blocks * 512 for s in (p.lstat() for p in folder.rglob("*"))}
    return round(sum(sizes.values()) / 2**20)


def show(title: str, counted: Counter[str], *, files: bool) -> None:
    print(f"{title}: {counted.total()} in {len(counted)} files")
    if files:
        for name, count in counted.most_common():
            print(f"  {count:4} {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="The folder that holds the package `empriv`.")
    parser.add_argument("--files", action="store_true", help="Name the files, too.")
    asked = parser.parse_args()
    package = asked.src / "empriv"
    if not package.is_dir():
        sys.exit(f"`--src` must hold the package `empriv`, got {asked.src}.")
    paths = list(package.rglob("*.py"))
    rooms = {path.parent for path in paths}
    print(f"modules: {len(paths)}, in {len(rooms)} folders")
    print(f"lines: {sum(len(path.read_text(encoding='utf-8').splitlines()) for path in paths)}")
    print(f"modules opened by one audit: {modules_opened(asked.src)}")
    for variant, pattern in VARIANTS.items():
        show(f"lines that name {variant}", places(package, pattern), files=asked.files)
    show("isinstance on kinds of risk", questions_of_kind(package), files=asked.files)
    show("dynamic imports", dynamic_imports(package), files=asked.files)
    environment = asked.src.resolve().parent / ".venv"
    if environment.is_dir():
        print(f".venv: {megabytes(environment.resolve())} MB")


if __name__ == "__main__":
    main()
