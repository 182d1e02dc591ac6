"""A comparison in words: which sentences of `words.comparison` apply to it, and with which numbers."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from empriv.base.harmless import visible
from empriv.words import side_by_side as words
from empriv.words.sentences import number

if TYPE_CHECKING:
    from empriv.comparing.comparison import Comparison
    from empriv.comparing.utility import Utility


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know about the comparison as a whole."""
    audits = list(comparison.audits.values())
    notes = [] if comparison.recommendation is None else [comparison.recommendation.sentence]
    if not comparison.paired:
        notes.append(words.unpaired())
    if comparison.truth is None:
        notes.append(words.no_truth())
    if len({repr(audit.density) for audit in audits}) > 1:
        notes.append(words.densities_differ())
    if len({audit.results.n_individuals for audit in audits}) > 1:
        notes.append(words.individuals_differ())
    return tuple(notes)


def rows_of(comparison: Comparison, epsilon: float) -> list[tuple[str, ...]]:
    """The table at one epsilon, with the columns of `HEADERS`; only the first four without a truth."""
    upper = comparison.upper(epsilon)
    delta, total = comparison.delta(epsilon), comparison.total_risk(epsilon)
    errors = {row.protocol: row for row in comparison.overall} if comparison.truth else {}
    return [
        (
            visible(name), number(delta[name], 3), words.upper_said(upper[name]), number(total[name], 3),
            *(errors_said(errors[name]) if errors else ()),
        )
        for name in comparison.names
    ]  # fmt: skip


def errors_said(row: Utility) -> tuple[str, str, str, str]:
    """Mean error, its 90% quantile, bias and share without an answer."""
    return (
        words.amount(row.mean_absolute),
        words.amount(row.ninety),
        words.amount(row.bias),
        words.share(row.unanswered),
    )


def describe_cells(comparison: Comparison) -> list[str]:
    """For tables with a truth, a sentence on the errors of each protocol: overall, in the worst cell, hidden cells."""
    if comparison.truth is None or comparison.scalar:
        return []
    sentences = []
    for row in comparison.overall:
        cells = [cell for cell in comparison.utility if cell.protocol == row.protocol and not isnan(cell.mean_absolute)]
        worst = max(cells, key=lambda cell: cell.mean_absolute, default=None)
        where = None if worst is None else (visible(worst.component or ""), worst.mean_absolute, worst.relative)
        n_cells = len(comparison[row.protocol].results.components or ())
        sentences.append(
            words.errors_of_cells(visible(row.protocol), n_cells, row.relative, where, row.unanswered * n_cells)
        )
    return sentences


def text_of(comparison: Comparison) -> str:
    """The comparison as plain text."""
    lines = [] if comparison.recommendation is None else [comparison.recommendation.sentence, ""]
    for epsilon in comparison.epsilons:
        rows = rows_of(comparison, epsilon)
        table = [words.HEADERS[: len(rows[0])], *rows]
        widths = [max(len(row[k]) for row in table) for k in range(len(rows[0]))]
        lines.append(f"At epsilon {epsilon:g}")
        for row in table:
            cells = (c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            lines.append("  ".join(cells).rstrip())
        if comparison.truth is not None and comparison.scalar:
            front = ", ".join(map(visible, comparison.front(epsilon)))
            lines.append(words.front(front))
        lines.append("")
    if comparison.truth is not None:
        lines.append(words.against(visible(comparison.truth)))
    lines += describe_cells(comparison)
    lines += [note for note in notes_of(comparison) if note not in lines]
    return "\n".join(lines)
