"""Hints that name arguments of Python said with options or keys of a file, and commands said as they were typed."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

_RULES = (
    (r"design_noise\(\.\.\., granularity=([^)]*)\)", r"--granularity \1"),
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


_OPTION = re.compile(r"--([a-z][a-z-]*) ([\w./-]*\w)")


def with_keys(text: str) -> str:
    """The same for whoever runs a file: keys in place of options."""
    before, hint, after = with_options(text).partition(" Hint: ")
    return before + hint + _OPTION.sub(lambda found: f'{found[1].replace("-", "_")} = "{found[2]}" in the file', after)


def as_typed(command: str) -> str:
    """A command line that begins as the one that runs: ``.venv/bin/empriv`` where that was typed."""
    return " && ".join(re.sub(r"^empriv\b", lambda _: program(), part) for part in command.split(" && "))


def program() -> str:
    """What starts empriv, as somebody types it here."""
    started = Path(sys.argv[0])
    if started.parts[-2:] == ("empriv", "__main__.py"):
        python = Path(sys.executable)
        found = shutil.which(python.name)
        named = python.name if found is not None and Path(found) == python else _near(python)
        return f"{named} -m empriv"
    if started.name != "empriv" or (found := shutil.which("empriv")) is None:
        return shlex.quote(sys.argv[0]) if started.name == "empriv" else "empriv"
    return "empriv" if Path(found).resolve() == started.resolve() else shlex.quote(sys.argv[0])


def _near(path: Path) -> str:
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
