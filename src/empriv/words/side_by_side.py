"""The words in which a comparison is told, from names and numbers: terminal, JSON and page take them from here."""

from __future__ import annotations

import math

from empriv.words.sentences import number

HEADERS = ("protocol", "delta", "upper bound", "total risk", "mean error", "90% of errors", "bias", "no answer")


def unpaired() -> str:
    return "They were measured on different databases, so a difference may be between the databases."


def densities_differ() -> str:
    return "They were measured with different densities: part of a difference may come from that."


def individuals_differ() -> str:
    return "They are of different individuals: with more of them total risk is larger, all else equal."


def upper_said(upper: float) -> str:
    return "none" if upper >= 1 else number(upper, 3)


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


def errors_of_cells(
    name: str, cells: int, relative: float, worst: tuple[str, float, float] | None, hidden: float
) -> str:
    """Errors of a table: relative over all cells, the cell with the largest mean error, how many are hidden."""
    if worst is None:
        return f"{name}: every one of its {cells:,} cells is hidden."
    where, error, own = worst
    by_cell = (
        "no error in any cell"
        if error == 0
        else f"off by {share(relative)} of the truth on average, most in {where}: by {amount(error)} ({share(own)})"
    )
    gone = "" if hidden == 0 else f"; {amount(hidden)} of {cells:,} cells hidden in a database on average"
    return f"{name}: {by_cell}{gone}."


def no_truth() -> str:
    return "No truth was named, so errors are not known."


def front(names: str) -> str:
    return f"The best trade-offs between privacy and error: {names}."


def against(truth: str) -> str:
    return f"Errors are against the answers of {truth}."
