"""Bounds of the paper's pair of a table, the table with everyone against the same without a person, on a random day.

Upper: hockey sticks are jointly convex, so nobody's delta_i is above the mean over databases of what the table leaves
of what they did that day, which is nothing where they were not present. Each day is bounded as in `table_cover`, on a
ladder of sizes, from above; B of the values of all databases is the bound.

Lower: for those who move the table most, its residuals in their own direction, each database freed by a regression
on the others; one number, so that the lower bound of one number holds.
"""

from __future__ import annotations

import numpy as np

from empriv.judge import lower
from empriv.judge.noise_kernels import NoiseGiven
from empriv.judge.noisy_laws import bound_of_moments
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.line.atoms import share_at_most
from empriv.measuring.tables import TableRisk
from empriv.results import FloatArray
from empriv.validate.bounds import Bounds, bounds_of, make_bounds, no_upper_bound, other_level
from empriv.validate.line_bounds import draws_averaged
from empriv.validate.table_checks import from_below
from empriv.validate.table_cover import Kernels, TableCover, table_cover_of, unjudged_of
from empriv.words.message import Message
from empriv.words.sentences import databases

_CANDIDATES = 24  # people among whom a lower bound chooses
_REFERENCE = 0.05  # delta at which days of several cells are put in order


_WITH_NOISE = Message(
    "table-noise",
    "With noise on each cell nothing is assumed of the laws of the cells but that what people did not touch tells of "
    "the rest in straight lines, and that the residuals are one law; where a check objects to that, only noise counts.",
)


@bounds_of.register(TableRisk)
def bounds_of_table(risk: TableRisk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    """Bounds of a table as it is, or with noise."""
    cover, n = table_cover_of(risk, noise), risk.results.n_databases
    upper_i = table_uppers(cover, epsilons, level)
    others = [*draws_averaged(risk.results.draws or 1), *other_level(level)]
    if cover.kernels is not None:
        nothing = np.zeros(len(epsilons))
        assumed = [_WITH_NOISE, *others]
        return make_bounds(risk, epsilons, level, nothing, upper_i, assumed, estimate=nothing, noisy=True)
    leaked = np.rint(risk.leaked() * n)
    some = leaked > 0
    upper_i[some] = np.maximum(upper_i[some], share_at_most(leaked[some], n, level)[:, None])
    if n < LEAST_DATABASES:
        assumes = no_upper_bound(n)
    elif risk.fit.ridge:
        assumes = Message("table-from-below", from_below(risk), "warning")
    else:
        assumes = Message(
            "table-bound",
            "The upper bound is of the whole table. What people do not touch counts as known "
            f"({risk.fit.rank:,} parameters from {databases(n)}), as far as it determines the rest in straight lines; "
            "structure finer than the error of that fit is assumed away.",
        )
    shown = np.maximum(table_lower(risk, epsilons, level), _lower_of_leaks(leaked, n, level))
    upper_i = np.maximum(upper_i, risk.delta_i(epsilons))
    return make_bounds(risk, epsilons, level, shown, upper_i, [assumes, *others])


def table_uppers(cover: TableCover, epsilons: FloatArray, level: float) -> FloatArray:
    """(individuals, epsilons) upper bounds of everybody."""
    by_day = cover.day_bounds(epsilons, _REFERENCE, level)
    return np.stack([_mean_over_days(cover, values, level) for values in by_day.T], axis=1)


def table_upper(risk: TableRisk, kernels: Kernels, epsilon: float, delta: float, presence: str) -> float:
    """Upper bound of the table with noise: of the worst day, or in a random database alone."""
    cover = TableCover(risk, kernels if any(kernel is not None for kernel in kernels) else None)
    if presence == "both":  # no pair of a random database is above the worst day, by convexity
        unjudged = unjudged_of(risk)
        further = 0.0 if unjudged is None else cover.on_further(unjudged).judge(epsilon, delta, 0.95).upper
        return max(further, cover.judge(epsilon, delta, 0.95).upper)
    return float(table_uppers(cover, np.array([epsilon]), 0.95).max(initial=0.0))


def _mean_over_days(cover: TableCover, values: FloatArray, level: float) -> FloatArray:
    """(individuals,) B over all databases of each person's values (days,)."""
    days, n = cover.days, cover.risk.results.n_databases
    people = cover.risk.results.n_individuals
    means = [np.bincount(days.owner, values**power, minlength=people) / n for power in (1, 2, 3)]
    most = np.zeros(people)
    np.maximum.at(most, days.owner, values)
    return np.minimum(bound_of_moments(means, n, level), most)


def _lower_of_leaks(counts: FloatArray, n: int, level: float) -> float:
    """What the databases in which a person is given away demonstrate: Clopper and Pearson's lower limit."""
    most = int(counts.max(initial=0.0))
    return 1.0 - float(share_at_most(n - most, n, level)) if most else 0.0


def table_lower(risk: TableRisk, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) a delta that the databases demonstrate, of one of those who move the table most."""
    fit, influences = risk.fit, risk.influences
    total = influences.total_sizes
    rows = np.argsort(-total, kind="stable")[:_CANDIDATES]
    rows = rows[total[rows] > 0]
    if not len(rows) or fit.ridge or fit.n < LEAST_DATABASES:
        return np.zeros(len(epsilons))
    leverage = np.clip(fit.leverage, 0.0, 0.9)
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
