"""What is printed of an audit: the decision and what it rests on, in one screen, and what to do next.

Words come from `words` and the audit; this module lays them out.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from empriv.cli.config import Settings
from empriv.cli.terminal import as_typed, line_of, table_of, with_options
from empriv.words.decision import NO_TARGET, PUBLISH

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from empriv.auditing.audit import Audit
    from empriv.auditing.summary import MostExposed, Summary
    from empriv.results import Results
    from empriv.validate.verdict import Verdict
    from empriv.words.decision import Decision

_COLOURS = {"Publish": "green", "Publish with noise": "yellow", "Do not publish": "red", "No decision": "cyan"}
_VERDICT_COLOURS = {"pass": "green", "unresolved": "yellow", "fail": "red"}


def short_screen(console: Console, decision: Decision, verdicts: Sequence[tuple[str, Verdict]]) -> list[Any]:
    """The decision, and each target with its outcome."""
    lines = [_line(decision, console)]
    lines += [line_of(with_options(sentence), console) for sentence in decision.sentences]
    lines += [line_of(f"{verdict.upper()}: {text}", console, _VERDICT_COLOURS[verdict]) for text, verdict in verdicts]
    return lines


def audit_screen(
    console: Console,
    audit: Audit,
    settings: Settings,
    decision: Decision,
    verdicts: Sequence[tuple[str, Verdict]],
    summary: Summary,
    *,
    instead: str = "",
    exposed: MostExposed | None,
    ranked_at: float,
    further: Sequence[str],
    next_step: tuple[str, str],
) -> list[Any]:
    """The decision and what it rests on, in one screen, and with ``settings.verbose`` all that is known.

    Parameters
    ----------
    decision, verdicts, summary : the words
    instead : what to do in place of publishing, where that was tried
    exposed : the most exposed individuals, under the names shown; None shows none
    ranked_at : the epsilon of their delta_i
    further : sentences after the figures
    next_step : what to do next, and the command that does it, if one does
    """
    from empriv.auditing.summary import tail_sentence

    def said(text: str, style: str = "") -> Text:
        return line_of(text, console, style)

    reason, *others = [said(with_options(sentence)) for sentence in decision.sentences]
    parts: list[Any] = [_line(decision, console), reason, *([said(instead, "bold")] if instead else []), *others]
    parts += [said(f"Verdict on {text}: {verdict.upper()}.", _VERDICT_COLOURS[verdict]) for text, verdict in verdicts]
    parts += [said(alarm, "bold red") for alarm in summary.alarms]
    parts += [said(""), said(summary.asked), _figures(summary, audit, console)]
    if exposed is not None:
        names = "by their identifiers" if settings.show_ids else "pseudonyms; --show-ids names them"
        by_moves = exposed.database is not None
        what = _furthest(exposed) if by_moves else f"Most exposed at epsilon {ranked_at:g}"
        parts += [said(f"{what} ({names})", "bold"), _ranking(exposed, audit, console)]
    if settings.verbose:
        for text, verdict in verdicts:
            parts += [said(""), said(f"Why {verdict} on {text}", "bold")]
            parts += map(said, (verdict.sentence, *verdict.reasons))
        parts += [said(""), said(summary.sentences[0])]
        parts += [said(f"Note: {with_options(warning)}", "yellow") for warning in summary.warnings]
        tail = [tail_sentence(audit.epsilon(0.0))] if audit.measured.tells_epsilon(0.0) else []
        parts += [said(""), *(said(with_options(note)) for note in (*summary.notes, *tail) if note), said("")]
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


def _line(decision: Decision, console: Console) -> Text:
    return line_of(decision.line, console, f"bold {_COLOURS.get(decision.word, 'yellow')}")


def _furthest(exposed: MostExposed) -> str:
    """What the ranking is by: moves, or moves beside a spread that differs between databases."""
    moved = [math.inf if math.isnan(size) else size for size in exposed.moved.tolist()]
    said = "Moved the answer furthest"
    return said if moved == sorted(moved, reverse=True) else "Moved it furthest for the spread there"


def _figures(summary: Summary, audit: Audit, console: Console) -> Table:
    """Figures at each epsilon; of several publications, also delta of one."""
    from empriv.words.sentences import number

    once = [] if audit.times == 1 else audit.once.delta([figure.epsilon for figure in summary.figures]).tolist()
    table = table_of(
        "epsilon", "delta (most exposed)", *(["published once"] if once else []), "total risk (anybody)",
        "individuals exposed",
    )  # fmt: skip
    for place, figure in enumerate(summary.figures):
        cells = [number(figure.delta, 3), *([number(once[place], 3)] if once else [])]
        cells += [number(figure.total_risk, 3), f"{figure.n_exposed:,} of {audit.n_individuals:,}"]
        table.add_row(line_of(f"{figure.epsilon:g}", console, "bold"), *(line_of(cell, console) for cell in cells))
    return table


def _ranking(exposed: MostExposed, audit: Audit, console: Console) -> Table:
    from empriv.words.sentences import amount, percent

    # influence on several numbers is in spreads of each
    unit, answer = (audit.unit, "the answer") if audit.results.components is None else ("spreads", "a number")
    moves = f"moves {answer} by up to" if exposed.database is None else f"moved {answer} by"
    table = table_of("individual", "delta_i", moves, "in databases")
    table.columns[0].justify = "left"
    columns = (exposed.names, exposed.delta_i.tolist(), exposed.moved.tolist(), exposed.databases.tolist())
    for name, delta, influence, databases in zip(*columns, strict=True):
        change = "number or not" if math.isnan(influence) else amount(influence, unit)
        table.add_row(*(line_of(cell, console) for cell in (str(name), percent(delta), change, f"{databases:,}")))
    return table


def how_bad(verdict: Verdict) -> int:
    """Sorts verdicts, the worst last."""
    return ("pass", "unresolved", "fail").index(verdict)


def next_step(
    audit: Audit, verdicts: Sequence[Verdict], decision: Decision, saved: str | None, advise: str = ""
) -> tuple[str, str]:
    """What to do next, and the command that does it, if one does; ``advise`` is that for advice with the rows."""
    from empriv.validate.checks import outlasts_noise  # only audits need it

    if decision.word == NO_TARGET:
        return 'say what is private enough, such as --target "delta <= 0.05 at 0.1", for a decision.', ""
    if decision.word == PUBLISH:
        return "if you publish it again and again, ask for that, such as --times 30.", ""
    worst = max(verdicts, key=how_bad)
    few = [check for check in worst.checks if check.code == "databases" and check.severity == "error"]
    if few:
        judged, n = few[0].numbers["n"], audit.n_databases
        apart = f"what readers know leaves {judged:,} of the {n:,} to judge, and " if judged < n else ""
        return f"collect more databases: {apart}with fewer than 30 there is no upper bound.", ""
    # the strictest limits at its epsilon, by figure: advice is about one epsilon
    limits: dict[str, float] = {}
    for verdict in verdicts:
        for target in verdict.targets if verdict.epsilon == worst.epsilon else ():
            limits[target.name] = min(target.limit, limits.get(target.name, 1.0))
    name, at = shlex.quote(saved or "audit.empriv"), f"{worst.epsilon:g}"
    one_number = audit.results.components is None
    one = one_number and audit.times == 1
    if not one_number and _cells_come_and_go(audit):
        return f"{_always_there(audit.results)}; and audit again.", ""
    if not one and any(check.severity == "error" and outlasts_noise(check) for check in worst.checks):
        return (
            "the databases are not alike, which no noise mends (--verbose): audit those since they last changed, or "
            "say more of what readers know, such as --known calendar --known count(*)."
        ), ""
    if audit.in_chunks or not (one or (audit.takes_noise and "delta" in limits)):
        return "ask for less, such as sum(least(amount, 60)) for amounts up to 60, and audit again.", ""
    if one:
        asked = (f"--target {shlex.quote(f'{figure} <= {limit:g} at {at}')}" for figure, limit in limits.items())
        command = f"{advise or f'empriv advise {name}'} {' '.join(asked)}"
        saved = saved or advise
    else:
        times = "" if audit.times == 1 else f" --times {audit.times}"
        command = f"empriv noise {name} --epsilon {at} --delta {limits['delta']:g}{times}"
    return "see what you can do, and what it costs" + (":" if saved else " (after --save audit.empriv):"), command


def _always_there(results: Results) -> str:
    """What to ask in place of numbers that come and go with one person."""
    cell = max(results.cells or (), key=lambda cell: len(cell.keys), default=None)
    if cell is None or not cell.keys:
        return "ask for numbers that are always there, such as coalesce(sum(x), 0) in place of sum(x)"
    columns = [column for column, _ in cell.keys]
    in_the_cell = " AND ".join(f"{column} = 'a'" for column in columns)
    one = f"count(*) FILTER (WHERE {in_the_cell}) AS a"
    return (
        f"ask for each cell by itself, so that none comes and goes with one person: {one}, ... in place of GROUP BY "
        f"{', '.join(columns)}, and coalesce(..., 0) around sums"
    )


def _cells_come_and_go(audit: Audit) -> bool:
    """Whether one person's absence decides whether a number of a table is there, which no noise hides."""
    results = audit.results
    return bool((results.entry_outcomes != results.outcomes[results.entry_database]).any())
