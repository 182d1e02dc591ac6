"""Hockey sticks from cells: a whole curve for the price of a point.

A *cell* is a stretch of results on which the ratio of the two densities is monotone. It adds nothing to
``H(epsilon) = ∫ (p - e^epsilon p_i)_+`` once e^epsilon exceeds the ratio at both ends, its two masses
``a - e^epsilon b`` while e^epsilon is below both, and only in between is a root needed. So full cells are sorted into
the grid of epsilons and summed cumulatively, and the work for each epsilon is the handful of cells it crosses
(docs/method.md, "A whole curve"). Everything that makes cells (`laplace`, `other_kernels`, atoms) shares
this bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from empriv.results import FloatArray, IntArray

Part = Callable[[IntArray, FloatArray], tuple[FloatArray, FloatArray]]

LARGEST_EPSILON = 690.0  # e^690 is still a double; a larger epsilon is measured here: never understates delta


@dataclass(frozen=True)
class Cells:
    """Cells of several individuals (rows), in one direction: numerator over denominator.

    Attributes
    ----------
    row : which individual of the block
    low, high : smallest and largest ratio on the cell
    above, below : mass of the numerator and of the denominator
    part : function (index of cells, e) -> (integral of numerator - e·denominator over the part of each cell where
        it is positive, mass of the denominator there), for e strictly between low and high
    """

    row: IntArray
    low: FloatArray
    high: FloatArray
    above: FloatArray
    below: FloatArray
    part: Part


def no_part(index: IntArray, e: FloatArray) -> tuple[FloatArray, FloatArray]:
    """`Cells.part` of cells on which the ratio is constant: they are never crossed."""
    return np.zeros(len(index)), np.zeros(len(e))


def constant_cells(above: FloatArray, below: FloatArray) -> Cells:
    """Cells of constant ratio from (rows, cells) arrays of masses, such as atoms."""
    row, column = np.nonzero(above > 0)
    a, b = above[row, column], below[row, column]
    with np.errstate(divide="ignore"):
        ratio = a / b
    return Cells(row, ratio, ratio, a, b, no_part)


def join(cells: Cells, constant: Cells) -> Cells:
    """Both together; the second must be cells of constant ratio, which are never crossed."""
    return Cells(
        row=np.concatenate((cells.row, constant.row)),
        low=np.concatenate((cells.low, constant.low)),
        high=np.concatenate((cells.high, constant.high)),
        above=np.concatenate((cells.above, constant.above)),
        below=np.concatenate((cells.below, constant.below)),
        part=cells.part,
    )


def curve(cells: Cells, e: FloatArray, rows: int) -> FloatArray:
    """(rows, len(e)) hockey sticks at the ascending values ``e`` of e^epsilon."""
    size = len(e)
    full_below = np.searchsorted(e, cells.low, side="right")  # full for e[:full_below]
    crossed_below = np.searchsorted(e, cells.high, side="left")  # touched for e[:crossed_below]
    place = cells.row * (size + 1) + full_below
    a = np.bincount(place, cells.above, rows * (size + 1)).reshape(rows, size + 1)
    b = np.bincount(place, cells.below, rows * (size + 1)).reshape(rows, size + 1)
    # sums over cells that are full at each e: all places beyond it
    a = np.cumsum(a[:, :0:-1], axis=1)[:, ::-1]
    b = np.cumsum(b[:, :0:-1], axis=1)[:, ::-1]
    total = a - e * b

    crossings = np.maximum(crossed_below - full_below, 0)
    cell = np.flatnonzero(crossings)
    counts = crossings[cell]
    if len(cell):
        cell = np.repeat(cell, counts)
        column = np.arange(len(cell)) - np.repeat(np.cumsum(counts) - counts, counts) + full_below[cell]
        integral, _ = cells.part(cell, e[column])
        total += np.bincount(cells.row[cell] * size + column, integral, rows * size).reshape(rows, size)
    return np.asarray(total)


def at(cells: Cells, e: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Hockey stick of each row at its own ``e`` of e^epsilon, and the denominator's mass (minus its slope in e)."""
    rows = len(e)
    e_of_cell = e[cells.row]
    full = cells.low >= e_of_cell
    above = np.bincount(cells.row[full], cells.above[full], rows).astype(float)
    below = np.bincount(cells.row[full], cells.below[full], rows).astype(float)
    value = above - e * below
    crossed = np.flatnonzero(~full & (cells.high > e_of_cell))
    if len(crossed):
        integral, mass = cells.part(crossed, e_of_cell[crossed])
        value += np.bincount(cells.row[crossed], integral, rows)
        below += np.bincount(cells.row[crossed], mass, rows)
    return value, below


def invert(cells: Cells, target: float, largest: FloatArray) -> FloatArray:
    """Smallest e >= 1 at which each row's hockey stick is at most ``target`` > 0, rounded up.

    ``largest`` is the supremum of each row's ratio, where the hockey stick ends. H is convex and falling in e, so
    Newton's steps from the left never pass the root; bisection takes over where rounding makes them.
    """
    low = np.ones(len(largest))
    high = np.clip(largest, 1.0, np.exp(LARGEST_EPSILON))
    value, below = at(cells, low)
    high = np.where(value <= target, low, high)
    for _ in range(2000):
        open_rows = high > low * (1 + 1e-15)
        if not open_rows.any():
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # a touch to the right of Newton's step, so that it ends beyond the root once it is there
            e = (low + (value - target) / below) * (1 + 1e-15)
        e = np.where((e > low) & (e < high), e, np.sqrt(low) * np.sqrt(high))
        e = np.where((e > low) & (e < high), e, high)
        at_e, below_e = at(cells, e)
        beyond = at_e <= target
        high = np.where(open_rows & beyond, e, high)
        moved = open_rows & ~beyond
        low, value, below = np.where(moved, e, low), np.where(moved, at_e, value), np.where(moved, below_e, below)
        low = np.where(open_rows & (e == high) & ~beyond, high, low)
    return high
