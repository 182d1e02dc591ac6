"""The words in which a comparison is told, from names and numbers: terminal, JSON and page take them from here."""

from __future__ import annotations

import math

from empriv.words.sentences import databases, number, percent

REAL, UNTOLD, NONE = "real", "cannot be told", "none"
"""What a difference may be judged to be."""

HEADERS = ("protocol", "delta", "upper bound", "total risk", "mean error", "90% of errors", "bias", "no answer")


def unpaired() -> str:
    return "They were measured on different databases, so a difference may be between the databases."


def not_one_number() -> str:
    return "Several numbers together, and adversaries who know part of the data, are not compared this way."


def few(n: int, least: int) -> str:
    return f"{databases(n)} cannot show a difference: at least {least} are needed."


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


def difference_sentence(
    verdict: str, figure: str, epsilon: float, names: tuple[str, str], interval: tuple[float, float, float]
) -> str:
    """How much more the first risks than the second: the difference, and its lower and upper bound."""
    (first, second), (difference, lower, upper) = names, interval
    at_epsilon = f"{figure.replace('_', ' ')} at epsilon {epsilon:g}"
    if verdict == NONE:
        return f"{first} and {second} have the same {at_epsilon} on these databases."
    if verdict == REAL:
        word = "less" if difference < 0 else "more"
        size = sorted((abs(lower), abs(upper)))
        return (
            f"{first} has {word} {at_epsilon} than {second}, by {number(abs(difference))} "
            f"({number(size[0])} to {number(size[1])})."
        )
    return (
        f"Whether {first} or {second} has more {at_epsilon} cannot be told: the difference may be anything "
        f"from {number(lower)} to {number(upper)}."
    )


def untold(left: int, same: int) -> str:
    """How many differences are not real, and why."""
    none = "1 is exactly none" if same == 1 else f"{same:,} are exactly none"
    counts = [f"{left:,} cannot be told"] * (left > 0) + [none] * (same > 0)
    return f"{', '.join(counts)}." if counts else ""


def not_judged(reason: str) -> str:
    return f"Differences are not judged. {reason}"


def no_truth() -> str:
    return "No truth was named, so errors are not known."


def front(names: str) -> str:
    return f"The best trade-offs between privacy and error: {names}."


def against(truth: str) -> str:
    return f"Errors are against the answers of {truth}."
