"""Residual results: what is known, regressed out of both sides of every pair.

A hockey stick does not change when both sides are moved, stretched or mapped by one rising function. So somebody who
knows x sees each pair as (what is left, what is left - influence), and the residual results are measured as any others.
Whoever is in no row of a database has the result with everyone there, before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from empriv.errors import InputError
from empriv.measuring.given.regression import Fit, fitted
from empriv.measuring.given.terms import Term, number_term
from empriv.results import FloatArray, IntArray, Results

_NOT_POSITIVE = "Logarithms must be taken of results that are all positive numbers, got others."


@dataclass(frozen=True, eq=False, repr=False)
class Residuals:
    """What is left of results to somebody who knows part of them.

    Attributes
    ----------
    results : residuals with everyone and without each individual, in units of what is left of each database: those of
        the results (of their logarithm, if that was taken) in the calmest context
    units : (n,) what one such unit is on each database; 1 where all spread alike
    original : the results themselves, on the same databases in the same order
    fit : what was taken out
    logarithm : whether logarithms were taken
    previous : how many previous answers are known
    dropped : databases left out because their previous answers are not known
    places : positions of these databases among those that were given
    """

    results: Results
    units: FloatArray
    original: Results
    fit: Fit
    logarithm: bool
    previous: int
    dropped: int
    places: IntArray

    def of_people(self, results: Results) -> Residuals:
        """What is left of the results without other individuals, with everyone as they were."""
        if self.logarithm and not all_positive(results):
            raise InputError(_NOT_POSITIVE)
        original = _on(results, self.places)
        return replace(
            self, original=original, results=_residual_results(original, self.fit, self.units, self.logarithm)
        )

    def left_of(self, values: FloatArray) -> FloatArray:
        """What is left of results ``values`` (n, draws) on these databases."""
        y = _scaled(values, self.logarithm)
        return np.asarray((y - self.fit.level[:, None]) * self.fit.calm[:, None])


def regress_out(
    results: Results,
    terms: Sequence[Term],
    *,
    order: IntArray | None = None,
    previous: int = 0,
    lags: Sequence[int] | None = None,
    logarithm: bool = False,
    spread: bool = False,
    calmest: bool = False,
) -> Residuals:
    """Fit what is known, and regress it out.

    Parameters
    ----------
    results : of one number
    terms : what is known of each database, in the order of the results
    order : positions of the databases in time, if they have an order: the residual results come in it
    previous : how many of the previous answers are known
    lags : which of them enter; by default all
    logarithm, spread : as for `fitted`
    calmest : take influences to be as large beside what is left of every database as where that is least, for noise
        that is added to the results: one unit is then one of the results everywhere
    """
    lags = range(1, previous + 1) if lags is None else lags
    order = np.arange(results.n_databases) if order is None else order
    y = _by_database(results, logarithm)[order]
    if max(lags, default=0) >= len(y):
        raise InputError(
            f"`known` must name fewer previous answers than there are databases, {len(y)}, got {max(lags)}."
        )
    past = [np.concatenate((np.full(lag, np.nan), y[:-lag])) for lag in lags]
    kept = np.flatnonzero(np.all(np.isfinite(past), axis=0)) if past else np.arange(len(y))
    places = order[kept]
    known = [term.on(places) for term in terms]
    known += [
        number_term(f"answer {lag} before" if lag > 1 else "previous answer", values[kept], lag=lag)
        for lag, values in zip(lags, past, strict=True)
    ]
    original = _on(results, places)
    fit = fitted(y[kept], known, spread=spread).among(np.unique(original.entry_database))
    units = np.ones(len(kept)) if calmest else fit.units
    residual = _residual_results(original, fit, units, logarithm)
    return Residuals(residual, units, original, fit, logarithm, max(lags, default=0), len(order) - len(kept), places)


def all_positive(results: Results) -> bool:
    """Whether every result is a number above 0, with everyone and without each individual."""
    numbers = not results.outcomes.any() and not results.entry_outcomes.any()
    return bool(numbers and (results.q > 0).all() and (results.entry_q > 0).all())


def _on(results: Results, places: IntArray) -> Results:
    return results if np.array_equal(places, np.arange(results.n_databases)) else results.on_databases(places)


def _residual_results(original: Results, fit: Fit, units: FloatArray, logarithm: bool) -> Results:
    n, entries = original.n_databases, len(original.entry_database)
    q, entry_q = original.q.reshape(n, -1), original.entry_q.reshape(entries, original.draws or 1)
    y, entry_y = _scaled(q, logarithm), _scaled(entry_q, logarithm)
    calm = fit.calm[:, None]
    # of one draw without the rounding that a difference from the level would bring back
    left = fit.left[:, None] if y.shape[1] == 1 else (y - fit.level[:, None]) * calm
    at = original.entry_database
    # Beside the randomness that is left of that database, by the lower confidence limit of its spread.
    influence = (y[at] - entry_y) / units[at, None]
    alone = (entry_y - fit.level[at, None]) * calm[at]  # where there is no number with everyone
    entry_left = np.where(np.isfinite(y[at]), left[at] - influence, alone)
    return replace(original, q=left.reshape(original.q.shape), entry_q=entry_left.reshape(original.entry_q.shape))


def _scaled(values: FloatArray, logarithm: bool) -> FloatArray:
    return np.log(values) if logarithm else values


def _by_database(results: Results, logarithm: bool) -> FloatArray:
    """(n,) results averaged over draws, NaN where none is a number. An average of draws tells more than one answer
    did, so that taking it for the previous answer errs on the private side."""
    numbers = np.where(results.outcomes == 0, results.q, np.nan).reshape(results.n_databases, -1)
    y = _scaled(numbers, logarithm)
    count = np.count_nonzero(np.isfinite(y), axis=1)
    total = np.where(np.isfinite(y), y, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
