"""Shift pairs: by how much a law and the same law moved are apart, from kernels at the results.

After T looks the Gaussian curve of size ``mu sqrt(T)`` is within 2% of the exact composition of laws without edges, so
that one number for each move is enough, mu. It is estimated from kernels of width b at the results and at the results
moved, a pair for each database: A_j and B_j, with G_j = A_j - B_j, s the mean of G_j, and m the mean of both densities.

    F = ∫ s²/m        U = n/(n-1) ∫ (s² - Σ G_j²/n²)/m        H = -8 log ∫ sqrt(f g)        mu² = H U/F

F holds the noise of every kernel, which T looks would add up; U leaves the terms out in which a database meets itself.
All integrals are sums over cells, each with its exact mass: cells lose some of what tells apart, and never add to it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from empriv.results import FloatArray, IntArray

CELLS, FINE = 4, 8  # in a bandwidth, and in noise that is the kernel itself
_REACH = 16  # bandwidths on either side of a point that its kernel is followed for
FARTHEST = 256.0  # bandwidths: a move beyond is told for certain
_TRIANGLE = (-0.592, -0.261, -0.083, 0.083, 0.261, 0.592)  # six equal shares of a triangular law, the mean of each


class Moments(NamedTuple):
    """What one bandwidth says of some moves; all (moves,).

    Attributes
    ----------
    hellinger, chi, unbiased : H, F and U
    error : standard error of F, from databases and from pairs of them
    """

    hellinger: FloatArray
    chi: FloatArray
    unbiased: FloatArray
    error: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """H/F, 1 where nothing is told apart."""
        return np.where(self.chi > 0, self.hellinger / np.where(self.chi > 0, self.chi, 1.0), 1.0)

    @property
    def squared(self) -> FloatArray:
        """mu², H U/F; 0 where U is below."""
        return np.maximum(self.ratio * self.unbiased, 0.0)


def moments(
    law: FloatArray, moves: FloatArray, width: float, *, kind: str = "laplace", draws: int = 1, cells: int = CELLS
) -> Moments:
    """H, F, U and the standard error of F of each move.

    Parameters
    ----------
    law : (N,) results, those of one database together; +inf for outcomes with a mass of their own
    moves : (moves,) at least 0, and at most `FARTHEST` widths
    width : b of a Laplace kernel, or the standard deviation of a Gaussian one
    kind : "laplace" or "gaussian"
    draws : results of one database
    cells : in a width
    """
    n = len(law) // draws
    owner = np.repeat(np.arange(n), draws)
    finite = np.isfinite(law)
    points, owner = law[finite] / width, owner[finite]
    found = [_of_move(points, owner, float(move), n, draws, kind, cells) for move in (moves / width).tolist()]
    return Moments(*np.array(found).reshape(-1, 4).T)


def _of_move(
    points: FloatArray, owner: IntArray, move: float, n: int, draws: int, kind: str, cells: int
) -> tuple[float, float, float, float]:
    """The same of one move, in bandwidths."""
    if not move > 0 or not len(points) or n < 2:
        return 0.0, 0.0, 0.0, 0.0
    before = _REACH * cells
    size = 2 * before + math.ceil(move * cells) + 1  # cells that a point and the point moved reach
    cell, inside = _placed(points, size, cells)
    edges = (np.arange(size + 1) - before - inside[:, None]) / cells
    own = np.diff(_cumulated(edges, kind), axis=1) / draws
    change = own - np.diff(_cumulated(edges - move, kind), axis=1) / draws
    place = cell[:, None] + np.arange(size)
    count = int(cell.max()) + size
    if draws > 1:  # draws of one database are one kernel
        keys, back = np.unique(owner[:, None] * count + place, return_inverse=True)
        own, change = (np.bincount(back.reshape(-1), part.reshape(-1)).astype(float) for part in (own, change))
        database, place = keys // count, keys % count
    else:
        database = np.broadcast_to(owner[:, None], place.shape)
    f, s = (np.bincount(place.reshape(-1), part.reshape(-1), minlength=count) / n for part in (own, change))
    g = np.maximum(f - s, 0.0)
    m = 0.5 * (f + g)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(m > 0, 1.0 / m, 0.0)
        apart = np.where(m > 0, s / (np.sqrt(f) + np.sqrt(g)), 0.0)
    t = s * inverse
    chi = float(s @ t)
    hellinger = -8.0 * math.log1p(-min(0.5 * float(apart @ apart), 1 - 1e-16))

    def by_database(values: FloatArray) -> FloatArray:
        return np.bincount(database.reshape(-1), values.reshape(-1), minlength=n).astype(float)

    alone = by_database(change * change * inverse[place])  # a database with itself
    unbiased = (chi - float(alone.sum()) / n**2) * n / (n - 1)
    influence = by_database(change * (2 * t + 0.5 * t * t)[place] - own * (t * t)[place]) - chi
    first = np.full(n, -1)
    first[owner[::-1]] = cell[::-1]  # the cell of each database's first result
    there = first >= 0
    pairs = _among_pairs(first[there], alone[there], move, kind, cells)
    error = math.sqrt(float(influence @ influence) / n**2 + 2 * pairs / n**4)
    return hellinger, chi, unbiased, error


def _placed(points: FloatArray, reach: int, cells: int) -> tuple[IntArray, FloatArray]:
    """The cell of each point, from 0 on, and how far inside it is; empty stretches of more than ``reach`` cells are cut
    short, since no two kernels meet across them."""
    whole = np.floor(points * cells)
    order = np.argsort(whole, kind="stable")
    gaps = np.minimum(np.diff(whole[order], prepend=whole[order[0]]), reach)
    cell = np.empty(len(points), np.int64)
    cell[order] = np.cumsum(gaps).astype(np.int64)
    return cell, points * cells - whole


def _cumulated(z: FloatArray, kind: str) -> FloatArray:
    """The kernel's mass below z."""
    if kind == "gaussian":
        from scipy.special import ndtr  # slow import

        return np.asarray(ndtr(z))
    tail = 0.5 * np.exp(-np.abs(z))
    return np.where(z < 0, tail, 1.0 - tail)


def _among_pairs(cell: IntArray, alone: FloatArray, move: float, kind: str, cells: int) -> float:
    """``Σ_{j≠l} (∫ G_j G_l/m)²``, for the standard error.

    Where m hardly changes within a bandwidth, two databases r apart have ``∫ G_j G_l/m = a_j a_l rho(r)`` with
    ``a_j² = ∫ G_j²/m`` and ``rho(r) = (2E(r) - E(r - d) - E(r + d))/(2E(0) - 2E(d))``, where E is the kernel convolved
    with itself: ``(1 + |r|) e^-|r|`` of a Laplace kernel, ``e^(-r²/4)`` of a Gaussian one.
    """
    binned = np.bincount(cell, alone)
    moved = max(move, 1e-3)  # below, rho is that of a slope
    total = 0.0
    for lag in range(min(len(binned), int(cells * (8.0 + min(moved, 8.0))) + 1)):
        # two places in cells `lag` apart differ by lag ± a triangular law of one cell
        profile = float(np.mean([_correlation((lag + u) / cells, moved, kind) ** 2 for u in _TRIANGLE]))
        products = float(binned[: len(binned) - lag] @ binned[lag:])
        total += (1.0 if lag == 0 else 2.0) * profile * products
        if lag == 0:
            total -= profile * float(alone @ alone)
    return max(total, 0.0)


def _correlation(r: float, moved: float, kind: str) -> float:
    """rho at distance r, of kernels that move by so much; in bandwidths."""

    def overlap(distance: float) -> float:
        away = abs(distance)
        return math.exp(-0.25 * away * away) if kind == "gaussian" else (1.0 + away) * math.exp(-away)

    return (2 * overlap(r) - overlap(r - moved) - overlap(r + moved)) / (2 * overlap(0.0) - 2 * overlap(moved))
