"""Checks of whole tables: what could make their figures wrong.

What only a table has: how many parameters its databases carry, whether what is left of a cell depends on the rest of
the table other than in straight lines (`bent`), whether it has an edge that so many parameters smear (`edge`) or two
peaks (`flat`), and whether cells together have last digits that no cell has alone (`digits-together`). The checks of
one number are made of the cells that expose the riskiest people.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.tables import TablePresenceRisk, TableRisk
from empriv.measuring.tables.digits_together import digits_together
from empriv.measuring.tables.each_cell import PLAIN, SCALES
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
_EDGE = 0.27  # gain of an edge from which on the bound cannot tell: it held below, and did not above


@checks_of.register
def _(risk: TableRisk, epsilon: float, rng: int) -> list[Check]:
    n = risk.results.n_databases
    rows = np.argsort(-risk.delta_i(float(epsilon)), kind="stable")[:RISKIEST]
    places = riskiest_places(risk, rows)
    names = [risk.fit.cells[risk.fit.kept[place]] for place in places] or list(risk.fit.cells[:1])
    alone = {name: risk.components[name] for name in names}
    return [
        _carried(risk),
        *([bent_check(risk, places, rng), edge_check(risk, places), flat_check(risk, places)] if len(places) else []),
        together_check(risk),
        order_check(risk.results, _series(risk, rows), rng),
        number_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name in risk.touching for check in leak_checks(risk.components[name], name)),
        gravest({name: ties_check(part.results) for name, part in alone.items()}),
        modes_check(risk),
        gravest({name: tails_check(ground_of(part)) for name, part in alone.items()}),
    ]


@checks_of.register
def _(risk: TablePresenceRisk, epsilon: float, rng: int) -> list[Check]:
    return checks_of(risk.on_random_day, epsilon, rng)


def riskiest_places(risk: TableRisk, rows: IntArray) -> IntArray:
    """Places of the kept cells that these people change most, one each."""
    out = []
    for row in rows.tolist():
        _, places, changes = risk.influences.of(row)
        if len(places) and len(changes):
            size = (changes**2).mean(axis=(0, 1)) * np.diag(risk.fit.precision)[places]
            out.append(int(places[np.argmax(size)]))
    return np.unique(np.array(out, np.int64))


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


def bent_check(risk: TableRisk, places: IntArray, rng: int) -> Check:
    """Whether what is left of cells depends on the rest of the table; on the scale where it does least, since the bound
    is the largest of all scales."""
    p = [
        max(depends_on_rest(cell, rest, rng=rng) for cell, rest in _beside_rest(risk, place))
        for place in places.tolist()
    ]
    smallest = min(1.0, min(p) * len(places))
    return Check("bent", "error" if smallest <= SIGNIFICANT else "info", {"p": smallest, "cells": len(places)})


def edge_check(risk: TableRisk, places: IntArray) -> Check:
    """Whether what is left of cells has a hard edge, which least squares smear; on the scale where it has least.

    Small counts have their edge at 0, where the cell alone shows it.
    """
    gains = [-np.inf]
    for place in places.tolist():
        counts = np.unique(risk.kept_values[:, place], return_counts=True)[1]
        if counts[counts > 1].sum() <= 0.5 * counts.sum():
            gains.append(min(edge_gain(cell, rest) for cell, rest in _beside_rest(risk, place)))
    gain, share = max(gains), float(np.sqrt(risk.fit.rank / risk.fit.n))
    return Check("edge", "error" if gain > _EDGE else "info", {"gain": gain, "share": share, "cells": len(places)})


def flat_check(risk: TableRisk, places: IntArray) -> Check:
    """Whether what is left of cells is so flat that it may have two peaks; on the scale where it is least so.

    The limit is passed by chance, for some cell of a normal table, in one table of a hundred.
    """
    from scipy.special import ndtri  # heavy, and seldom needed

    flat = max(min(flatness(cell, rest) for cell, rest in _beside_rest(risk, place)) for place in places.tolist())
    limit = _SHORT * float(ndtri(1.0 - 0.01 / len(places)))
    return Check("flat", "error" if flat > limit else "info", {"flatness": flat, "limit": limit, "cells": len(places)})


def together_check(risk: TableRisk) -> Check:
    """Whether cells together show a pattern in their last digits that somebody breaks, and that no bound looks for."""
    draws = risk.results.draws or 1
    numbers = (risk.results.outcomes == 0).reshape(-1, len(risk.fit.cells))[:, risk.fit.kept]
    cells = np.where(numbers, risk.kept_values, np.nan)[::draws]
    pattern = digits_together(cells, risk.fit, risk.influences)
    if pattern is None:
        return Check("digits-together", "info")
    names = " and ".join(risk.fit.cells[risk.fit.kept[place]] for place in pattern.places)
    return Check("digits-together", "error", {"step": pattern.step}, names)


def _beside_rest(risk: TableRisk, place: int) -> list[tuple[FloatArray, FloatArray]]:
    """A kept cell and the others on each scale that suits it, less what is known, by database.

    Without the individual who moves the cell most: it is the others' table that is taken to be of one law, and whoever
    is in several cells at once makes them depend on each other.
    """
    values = risk.kept_values.reshape(risk.fit.n, -1, len(risk.fit.kept)).copy()
    people = risk.touching[risk.fit.cells[risk.fit.kept[place]]]
    moved = np.bincount(risk.influences.owner, risk.influences.sizes, minlength=risk.results.n_individuals)[people]
    databases, places, changes = risk.influences.of(int(people[np.argmax(moved)]))
    for column, own in enumerate(places.tolist()):
        values[databases, :, own] -= changes[:, :, column]
    out = []
    for scale, admitted in risk.rest.admitted.items():
        if admitted[place]:
            cells = values.copy()
            if scale != PLAIN:
                cells[..., admitted] = SCALES[scale](values[..., admitted])
            flat = cells.reshape(-1, len(admitted))
            left = (flat - risk.fit.basis @ (risk.fit.basis.T @ flat)).reshape(values.shape).mean(axis=1)
            out.append((left[:, place], np.delete(left, place, axis=1)))
    return out
