"""Whether chance is the same with and without an individual, and what it costs if it is not.

A randomised function gets the same random numbers on both sides of a pair (`collecting.functions.chance`). One that
draws from elsewhere, or answers that were drawn by other means, may not: then two results differ by chance as well as
by the individual. The laws are what they are, but an estimate from few draws takes some of that for influence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.checks.check import Check
from empriv.validate.checks.robustness import riskiest

_SHARED = 0.5  # of the variance over draws; half of those looked at share less if chance is not common
_LEAST = 8  # numbers to tell by
_NOBODIES = 8


def chance_check(risk: Risk, epsilon: float, rng: int) -> list[Check]:
    """A warning if chance differs between the two sides of pairs; nothing otherwise, or if nothing is random."""
    results = risk.results
    if results.draws is None or not _differs(results, riskiest(risk, epsilon)):
        return []
    try:
        alone = float(np.median(measure_line(_nobodies(results, rng)).delta_i(float(epsilon))))
    except InputError:  # these answers cannot be measured by themselves
        return []
    return [Check("chance", "warning", {"alone": alone, "m": results.draws, "n": results.n_databases})] if alone else []


def _differs(results: Results, rows: IntArray) -> bool:
    """Whether what chance does with everyone says nothing of what it does without these individuals."""
    several = results.draws is not None and results.draws > 1
    shared = [_correlation(results, row, within=several) for row in rows.tolist()]
    known = np.array([correlation for correlation in shared if np.isfinite(correlation)])
    if not len(known):
        return False
    if several:
        return bool(np.median(known) < _SHARED)
    # One draw for each database: data and chance are not told apart. No correlation at all with anybody's absence
    # means that chance is nearly everything, and not common.
    return bool(known.max() < 3.0 / np.sqrt(results.n_databases))


def _correlation(results: Results, row: int, *, within: bool) -> float:
    """Of the results with everyone and without an individual; over the draws of a database, or over databases."""
    entries = slice(results.starts[row], results.starts[row + 1])
    a, b = results.q[results.entry_database[entries]], results.entry_q[entries]
    numbers = (np.isfinite(a) & np.isfinite(b)).all(axis=1)
    a, b = (_centred(side[numbers], within=within) for side in (a, b))
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 and a.size >= _LEAST else float("nan")


def _centred(values: FloatArray, *, within: bool) -> FloatArray:
    return np.asarray(values - (values.mean(axis=1, keepdims=True) if within else values.mean()))


def _nobodies(results: Results, rng: int) -> Results:
    """People who change nothing: both sides are drawn anew from the draws of each database, each side for itself."""
    assert results.draws is not None
    n, m = results.n_databases, results.draws
    generator = np.random.default_rng(rng)
    q = results.q
    if m > 1:
        # m draws spread less about their own mean than about the law's.
        mean = q.mean(axis=1, keepdims=True)
        q = np.where(np.isfinite(mean), mean + np.sqrt(m / (m - 1)) * (q - mean), q)

    def drawn() -> tuple[FloatArray, npt.NDArray[np.int8]]:
        rows = np.arange(n)[:, None] if m > 1 else generator.integers(n, size=(n, 1))
        places = rows, generator.integers(m, size=(n, m))
        return q[places], results.outcomes[places]

    sides = [drawn() for _ in range(1 + _NOBODIES)]
    return replace(
        results,
        q=sides[0][0],
        outcomes=sides[0][1],
        individuals=np.arange(_NOBODIES),
        starts=np.arange(0, n * _NOBODIES + 1, n, dtype=np.int64),
        entry_database=np.tile(np.arange(n, dtype=np.int32), _NOBODIES),
        entry_q=np.concatenate([values for values, _ in sides[1:]]),
        entry_outcomes=np.concatenate([outcomes for _, outcomes in sides[1:]]),
    )
