"""The place in a query where something is wrong: its line with a caret below, and the word that may have been meant.

A line is shown without the texts and long numbers in it: they may be of an individual, and errors travel far.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "JOIN", "LEFT", "INNER", "ON", "USING", "AND",
    "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "AS", "DISTINCT",
    "FILTER", "UNION", "WITH",
)  # fmt: skip
_COMMENT = r"--[^\n]*|/\*.*?(?:\*/|\Z)"
_SEVERAL = 12  # names that a sentence can hold


def pointed(text: str, line: int, column: int) -> str:
    """A line of a text, and below it a caret at a column; both count from 1. Empty if there is no such place."""
    lines = _masked(text).split("\n")
    if not 1 <= line <= len(lines):
        return ""
    shown = lines[line - 1].replace("\t", " ")
    return f"\n  {shown}\n  {' ' * max(0, min(column - 1, len(shown)))}^"


def unclosed(text: str) -> tuple[str, int, int] | None:
    """The first quote that nothing closes, with its line and column from 1; None if all are closed."""
    for found in re.finditer(rf"{_COMMENT}|'[^']*'|\"[^\"]*\"|(?P<open>['\"])", text, re.DOTALL):
        if found["open"]:
            at = found.start()
            return found["open"], text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return None


def misspelt_keyword(text: str, line: int, column: int) -> str | None:
    """A word just before or at this place that is nearly a keyword, as "'FORM' be FROM"; None if there is none."""
    lines = text.split("\n")
    before = "\n".join([*lines[: line - 1], lines[line - 1][:column]])
    for word in reversed(re.findall(r"[A-Za-z_]+", _masked(before))[-3:]):
        near = difflib.get_close_matches(word.upper(), KEYWORDS, n=1, cutoff=0.74)
        if near and word.upper() not in KEYWORDS:
            return f"{word!r} be {near[0]}"
    return None


def nearest(name: str, known: Iterable[str], *, at_least: float = 0.5) -> str:
    """End of a sentence about a name that is not there: a hint at the nearest that is."""
    names = list(known)
    near = difflib.get_close_matches(_plain(name), [_plain(one) for one in names], n=1, cutoff=at_least)
    if not near:
        return "."
    return f". Hint: did you mean {next(one for one in names if _plain(one) == near[0])!r}?"


def listed(names: Iterable[str]) -> str:
    """Names in quotes, not too many of them."""
    every = list(names)
    rest = "" if len(every) <= _SEVERAL else f" and {len(every) - _SEVERAL} more"
    return ", ".join(map(repr, every[:_SEVERAL])) + rest


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


def _masked(text: str) -> str:
    """A query with dots in the place of texts, comments and numbers of four digits or more; as long as before."""

    def dots(found: re.Match[str]) -> str:
        inner = found.group()
        closed = len(inner) > 1 and inner[0] == inner[-1] == "'"
        edge = "'" if inner[0] == "'" else ""
        inside = inner[len(edge) : len(inner) - closed]
        return edge + re.sub(r"[^\n]", "…", inside) + ("'" if closed else "")

    # A text that is not closed goes on to the end.
    return re.sub(rf"{_COMMENT}|\$\$.*?(?:\$\$|\Z)|'[^']*'|'[^']*\Z|\b\d{{4,}}\b", dots, text, flags=re.DOTALL)
