"""Hints that name arguments of Python, said with the options of the command line."""

from __future__ import annotations

import re

_RULES = (
    (r"design_(?:joint_)?noise\(\.\.\., granularity=([^)]*)\)", r"--granularity \1"),
    (r"\bgranularity=([0-9.e+-]+)", r"--granularity \1"),
    (r"design_noise\(audit, \.\.\.\); or audit with known='nothing'", "audit with --known nothing"),
    (r"audit\(\.\.\., ledger=\.\.\.\)", "empriv audit --ledger"),
    (r"scan\(bounds=True\)", "leave out --no-bounds"),
    (r"""\bpresence=['"](\w+)['"]""", r"--presence \1"),
    (r"""\bmethod=['"](\w+)['"]""", r"--method \1"),
    (r"""\bknown=(['"])(.+?)\1""", r"--known '\2'"),
    (r"""\bknown=\("calendar", "previous"\)""", "--known calendar,previous"),
    (r"""\bunidentified=['"](\w+)['"]""", r"--unidentified \1"),
    (r" \(--unidentified on the command line\)", ""),
    (r"""\btimezone="([^"]+)" names one \(--timezone on the command line\)""", r"--timezone \1 names one"),
    (r"`memory_limit`", "--memory-limit"),
    (r"`timeout`", "--timeout"),
    (r"explain\(\) tells", "empriv explain tells"),
)
_COMPILED = tuple((re.compile(pattern), said) for pattern, said in _RULES)


def with_options(text: str) -> str:
    """The text after "Hint:" with options in place of arguments; what comes before it is left as it is."""
    before, hint, after = text.partition(" Hint: ")
    if not hint:
        return text
    advice = hint + after
    for pattern, said in _COMPILED:
        advice = pattern.sub(said, advice)
    return before + advice
