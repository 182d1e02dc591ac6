"""How the cells of a table add up, and what follows from that: which hidden cells can be had back, what to hide
besides, and tables with noise whose cells add up again.

Relations are found from the answers themselves: a weighted sum of cells that is constant over all databases, and that
nobody moves. A hidden cell can be had back exactly if some relation holds it and no other hidden cell. Ranges are not
used: two hidden counts that add up to 1 are known to be 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.tables.fit import zero_filled
from empriv.results import FloatArray, Results

BoolArray = npt.NDArray[np.bool_]

_CONSTANT = 1e-7  # of a cell's size: what is smaller is rounding
_ROWS = 4_000  # of the answers without each individual that are used first
_LEAST_ROWS = 2  # times the cells: with fewer, cells seem to add up by chance


@dataclass(frozen=True, eq=False)
class Relations:
    """How the cells of a table add up: every row of ``weights`` gives a sum of cells that is always the same.

    Attributes
    ----------
    weights : (relations, cells), in units of the cells' sizes
    sizes : (cells,) mean size of each cell, which says how much is lost if it is hidden
    units : (cells,) by which cells are divided; 0 for a cell that never changes
    constants : (relations,) what each sum is
    """

    weights: FloatArray
    sizes: FloatArray
    units: FloatArray
    constants: FloatArray

    def added_up(self, cells: FloatArray, variances: FloatArray) -> FloatArray:
        """(..., cells) the table nearest to a noisy one whose cells add up; distances in units of the noise."""
        inverse, weights = self._projection(variances)
        off = cells @ weights.T - self.constants
        return np.asarray(cells - off @ inverse @ (weights * variances))

    def variances_added_up(self, variances: FloatArray) -> FloatArray:
        """(cells,) the variance of the noise that `added_up` leaves in each cell."""
        inverse, weights = self._projection(variances)
        spread = weights * variances
        return np.asarray(np.maximum(variances - np.einsum("ra,rs,sa->a", spread, inverse, spread), 0.0))

    def _projection(self, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = self.weights / np.where(self.units > 0, self.units, 1.0)
        inverse = np.linalg.pinv((weights * variances) @ weights.T, rcond=1e-12, hermitian=True)
        return np.asarray(inverse, float), weights

    def recovered(self, hidden: BoolArray) -> BoolArray:
        """(cells,) which of the hidden cells follow from the others."""
        out = np.zeros(len(hidden), bool)
        places = np.flatnonzero(hidden)
        if not len(self.weights) or not len(places):
            return out
        # The published cells are known, so that cell h follows if e_h is a combination of the relations' hidden parts.
        _, values, span = np.linalg.svd(self.weights[:, places], full_matrices=False)
        span = span[values > _CONSTANT]
        out[places] = (span**2).sum(axis=0) > 1 - _CONSTANT
        return out

    def complement(self, hidden: BoolArray) -> tuple[int, ...]:
        """Further cells to hide, so that no hidden cell follows from the others; it depends on nothing but which.

        A cell stays unknown if the hidden cells can move together without moving any relation. So for each cell that
        follows, the movement that needs the fewest (and smallest) further cells is hidden whole.
        """
        rank = np.argsort(np.argsort(self.sizes, kind="stable"), kind="stable")
        # a movement over cells: of a matrix whose columns span what no relation sees
        _, values, span = np.linalg.svd(self.weights, full_matrices=True)
        free = span[np.count_nonzero(values > _CONSTANT) :].T
        now = hidden.copy()
        for cell in np.flatnonzero(hidden):
            if not self.recovered(now)[cell]:
                continue
            cost = np.where(now, 0.0, 1.0 + rank / len(rank)) * np.where(self.units > 0, self.units, 1.0)
            movement = _least(free, cost, int(cell))
            if movement is not None:
                now |= np.abs(movement) > 10 * _CONSTANT
        return tuple(np.flatnonzero(now & ~hidden).tolist())


def relations_of(results: Results) -> Relations:
    """How the cells of a table add up, from its answers with everyone and without each individual.

    A cell without an answer counts as 0: a sum or a count over no rows.
    """
    if results.components is None:
        raise InputError("Hidden cells must be those of a table, got a query of one number.")
    d = len(results.components)
    q = zero_filled(results.q, results.outcomes).reshape(-1, d)
    without = zero_filled(results.entry_q, results.entry_outcomes).reshape(-1, d)
    draws = results.draws or 1
    before = q.reshape(-1, draws, d)[results.entry_database].reshape(-1, d)
    centred, moves = q - q.mean(axis=0), before - without
    units = np.maximum(centred.std(axis=0), np.abs(moves).max(axis=0, initial=0.0))
    units[units <= _CONSTANT * np.abs(q).max(axis=0, initial=0.0)] = 0.0
    changing = np.flatnonzero(units > 0)
    rng = np.random.default_rng(0)
    sample = np.arange(len(moves)) if len(moves) <= _ROWS else rng.choice(len(moves), _ROWS, replace=False)
    if len(centred) + len(moves) < _LEAST_ROWS * len(changing):
        raise InputError(
            f"The table must have at least {_LEAST_ROWS} answers for each cell, with everyone or without somebody, to "
            f"see how cells add up; got {len(centred) + len(moves):,} for {len(changing):,} cells."
        )

    def still(rows: FloatArray) -> FloatArray:
        scaled = rows[:, changing] / units[changing]
        scaled = scaled[np.unique(np.flatnonzero(np.abs(scaled).max(axis=1, initial=0.0) > 0))]
        if not len(scaled):
            return np.eye(len(changing))
        _, values, span = np.linalg.svd(np.linalg.qr(scaled, mode="r"), full_matrices=True)
        return np.asarray(span[np.count_nonzero(values > _CONSTANT * values[0]) :])

    weights = still(np.concatenate((centred, moves[sample])))
    if len(sample) < len(moves) and len(weights):
        moved = np.abs((moves[:, changing] / units[changing]) @ weights.T).max(axis=1) > _CONSTANT * len(changing)
        weights = still(np.concatenate((centred, moves[sample], moves[moved])))
    out = np.zeros((len(weights), d))
    out[:, changing] = weights
    plain = out / np.where(units > 0, units, 1.0)
    constants = plain @ q.mean(axis=0)
    constants[np.abs(constants) <= 1e-9 * (np.abs(plain) @ np.abs(q).mean(axis=0))] = 0.0  # sums of rounded numbers
    return Relations(out, np.abs(q).mean(axis=0), units, constants)


def _least(basis: FloatArray, cost: FloatArray, fixed: int) -> FloatArray | None:
    """basis @ y with the least sum of cost times size, where one of its entries is 1; None if there is none."""
    from scipy.optimize import linprog  # heavy, and seldom needed

    d, r = basis.shape
    if not r:
        return None
    size = np.eye(d)
    solution = linprog(
        np.concatenate((np.zeros(r), cost)),
        A_ub=np.block([[basis, -size], [-basis, -size]]),
        b_ub=np.zeros(2 * d),
        A_eq=np.append(basis[fixed], np.zeros(d))[None, :],
        b_eq=np.ones(1),
        bounds=[(None, None)] * r + [(0, None)] * d,
        method="highs",
    )
    return None if solution.status != 0 else np.asarray(basis @ solution.x[:r])
