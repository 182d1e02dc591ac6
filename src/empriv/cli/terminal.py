"""Text on the terminal: text from the data made harmless, options and commands as they are typed, lines that fit.

rich is imported when something is printed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from empriv.base.text import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


# Arguments whose options have the same names, as they stand in hints: `name`, name="value" or name=True.
_NAMES = (
    "bound|checkpoint|database|delta|dither|epsilon|granularity|in_chunks|known|memory_limit|method|presence|sql|"
    "subsamples|table|timeout|timezone|unidentified"
)
_REWORDED = (
    (r"design_noise\(\.\.\., ([^)]*)\)", r"\1"),
    (r"design_noise\(audit, \.\.\.\); or ", ""),
    (r"audit\(\.\.\., ledger=\.\.\.\)", "empriv audit --ledger"),
    (r"\(`updated`, or (empriv audit --update)\)", r"(\1)"),
    (r"\(times=\)", "(--times)"),
    (r" \(--[^)]* on the command line\)", ""),
    (r", or `component` for one of them|, or fewer `threads`", ""),
    (r"\bin_chunks=False", "--in-memory"),
)
_ARGUMENT = re.compile(
    rf"""`(?P<named>{_NAMES})`|\b(?P<given>{_NAMES})=(?:(['"])(?P<text>.+?)\3|(?P<word>[\w.+-]*\w))"""
)


def with_options(text: str) -> str:
    """The text after "Hint:" with options in place of arguments; what comes before it is left as it is."""
    before, hint, after = text.partition(" Hint: ")
    if not hint:
        return text
    for pattern, said in _REWORDED:
        after = re.sub(pattern, said, after)
    return before + hint + _ARGUMENT.sub(_option, after)


def _option(found: re.Match[str]) -> str:
    """An argument as its option: ``timeout=60`` as ``--timeout 60``, ``dither=True`` as ``--dither``."""
    option = f"--{(found['named'] or found['given']).replace('_', '-')}"
    value = found["text"] or found["word"]
    return option if value in (None, "True") else f"{option} {quoted(value)}"


_OPTION = re.compile(r"--([a-z][a-z-]*) ([\w./-]*\w)")


def with_keys(text: str) -> str:
    """The same for whoever runs a file: keys in place of options."""
    before, hint, after = with_options(text).partition(" Hint: ")
    return before + hint + _OPTION.sub(lambda found: f'{found[1].replace("-", "_")} = "{found[2]}" in the file', after)


def quoted(word: str) -> str:
    """A word for a shell; between double quotes where it has single ones, and nothing that means something there."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!\n') else shlex.quote(word)


def as_typed(command: str) -> str:
    """A command line that begins as the one that runs: ``.venv/bin/empriv`` where that was typed."""
    return " && ".join(re.sub(r"^empriv\b", lambda _: program(), part) for part in command.split(" && "))


def program() -> str:
    """What starts empriv, as somebody types it here."""
    started = Path(sys.argv[0])
    if started.parts[-2:] == ("empriv", "__main__.py"):
        python = Path(sys.executable)
        found = shutil.which(python.name)
        named = python.name if found is not None and Path(found) == python else quoted_path(python)
        return f"{named} -m empriv"
    if started.name != "empriv" or (found := shutil.which("empriv")) is None:
        return shlex.quote(sys.argv[0]) if started.name == "empriv" else "empriv"
    return "empriv" if Path(found).resolve() == started.resolve() else shlex.quote(sys.argv[0])


def quoted_path(path: Path) -> str:
    """A path for a shell, from the folder at hand where it lies below that."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


_WIDEST = 100  # longer lines are hard to read


def printable(text: str, encoding: str = "utf-8") -> str:
    """Text without characters that control a terminal or cannot be shown: they become escapes such as ``\\x1b``."""
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)


def fits(text: str) -> bool:
    """Whether a line is no longer than the terminal is wide."""
    return len(text) <= min(shutil.get_terminal_size().columns, _WIDEST)


def echo(text: str) -> None:
    """Print a sentence in lines that fit the terminal; paths in it stay whole, so that they can be copied."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    click.echo(textwrap.fill(printable(text), width, break_long_words=False, break_on_hyphens=False))


def console_for(stream: TextIO) -> Console:
    """A console that never reads text as markup."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program, before files are written

    console = Plain(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if console.width > _WIDEST:
        console.width = _WIDEST
    return console


def print_screen(parts: Sequence[Any], console: Console) -> None:
    """Print sentences and tables; a command is on a line of its own, which is never broken."""
    for part in parts:
        console.print(part, soft_wrap=getattr(part, "no_wrap", None) is True)


def table_of(*headers: str) -> Table:
    """A table without lines, of columns that are set to the right."""
    from rich.table import Table

    table = Table(box=None, show_edge=False, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, justify="right")
    return table


def line_of(text: str, console: Console, style: str = "") -> Text:
    """Text that a console can show."""
    from rich.text import Text

    return Text(printable(text, console.encoding), style=style)
