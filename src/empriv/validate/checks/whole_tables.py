"""Checks of whole tables: what could make their figures wrong.

What only a table has: how many parameters its databases carry, whether what is left of a cell depends on the rest of
the table other than in straight lines (`bent`), whether it has an edge that so many parameters smear (`edge`) or two
peaks (`flat`). These are made of the cells that people move most, and where one of them objects, only noise counts
(`objected_places`); so are the checks of one number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.measuring.tables import TableRisk
from empriv.measuring.tables.left_over import depends_on_rest, edge_gain, flatness
from empriv.results import FloatArray, IntArray
from empriv.validate.checks.check import (
    SIGNIFICANT,
    Check,
    checks_of,
    gravest,
    leak_check,
    number_check,
    order_check,
    ties_check,
)
from empriv.validate.checks.one_number import RISKIEST, leak_checks, modes_check, tails_check
from empriv.validate.ground import ground_of

_MANY = 0.5  # parameters in a database from which on figures are larger than the truth
_SERIES = 12  # principal axes of the table that are looked at in their order
_SHORT = 0.78  # a normal sample's kurtosis strays less far below 3 than its standard deviation says
_LOOKED_AT = 8  # kept cells
_EDGE = 0.27  # gain of an edge from which on the bound cannot tell: it held below, and did not above


@checks_of.register
def _(risk: TableRisk, epsilon: float, rng: int) -> list[Check]:
    n = risk.results.n_databases
    rows = np.argsort(-risk.delta_i(float(epsilon)), kind="stable")[:RISKIEST]
    names = [risk.fit.cells[risk.fit.kept[place]] for place in looked_at_places(risk)] or list(risk.fit.cells[:1])
    alone = {name: risk.components[name] for name in names}
    return [
        _carried(risk),
        *rest_checks(risk, rng),
        order_check(risk.results, _series(risk, rows), rng),
        number_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name in risk.touching for check in leak_checks(risk.components[name], name)),
        gravest({name: ties_check(part.results) for name, part in alone.items()}),
        modes_check(risk),
        gravest({name: tails_check(ground_of(part)) for name, part in alone.items()}),
    ]


def looked_at_places(risk: TableRisk) -> IntArray:
    """Places of the kept cells that somebody moves most, in units of what is left of them."""
    largest = np.zeros(len(risk.fit.kept))
    np.maximum.at(largest, risk.influences.places, np.abs(risk.influences.values))
    largest *= np.sqrt(np.diag(risk.fit.precision))
    order = np.argsort(-largest, kind="stable")[:_LOOKED_AT]
    return np.sort(order[largest[order] > 0])


def objected_places(risk: TableRisk) -> IntArray:
    """Places of the kept cells, of those that are looked at, whose law depends on the rest of the table, or is smeared
    by the regression on it: there only noise counts."""
    found = objections_of(risk)
    p = np.minimum(1.0, found.p * len(found.places))
    return np.asarray(found.places[(p <= SIGNIFICANT) | (found.gain > _EDGE) | (found.flat > found.flattest)])


@dataclass(frozen=True, eq=False)
class Objections:
    """What speaks against taking what is left of cells as one law: (cells,) each.

    Attributes
    ----------
    places : of the kept cells that were looked at
    p : of being independent of the rest of the table
    gain : of a hard edge
    flat, flattest : how much flatter than a normal law, and from when on that is no chance: it is passed by chance, for
        some cell of a normal table, in one table of a hundred
    """

    places: IntArray
    p: FloatArray
    gain: FloatArray
    flat: FloatArray
    flattest: float


def objections_of(risk: TableRisk, rng: int = 0) -> Objections:
    """Look at the cells that people move most; kept with the risk."""
    if "objections" not in risk.workspace:
        risk.workspace["objections"] = _objections(risk, rng)
    made = risk.workspace["objections"]
    assert isinstance(made, Objections)
    return made


def _objections(risk: TableRisk, rng: int) -> Objections:
    from scipy.special import ndtri  # slow import

    places = looked_at_places(risk)
    parts = [_beside_rest(risk, place) for place in places.tolist()]
    gains = []
    for place, (cell, rest) in zip(places.tolist(), parts, strict=True):
        counts = np.unique(risk.kept_values[:, place], return_counts=True)[1]
        few = counts[counts > 1].sum() > 0.5 * counts.sum()  # small counts have their edge at 0, which the cell shows
        gains.append(-np.inf if few else edge_gain(cell, rest))
    return Objections(
        places,
        np.array([depends_on_rest(cell, rest, rng=rng) for cell, rest in parts]),
        np.array(gains),
        np.array([flatness(cell, rest) for cell, rest in parts]),
        _SHORT * float(ndtri(1.0 - 0.01 / max(1, len(places)))),
    )


def _carried(risk: TableRisk) -> Check:
    n, p, people = risk.results.n_databases, risk.fit.rank, int(risk.from_below.sum())
    severity = "error" if people else "warning" if p > _MANY * n else "info"
    return Check("carried", severity, {"parameters": p, "n": n, "people": people})


def _series(risk: TableRisk, rows: IntArray) -> dict[str, FloatArray]:
    """The table along its principal axes, without what is known, and the size of what the riskiest people do."""
    n = risk.results.n_databases
    by_database = risk.fit.residuals.reshape(n, -1, len(risk.fit.kept)).mean(axis=1)
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


def rest_checks(risk: TableRisk, rng: int) -> list[Check]:
    """Whether what is left of cells depends on the rest of the table, has a hard edge, or two peaks."""
    found = objections_of(risk, rng)
    count = len(found.places)
    if not count:
        return []
    p, gain, flat = min(1.0, float(found.p.min()) * count), float(found.gain.max()), float(found.flat.max())
    share = float(np.sqrt(risk.fit.rank / risk.fit.n))
    return [
        Check("bent", "error" if p <= SIGNIFICANT else "info", {"p": p, "cells": count}),
        Check("edge", "error" if gain > _EDGE else "info", {"gain": gain, "share": share, "cells": count}),
        Check(
            "flat", "error" if flat > found.flattest else "info",
            {"flatness": flat, "limit": found.flattest, "cells": count},
        ),
    ]  # fmt: skip


def _beside_rest(risk: TableRisk, place: int) -> tuple[FloatArray, FloatArray]:
    """A kept cell and the others, less what is known, by database.

    Without the individual who moves the cell most: it is the others' table that is taken to be of one law, and whoever
    is in several cells at once makes them depend on each other.
    """
    values = risk.kept_values.reshape(risk.fit.n, -1, len(risk.fit.kept)).copy()
    people = risk.touching[risk.fit.cells[risk.fit.kept[place]]]
    moved = np.bincount(risk.influences.owner, risk.influences.sizes, minlength=risk.results.n_individuals)[people]
    databases, places, changes = risk.influences.of(int(people[np.argmax(moved)]))
    for column, own in enumerate(places.tolist()):
        values[databases, :, own] -= changes[:, :, column]
    flat = values.reshape(-1, len(risk.fit.kept))
    left = (flat - risk.fit.basis @ (risk.fit.basis.T @ flat)).reshape(values.shape).mean(axis=1)
    return left[:, place], np.delete(left, place, axis=1)
