"""An audit on the terminal: tables, a chart, and text from the data made harmless.

Words come from `words`; this module lays them out. rich is imported when something is printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from empriv.base.harmless import visible
from empriv.cli.hints import as_typed, with_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from empriv.auditing.ranking import MostExposed
    from empriv.validate.verdict import Verdict
    from empriv.words.decision import Decision
    from empriv.words.summary import Summary

COLOURS = {
    "Publish": "green",
    "Publish with noise": "yellow",
    "Do not publish": "red",
    "No decision": "cyan",
}
_VERDICT_COLOURS = {"pass": "green", "unresolved": "yellow", "fail": "red"}
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_WIDEST = 100
_ROWS = 7


@dataclass(frozen=True)
class Page:
    """What is shown of an audit.

    Attributes
    ----------
    decision : the line that comes first, with its reason and condition
    verdicts : each target in words, with its verdict
    summary : the words
    curve : epsilons, and delta at each
    exposed : the most exposed individuals, under the names shown; None shows none
    ranked_at : the epsilon of their delta_i
    pseudonyms : whether the names are pseudonyms
    n_individuals : how many there are
    tail : sentence about epsilon at delta = 0, or nothing
    next_step : what to do next, and the command that does it, if one does
    once : delta of one publication at each epsilon, where the figures are of several
    unit, answer : unit of the answer, and what it is called
    further : sentences of the command that shows it
    """

    decision: Decision
    verdicts: Sequence[tuple[str, Verdict]]
    summary: Summary
    curve: tuple[Sequence[float], Sequence[float]]
    exposed: MostExposed | None
    ranked_at: float
    pseudonyms: bool
    n_individuals: int
    tail: str
    next_step: tuple[str, str]
    once: Sequence[float] | None = None
    unit: str = ""
    answer: str = "the answer"
    further: Sequence[str] = ()


def printable(text: str, encoding: str = "utf-8") -> str:
    """Text without characters that control a terminal or cannot be shown: they become escapes such as ``\\x1b``."""
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)


def chart(
    x: Sequence[float], y: Sequence[float], *, marks: Sequence[float] = (), width: int = 72, plain: bool = False
) -> list[str]:
    """Lines of a chart of y against x, y on a logarithmic scale if it spans more than a factor of 100.

    ``marks`` are places on the x axis whose points are drawn large; ``plain`` keeps to ASCII. Without a positive y
    there is nothing to draw, and no line.
    """
    positive = [value for value in y if value > 0]
    if not positive or len(x) < 2:
        return []
    most = max(positive)
    least = max(min(positive), most * 1e-6)
    logarithmic = most > 100 * least
    top = round_up(most)
    bottom = 10.0 ** math.floor(math.log10(least)) if logarithmic else 0.0

    def height(value: float) -> float:
        if not logarithmic:
            return value / top
        return 0.0 if value <= bottom else math.log(value / bottom) / math.log(top / bottom)

    middle = math.sqrt(top * bottom) if logarithmic else top / 2
    labels = {0: f"{top:.3g}", _ROWS // 2: f"{middle:.2g}", _ROWS - 1: f"{bottom:.3g}"}
    margin = max(map(len, labels.values()))
    columns = max(10, width - margin - 3)
    cells = _draw(x, [height(value) for value in y], columns)
    text = [[("*" if plain else chr(0x2800 + cell)) if cell else " " for cell in row] for row in cells]
    for mark in marks:
        if x[0] <= mark <= x[-1]:
            across = (mark - x[0]) / (x[-1] - x[0])
            row = round((1 - _at(x, [height(value) for value in y], mark)) * (4 * _ROWS - 1)) // 4
            text[row][round(across * (2 * columns - 1)) // 2] = "o" if plain else "●"
    side, corner, line = ("|", "+", "-") if plain else ("│", "└", "─")
    lines = [f"{labels.get(row, ''):>{margin}} {side}{''.join(text[row]).rstrip()}" for row in range(_ROWS)]
    lines.append(f"{'':{margin}} {corner}{line * columns}")
    ticks = [" "] * (columns + 8)
    for quarter in range(5) if columns >= 40 else (0, 4):
        label = f"{x[0] + (x[-1] - x[0]) * quarter / 4:.3g}"
        start = min(round(quarter / 4 * (columns - 1)), columns - len(label))
        ticks[start : start + len(label)] = label
    lines.append(f"{'':{margin}}  {''.join(ticks).rstrip()}")
    return lines


def _draw(x: Sequence[float], heights: Sequence[float], columns: int) -> list[list[int]]:
    """Cells of two by four dots, the curve drawn through them without gaps."""
    cells = [[0] * columns for _ in range(_ROWS)]
    previous = None
    for dot in range(2 * columns):
        place = x[0] + (x[-1] - x[0]) * dot / (2 * columns - 1)
        row = round((1 - _at(x, heights, place)) * (4 * _ROWS - 1))
        first = row if previous is None else previous + (row > previous) - (row < previous)
        for filled in range(min(first, row), max(first, row) + 1):
            cells[filled // 4][dot // 2] |= _DOTS[filled % 4][dot % 2]
        previous = row
    return cells


def _at(x: Sequence[float], y: Sequence[float], place: float) -> float:
    """Linear interpolation."""
    for k in range(len(x) - 2):
        if place <= x[k + 1]:
            break
    else:
        k = len(x) - 2
    share = min(1.0, max(0.0, (place - x[k]) / (x[k + 1] - x[k])))
    return y[k] + share * (y[k + 1] - y[k])


def round_up(value: float) -> float:
    """The next number that is easy to read."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step for step in _ROUND if step * scale >= value * (1 - 1e-12)) * scale


def console_for(stream: TextIO) -> Console:
    """A console that never reads text as markup."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the program, before files are written

    console = Plain(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=False)
    if console.width > _WIDEST:
        console.width = _WIDEST  # longer lines are hard to read
    return console


def show(page: Page, console: Console, *, verbose: bool = False) -> None:
    """Print an audit: the decision and what it rests on in one screen, and with ``verbose`` all that is known."""
    summary = page.summary

    def say(text: str, style: str = "") -> None:
        console.print(_text(text, console, style))

    say(page.decision.line, f"bold {COLOURS.get(page.decision.word, 'yellow')}")
    say(with_options(page.decision.reason))
    if page.decision.promise:
        say(page.decision.promise)
    say(page.decision.condition)
    for text, verdict in page.verdicts:
        say(f"Verdict on {text}: {verdict.upper()}.", _VERDICT_COLOURS[verdict])
    for alarm in summary.alarms:
        say(alarm, "bold red")
    console.print()
    say(summary.asked)
    console.print(_figures(page, console))
    if page.exposed is not None:
        names = "pseudonyms of this run; --show-ids names them" if page.pseudonyms else "by their identifiers"
        by_moves = page.exposed.database is not None
        what = "Moved the answer furthest" if by_moves else f"Most exposed at epsilon {page.ranked_at:g}"
        say(f"{what} ({names})", "bold")
        console.print(_ranking(page, console))
    if verbose:
        _show_everything(page, console)
        console.print()
    if summary.warnings and not verbose:
        count = len(summary.warnings)
        noun, them = ("thing", "it") if count == 1 else ("things", "them")
        say(f"{count} {noun} to know before you rely on this: --verbose lists {them}.", "yellow")
    for line in page.further:
        say(line)
    advice, command = page.next_step
    say(f"Next: {advice}")
    if command:  # on a line of its own, which is never broken
        console.print(_text(f"  {as_typed(command)}", console, "bold"), soft_wrap=True)


def _show_everything(page: Page, console: Console) -> None:
    """Reasons, warnings, the chart, and what the figures rest on."""
    from rich.rule import Rule

    summary = page.summary

    def say(text: str, style: str = "") -> None:
        console.print(_text(text, console, style))

    for text, verdict in page.verdicts:
        console.print()
        say(f"Why {verdict} on {text}", "bold")
        for line in (verdict.sentence, *verdict.reasons):
            say(line)
    console.print()
    say(summary.sentences[0])
    for warning in summary.warnings:
        say(f"Note: {with_options(warning)}", "yellow")
    plain = not console.encoding.startswith("utf")
    marks = [figure.epsilon for figure in summary.figures]
    lines = chart(*page.curve, marks=marks, width=console.width - 4, plain=plain)
    if lines:
        console.print()
        say("delta of the most exposed individual (up) against epsilon (across)", "bold")
        for line in lines:
            console.print(_text("  " + line, console, "cyan"), no_wrap=True, overflow="crop")
    console.print(Rule(style="dim", characters="-" if plain else "─"))
    for note in filter(None, (*summary.notes, page.tail)):
        say(with_options(note))


def _figures(page: Page, console: Console) -> Table:
    from empriv.words.sentences import number

    alone = [] if page.once is None else ["published once"]
    table = _table("epsilon", "delta (most exposed)", *alone, "total risk (anybody)", "individuals exposed")
    for place, figure in enumerate(page.summary.figures):
        table.add_row(
            _text(f"{figure.epsilon:g}", console, "bold"),
            _text(number(figure.delta, 3), console),
            *([] if page.once is None else [_text(number(page.once[place], 3), console)]),
            _text(number(figure.total_risk, 3), console),
            _text(f"{figure.n_exposed:,} of {page.n_individuals:,}", console),
        )
    return table


def _ranking(page: Page, console: Console) -> Table:
    from empriv.words.sentences import amount, percent

    assert page.exposed is not None
    moves = f"moves {page.answer} by up to" if page.exposed.database is None else f"moved {page.answer} by"
    table = _table("individual", "delta_i", moves, "in databases")
    table.columns[0].justify = "left"
    shown = page.exposed
    columns = (shown.names, shown.delta_i.tolist(), shown.moved.tolist(), shown.databases.tolist())
    for individual, delta, influence, databases in zip(*columns, strict=True):
        change = "number or not" if math.isnan(influence) else amount(float(influence), page.unit)
        table.add_row(
            _text(str(individual), console),
            _text(percent(float(delta)), console),
            _text(change, console),
            _text(f"{databases:,}", console),
        )
    return table


def _table(*headers: str) -> Table:
    from rich.table import Table

    table = Table(box=None, show_edge=False, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, justify="right")
    return table


def _text(text: str, console: Console, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(text, console.encoding), style=style)
