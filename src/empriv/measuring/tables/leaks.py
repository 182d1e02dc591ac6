"""Exact leaks of a table: a combination of cells that is fixed in one of the two worlds, and not in the other.

Two kinds. Cells that determine each other with everyone do so no longer without somebody: their influence lies outside
of the span of the table. Or they determine each other without somebody alone: a total, and the same total without one
person. A margin beside its cells is neither: whoever is in a cell is in its margin. A cell without an answer is taken
as 0, as in `margins`: so whoever is alone in a cell is looked at in the databases where it is gone without them, too.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.tables.directions import Leak, combination, merged, pair_leaks, simplest
from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.influences import Influences
from empriv.measuring.tables.margins import CONSTANT, zero_filled
from empriv.results import FloatArray, IntArray

WITH_EVERYONE = "is the same in every database with everyone, and not without the individual"
WITHOUT = "is constant without the individual, and not with them"
_MOST_LOOKED_AT = 300  # people whose own table is looked at, those who move it most
_CLOSE = 0.99  # of the size that a leak must have, for rounding
_LEAST_ANSWERS = 10  # databases in which a cell must have an answer
_SPARE = 5  # databases with an answer more than cells: with fewer, they determine each other by number alone


def table_leaks(fit: TableFit, influences: Influences) -> tuple[Leak, ...]:
    """Leaks, the largest share first; each with the individuals whom it gives away, and in which share of databases."""
    by_words: dict[tuple[str, str], dict[int, float]] = {}
    n = fit.n
    for cell in np.unique(influences.broken[:, 1]).tolist():
        entries = influences.broken[influences.broken[:, 1] == cell, 0]
        people, counts = np.unique(influences.owner[entries], return_counts=True)
        words = combination(*_relation(fit, cell))
        by_words.setdefault((words, WITH_EVERYONE), {}).update(zip(people.tolist(), (counts / n).tolist(), strict=True))
    for row in _suspects(influences).tolist():
        weights, cells, share = _own_relation(fit, influences, row)
        if share > 0:
            words = combination(weights, [fit.cells[cell] for cell in cells])
            by_words.setdefault((words, WITHOUT), {})[row] = share
    leaks = [
        Leak(words, what, np.array(sorted(people)), np.array([people[row] for row in sorted(people)]))
        for (words, what), people in by_words.items()
    ]
    return merged((*leaks, *pair_leaks(influences.results)))


def alone_in_cells(influences: Influences) -> FloatArray:
    """(individuals,) share of databases with an answer in a cell that has none, ever, without this individual.

    Such cells may be others each day: that one of them has an answer has this probability with the individual, and 0
    without.
    """
    results, d = influences.results, len(influences.begins) - 1
    n, count = results.n_databases, results.n_individuals
    answered = (results.outcomes == 0).reshape(n, -1, d).any(axis=1)
    entry, cell = influences.turns.T
    gone = (results.entry_outcomes.reshape(-1, influences.draws, d)[entry, :, cell] != 0).all(axis=1)
    gone &= answered[results.entry_database[entry], cell]
    entry, cell = entry[gone], cell[gone]
    pair, inverse, times = np.unique(influences.owner[entry] * d + cell, return_inverse=True, return_counts=True)
    theirs = (times == answered.sum(axis=0)[pair % d])[inverse]
    return np.bincount(influences.owner[np.unique(entry[theirs])], minlength=count) / n


def _relation(fit: TableFit, cell: int) -> tuple[FloatArray, list[str]]:
    """The weights of the cell less those of the cells that determine it, and their names."""
    cells, weights = fit.kept, -fit.relations[cell]
    size = np.abs(weights) * fit.spreads[fit.kept] > 1e-6 * max(float(fit.spreads[cell]), 1e-300)
    if cell in fit.margins.cells:
        cells, weights = fit.margins.parts, -fit.margins.weights[fit.margins.cells == cell][0]
        size = weights != 0
    cells, weights = np.append(cell, cells[size]), np.append(1.0, weights[size])
    if len(cells) == 2:  # a difference is said in the order of the table
        order = np.argsort(cells)
        cells, weights = cells[order], weights[order]
    return weights, [fit.cells[place] for place in cells]


def _suspects(influences: Influences) -> IntArray:
    """People without whom cells may determine each other.

    If ``v'y`` is constant without somebody, their ``(v'D)²`` add up to at least the ``(v'y)²``, which are ``v'S v``. As
    ``(v'D)²`` is at most ``v'S v`` times ``D'S^-1 D``, these add up to 1 or more.
    """
    total = np.bincount(influences.owner, influences.as_sums, minlength=influences.results.n_individuals)
    rows = np.flatnonzero(total >= _CLOSE)
    return rows[np.argsort(-total[rows], kind="stable")][:_MOST_LOOKED_AT]


def _own_relation(fit: TableFit, influences: Influences, row: int) -> tuple[FloatArray, IntArray, float]:
    """Weights of cells whose sum is constant without one individual, the cells, and the share of databases that
    differ."""
    results, margins, n, draws = influences.results, fit.margins, fit.n, influences.draws
    shape = (-1, draws, len(fit.cells))
    entries = slice(int(results.starts[row]), int(results.starts[row + 1]))
    databases = results.entry_database[entries]
    before = zero_filled(results.q, results.outcomes).reshape(shape)[..., margins.parts]
    after = before.copy()
    after[databases] = zero_filled(results.entry_q[entries], results.entry_outcomes[entries]).reshape(shape)[
        ..., margins.parts
    ]
    answers = (results.outcomes == 0).reshape(shape)[..., margins.parts].any(axis=1).sum(axis=0)
    # a cell that is nobody else's is counted alone
    looked_at = (answers >= min(_LEAST_ANSWERS, n / 2)) & (after != 0).any(axis=(0, 1))
    nothing = np.zeros(0), np.zeros(0, np.int64), 0.0
    if not looked_at.any():
        return nothing
    cells = margins.parts[looked_at]
    own = (before - after)[..., looked_at].reshape(-1, len(cells))
    scale = np.sqrt((margins.residuals[:, looked_at] ** 2).mean(axis=0))
    without = (margins.residuals[:, looked_at] - own + margins.basis @ (margins.basis.T @ own)) / scale
    axes = np.linalg.svd(without.T, full_matrices=False)[0]
    flat = axes[:, np.abs(without @ axes).max(axis=0) <= CONSTANT]
    inside = np.abs(flat).max(axis=1, initial=0.0) > CONSTANT
    active = (after[..., looked_at][..., inside] != 0).any(axis=(1, 2)).sum()
    if not flat.shape[1] or active < inside.sum() + _SPARE:
        return nothing
    off = np.abs((own / scale) @ flat).max(axis=1) > CONSTANT
    return simplest(flat, scale), cells, float(off.reshape(n, draws).any(axis=1).mean())
