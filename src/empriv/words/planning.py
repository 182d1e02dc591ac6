"""What is said before an audit is run: how far the data reach, and what is promised to everybody in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from empriv.words.decision import guess
from empriv.words.sentences import few_databases, floor, number, percent, too_few_for_a_bound

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
    return f"That is enough for the {promises} {_listed(names)}, of those that you can choose from later."


def too_few(n: int, least: int) -> str | None:
    """What to say of databases that are too few; None if they are enough."""
    if n < least:
        hint = "Hint: cut the rows into shorter times, or draw random samples of one table."
        return f"{too_few_for_a_bound(n, least)} {hint}"
    return few_databases(n) if n < _ENOUGH else None


def beyond_reach(n: int, least: float, delta: float) -> str | None:
    """What to say of a promise that so many databases cannot show to be kept; None if they may."""
    return None if delta >= least else f"{floor(n, least)} With so few, nobody can show that the promise is kept."


def together_in_words(earlier: int, *, known: bool) -> str:
    """What to say of an audit together with earlier releases from the same databases; ``known``: if more is known."""
    if not earlier:
        return "No earlier release is from these databases, so that none is counted. You need not count them."
    return "Together with earlier releases, the calendar is not counted as known." if known else ""


def opinion(epsilon: float) -> str:
    """How sure a reader may become who thought it 50:50 before."""
    return guess(epsilon, None)


def failing(delta: float) -> str:
    """What delta allows."""
    if delta == 0:
        return "For nobody may this fail."
    return f"For each person this may fail with a probability of at most {percent(delta)}."


@dataclass(frozen=True)
class Promise:
    """What is promised.

    Attributes
    ----------
    epsilon, delta, total_risk : limits; None where there is none
    times : publications that it must hold for together
    known : what readers may know, in a few words each
    presence : whether it must hold also in a database that people are in
    earlier : releases that are counted together with it
    sampled : whether databases are random samples of one table
    """

    epsilon: float
    delta: float | None
    total_risk: float | None = None
    times: int = 1
    known: Sequence[str] = ()
    presence: bool = True
    earlier: int = 0
    sampled: bool = False


def promised(promise: Promise) -> str:
    """The whole promise."""
    present = "that the person was sampled" if promise.sampled else "that the person is in the database"
    known = [*promise.known, *([present] if promise.presence else [])]
    who = (
        f"That holds for readers who may know {_listed(known)}" if known else "That holds for readers who know no more"
    )
    often = "" if promise.times == 1 else f", and for {promise.times:,} publications together"
    before = "" if not promise.earlier else f", counted with {promise.earlier:,} earlier release"
    before += "s" if promise.earlier > 1 else ""
    figures = [f"epsilon {promise.epsilon:g}"]
    sentences = [opinion(promise.epsilon)]
    if promise.delta is not None:
        sentences.append(failing(promise.delta))
        figures.append(f"delta {promise.delta:g}")
    if promise.total_risk is not None:
        sentences.append(f"That it fails for anybody may have a probability of at most {percent(promise.total_risk)}.")
        figures.append(f"total risk {promise.total_risk:g}")
    return " ".join([*sentences, f"{who}{often}{before} ({', '.join(figures)})."])


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
