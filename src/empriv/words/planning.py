"""What is said before an audit is run: how far the data reach, and what is promised to everybody in them."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.words.decision import guess, rows_of_one
from empriv.words.nouns import Nouns
from empriv.words.sentences import few_databases, floor, listed, number, percent, too_few_for_a_bound

PRESETS: dict[str, tuple[str, float, float, str]] = {
    "strict": ("Strict", 0.1, 0.01, "Where being found out harms a person: health, money, beliefs, children."),
    "usual": ("Usual", 0.1, 0.05, "For everyday records: purchases, trips, visits."),
    "lenient": ("Lenient", 0.2, 0.1, "Where it is hardly a secret who is in the data."),
}
"""Promises to choose from: a name, epsilon, delta, and what each is for."""
_ENOUGH = 100  # databases, below which the upper bound is weak


def reach(n: int, unit: str, people: int, least: float) -> str:
    """How many databases and people there are, and the smallest delta that so many databases can support."""
    counted = f"{n:,} {unit if n == 1 else f'{unit}s'}, {people:,} {'person' if people == 1 else 'people'}"
    return f"{counted}: enough for delta ≥ {number(least)}."


def presets_within(least: float) -> str:
    """Which of the presets databases may show to be kept, that support deltas from ``least`` on."""
    names = [name for name, _, delta, _ in PRESETS.values() if delta >= least]
    if not names:
        return "That is too few for any of the promises that you can choose from later."
    promises = "promise" if len(names) == 1 else "promises"
    return f"That is enough for the {promises} {listed(names)}, of those that you can choose from later."


def too_few(n: int, least: int) -> str | None:
    """What to say of databases that are too few; None if they are enough."""
    if n < least:
        hint = "Hint: cut the rows into shorter times, or draw random samples of one table."
        return f"{too_few_for_a_bound(n, least)} {hint}"
    return few_databases(n) if n < _ENOUGH else None


def beyond_reach(n: int, least: float, delta: float) -> str | None:
    """What to say of a promise that so many databases cannot show to be kept; None if they may."""
    return None if delta >= least else f"{floor(n, least)} With so few, nobody can show that the promise is kept."


def promised(
    epsilon: float,
    delta: float | None,
    total_risk: float | None = None,
    *,
    times: int = 1,
    known: Sequence[str] = (),
    presence: bool = True,
    nouns: Nouns = Nouns(),  # noqa: B008 — frozen
) -> str:
    """The whole promise.

    Parameters
    ----------
    epsilon, delta, total_risk : limits; None where there is none
    times : publications that it must hold for together
    known : what readers may know, in a few words each
    presence : whether it must hold also in a database that people are in
    nouns : what an individual is called
    """
    known = [*known, *([rows_of_one(nouns)] if presence else [])]
    who = f"That holds for readers who may know {listed(known)}" if known else "That holds for readers who know no more"
    limits = {"epsilon": epsilon, "delta": delta, "total risk": total_risk}
    figures = ", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None)
    anybody = (
        "" if total_risk is None else f" In at most {percent(total_risk)} of cases a reader gets surer of anybody."
    )
    return f"{guess(epsilon, delta, nouns, times)}{anybody} {who} ({figures})."
