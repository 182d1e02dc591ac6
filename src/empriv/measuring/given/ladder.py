"""The ladder: how much must be counted as known until what is left looks independent and identically distributed.

Nothing; the logarithm; the calendar; the previous answer; those 2 and 7 before; a spread that changes. It stops where
the battery on what is left is silent. More structure counted as known only lowers what is left to hide in, so that
choosing it by looking at the data errs on the private side; that the battery is silent is weak evidence all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from empriv.errors import InputError
from empriv.measuring.given.battery import battery, same_within
from empriv.measuring.given.calendar import Times, calendar_terms
from empriv.measuring.given.regression import LEAST_LEFT, explained_by, prefers_logarithm
from empriv.measuring.given.residuals import Left, all_positive, taken_out
from empriv.measuring.given.terms import Term
from empriv.measuring.line.atoms import tie_tolerance
from empriv.results import FloatArray, Results

SILENT = 0.05
FEWEST = 8  # databases that the battery can be asked about
LEAST_CLIMBED = LEAST_LEFT + 2  # databases: a level and a trend are fitted at least
_RUNGS = ("nothing", "logarithm", "calendar", "previous", "lags", "spread")


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Attributes
    ----------
    name : "nothing", "logarithm", "calendar", "previous", "lags" or "spread"
    p : of the battery on what is left
    statistic : the strongest departure
    """

    name: str
    p: float
    statistic: str


def climb(
    results: Results,
    terms: Sequence[Term],
    times: Times | None,
    *,
    spread: bool | None = None,
    positive: bool = True,
) -> tuple[Left, tuple[Rung, ...]]:
    """What is left where the ladder stops, and the steps that were taken.

    Parameters
    ----------
    results : of one number
    terms : what is known in any case
    times : when the databases were; None if they have no order: then only the logarithm is tried
    spread : as for `fitted`, on every rung; None leaves it to the last
    positive : whether results without people who are not listed are all positive
    """
    everything = calendar_terms(times) if times is not None else []
    order = None if times is None else times.order
    positive = positive and all_positive(results)
    y = results.q.reshape(results.n_databases, -1).mean(axis=1) if positive else np.zeros(0)
    steps: list[Rung] = []
    chosen: Left | None = None
    for name in _RUNGS:
        dated = name not in ("nothing", "logarithm")
        known = [*terms, *everything] if dated else list(terms)
        logarithm = name != "nothing" and positive and prefers_logarithm(y, known)
        if (name == "logarithm" and not logarithm) or (dated and times is None):
            continue
        lags = {"previous": (1,), "lags": (1, 2, 7), "spread": (1, 2, 7)}.get(name, ())
        try:
            left = taken_out(
                results, known, order=order, lags=lags, logarithm=logarithm, spread=True if name == "spread" else spread
            )
        except InputError:
            if chosen is None:
                raise
            break  # too few databases for more
        chosen = left
        p, statistic = objection(left, times)
        if not dated and everything:
            p = min(p, calendar_p(left, everything, times))
        steps.append(Rung(name, p, statistic))
        if p > SILENT:
            break
    assert chosen is not None
    return chosen, tuple(steps)


def objection(left: Left, times: Times | None) -> tuple[float, str]:
    """p of the battery on what is left, and the strongest departure; 1 where there is no order, or too little."""
    values = rests(left)
    if times is None or len(values) < FEWEST:
        return 1.0, ""
    tested = battery(values)
    return tested.p, tested.statistic


def rests(left: Left) -> FloatArray:
    """(n,) what is left, averaged over draws, without rounding; databases without a number are left out."""
    values = left.fit.left[np.isfinite(left.fit.left)]
    return same_within(values, tie_tolerance(left.original.q))


def calendar_p(left: Left, everything: Sequence[Term], times: Times | None) -> float:
    """p of the test whether a calendar tells anything about what is left: weekdays are silent to the battery."""
    here = np.isfinite(left.fit.left)
    if times is None or left.fit.determined:
        return 1.0
    places = times.order[here]
    return explained_by(left.fit.left[here], [term.on(places) for term in everything])
