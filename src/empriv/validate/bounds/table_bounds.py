"""Bounds of the paper's pair of a table, the table with everyone against the same without somebody, on a random day.

Upper: hockey sticks are jointly convex, so nobody's delta_i is above the mean over databases of what the table leaves
of what they did that day, which is nothing where they were not there. Each day is bounded as in `table_cover`, on a
ladder of sizes, from above; B of the values of all databases is the bound.

Lower: for those who move the table most, what is left of it in their own direction, each database freed by a regression
on the others; one number, so that the lower bound of one number holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.judge import lower
from empriv.judge.noisy_laws import corrections
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.line.atoms import share_at_most
from empriv.measuring.tables import TableRisk
from empriv.results import FloatArray
from empriv.validate.bounds.noise_as_kernel import NoiseGiven
from empriv.validate.table_cover import TableHiding, hiding_of_table
from empriv.words.findings import Finding

_CANDIDATES = 24  # people among whom a lower bound chooses
_REFERENCE = 0.05  # delta at which days of several cells are put in order


@dataclass(frozen=True, eq=False)
class TableBounds:
    """Bounds of a table: (epsilons,), and (individuals, epsilons) for each."""

    lower: FloatArray
    estimate: FloatArray
    upper_i: FloatArray
    assumes: tuple[Finding, ...]


def table_bounds(risk: TableRisk, epsilons: FloatArray, level: float, noise: NoiseGiven) -> TableBounds:
    """Bounds of a table as it is, or with noise."""
    hiding, n = hiding_of_table(risk, noise), risk.results.n_databases
    upper_i = uppers(hiding, epsilons, level)
    if hiding.kernels is not None:
        estimate = np.zeros(len(epsilons))
        return TableBounds(np.zeros(len(epsilons)), estimate, upper_i, (Finding("table-noise"),))
    leaked = np.rint(risk.leaked() * n)
    some = leaked > 0
    upper_i[some] = np.maximum(upper_i[some], share_at_most(leaked[some], n, level)[:, None])
    estimate_i = risk.delta_i(epsilons)
    if n < LEAST_DATABASES:
        assumes = Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES})
    else:
        numbers = {"n": n, "parameters": risk.fit.rank, "people": int(risk.from_below.sum())}
        assumes = Finding("table-from-below" if risk.fit.ridge else "table-bound", numbers)
    found = np.maximum(lower_of_people(risk, epsilons, level), _lower_of_leaks(leaked, n, level))
    return TableBounds(found, estimate_i.max(axis=0, initial=0.0), np.maximum(upper_i, estimate_i), (assumes,))


def uppers(hiding: TableHiding, epsilons: FloatArray, level: float) -> FloatArray:
    """(individuals, epsilons) upper bounds of everybody."""
    by_day = hiding.day_bounds(epsilons, _REFERENCE, level)
    return np.stack([_mean_over_days(hiding, values, level) for values in by_day.T], axis=1)


def _mean_over_days(hiding: TableHiding, values: FloatArray, level: float) -> FloatArray:
    """(individuals,) B over all databases of each person's values (days,)."""
    days, n = hiding.days, hiding.risk.results.n_databases
    people = hiding.risk.results.n_individuals
    first, second, third = (np.bincount(days.owner, values**power, minlength=people) / n for power in (1, 2, 3))
    z, c = corrections(level)
    variance = np.maximum(second - first**2, 0.0)
    skewness = np.maximum(third - 3 * first * second + 2 * first**3, 0.0)
    safe = np.where(variance > 1e-15, variance, 1.0)
    whole = first + z * np.sqrt(safe / max(n - 1, 1)) + c * skewness / (safe * n)
    most = np.zeros(people)
    np.maximum.at(most, days.owner, values)
    return np.asarray(np.minimum(np.where(variance > 1e-15, whole, first), most))


def _lower_of_leaks(counts: FloatArray, n: int, level: float) -> float:
    """What the databases in which somebody is given away demonstrate: Clopper and Pearson's lower limit."""
    most = int(counts.max(initial=0.0))
    return 1.0 - float(share_at_most(n - most, n, level)) if most else 0.0


def lower_of_people(risk: TableRisk, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) a delta that the databases demonstrate, of one of those who move the table most."""
    fit, influences = risk.fit, risk.influences
    total = np.bincount(influences.owner, influences.sizes, minlength=risk.results.n_individuals)
    rows = np.argsort(-total, kind="stable")[:_CANDIDATES]
    rows = rows[total[rows] > 0]
    if not len(rows) or fit.ridge or fit.n < LEAST_DATABASES:
        return np.zeros(len(epsilons))
    frame = np.linalg.qr(np.concatenate((fit.basis, fit.residuals / fit.residuals.std(axis=0)), axis=1))[0]
    leverage = np.clip((frame**2).sum(axis=1), 0.0, 0.9)
    with_all, without = [], []
    for row in rows.tolist():
        databases, places, changes = influences.of(row)
        mean = changes.mean(axis=(0, 1))
        direction = fit.precision[:, places] @ mean
        along = fit.residuals @ direction / (1.0 - leverage)
        apart = along.reshape(fit.n, -1).copy()
        apart[databases] -= changes @ direction[places]
        with_all.append(along)
        without.append(apart.reshape(-1))
    return lower.of_anyone(np.array(with_all), np.array(without), epsilons, draws=influences.draws, level=level)
