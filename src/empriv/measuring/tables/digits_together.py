"""Last digits of cells together: patterns that no cell shows alone.

Two amounts with any cents may add up to whole euros, and a sum less its own remainder by 1,000 is a multiple of 1,000.
Somebody who is in one of the two cells only breaks that, and is given away however little they add: a regression blurs
it. With ``E = exp(2πi y/s)`` products of two columns are those of sums and differences, so that all pairs of cells at
one step s are one product of matrices. Beyond pairs, each cell is looked at with what its regression on the others
comes to in whole numbers. What is looked at is the table with everyone, and without people one by one, those who are
there most often. Only databases in which all cells of a combination are numbers count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.influences import Influences
from empriv.results import FloatArray, IntArray

_MANTISSAS = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
_MOST_STEPS = 60
_PEOPLE = 200  # whose own table is looked at
_CHANCE = 0.01  # of seeing a pattern in any pair at any step where there is none
_MORE = 0.3  # by how much more than each alone, in shares of databases
_OFF = 0.02  # of a step
_MOST_WEIGHTS = 6  # cells of a combination
_LEAST = 30  # databases

ComplexArray = npt.NDArray[np.complex128]


class Together(NamedTuple):
    """A pattern: places of kept cells, their weights, and the step that their weighted sum is a multiple of."""

    places: IntArray
    weights: FloatArray
    step: float


def digits_together(cells: FloatArray, fit: TableFit, influences: Influences) -> Together | None:
    """The first pattern of kept cells (n, r), NaN where they are no number, together that somebody breaks and that no
    cell shows alone, or None."""
    n, r = cells.shape
    if r < 2 or n < _LEAST:
        return None
    steps = _steps(cells)
    seen = _Seen(
        np.isfinite(cells).astype(float), np.log(2 * r * r * max(1, len(steps)) / _CHANCE), _spreads_of_pairs(cells)
    )
    weights = _whole_weights(fit)
    turned_at = [_turned(cells, step) for step in steps.tolist()]
    for step, turned in zip(steps.tolist(), turned_at, strict=True):
        for together in seen.at(step, turned, turned, np.arange(r)):
            if _broken(together, influences):
                return together
        for place, own in weights.items():
            together = Together(np.flatnonzero(own), own[np.flatnonzero(own)], step)
            rows = seen.numbers[:, together.places].all(axis=1)
            if rows.sum() < _LEAST:
                continue
            whole = cells[rows][:, together.places] @ together.weights
            shown = abs(_turned(whole, step).mean())
            alone = np.abs(turned[rows, place].mean())
            limit = np.sqrt(seen.surprise / rows.sum())
            if shown > max(limit, alone + _MORE) and whole.std() > step and _broken(together, influences):
                return together
    often = np.argsort(-influences.results.presence, kind="stable")[:_PEOPLE]
    for row in often.tolist():
        databases, places, changes = influences.of(row)
        if not len(places) or changes.shape[1] > 1:
            continue
        without = cells[:, places].copy()
        without[databases] -= changes[:, 0]
        for step, turned in zip(steps.tolist(), turned_at, strict=True):
            turned_without = _turned(without, step)
            rest = turned.copy() if len(places) > 1 else turned
            if len(places) > 1:
                rest[:, places] = turned_without
            for together in seen.at(step, turned_without, rest, places):
                if _broken_by(together, places, changes[:, 0]):
                    return together
    return None


def _turned(values: FloatArray, step: float) -> ComplexArray:
    """``exp(2πi y/s)``, and 0 where there is no number."""
    angle = 2 * np.pi * values / step
    out = np.empty(values.shape, complex)
    out.real, out.imag = np.cos(angle), np.sin(angle)
    out[np.isnan(values)] = 0.0
    return out


def _steps(cells: FloatArray) -> FloatArray:
    """Round numbers that cells may be multiples of together: at least as coarse as their digits, and well below their
    spread."""
    spreads = np.nanstd(cells, axis=0)
    spreads = spreads[spreads > 0]
    if not len(spreads):
        return np.zeros(0)
    high = np.log10(float(spreads.max()))
    low = min(np.log10(float(spreads.min())) - 2.0, high)
    decades = 10.0 ** np.arange(np.floor(high), np.floor(low) - 1, -1)
    steps = np.unique(np.outer(decades, _MANTISSAS))[::-1]
    return np.asarray(steps[steps < spreads.max()][:_MOST_STEPS])


def _spreads_of_pairs(cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(r, r) standard deviations of all sums and all differences of two cells, where both are numbers."""
    there = np.isfinite(cells).astype(float)
    plain = np.where(there > 0, cells - np.nanmean(cells, axis=0), 0.0)
    count = np.maximum(there.T @ there, 1.0)
    first, squares = plain.T @ there / count, (plain**2).T @ there / count  # of the row's cell, where both are
    covariance = plain.T @ plain / count - first * first.T
    both = squares - first**2
    both = both + both.T
    return np.sqrt(np.maximum(both + 2 * covariance, 0.0)), np.sqrt(np.maximum(both - 2 * covariance, 0.0))


class _Seen(NamedTuple):
    """When a step is shown by a pair of cells.

    Attributes
    ----------
    numbers : (n, r) 1 where cells are numbers
    surprise : logarithm of how seldom a pattern may be seen where there is none
    spreads : (r, r) of all sums and all differences
    """

    numbers: FloatArray
    surprise: float
    spreads: tuple[FloatArray, FloatArray]

    def at(self, step: float, own: ComplexArray, rest: ComplexArray, places: IntArray) -> Iterator[Together]:
        """Pairs of a cell of ``places`` (columns of ``own``) and any other that show the step together, and not
        alone."""
        there = self.numbers
        if there.all():  # as it mostly is: then all sums are of all databases
            count = np.full((len(places), rest.shape[1]), float(len(there)))
            sums = np.maximum(np.abs(own.sum(axis=0))[:, None], np.abs(rest.sum(axis=0)))
        else:
            count = there[:, places].T @ there
            sums = np.maximum(np.abs(own.T @ there), np.abs(there[:, places].T @ rest))
        few = np.maximum(count, 1.0)
        least = np.maximum(np.sqrt(self.surprise / few), sums / few + _MORE)
        for weight, spread, first_of in ((1.0, self.spreads[0], own), (-1.0, self.spreads[1], own.conj())):
            shown = np.abs(first_of.T @ rest) / few
            seen = (shown > least) & (spread[places] > step) & (count >= _LEAST)
            seen &= places[:, None] != np.arange(rest.shape[1])
            for first, second in np.argwhere(seen).tolist():
                yield Together(np.array([places[first], second]), np.array([1.0, weight]), step)


def _whole_weights(fit: TableFit) -> dict[int, FloatArray]:
    """By place of a kept cell: weights 1 of itself, and of the others what its regression comes to in whole numbers,
    for cells that have a few such others."""
    out: dict[int, FloatArray] = {}
    if fit.ridge:
        return out
    diagonal = np.diag(fit.precision)
    slopes = np.clip(fit.precision / diagonal[:, None], -9, 9)
    errors = np.sqrt(diagonal / diagonal[:, None] / fit.n)  # of each slope, about
    whole = np.where(
        (np.abs(slopes) > 3 * errors) & (np.abs(slopes - np.rint(slopes)) < 3 * errors), np.rint(slopes), 0
    )
    for place, weights in enumerate(whole):
        weights[place] = 1.0
        if 2 < np.count_nonzero(weights) <= _MOST_WEIGHTS:
            out[place] = weights
    return out


def _broken(together: Together, influences: Influences) -> bool:
    """Whether somebody changes the combination by what is no multiple of the step."""
    weights = np.zeros(int(influences.places.max(initial=0)) + 1)
    inside = together.places < len(weights)
    weights[together.places[inside]] = together.weights[inside]
    changes = np.asarray(np.bincount(influences.rows, weights[influences.places] * influences.values), float)
    return _off(changes, together.step)


def _broken_by(together: Together, places: IntArray, changes: FloatArray) -> bool:
    weights = np.array([float(together.weights[together.places == place].sum()) for place in places])
    return _off(changes @ weights, together.step)


def _off(changes: FloatArray, step: float) -> bool:
    parts = changes / step
    return bool((np.abs(parts - np.rint(parts)) > _OFF).any())
