"""Checks of whole tables: what could make their figures wrong.

What only a table has: how many parameters its databases carry, whether the residuals of a cell depend on the rest of
the table other than in straight lines, and whether they have an edge that so many parameters smear, or two peaks (all
three: `residuals`). These are made of all cells that people move, as far as time allows: where one objects, or was not
looked at, only noise counts (`objected_places`). The checks of one number are made of the cells that are moved most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.measuring.tables import TableRisk
from empriv.measuring.tables.residual_tests import (
    PERMUTATIONS,
    Rest,
    dependence,
    edge_gain,
    flatness,
    leans,
    p_values,
    rest_of,
)
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.line_bounds import bound_inputs
from empriv.validate.checks.check import (
    SIGNIFICANT,
    checks_of,
    gravest,
    leak_check,
    number_check,
    order_check,
    ties_check,
)
from empriv.validate.checks.one_number import RISKIEST, leak_checks, modes_check, tails_check
from empriv.words.message import Message
from empriv.words.sentences import databases

_MANY = 0.5  # parameters in a database from which on figures are larger than the truth
_SERIES = 12  # principal axes of the table that are tested in their order
_SHORT = 0.78  # a normal sample's kurtosis strays less far below 3 than its standard deviation says
_TESTED = 8  # cells, at least
_WORK, _WORK_OF_EDGES = 20_000_000, 150_000_000  # numbers gone through by tests of dependence, and of edges
_EDGE = 0.27  # gain of an edge from which on the bound cannot tell: it held below, and did not above; times 1 - p/n


@checks_of.register(TableRisk)
def checks_of_table(risk: TableRisk, epsilon: float) -> list[Message]:
    n = risk.results.n_databases
    rows = np.argsort(-risk.delta_i(float(epsilon)), kind="stable")[:RISKIEST]
    places = np.sort(moved_places(risk)[:_TESTED])
    names = [risk.fit.cells[risk.fit.kept[place]] for place in places] or list(risk.fit.cells[:1])
    alone = {name: risk.components[name] for name in names}
    return [
        _carried(risk),
        *residuals_check(risk),
        order_check(risk.results, _series(risk, rows)),
        number_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name in risk.touching for check in leak_checks(risk.components[name], name)),
        gravest({name: ties_check(part.results) for name, part in alone.items()}),
        modes_check(risk),
        gravest({name: tails_check(bound_inputs(part)) for name, part in alone.items()}),
    ]


def moved_places(risk: TableRisk) -> IntArray:
    """Places of the kept cells that anybody moves, those first that are moved most in units of their residuals."""
    largest = np.zeros(len(risk.fit.kept))
    np.maximum.at(largest, risk.influences.places, np.abs(risk.influences.values))
    largest *= np.sqrt(np.diag(risk.fit.precision))
    order = np.argsort(-largest, kind="stable")
    return np.asarray(order[largest[order] > 0])


def objected_places(risk: TableRisk) -> IntArray:
    """Places of the kept cells whose law depends on the rest of the table, or is smeared by the regression on it, or
    was not looked at: there only noise counts."""
    found = objections_of(risk)
    against = (found.p <= SIGNIFICANT) | (found.gain > found.steepest) | (found.flat > found.flattest)
    return np.concatenate((found.places[against], found.overlooked))


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
    overlooked : places of cells that people move, of which too little is left to look at, or too many for the time
    """

    places: IntArray
    p: FloatArray
    gain: FloatArray
    steepest: float
    flat: FloatArray
    flattest: float
    overlooked: IntArray


def objections_of(risk: TableRisk) -> Objections:
    """Look at the cells that people move; kept with the risk."""
    return risk.remembered("objections", lambda: _objections(risk))


def _objections(risk: TableRisk) -> Objections:
    from scipy.special import ndtri  # slow import

    n, r = risk.fit.n, len(risk.fit.kept)
    moved = moved_places(risk)[: 0 if risk.fit.ridge else None]  # then no law counts, and that is said
    looked = moved[: max(_TESTED, _WORK // max(1, n * r))]
    edges = max(_TESTED, _WORK_OF_EDGES // max(1, n * r * r))
    seen: list[tuple[int, FloatArray, float, float]] = []
    for place in looked.tolist():
        cell, rest = _beside_rest(risk, place)
        counts = np.unique(risk.kept_values[:, place], return_counts=True)[1]
        few = counts[counts > 1].sum() > 0.5 * counts.sum()  # small counts have their edge at 0, which the cell shows
        gain = -np.inf
        if rest.tells and not few and leans(cell, rest):
            if not edges:
                continue
            edges -= 1
            gain = edge_gain(cell, rest)
        if rest.tells:
            seen.append((place, dependence(cell, rest), gain, flatness(cell, rest)))
    places = np.array([place for place, *_ in seen], np.int64)
    return Objections(
        places,
        p_values(np.array([statistics for _, statistics, *_ in seen]).reshape(len(seen), 1 + PERMUTATIONS)),
        np.array([gain for *_, gain, _ in seen]),
        _EDGE * (1.0 - risk.fit.rank / n),
        np.array([flat for *_, flat in seen]),
        _SHORT * float(ndtri(1.0 - SIGNIFICANT / max(1, len(seen)))),
        np.setdiff1d(moved, places),
    )


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
    """The table along its principal axes, without what is known, and the size of what the riskiest people do."""
    n = risk.results.n_databases
    by_database = risk.fit.residuals.reshape(n, risk.results.draws or 1, len(risk.fit.kept)).mean(axis=1)
    standard = by_database / np.maximum(risk.kept_spreads, 1e-300)
    series = {}
    if standard.shape[1]:
        axes = np.linalg.svd(standard, full_matrices=False)[0][:, :_SERIES].T
        series = {f"the table along axis {k + 1}": np.round(axis, 12) for k, axis in enumerate(axes)}
    influence = np.zeros(n)
    for row in rows.tolist():
        databases, places, changes = risk.influences.of(row)
        sizes = risk.fit.sizes(changes.mean(axis=1) @ np.eye(len(risk.fit.kept))[places])
        influence[databases] += np.sqrt(sizes)
    return series | {"the influence of the riskiest individuals": np.round(influence, 9)}


def residuals_check(risk: TableRisk) -> list[Message]:
    """Whether residuals of cells depend on the rest of the table, have a hard edge, or two peaks."""
    found = objections_of(risk)
    count, overlooked = len(found.places), len(found.overlooked)
    if not count and not overlooked:
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
    if overlooked:
        which = "one of them was" if overlooked == 1 else f"{overlooked:,} of them were"
        objections.append(f"{which} not looked at, since there are too many cells for so many databases")
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
        "overlooked": overlooked,
    }  # fmt: skip
    return [Message("residuals", said, "error" if objections else "info", numbers, "Residuals of cells")]


def _beside_rest(risk: TableRisk, place: int) -> tuple[FloatArray, Rest]:
    """A kept cell, less what is known, by database, and the others.

    Without the individual who moves the cell most: it is the others' table that is taken to be of one law, and whoever
    is in several cells at once makes them depend on each other.
    """
    values = risk.kept_values.reshape(risk.fit.n, risk.results.draws or 1, len(risk.fit.kept)).copy()
    people = risk.touching[risk.fit.cells[risk.fit.kept[place]]]
    moved = np.bincount(risk.influences.owner, risk.influences.sizes, minlength=risk.results.n_individuals)[people]
    databases, places, changes = risk.influences.of(int(people[np.argmax(moved)]))
    for column, own in enumerate(places.tolist()):
        values[databases, :, own] -= changes[:, :, column]
    flat = values.reshape(-1, len(risk.fit.kept))
    left = (flat - risk.fit.basis @ (risk.fit.basis.T @ flat)).reshape(values.shape).mean(axis=1)
    return left[:, place], rest_of(np.delete(left, place, axis=1))
