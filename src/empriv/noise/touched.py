"""What people change in a table, on the lattice on which it is released, and what is left of those cells without noise.

Noise for a table is designed and certified for each person on the cells that they touch. Everything else is the same
with and without them. It is taken as known, without noise, which can only tell more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from empriv.measuring.densities.density import Mixture, density_or_default
from empriv.measuring.tables.fit import TableFit
from empriv.results import FloatArray, IntArray, Results

DAYS = 8  # groups of the databases that somebody is in, by how much they change there


@dataclass(frozen=True, eq=False)
class Touched:
    """People who touch the same cells by the same amounts.

    Attributes
    ----------
    rows : the individuals, by position
    cells : (u,) positions of the cells that they change
    shifts : (m, u) what they change in the databases that they are in and where they change something
    share : of the databases that they are in, one of these
    """

    rows: IntArray
    cells: IntArray
    shifts: FloatArray = field(repr=False)
    share: float

    def grouped(self, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(k, u) and (k,) at most `DAYS` changes and the share of each: of databases alike, the largest change."""
        sizes = ((self.shifts / scales) ** 2).sum(axis=1)
        order = np.argsort(sizes, kind="stable")
        ends = np.unique(np.ceil(np.arange(1, DAYS + 1) * len(order) / DAYS).astype(np.int64))
        chosen, counts = self.shifts[order[ends - 1]], np.diff(ends, prepend=0)
        shifts, place = np.unique(chosen, axis=0, return_inverse=True)
        return shifts, np.asarray(np.bincount(place.reshape(-1), weights=counts) * self.share, float)


@dataclass(frozen=True, eq=False)
class TouchedCells:
    """A table, with everybody who changes something.

    Attributes
    ----------
    results : the table
    steps : (d,) granularity of each cell
    fit : what is left of the cells given the others, or None to count on nothing but the noise
    people : those who touch the same cells by the same amounts together
    turned : (individuals,) share of the databases in which each changes whether a cell is a number: no noise hides it
    """

    results: Results
    steps: FloatArray
    fit: TableFit | None
    people: tuple[Touched, ...] = field(repr=False)
    turned: FloatArray = field(repr=False)

    @cached_property
    def _left(self) -> dict[bytes, FloatArray | None]:
        return {}

    def left(self, cells: IntArray) -> FloatArray | None:
        """(N, u) what is left of these cells given all others, without noise, as an upper bound takes it; or None."""
        key = cells.tobytes()
        if key not in self._left:
            self._left[key] = self._what_is_left(cells)
        return self._left[key]

    def relative_bandwidth(self, cells: IntArray) -> float:
        """The least one-SE bandwidth of what is left of each of these cells, in units of its standard deviation."""
        left = self.left(cells)
        if left is None:
            return 0.0
        for cell, points in zip(cells.tolist(), left.T, strict=True):
            if cell not in self._bandwidths:
                deviation = float(points.std())
                model = density_or_default(None).fit(points, np.arange(len(points))) if deviation > 0 else None
                self._bandwidths[cell] = model.bandwidth / deviation if isinstance(model, Mixture) else 0.0
        return min(self._bandwidths[cell] for cell in cells.tolist())

    @cached_property
    def _bandwidths(self) -> dict[int, float]:
        return {}

    def _what_is_left(self, cells: IntArray) -> FloatArray | None:
        fit = self.fit
        if fit is None or fit.ridge or fit.saturated or not fit.carried[cells].all():
            return None
        places = np.flatnonzero(np.isin(fit.kept, cells))
        if not len(places):
            return None
        inside = fit.precision[np.ix_(places, places)]
        of_kept = (fit.residuals @ fit.precision[:, places]) @ np.linalg.pinv(inside, rcond=1e-12)
        # a margin that they touch too is known but for the cells that they touch
        return np.asarray(fit.g * of_kept @ fit.relations[np.ix_(cells, places)].T)


def touched_cells(results: Results, steps: Sequence[float], fit: TableFit | None) -> TouchedCells:
    """Find what everybody changes."""
    changes, turned = lattice_changes(results, steps)
    moved = np.flatnonzero((changes != 0).any(axis=1))
    draws = results.draws or 1
    owner = np.repeat(np.repeat(np.arange(results.n_individuals), results.presence), draws)
    alike: dict[tuple[bytes, bytes, float], list[int]] = {}
    parts: dict[tuple[bytes, bytes, float], tuple[IntArray, FloatArray]] = {}
    ends = np.searchsorted(owner[moved], np.arange(results.n_individuals + 1))
    for row in np.flatnonzero(np.diff(ends)).tolist():
        own = changes[moved[ends[row] : ends[row + 1]]]
        cells = np.flatnonzero((own != 0).any(axis=0))
        shifts = own[:, cells]
        shifts = shifts[np.lexsort(shifts.T)]
        key = (cells.tobytes(), shifts.tobytes(), 1.0 / (float(results.presence[row]) * draws))
        alike.setdefault(key, []).append(row)
        parts[key] = (cells, shifts)
    people = tuple(Touched(np.array(rows), *parts[key], key[2]) for key, rows in alike.items())
    share = np.bincount(owner, weights=turned, minlength=results.n_individuals) / (results.n_databases * draws)
    return TouchedCells(results, np.asarray(steps, float), fit, people, share)


def lattice_changes(results: Results, steps: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """(entries times draws, d) what each rounded cell changes, 0 where a side is no number; where one is turned."""
    d, draws = results.q.shape[-1], results.draws or 1
    with_all = results.q.reshape(-1, draws, d)[results.entry_database].reshape(-1, d)
    step = np.asarray(steps, float)
    # the division by a power of two is exact, and rounding half to even is what a release does
    changes = (np.rint(with_all / step) - np.rint(results.entry_q.reshape(-1, d) / step)) * step
    before = results.outcomes.reshape(-1, draws, d)[results.entry_database].reshape(-1, d)
    turned = (before != results.entry_outcomes.reshape(-1, d)).any(axis=1)
    return np.nan_to_num(changes, nan=0.0), turned.astype(float)
