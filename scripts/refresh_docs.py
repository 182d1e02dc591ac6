"""Runs what the documents and docstrings show, and writes the output that it has now.

    .venv/bin/python scripts/refresh_docs.py                      # all pages and docstrings
    .venv/bin/python scripts/refresh_docs.py docs/start.md src/empriv/auditing/audit.py

Read the difference before you commit it: prose around a block may quote the old figures.
"""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np  # noqa: E402

import empriv  # noqa: E402
from documents import blocks, names_on_a_page, prepare_shop, rewrite_examples, rewrite_page  # noqa: E402


def refresh_page(path: Path, shop: Path) -> str:
    """The page as it should read, run in a copy of the shop's files."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(shop, Path(folder) / "shop"))
        os.chdir(copy)
        try:
            return rewrite_page(path.read_text(), names_on_a_page(Path()))
        finally:
            os.chdir(ROOT)


def refresh_module(path: Path) -> str:
    """The module as it should read: examples in the docstrings of its public classes and functions."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not hasattr(empriv, node.name):
            continue
        docstring = ast.get_docstring(node, clean=False)
        if docstring is None or ">>>" not in docstring or node.name == "SparkEngine":
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                clean = inspect.cleandoc(docstring)
                examples = clean[clean.index(">>>") :] + "\n"
                new = rewrite_examples(examples, {"empriv": empriv, "np": np})
            finally:
                os.chdir(ROOT)
        indent = " " * (node.col_offset + 4)
        if new != examples:
            old, new = (textwrap.indent(part, indent).rstrip() for part in (examples, new))
            if old not in text:
                raise ValueError(f"the example of {node.name} could not be found in the source")
            text = text.replace(old, new, 1)
    return text


def main() -> int:
    """Rewrite what is named, or everything; how many could not be run."""
    named = [Path(name).resolve() for name in sys.argv[1:]]
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/reference/*.md"))]
    modules = sorted(ROOT.glob("src/empriv/**/*.py"))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        shop = prepare_shop(Path(folder))
        for path in named or [page for page in pages if blocks(page.read_text())] + modules:
            try:
                new = refresh_page(path, shop) if path.suffix == ".md" else refresh_module(path)
            except Exception:
                failed += 1
                print(f"{path.relative_to(ROOT)} could not be run:\n{traceback.format_exc()}", file=sys.stderr)
                continue
            if new != path.read_text():
                path.write_text(new)
                print(f"{path.relative_to(ROOT)} was rewritten.")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
