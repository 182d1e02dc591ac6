"""Answers on the lattice: the probability of every cell, with everyone and without each individual.

An answer x is released as the cell nearest to x/granularity, ties to even, before any noise. This module has the law
of that cell: each point of the density adds the mass of its kernel to every cell, and each atom that is a number adds
to its own cell. Outcomes that are not numbers stay apart: noise does not touch them. Noise itself is for `convolve`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities.density import Mixture, Model
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.blocks import closed_form
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray, IntArray, Outcome

LARGEST_CELLS = 2**22
"""Cells of a window; beyond, a coarser granularity is asked for."""

_FARTHEST = 2.0**50  # cells from zero: beyond, doubles cannot tell halves of a cell
_VALUES = 2_000_000  # kernel values held at once
_CACHED = 16_384  # values
_TINY = 1e-305  # far below any probability that counts, and far above numbers that make arithmetic slow


@dataclass(frozen=True, eq=False)
class AnswerSide:
    """Answers of some rows (individuals, or everyone as one row).

    Attributes
    ----------
    points : (rows, N) points of the density; +inf elsewhere
    bandwidths : (rows or 1, N), or None if the model is not a mixture
    atoms : (rows, N) cells of atoms that are numbers, in granularities; NaN elsewhere
    others : (rows, codes) share of each outcome that is not a number
    low, high : (rows,) least and largest answer that is a number, or where a density of another kind ends;
        in granularities; +inf and -inf if there is none
    """

    points: FloatArray
    bandwidths: FloatArray | None
    atoms: FloatArray
    others: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class RoundedAnswers:
    """The answers of a measured risk in units of the granularity, so that cells are whole numbers.

    Attributes
    ----------
    risk, granularity : what is rounded, and to what
    model : the density; None if all results are atoms
    """

    risk: Risk
    granularity: float
    model: Model | None

    @staticmethod
    def of(risk: Risk, granularity: float) -> RoundedAnswers:
        for values in (risk.results.q, risk.results.entry_q):
            finite = np.abs(values[np.isfinite(values)])
            if len(finite) and finite.max() / granularity > _FARTHEST:
                raise InputError(
                    "`granularity` must be at least 2^-50 of the largest result: finer, its multiples are no longer "
                    "told apart. Hint: a coarser granularity."
                )
        return RoundedAnswers(risk, granularity, risk.density)

    @property
    def bandwidths(self) -> FloatArray | None:
        """The bandwidth of each point, in granularities; None if the model is not a mixture."""
        return self.model.bandwidths / self.granularity if isinstance(self.model, Mixture) else None

    def blocks(self, rows: IntArray, size: int) -> Iterator[tuple[IntArray, AnswerSide, AnswerSide]]:
        """(rows, with everyone, without each): individuals with pairs of their own come one by one."""
        own_pairs = dict(self.risk.pairs.own)
        alone = np.isin(rows, np.fromiter(own_pairs, np.int64, len(own_pairs)))
        everyone = self.everyone()
        common = rows[~alone]
        for start in range(0, len(common), size):
            block = common[start : start + size]
            yield block, everyone, self._side(self.risk.pairs.dense(block), self._values(block), refit=True)
        for row in rows[alone]:
            pairs, single = own_pairs[int(row)], np.array([int(row)])
            with_everyone = self._side(pairs.points[None, :], self._everyone_values())
            yield single, with_everyone, self._side(pairs.dense(np.array([0])), self._values(single), refit=True)

    def each_pair(self) -> AnswerSide:
        """Every pair with everyone as a row of its own."""
        numbers, outcomes = self._everyone_values()
        side = self._side(self.risk.pairs.points[:, None], (numbers.T, outcomes.T))
        return side if side.bandwidths is None else replace(side, bandwidths=side.bandwidths.T)

    def everyone(self) -> AnswerSide:
        """The answers with everyone, as one row."""
        return self._side(self.risk.pairs.points[None, :], self._everyone_values())

    def cells(self, side: AnswerSide, first: int, count: int, reach: float) -> FloatArray:
        """(rows, count): mass of each cell from ``first`` on; kernels are cut beyond ``reach`` bandwidths."""
        model, rows = self.model, len(side.points)
        out = np.zeros((rows, count))
        if model is not None and np.isfinite(side.points).any():
            if side.bandwidths is None:
                for row in range(rows):
                    out[row] = self._model_cells(model, side.points[row], first, count)
            elif isinstance(model, Mixture) and closed_form(model):
                _laplace_cells(out, side.points, float(side.bandwidths[0, 0]), first)
            elif isinstance(model, Mixture):
                _mixture_cells(out, side, model.kernel.cdf, first, reach)
        is_atom = ~np.isnan(side.atoms)
        if is_atom.any():
            at_row, place = np.nonzero(is_atom)
            cell = (side.atoms[at_row, place] - first).astype(np.int64)
            np.add.at(out, (at_row, cell), 1.0 / side.points.shape[1])
        return out

    def _model_cells(self, model: Model, points: FloatArray, first: int, count: int) -> FloatArray:
        if not np.isfinite(points).any():
            return np.zeros(count)
        edges = np.asarray((np.arange(count + 1) + (first - 0.5)) * self.granularity, np.float64)
        cdf = model.cdf(edges, np.asarray(points * self.granularity, np.float64))
        return np.asarray(np.maximum(np.diff(cdf), 0.0))

    def _side(self, points: FloatArray, values: tuple[FloatArray, FloatArray], *, refit: bool = False) -> AnswerSide:
        numbers, outcomes = values
        smooth = np.isfinite(points)
        total = points.shape[1]
        bandwidths: FloatArray | None = None
        if isinstance(self.model, Mixture):
            bandwidths = self.model.bandwidths[None, :]
            if refit and self.model.refit is not None:
                bandwidths = np.stack([_refitted(self.model, row) for row in points])
            bandwidths = bandwidths / self.granularity
        # the same division in doubles as the release's, exact for a power of two; rint rounds ties to even, as it does
        atoms = np.where(smooth | (outcomes != Outcome.NUMBER), np.nan, np.rint(numbers / self.granularity))
        codes = [code for code in Outcome if code != Outcome.NUMBER]
        others = np.stack([np.count_nonzero(outcomes == code, axis=1) / total for code in codes], axis=1)
        low = np.fmin(np.where(smooth, points / self.granularity, np.inf).min(axis=1), np.fmin.reduce(atoms, axis=1))
        high = np.fmax(np.where(smooth, points / self.granularity, -np.inf).max(axis=1), np.fmax.reduce(atoms, axis=1))
        if self.model is not None and bandwidths is None:
            for row in np.flatnonzero(smooth.any(axis=1)):
                nodes = self.model.nodes(points[row]) / self.granularity
                low[row], high[row] = min(low[row], nodes[0]), max(high[row], nodes[-1])
        return AnswerSide(points / self.granularity, bandwidths, atoms, others, low, high)

    def _everyone_values(self) -> tuple[FloatArray, FloatArray]:
        results = self.risk.results
        return results.q.reshape(1, -1), results.outcomes.reshape(1, -1).astype(float)

    def _values(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Results of these individuals as they were, and their outcomes."""
        results, pairs = self.risk.results, self.risk.pairs

        def dense(with_all: Any, entries: Any) -> FloatArray:
            shaped = np.asarray(entries, float).reshape(pairs.entries.shape)
            table: Pairs = replace(pairs, points=np.asarray(with_all, float).reshape(-1), entries=shaped, own=())
            return table.dense(rows)

        if not results.outcomes.any() and not results.entry_outcomes.any() and not len(pairs.names) and not pairs.own:
            nothing = np.zeros((1, len(pairs.points)))  # no atoms: the values are not used
            return nothing, nothing
        return dense(results.q, results.entry_q), dense(results.outcomes, results.entry_outcomes)


def _refitted(model: Mixture, points: FloatArray) -> FloatArray:
    """Bandwidths fitted anew without an individual, or the shared ones where that cannot be done, as in `measure`."""
    try:
        return np.asarray(model.refit.fit(points, np.arange(len(points))).bandwidths)
    except InputError:
        return model.bandwidths


def doubling(values: FloatArray, rate: float, *, backwards: bool = False) -> FloatArray:
    """``y_k = sum_{j>=0} e^(-rate j) x_(k-j)`` along the rows, in place, by doubling; all terms are positive."""
    view = values[:, ::-1] if backwards else values
    count = values.shape[1]
    at_once = max(1, _CACHED // count)  # rows that stay in the processor's cache from one pass to the next
    for start in range(0, len(values), at_once):
        rows, step = view[start : start + at_once], 1
        while step < count and rate * step < 690.0:
            rows[:, step:] += math.exp(-rate * step) * rows[:, :-step]
            step *= 2
    return values


def _laplace_cells(out: FloatArray, points: FloatArray, h: float, first: int) -> None:
    """Cells of Laplace kernels of one bandwidth: the middle cell of each point, and geometric tails to both sides."""
    rows, count = out.shape
    row, column = np.nonzero(np.isfinite(points))
    x = points[row, column]
    cell = np.rint(x)
    right, left = (cell + 0.5) - x, x - (cell - 0.5)
    place = (cell - first).astype(np.int64) + row * count
    share = 1.0 / points.shape[1]
    size = rows * count
    tail = -np.expm1(-1.0 / h) * 0.5 * share  # the first cell of a tail that begins at its edge
    out += np.bincount(place, -0.5 * share * (np.expm1(-right / h) + np.expm1(-left / h)), size).reshape(rows, count)
    for distance, shift in ((right, 1), (left, -1)):
        side = np.bincount(place + shift, tail * np.exp(-distance / h), size).reshape(rows, count)
        out += doubling(np.asarray(side + _TINY, np.float64), 1.0 / h, backwards=shift < 0)


def _mixture_cells(out: FloatArray, side: AnswerSide, cdf: Any, first: int, reach: float) -> None:
    """Cells of any kernel, out to ``reach`` bandwidths."""
    rows, count = out.shape
    n = side.points.shape[1]
    assert side.bandwidths is not None
    h = np.broadcast_to(side.bandwidths, side.points.shape)
    most = int(min(count, np.ceil(reach * float(h.max())) + 1))
    width = min(count, 2 * most + 1)
    step = max(1, _VALUES // (width * n))
    for start in range(0, rows, step):
        stretch = slice(start, start + step)
        row, column = np.nonzero(np.isfinite(side.points[stretch]))
        x, scale = side.points[stretch][row, column], h[stretch][row, column]
        begin = np.clip(np.rint(x).astype(np.int64) - first - most, 0, count - width)
        edges = begin[:, None] + (np.arange(width + 1) + (first - 0.5))
        z = (edges - x[:, None]) / scale[:, None]
        tail = cdf(-np.abs(z))  # the mass beyond each edge, away from the point: accurate relative to itself
        after = z > 0
        mass = np.where(
            after[:, 1:] & ~after[:, :-1], 1.0 - tail[:, 1:] - tail[:, :-1], np.abs(tail[:, 1:] - tail[:, :-1])
        )
        place = (begin + row * count)[:, None] + np.arange(width)
        block = np.bincount(place.ravel(), mass.ravel() / n, len(out[stretch]) * count)
        out[stretch] += block.reshape(-1, count)
