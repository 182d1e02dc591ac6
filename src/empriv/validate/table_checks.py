"""Checks of whole tables: how many parameters the databases carry, and whether residuals of cells are what bounds take
them to be. Where a cell objects, or was not tested for want of time, only noise counts (`objected_places`).

**Does it depend on the rest of the table?** The regression takes out what the rest says of a cell on average. If the
rest also says how far the cell strays, or bends its mean, residuals are not of one law that all databases have in
common, and figures may be too small. Statistics of ranks look for both: residuals and their size, against every other
cell, its size, and the leverage of the database. Their law without dependence comes from permutations: residuals,
freed of the leverage, are dealt out to the databases again and go through the same regression. So neither skewed cells
nor many of them cause alarms. Cells that are tested together share their permutations, and each is held against the
largest statistic of all of them (Westfall and Young 1993).

**Has it a hard edge?** Least squares with p parameters from n databases smear what is finer than the root of p/n
standard deviations. An edge is found by the regression that suits it: the plane below all points whose distances from
it are least in sum. It is the most likely one if residuals are exponential, and near an edge it is off by p/n alone.
Whoever has such an edge leans away from it, also where it is smeared: others are not asked.

**Has it two peaks?** The same smearing fills the valley between them, and residuals look flat instead: their kurtosis
stays far below the normal law's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from empriv.measuring.tables import TableRisk
from empriv.results import FloatArray, IntArray
from empriv.validate.checks import (
    RISKIEST,
    SIGNIFICANT,
    checks_of,
    gravest,
    leak_check,
    leak_checks,
    modes_check,
    number_check,
    order_check,
    tails_check,
    ties_check,
)
from empriv.validate.line_bounds import bound_inputs
from empriv.words.message import Message
from empriv.words.sentences import databases

PERMUTATIONS = 199
_MANY = 0.5  # parameters in a database from which on figures are larger than the truth
_MOST_FITTED = 0.8  # parameters in a database: beyond, too little is left to test
_SERIES = 12  # principal axes of the table that are tested in their order
_SHORT = 0.78  # a normal sample's kurtosis strays less far below 3 than its standard deviation says
_SKEWED = 0.7  # skewness: an exponential law has 2
_TESTED = 8  # cells, at least
_WORK, _WORK_OF_EDGES = 20_000_000, 150_000_000  # numbers gone through by tests of dependence, and of edges
_EDGE = 0.27  # gain of an edge from which on the bound cannot tell: it held below, and did not above; times 1 - p/n


@checks_of.register(TableRisk)
def checks_of_table(risk: TableRisk, epsilon: float) -> list[Message]:
    n = risk.results.n_databases
    rows = np.argsort(-risk.delta_i(float(epsilon)), kind="stable")[:RISKIEST]
    places = np.sort(moved_places(risk)[:_TESTED])
    names = [risk.fit.cells[risk.fit.kept[place]] for place in places] or list(risk.fit.cells[:1])
    alone = {name: risk.each_number[name] for name in names}
    return [
        _carried(risk),
        *residuals_check(risk),
        order_check(risk.results, _series(risk, rows)),
        number_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name in risk.touching for check in leak_checks(risk.each_number[name].pairs, name)),
        gravest({name: ties_check(part.results) for name, part in alone.items()}),
        modes_check(risk),
        gravest({name: tails_check(bound_inputs(part)) for name, part in alone.items()}),
    ]


def _carried(risk: TableRisk) -> Message:
    n, p, people = risk.results.n_databases, risk.fit.rank, int(risk.from_below.sum())
    if people:
        severity, said = "error", from_below(risk)
    elif p > _MANY * n:
        severity, said = "warning", (
            f"What people do not touch takes {p:,} parameters from {databases(n)} to be counted as known: so many make "
            "residuals look smaller than they are, and figures larger."
        )  # fmt: skip
    else:
        severity, said = "info", f"What people do not touch counts as known, by {p:,} parameters from {n:,}."
    numbers = {"parameters": p, "n": n, "people": people}
    return Message("carried", said, severity, numbers, "Cells for each database")


def from_below(risk: TableRisk) -> str:
    """Whose figures are from below, in words."""
    people = int(risk.from_below.sum())
    who = f"{people:,} people" if people != 1 else "one person"
    return (
        f"There is no upper bound for {who}: {risk.fit.rank:,} parameters are too many for "
        f"{databases(risk.results.n_databases)}. Their figures are from below, and the table may reveal more."
    )


def _series(risk: TableRisk, rows: IntArray) -> dict[str, FloatArray]:
    """The table along its main axes, without what is known, and the size of what the riskiest people do."""
    axes = risk.fit.main_axes(_SERIES)
    series = {f"the table along axis {k + 1}": np.round(axis, 12) for k, axis in enumerate(axes)}
    influence = np.zeros(risk.results.n_databases)
    for row in rows.tolist():
        databases, places, changes = risk.influences.of(row)
        sizes = risk.fit.sizes(changes.mean(axis=1) @ np.eye(len(risk.fit.kept))[places])
        influence[databases] += np.sqrt(sizes)
    return series | {"the influence of the riskiest individuals": np.round(influence, 9)}


def residuals_check(risk: TableRisk) -> list[Message]:
    """Whether residuals of cells depend on the rest of the table, have a hard edge, or two peaks."""
    found = objections_of(risk)
    count, not_tested = len(found.places), len(found.not_tested)
    if not count and not not_tested:
        return []
    p, gain = float(found.p.min(initial=1.0)), float(found.gain.max(initial=-np.inf))
    flat, share = float(found.flat.max(initial=-np.inf)), float(np.sqrt(risk.fit.rank / risk.fit.n))
    objections = []
    if p <= SIGNIFICANT:
        objections.append(f"they depend on the rest of the table other than in straight lines (p = {p:.3f})")
    if gain > found.steepest:
        objections.append(
            f"they have a hard edge, and so many cells smear what is finer than {share:.2f} standard deviations"
        )
    if flat > found.flattest:
        objections.append("they are flat, or have two peaks whose valley the other cells smear")
    if not_tested:
        which = "one of them was" if not_tested == 1 else f"{not_tested:,} of them were"
        objections.append(f"{which} not tested, since there are too many cells for so many databases")
    if objections:
        said = (
            f"Residuals of the cells that people move object to the bound: {'; '.join(objections)}. The table "
            "may reveal more than the bound says. It cannot tell."
        )
    else:
        said = (
            "Residuals of the cells that people move do not depend on the rest of the table, and have one peak "
            "and no hard edge that the other cells would smear."
        )
    numbers = {
        "p": p, "gain": gain, "share": share, "flatness": flat, "limit": found.flattest, "cells": count,
        "overlooked": not_tested,
    }  # fmt: skip
    return [Message("residuals", said, "error" if objections else "info", numbers, "Residuals of cells")]


@dataclass(frozen=True, eq=False)
class Objections:
    """What speaks against taking the residuals of cells as one law: (cells,) each.

    Attributes
    ----------
    places : of the kept cells that were tested
    p : of being independent of the rest of the table, for all of them together
    gain, steepest : of a hard edge, and from when on there may be one: exponential residuals gain about 0.42 (1 - p/n)
    flat, flattest : how much flatter than a normal law, and from when on that is no chance: it is passed by chance, for
        some cell of a normal table, in one table of twenty
    not_tested : places of cells that people move, of which too little is left to test, or too many for the time
    """

    places: IntArray
    p: FloatArray
    gain: FloatArray
    steepest: float
    flat: FloatArray
    flattest: float
    not_tested: IntArray


def objected_places(risk: TableRisk) -> IntArray:
    """Places of the kept cells whose law depends on the rest of the table, or is smeared by the regression on it, or
    was not tested: there only noise counts."""
    found = objections_of(risk)
    against = (found.p <= SIGNIFICANT) | (found.gain > found.steepest) | (found.flat > found.flattest)
    return np.concatenate((found.places[against], found.not_tested))


def objections_of(risk: TableRisk) -> Objections:
    """Test the cells that people move; kept with the risk."""
    return risk.remembered("objections", lambda: _objections(risk))


def _objections(risk: TableRisk) -> Objections:
    from scipy.special import ndtri  # slow import

    n, r = risk.fit.n, len(risk.fit.kept)
    moved = moved_places(risk)[: 0 if risk.fit.ridge else None]  # then no law counts, and that is said
    edges = max(_TESTED, _WORK_OF_EDGES // max(1, n * r * r))
    places: list[int] = []
    statistics, gains, flat = [np.zeros((0, 1 + PERMUTATIONS))], [], []
    for place in moved[: max(_TESTED, _WORK // max(1, n * r))].tolist():
        cell = _without_heaviest(risk, place)
        if not cell.testable:
            continue
        gain = -np.inf
        if not _is_small_count(risk.kept_values[:, place]) and skewness(cell):
            if not edges:
                continue
            edges -= 1
            gain = edge_gain(cell)
        places.append(place)
        statistics.append(dependence(cell)[None])
        gains.append(gain)
        flat.append(flatness(cell))
    return Objections(
        places=np.array(places, np.int64),
        p=p_values(np.concatenate(statistics)),
        gain=np.array(gains),
        steepest=_EDGE * (1.0 - risk.fit.rank / n),
        flat=np.array(flat),
        flattest=_SHORT * float(ndtri(1.0 - SIGNIFICANT / max(1, len(places)))),
        not_tested=np.setdiff1d(moved, places),
    )


def _is_small_count(values: FloatArray) -> bool:
    """Whether most values are tied: small counts have their edge at 0, which the cell itself shows."""
    counts = np.unique(values, return_counts=True)[1]
    return bool(counts[counts > 1].sum() > 0.5 * counts.sum())


def moved_places(risk: TableRisk) -> IntArray:
    """Places of the kept cells that anybody moves, those first that are moved most in units of their residuals."""
    largest = np.zeros(len(risk.fit.kept))
    np.maximum.at(largest, risk.influences.places, np.abs(risk.influences.values))
    largest *= np.sqrt(np.diag(risk.fit.precision))
    order = np.argsort(-largest, kind="stable")
    return np.asarray(order[largest[order] > 0])


def _without_heaviest(risk: TableRisk, place: int) -> CellGivenRest:
    """A kept cell and the others, less what is known, by database.

    Without the individual who moves the cell most: it is the others' table that is taken to be of one law, and whoever
    is in several cells at once makes them depend on each other.
    """
    values = risk.kept_values.reshape(risk.fit.n, risk.results.draws or 1, len(risk.fit.kept)).copy()
    people = risk.touching[risk.fit.cells[risk.fit.kept[place]]]
    heaviest = people[np.argmax(risk.influences.total_sizes[people])]
    databases, places, changes = risk.influences.of(int(heaviest))
    for column, own in enumerate(places.tolist()):
        values[databases, :, own] -= changes[:, :, column]
    flat = values.reshape(-1, len(risk.fit.kept))
    left = (flat - risk.fit.basis @ (risk.fit.basis.T @ flat)).reshape(values.shape).mean(axis=1)
    return given_rest(left[:, place], np.delete(left, place, axis=1))


# The three tests of residuals


@dataclass(frozen=True, eq=False)
class CellGivenRest:
    """A cell, and what it is regressed on.

    Attributes
    ----------
    cell : (n,)
    frame : (n, p) orthonormal, of a constant and the rest of the table
    rest : (n, r) the rest as uncorrelated numbers that stay as close to the cells as they can
    """

    cell: FloatArray
    frame: FloatArray
    rest: FloatArray

    @property
    def testable(self) -> bool:
        """Whether the databases are enough to test residuals."""
        return bool(self.frame.shape[1] <= _MOST_FITTED * len(self.frame))

    def residuals_of(self, columns: FloatArray) -> FloatArray:
        """The residuals of (n,) or (n, m)."""
        return np.asarray(columns - self.frame @ (self.frame.T @ columns))

    @cached_property
    def residuals(self) -> FloatArray:
        return self.residuals_of(self.cell)

    @cached_property
    def varies(self) -> bool:
        """Whether anything but rounding is left, and can be tested."""
        spread = float(np.sqrt((self.residuals**2).mean()))
        return self.testable and spread > 1e-9 * float(np.abs(self.cell).max(initial=0.0))

    @property
    def standardised(self) -> FloatArray:
        """(n,) residuals of mean square 1."""
        return np.asarray(self.residuals / float(np.sqrt((self.residuals**2).mean())))


def given_rest(cell: FloatArray, cells: FloatArray) -> CellGivenRest:
    """A cell (n,) given the other cells (n, r)."""
    n = len(cells)
    scale = cells.std(axis=0)
    vectors, lengths, axes = np.linalg.svd(
        (cells - cells.mean(axis=0)) / np.where(scale > 0, scale, 1.0), full_matrices=False
    )
    present = lengths > 1e-9 * max(float(lengths.max(initial=0.0)), np.sqrt(n))
    vectors = vectors[:, present]
    return CellGivenRest(cell, np.column_stack((np.full(n, 1 / np.sqrt(n)), vectors)), vectors @ axes[present])


def dependence(one: CellGivenRest) -> FloatArray:
    """(1 + PERMUTATIONS,) how unusual the residuals of a cell are beside the rest, and the same of residuals that do
    not depend on it; all 0 where nothing can be seen. `p_values` compares them."""
    n, residuals = len(one.cell), one.residuals
    rounding = 1e-9 * float(np.abs(one.cell).max(initial=0.0))
    if not one.rest.shape[1] or not one.testable or not np.ptp(residuals) > rounding:
        return np.zeros(1 + PERMUTATIONS)
    leverage = (one.frame**2).sum(axis=1)
    free = np.sqrt(np.maximum(1.0 - leverage, 1e-3))[:, None]
    start = residuals[:, None] / free
    order = np.random.default_rng(0).permuted(np.tile(np.arange(n), (PERMUTATIONS, 1)), axis=1).T
    values = np.concatenate((start, one.residuals_of(start[:, 0][order]) / free), axis=1)
    signed, sizes = _scores(values), _scores(np.abs(values))
    cells, far, spread = _scores(one.rest), _scores(np.abs(one.rest)), _scores(leverage[:, None])
    statistics = np.stack(
        [
            ((regressors.T @ scores) ** 2).sum(axis=0)
            for regressors, scores in ((far, signed), (cells, sizes), (far, sizes), (spread, signed), (spread, sizes))
        ]
    )
    # the most unusual of the five is compared with its own law: no correction is due for their number
    logs = np.log(np.maximum(statistics, 1e-300))
    usual, spread_of_logs = np.median(logs, axis=1, keepdims=True), logs[:, 1:].std(axis=1, keepdims=True)
    return np.asarray(((logs - usual) / np.maximum(spread_of_logs, 1e-12)).max(axis=0))


def p_values(statistics: FloatArray) -> FloatArray:
    """(cells,) p-values of the dependence of cells (cells, 1 + permutations), for all of them together."""
    largest = statistics.max(axis=0, initial=-np.inf)
    return np.asarray((largest >= statistics[:, :1] - 1e-12).mean(axis=1))


def skewness(one: CellGivenRest) -> float:
    """Skewness of the law of the residuals, as far as the regression leaves it: the third power of what each database
    leaves of itself, ``(1 - p/n)^(3/2)``. 0 where it is too small for a hard edge."""
    if not one.varies:
        return 0.0
    found = float((one.standardised**3).mean()) / (1.0 - one.frame.shape[1] / len(one.cell)) ** 1.5
    return found if abs(found) > _SKEWED else 0.0


def edge_gain(one: CellGivenRest) -> float:
    """How much likelier a cell is, given the rest, on one side of a plane with an exponential law than around one with
    a normal law: logarithm, for each database; 0.42 for exponential laws, below 0 for normal ones."""
    from scipy.optimize import linprog  # slow import

    frame, side = one.frame, skewness(one)
    if not side:
        return -np.inf
    y, freedom = np.sign(side) * one.residuals, len(one.cell) - frame.shape[1]
    y /= np.sqrt((y**2).sum() / freedom)
    # weights b of the plane: the least sum of distances y - frame b, none of them negative. That is sum(y) less the
    # least y'z over z >= 0 with frame'z = frame'1, the dual problem, which is solved faster
    dual = linprog(y, A_eq=frame.T, b_eq=frame.sum(axis=0), method="highs", options={"presolve": False})
    if dual.status != 0:
        return -np.inf
    distance = float(y.sum() - dual.fun) / freedom
    return float(0.5 * np.log(2 * np.pi) - 0.5 - np.log(max(distance, 1e-12)))


def flatness(one: CellGivenRest) -> float:
    """By how many standard deviations the kurtosis of the residuals is below that of a normal law."""
    if not one.varies:
        return -np.inf
    return float((3.0 - (one.standardised**4).mean()) / np.sqrt(24.0 / len(one.cell)))


def _scores(values: FloatArray) -> FloatArray:
    """Normal scores of each column, of mean 0 and length 1."""
    from scipy.special import ndtri  # slow import

    scores = ndtri((np.arange(len(values)) + 0.5) / len(values))
    order = np.argsort(np.ascontiguousarray(values.T), axis=1, kind="stable")
    out = np.empty(order.shape)
    np.put_along_axis(out, order, scores[None] / np.linalg.norm(scores), axis=1)
    return out.T
