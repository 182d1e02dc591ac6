"""From the docstrings of the code to what Sphinx reads.

Docstrings here follow numpydoc, but write ``name : what it is`` where numpydoc has a type (types stand in the
signature), and `|x|` for absolute values, which reStructuredText would take for a substitution.
"""

from __future__ import annotations

import re
from typing import Any

_LISTS = ("Parameters", "Attributes")
_FIELDS = ("Returns", "Yields", "Raises")
_RUBRICS = ("Notes", "Examples")


def rewrite(lines: list[str]) -> list[str]:
    """Lines of a docstring as reStructuredText: sections become fields of one list."""
    written: list[str] = []
    section = ""
    place = 0
    while place < len(lines):
        line = lines[place]
        below = lines[place + 1] if place + 1 < len(lines) else ""
        if below and set(below) == {"-"} and line in (*_LISTS, *_FIELDS, *_RUBRICS):
            section = line
            written += [f".. rubric:: {line}", ""] if line in _RUBRICS else [f":{line}:"]
            place += 2
            continue
        if section in _LISTS and line and not line.startswith(" "):
            names, colon, text = line.partition(" : ")
            shown = ", ".join(f"``{name}``" for name in names.split(", "))
            written.append(f"    - {shown} – {_plain(text)}" if colon else f"    - {shown}")
        elif section in _LISTS and line:
            if line.strip()[0].isupper() and written[-1][-1] not in ".;:,":
                written[-1] += "."  # a shape, or a type, before the sentence
            written.append(f"      {_plain(line.strip())}")
        elif section in _FIELDS and line:
            written.append(f"    {_plain(line.strip())}" if line.startswith(" ") else f"    `{line}`")
            if not line.startswith(" "):
                written.append("")  # what is returned stands apart from what it is
        else:
            written.append(line if section == "Examples" else _plain(line))  # code is code
        place += 1
    return written


def _plain(text: str) -> str:
    """The bars of absolute values, outside code, taken as they are."""
    parts = re.split(r"(``.*?``)", text)
    return "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def read(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Sphinx's hook for a docstring."""
    del app, what, obj, options
    lines[:] = [] if name == "empriv.KERNELS" else rewrite(lines)  # KERNELS has the docstring of every dict


def read_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Sphinx's hook for a signature: numpy's names for arrays, as the code has them."""
    del app, what, name, obj, options
    return _short(signature), _short(returned)


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    text = re.sub(r"[\w~.]*_Buffer \|.*?_NestedSequence\[complex \| bytes \| str\]", "ArrayLike", text)
    return re.sub(r"[\w~.]*ndarray\[tuple\[[\w~.]*Any, \.\.\.\], [\w~.]*dtype\[[\w~.]*?(\w+)\]\]", r"NDArray[\1]", text)
