"""Exact leaks of a table: a combination of cells that is fixed in one of the two worlds, and not in the other.

Two kinds. Cells that determine each other with everyone do so no longer without somebody: their influence lies outside
of the span of the table. Or they determine each other without somebody alone: a total, and the same total without one
person. A margin beside its cells is neither: whoever is in a cell is in its margin.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.joint.directions import Leak
from empriv.measuring.joint.spaces import combination, simplest
from empriv.measuring.tables.fit import CONSTANT, TableFit
from empriv.measuring.tables.influences import Influences
from empriv.results import FloatArray, IntArray

WITH_EVERYONE = "is the same in every database with everyone, and not without the individual"
WITHOUT = "is constant without the individual, and not with them"
_MOST_LOOKED_AT = 300  # people whose own table is looked at, those who move it most
_CLOSE = 0.99  # of the size that a leak must have, for rounding


def table_leaks(fit: TableFit, influences: Influences) -> tuple[Leak, ...]:
    """Leaks, the largest share first; each with the individuals whom it gives away, and in which share of databases."""
    by_words: dict[tuple[str, str], dict[int, float]] = {}
    n = fit.n
    for cell in np.unique(influences.broken[:, 1]).tolist():
        entries = influences.broken[influences.broken[:, 1] == cell, 0]
        people, counts = np.unique(influences.owner[entries], return_counts=True)
        words = combination(*_relation(fit, cell))
        by_words.setdefault((words, WITH_EVERYONE), {}).update(zip(people.tolist(), (counts / n).tolist(), strict=True))
    for row in _suspects(fit, influences).tolist():
        weights, share = _own_relation(fit, influences, row)
        if share > 0:
            words = combination(weights, [fit.cells[cell] for cell in fit.kept])
            by_words.setdefault((words, WITHOUT), {})[row] = share
    leaks = [
        Leak(words, what, np.array(sorted(people)), np.array([people[row] for row in sorted(people)]))
        for (words, what), people in by_words.items()
    ]
    return tuple(sorted(leaks, key=lambda leak: -leak.largest_share))


def _relation(fit: TableFit, cell: int) -> tuple[FloatArray, list[str]]:
    """The weights of the cell less those of the kept cells that determine it, and their names."""
    weights = -fit.relations[cell]
    size = np.abs(weights) * fit.spreads[fit.kept] > 1e-6 * max(float(fit.spreads[cell]), 1e-300)
    names = [fit.cells[cell], *(fit.cells[place] for place in fit.kept[size])]
    return np.concatenate(([1.0], weights[size])), names


def _suspects(fit: TableFit, influences: Influences) -> IntArray:
    """People without whom cells may determine each other.

    If ``v'y`` is constant without somebody, their ``(v'D)²`` add up to at least the ``(v'y)²``. As ``(v'D)²`` is at
    most ``v'S v`` times ``D'K D``, their sizes D'K D add up to the databases that are left over, or more.
    """
    if fit.saturated or not len(fit.kept) or fit.rank + 5 > fit.n:
        return np.zeros(0, np.int64)
    total = np.bincount(influences.owner, influences.sizes, minlength=influences.results.n_individuals)
    least = (fit.n - fit.rank) * (0.1 if fit.ridge else _CLOSE)
    rows = np.flatnonzero(total >= least)
    return rows[np.argsort(-total[rows], kind="stable")][:_MOST_LOOKED_AT]


def _own_relation(fit: TableFit, influences: Influences, row: int) -> tuple[FloatArray, float]:
    """Weights of the kept cells that are constant without one individual, and the share of databases that differ."""
    databases, places, changes = influences.of(row)
    draws = influences.draws
    scale = fit.spreads[fit.kept]
    by_draw = np.zeros((fit.n, draws, len(fit.kept)))
    by_draw[np.ix_(databases, np.arange(draws), places)] = changes
    own = by_draw.reshape(-1, len(fit.kept))
    moved = own - fit.basis @ (fit.basis.T @ own)
    without = (fit.residuals - moved) / scale
    axes = np.linalg.svd(without.T, full_matrices=False)[0]
    flat = axes[:, np.abs(without @ axes).max(axis=0) <= CONSTANT]
    if not flat.shape[1]:
        return np.zeros(len(scale)), 0.0
    off = np.abs((own / scale) @ flat).max(axis=1) > CONSTANT
    return simplest(flat, scale), float(off.reshape(fit.n, draws).any(axis=1).mean())
