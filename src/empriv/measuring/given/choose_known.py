"""How much must be counted as known until residuals look independent and identically distributed.

Nothing; the logarithm; the calendar; the previous answer; those 2 and 7 before; a spread that changes. The first at
which the i.i.d. tests on the residuals are silent is chosen. More structure counted as known only lowers what is left
to hide in, so that choosing it by looking at the data errs on the private side; that the tests are silent is weak
evidence all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from empriv.errors import InputError
from empriv.measuring.given.calendar import Times, calendar_terms
from empriv.measuring.given.iid_tests import iid_tests, same_within
from empriv.measuring.given.regression import LEAST_LEFT, explained_by, prefers_logarithm
from empriv.measuring.given.residuals import Residuals, all_positive, regress_out
from empriv.measuring.given.terms import Term
from empriv.measuring.line.atoms import tie_tolerance
from empriv.results import FloatArray, Results

SILENT = 0.05
FEWEST = 8  # databases that can be tested
LEAST_CHOSEN = LEAST_LEFT + 2  # databases: a level and a trend are fitted at least
_STEPS = ("nothing", "logarithm", "calendar", "previous", "lags", "spread")


@dataclass(frozen=True)
class Step:
    """One step of the choice.

    Attributes
    ----------
    name : "nothing", "logarithm", "calendar", "previous", "lags" or "spread"
    p : of the i.i.d. tests on the residuals
    statistic : the strongest departure
    """

    name: str
    p: float
    statistic: str


def choose(
    results: Results,
    terms: Sequence[Term],
    times: Times | None,
    *,
    positive: bool = True,
) -> tuple[Residuals, tuple[Step, ...]]:
    """The residuals that were chosen, and the steps that were taken.

    Parameters
    ----------
    results : of one number
    terms : what is known in any case
    times : when the databases were; None if they have no order: then only the logarithm is tried
    positive : whether results without people who are not listed are all positive
    """
    everything = calendar_terms(times) if times is not None else []
    order = None if times is None else times.order
    positive = positive and all_positive(results)
    y = results.q.reshape(results.n_databases, -1).mean(axis=1) if positive else np.zeros(0)
    steps: list[Step] = []
    chosen: Residuals | None = None
    for name in _STEPS:
        dated = name not in ("nothing", "logarithm")
        known = [*terms, *everything] if dated else list(terms)
        logarithm = name != "nothing" and positive and prefers_logarithm(y, known)
        if (name == "logarithm" and not logarithm) or (dated and times is None):
            continue
        lags = {"previous": (1,), "lags": (1, 2, 7), "spread": (1, 2, 7)}.get(name, ())
        try:
            left = regress_out(results, known, order=order, lags=lags, logarithm=logarithm, spread=name == "spread")
        except InputError:
            if chosen is None:
                raise
            break  # too few databases for more
        chosen = left
        p, statistic = objection(left, times)
        if not dated and everything:
            p = min(p, calendar_p(left, everything, times))
        steps.append(Step(name, p, statistic))
        if p > SILENT:
            break
    assert chosen is not None
    return chosen, tuple(steps)


def objection(left: Residuals, times: Times | None) -> tuple[float, str]:
    """p of the i.i.d. tests on the residuals, and the strongest departure; 1 where there is no order, or too little."""
    values = rests(left)
    if times is None or len(values) < FEWEST:
        return 1.0, ""
    tested = iid_tests(values)
    return tested.p, tested.statistic


def rests(left: Residuals) -> FloatArray:
    """(n,) what is left, averaged over draws, without rounding; databases without a number are left out."""
    values = left.fit.left[np.isfinite(left.fit.left)]
    return same_within(values, tie_tolerance(left.original.q))


def calendar_p(left: Residuals, everything: Sequence[Term], times: Times | None) -> float:
    """p of the test whether a calendar tells anything about residuals: the i.i.d. tests do not see weekdays."""
    here = np.isfinite(left.fit.left)
    if times is None or left.fit.determined:
        return 1.0
    places = times.order[here]
    return explained_by(left.fit.left[here], [term.on(places) for term in everything])
