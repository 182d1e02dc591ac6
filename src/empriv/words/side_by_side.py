"""The words in which a comparison is told: terminal, JSON and page take them from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from empriv.base.harmless import visible
from empriv.comparing.differences import LEAST_DATABASES, NONE, REAL
from empriv.words.sentences import databases, number, percent

if TYPE_CHECKING:
    from empriv.comparing.comparison import Comparison
    from empriv.comparing.differences import Difference
    from empriv.comparing.utility import Utility

HEADERS = ("protocol", "delta", "upper bound", "total risk", "mean error", "90% of errors", "bias", "no answer")


def unpaired() -> str:
    return "They were measured on different databases, so a difference may be between the databases."


def not_one_number() -> str:
    return "Several numbers together, and adversaries who know part of the data, are not compared this way."


def few(n: int) -> str:
    return f"{databases(n)} tell no differences: at least {LEAST_DATABASES} are needed."


def held_together(level: float, count: int) -> str:
    return (
        f"{count:,} {'interval' if count == 1 else 'intervals'}, which hold all together at {percent(level)}. Each "
        "holds what the draw of the databases and the smoothing may do; behaviour too rare to be seen in these "
        "databases is in none of them."
    )


def densities_differ() -> str:
    return "They were measured with different densities: part of a difference may come from that."


def individuals_differ() -> str:
    return "They are of different individuals: with more of them total risk is larger, all else equal."


def made_from(name: str, source: str) -> str:
    return (
        f"{name} is made from the answers of {source} alone, so it cannot tell more than they do: where its figures "
        "are larger, the estimates are not exact enough to show it."
    )


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know of the comparison as a whole."""
    audits = list(comparison.audits.values())
    notes = []
    if comparison.incomparable is not None:
        notes.append(f"Differences are not judged. {comparison.incomparable}")
    elif audits[0].results.n_databases < LEAST_DATABASES:
        notes.append(few(audits[0].results.n_databases))
    if comparison.truth is None:
        notes.append("No truth was named, so errors are not known.")
    if len({repr(audit.density) for audit in audits}) > 1:
        notes.append(densities_differ())
    if len({audit.results.n_individuals for audit in audits}) > 1:
        notes.append(individuals_differ())
    delta, total = (figure(list(comparison.epsilons)) for figure in (comparison.delta, comparison.total_risk))
    for name, sources in comparison.made_from.items():
        for source in sources:
            if (delta[name] > delta[source]).any() or (total[name] > total[source]).any():
                notes.append(made_from(visible(name), visible(source)))
    return tuple(notes)


def rows_of(comparison: Comparison, epsilon: float) -> list[tuple[str, ...]]:
    """The table at one epsilon, in the words of `HEADERS`; without a truth, or for vectors, the first four only."""
    upper = comparison.upper(epsilon)
    delta, total = comparison.delta(epsilon), comparison.total_risk(epsilon)
    errors = {row.protocol: row for row in comparison.utility} if comparison.truth and comparison.scalar else {}
    return [
        (
            visible(name), number(delta[name], 3), upper_said(upper[name]), number(total[name], 3),
            *(errors_said(errors[name]) if errors else ()),
        )
        for name in comparison.names
    ]  # fmt: skip


def upper_said(upper: float) -> str:
    return "none" if upper >= 1 else number(upper, 3)


def errors_said(row: Utility) -> tuple[str, str, str, str]:
    """Mean error, its 90% quantile, bias and share without an answer."""
    return amount(row.mean_absolute), amount(row.ninety), amount(row.bias), share(row.unanswered)


def amount(value: float) -> str:
    """An error, in the unit of the answers."""
    return "—" if math.isnan(value) else f"{value:,.4g}" if value == 0 or abs(value) >= 1e-4 else f"{value:.2e}"


def share(value: float) -> str:
    """A share as a percentage; a relative error may be more than all. 0% and 100% are for exactly that."""
    if math.isnan(value):
        return "—"
    if value in (0.0, 1.0):
        return f"{value:.0%}"
    return "more than 99%" if 0.99 < value < 1 else f"{100 * value:.2g}%" if value < 1 else f"{100 * value:,.0f}%"


def told(found: tuple[Difference, ...]) -> tuple[list[str], list[str]]:
    """Sentences of the differences that are real, and of those that are not or cannot be told."""
    real = [visible(one.sentence) for one in found if one.verdict == REAL]
    others = [visible(one.sentence) for one in found if one.verdict != REAL]
    return real, others


def untold(found: Sequence[Difference]) -> str:
    """How many differences are not real, and why."""
    same = sum(one.verdict == NONE for one in found)
    left = sum(one.verdict not in (NONE, REAL) for one in found)
    return f"{left:,} cannot be told, {same:,} are exactly none."


def text_of(comparison: Comparison) -> str:
    """The comparison as plain text."""
    lines = []
    for epsilon in comparison.epsilons:
        rows = rows_of(comparison, epsilon)
        table = [HEADERS[: len(rows[0])], *rows]
        widths = [max(len(row[k]) for row in table) for k in range(len(rows[0]))]
        lines.append(f"At epsilon {epsilon:g}")
        for row in table:
            cells = (c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            lines.append("  ".join(cells).rstrip())
        if comparison.truth is not None and comparison.scalar:
            front = ", ".join(map(visible, comparison.front(epsilon)))
            lines.append(f"Neither more private nor more exact is possible among them: {front}.")
        lines.append("")
    if comparison.truth is not None and comparison.scalar:
        lines.append(f"Errors are against the answers of {visible(comparison.truth)}.")
    if comparison.incomparable is None:
        found = comparison.differences()
        by_delta = [one for one in found if one.figure == "delta"]
        real, _ = told(tuple(by_delta))
        lines += ["Differences of delta that are real:", *(f"  {one}" for one in real or ["none."])]
        lines.append(untold(by_delta))
        lines.append(held_together(0.95, len(found)))
    lines += notes_of(comparison)
    return "\n".join(lines)
