"""From the help texts of the commands to what Sphinx reads: examples are code, and stars are stars."""

from __future__ import annotations

import re
from typing import Any


def read_description(app: Any, ctx: Any, lines: list[str]) -> None:
    """sphinx-click's hook for a description, in which it makes a line block, `| ...`, of each example."""
    del app, ctx
    written: list[str] = []
    for line in lines:
        if not line.startswith("| "):
            written.append(line)
        elif line.endswith(":") and not line.startswith("|   "):
            written += [line[2:], "", ".. code-block:: console", ""]
        else:
            written.append(f"    {line[4:]}")
    lines[:] = written


def read_options(app: Any, ctx: Any, lines: list[str]) -> None:
    """sphinx-click's hook for options: it takes the last bracket of `E[,E...]` for one of its own."""
    del app, ctx
    lines[:] = [re.sub(r"\[([^\]>]*)>$", r"[\1]>", line) if line.startswith(".. option::") else line for line in lines]
