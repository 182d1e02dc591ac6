"""An audit on the terminal: sentences, tables, and text from the data made harmless.

Words come from `words`; this module lays them out. rich is imported when something is printed.
"""

from __future__ import annotations

import math
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

    from empriv.auditing.summary import MostExposed, Summary
    from empriv.validate.verdict import Verdict
    from empriv.words.decision import Decision


_RULES = (
    (r"design_noise\(\.\.\., granularity=([^)]*)\)", r"--granularity \1"),
    (r"\bgranularity=([0-9.e+-]+)", r"--granularity \1"),
    (r"design_noise\(audit, \.\.\.\); or audit with known='nothing'", "audit with --known nothing"),
    (r"audit\(\.\.\., ledger=\.\.\.\)", "empriv audit --ledger"),
    (r"\bin_chunks=False", "--in-memory"),
    (r"\bin_chunks=True", "--in-chunks"),
    (r"\bwithout in_chunks\b", "without --in-chunks"),
    (r"\bwithout checkpoint\b", "without --checkpoint"),
    (r"""\bpresence=['"](\w+)['"]""", r"--presence \1"),
    (r"""\bmethod=['"](\w+)['"]""", r"--method \1"),
    (r"""\bknown=(['"])(.+?)\1""", r"--known '\2'"),
    (r"""\bknown=\("calendar", "previous"\)""", "--known calendar,previous"),
    (r"""\bunidentified=['"](\w+)['"]""", r"--unidentified \1"),
    (r" \(--unidentified on the command line\)", ""),
    (r"""\btimezone="([^"]+)" names one \(--timezone on the command line\)""", r"--timezone \1 names one"),
    (r"\bdither=True", "--dither"),
    (r"\(times=\)", "(--times)"),
    (r"a larger `delta`", "a larger --delta"),
    (r"`database` names it", "--database names it"),
    (r"with `subsamples`", "with --subsamples"),
    (r"\(`updated`, or empriv audit --update\)", "(empriv audit --update)"),
    (
        r"""\btable="sales" or sql="SELECT \.\.\." \(--table sales or --sql on the command line\)""",
        "--table sales, or --sql",
    ),
    (r"""\btable="sales" \(--table sales on the command line\)""", "--table sales"),
    (r", or `component` for one of them", ""),
    (r", or fewer `threads`", ""),
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
COLOURS = {
    "Publish": "green",
    "Publish with noise": "yellow",
    "Do not publish": "red",
    "No decision": "cyan",
}
_VERDICT_COLOURS = {"pass": "green", "unresolved": "yellow", "fail": "red"}


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


def short_screen(console: Console, decision: Decision, verdicts: Sequence[tuple[str, Verdict]]) -> list[Any]:
    """The decision, and each target with its outcome."""
    lines = [line_of(decision.line, console, f"bold {COLOURS.get(decision.word, 'yellow')}")]
    lines += [line_of(with_options(sentence), console) for sentence in decision.sentences]
    lines += [line_of(f"{verdict.upper()}: {text}", console, _VERDICT_COLOURS[verdict]) for text, verdict in verdicts]
    return lines


def audit_screen(
    console: Console,
    decision: Decision,
    verdicts: Sequence[tuple[str, Verdict]],
    summary: Summary,
    *,
    instead: str = "",
    exposed: MostExposed | None,
    ranked_at: float,
    named: bool,
    n_individuals: int,
    once: Sequence[float] | None,
    unit: str,
    answer: str,
    further: Sequence[str],
    next_step: tuple[str, str],
    verbose: bool,
    tail: str,
) -> list[Any]:
    """The decision and what it rests on, in one screen, and with ``verbose`` all that is known.

    Parameters
    ----------
    decision, verdicts, summary : the words
    instead : what to do in place of publishing, where that was tried
    exposed : the most exposed individuals, under the names shown; None shows none
    ranked_at : the epsilon of their delta_i
    named : whether they are shown by their identifiers
    once : delta of one publication at each epsilon, where the figures are of several
    unit, answer : unit of the answer, and what it is called
    further : sentences after the figures
    next_step : what to do next, and the command that does it, if one does
    tail : with ``verbose``, a sentence about epsilon at delta = 0
    """

    def said(text: str, style: str = "") -> Text:
        return line_of(text, console, style)

    parts: list[Any] = [said(decision.line, f"bold {COLOURS.get(decision.word, 'yellow')}")]
    reason, *others = [said(with_options(sentence)) for sentence in decision.sentences]
    parts += [reason, *([said(instead, "bold")] if instead else []), *others]
    parts += [said(f"Verdict on {text}: {verdict.upper()}.", _VERDICT_COLOURS[verdict]) for text, verdict in verdicts]
    parts += [said(alarm, "bold red") for alarm in summary.alarms]
    parts += [said(""), said(summary.asked), _figures(summary, once, n_individuals, console)]
    if exposed is not None:
        names = "by their identifiers" if named else "pseudonyms; --show-ids names them"
        by_moves = exposed.database is not None
        what = _furthest(exposed) if by_moves else f"Most exposed at epsilon {ranked_at:g}"
        parts += [said(f"{what} ({names})", "bold"), _ranking(exposed, unit, answer, console)]
    if verbose:
        for text, verdict in verdicts:
            parts += [said(""), said(f"Why {verdict} on {text}", "bold")]
            parts += map(said, (verdict.sentence, *verdict.reasons))
        parts += [said(""), said(summary.sentences[0])]
        parts += [said(f"Note: {with_options(warning)}", "yellow") for warning in summary.warnings]
        parts += [said(""), *(said(with_options(note)) for note in (*summary.notes, tail) if note), said("")]
    elif summary.warnings:
        count = len(summary.warnings)
        noun, them = ("thing", "it") if count == 1 else ("things", "them")
        parts.append(said(f"{count} {noun} to know before you rely on this: --verbose lists {them}.", "yellow"))
    parts += map(said, further)
    advice, command = next_step
    parts += [said(f"Next: {advice}")] if advice else []
    if command:
        line = said(f"  {as_typed(command)}", "bold")
        line.no_wrap = True
        parts.append(line)
    return parts


def _furthest(exposed: MostExposed) -> str:
    """What the ranking is by: moves, or moves beside a spread that differs between databases."""
    moved = [math.inf if math.isnan(size) else size for size in exposed.moved.tolist()]
    said = "Moved the answer furthest"
    return said if moved == sorted(moved, reverse=True) else "Moved it furthest for the spread there"


def _figures(summary: Summary, once: Sequence[float] | None, n_individuals: int, console: Console) -> Table:
    from empriv.words.sentences import number

    alone = [] if once is None else ["published once"]
    table = table_of("epsilon", "delta (most exposed)", *alone, "total risk (anybody)", "individuals exposed")
    for place, figure in enumerate(summary.figures):
        cells = [number(figure.delta, 3), *([] if once is None else [number(once[place], 3)])]
        cells += [number(figure.total_risk, 3), f"{figure.n_exposed:,} of {n_individuals:,}"]
        table.add_row(line_of(f"{figure.epsilon:g}", console, "bold"), *(line_of(cell, console) for cell in cells))
    return table


def _ranking(exposed: MostExposed, unit: str, answer: str, console: Console) -> Table:
    from empriv.words.sentences import amount, percent

    moves = f"moves {answer} by up to" if exposed.database is None else f"moved {answer} by"
    table = table_of("individual", "delta_i", moves, "in databases")
    table.columns[0].justify = "left"
    columns = (exposed.names, exposed.delta_i.tolist(), exposed.moved.tolist(), exposed.databases.tolist())
    for name, delta, influence, databases in zip(*columns, strict=True):
        change = "number or not" if math.isnan(influence) else amount(influence, unit)
        table.add_row(*(line_of(cell, console) for cell in (str(name), percent(delta), change, f"{databases:,}")))
    return table


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
