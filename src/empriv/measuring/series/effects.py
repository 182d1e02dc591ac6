"""Effect sizes: by how much one look at the results tells a person's presence from their absence.

After T looks the Gaussian curve of size ``mu sqrt(T)`` is within 2% of the exact composition of laws without edges, so
that one number for each person is enough, mu. It is estimated from kernels of width b at the results with and without
the person, a pair for each database: A_j and B_j, with G_j = A_j - B_j, s the mean of G_j, and m the mean of the two
densities.

    F = ∫ s²/m        U = n/(n-1) ∫ (s² - Σ G_j²/n²)/m        H = -8 log ∫ sqrt(f g)        mu² = H U/F

F holds the noise of every kernel, which T looks would add up; U leaves the terms out in which a database meets itself.
All integrals are sums over cells of half of b, each with its exact mass: cells lose some of what tells apart, and never
add to it. Beyond the last point the ratio of two Laplace mixtures is constant: there one cell is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from empriv.measuring.given import compiled_blocks
from empriv.measuring.line.atoms import Pairs
from empriv.results import FloatArray, IntArray

CELLS = 2  # in a bandwidth
_GAP = 24.0  # bandwidths: of an empty stretch no more is cut into cells, and kernels hardly meet across it
_HELD = 400_000  # masses held at once


class Moments(NamedTuple):
    """What one bandwidth says of some people; all (people,).

    Attributes
    ----------
    hellinger, chi, unbiased : H, F and U
    error : standard error of F, from databases and from pairs of them; 0 where it was not asked for
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


@dataclass(frozen=True, eq=False)
class Looks:
    """Pairs of some people, one for each database in which they change anything; padded by pairs that are equal.

    Attributes
    ----------
    everyone : (n, draws) results with everyone on all databases, or None where ``before`` holds all databases
    database : (people, entries) which database an entry is of
    before, after : (people, entries, draws) and (people, entries, k) the pair; +inf at an atom
    weights : (people, k) of what comes after; they sum to 1
    n_databases : also those in which nobody of them is
    """

    everyone: FloatArray | None
    database: IntArray
    before: FloatArray
    after: FloatArray
    weights: FloatArray
    n_databases: int


def moments(looks: Looks, bandwidth: float, *, errors: bool = False) -> Moments:
    """H, F, U, and the standard error of F with ``errors``, without atoms."""
    n = looks.n_databases
    everyone = looks.everyone
    cells = _cells([looks.before, looks.after] if everyone is None else [everyone, looks.after], bandwidth)
    common = None if everyone is None else cells.cumulated(everyone, None)
    before = cells.cumulated(looks.before, None) if common is None else common[looks.database]
    own = np.diff(before, axis=-1) if common is None else np.diff(common, axis=-1)[None]  # (people or 1, databases, c)
    before -= cells.cumulated(looks.after, looks.weights)
    change = np.diff(before, axis=-1)  # G, (people, entries, cells)
    f = own.mean(axis=1)
    s = change.sum(axis=1) / n
    g = np.maximum(f - s, 0.0)
    m = 0.5 * (f + g)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(m > 0, 1.0 / m, 0.0)
        roots = np.sqrt(f) + np.sqrt(g)
        apart = np.where(roots > 0, s / roots, 0.0)
    t = s * inverse
    chi = np.einsum("pc,pc->p", s, t)
    hellinger = -8.0 * np.log1p(-np.minimum(0.5 * np.einsum("pc,pc->p", apart, apart), 1 - 1e-16))
    # no BLAS here: these products are small, and its own threads would meet those of the blocks
    alone = np.einsum("pec,pc->pe", change * change, inverse)  # a database with itself
    unbiased = (chi - alone.sum(axis=1) / n**2) * n / (n - 1)
    if not errors:
        return Moments(hellinger, chi, unbiased, np.zeros(len(chi)))
    square = t * t
    added = np.einsum("pec,pc->pe", change, 2 * t + 0.5 * square)
    level = np.einsum("nc,pc->pn", own[0], square) if common is not None else np.einsum("pec,pc->pe", own, square)
    influence = -chi[:, None] - level
    if common is None:
        influence += added
    else:
        np.add.at(influence, (np.arange(len(chi))[:, None], looks.database), added)  # padding adds 0 to database 0
    pairs = _among_pairs(looks, alone, cells)
    error = np.sqrt(np.einsum("pe,pe->p", influence, influence) / n**2 + 2 * pairs / n**4)
    return Moments(hellinger, chi, unbiased, error)


def _among_pairs(looks: Looks, alone: FloatArray, cells: _Cells) -> FloatArray:
    """(people,) ``Σ_{j≠l} (∫ G_j G_l/m)²``, for the standard error.

    Where m hardly changes within a bandwidth, two databases r apart have ``∫ G_j G_l/m = a_j a_l rho(r)`` with
    ``a_j² = ∫ G_j²/m`` and, for kernels that move by d, ``rho(r) = (2E(r) - E(r - d) - E(r + d))/(2E(0) - 2E(d))``,
    where ``E(r) = (1 + |r|/b) e^(-|r|/b)`` is a Laplace kernel convolved with itself. d is the root mean square of a
    person's influences.
    """
    count, size = len(alone), len(cells.edges) + 1
    place = cells.place(looks.before[:, :, 0])
    binned = np.zeros((count, size))
    np.add.at(binned, (np.arange(count)[:, None], place), alone)
    with np.errstate(invalid="ignore"):
        change = np.einsum("pek,pk->pe", (looks.after - looks.before.mean(axis=2, keepdims=True)) ** 2, looks.weights)
    change = np.where(np.isfinite(change), change, 0.0)
    listed = np.maximum(np.count_nonzero(change > 0, axis=1), 1)
    moved = np.sqrt(change.sum(axis=1) / listed) / cells.bandwidth
    moved = np.maximum(moved, 1e-3)  # below, rho is that of a slope
    reach = CELLS * (8.0 + np.minimum(moved, 8.0))  # each person's own, and within what empty stretches are left
    total = np.zeros(count)
    for lag in range(min(size, int(reach.max(initial=0.0)) + 1)):
        # two places in cells `lag` apart differ by lag ± a triangular law of one cell
        profile = np.mean([_correlation((lag + u) / CELLS, moved) ** 2 for u in _TRIANGLE], axis=0)
        products = np.einsum("pc,pc->p", binned[:, : size - lag], binned[:, lag:])
        total += np.where(lag <= reach, (1.0 if lag == 0 else 2.0) * profile * products, 0.0)
        if lag == 0:
            total -= profile * np.einsum("pe,pe->p", alone, alone)
    return np.maximum(total, 0.0)


_TRIANGLE = (-0.592, -0.261, -0.083, 0.083, 0.261, 0.592)  # six equal shares of a triangular law, the mean of each


def _correlation(r: float, moved: FloatArray) -> FloatArray:
    """rho at distance r, of kernels that move by so much; in bandwidths."""

    def overlap(distance: FloatArray | float) -> FloatArray:
        away = np.abs(distance)
        return np.asarray((1.0 + away) * np.exp(-away))

    return np.asarray(
        (2 * overlap(r) - overlap(r - moved) - overlap(r + moved)) / (2 * overlap(0.0) - 2 * overlap(moved))
    )


class _Cells(NamedTuple):
    """Cells of the line, with long empty stretches cut short by whole cells."""

    known: FloatArray  # rising: points, and by how much everything from each of them on is moved
    moved: FloatArray
    edges: FloatArray
    bandwidth: float

    def cumulated(self, points: FloatArray, weights: FloatArray | None) -> FloatArray:
        """(..., edges + 2) mass below each edge of the mean of Laplace kernels at points (..., k); 0 and the total at
        the ends."""
        finite, safe = np.isfinite(points), self._placed(points)
        edges, safe = self.edges / self.bandwidth, safe / self.bandwidth
        if compiled_blocks.compiled is not None:
            shares = np.full((1, points.shape[-1]), 1.0 / points.shape[-1]) if weights is None else weights
            return compiled_blocks.compiled.cumulated(np.where(finite, safe, np.inf), shares, edges, CELLS)
        out = np.zeros((*points.shape[:-1], len(edges) + 2))
        for draw in range(points.shape[-1]):
            z = edges - safe[..., draw, None]
            size = np.abs(z)
            np.negative(size, out=size)
            np.expm1(size, out=size)
            np.copysign(size, z, out=size)  # 1 - e^-|z| with the sign of z
            size += 1.0
            share = np.where(
                finite[..., draw], 1.0 / points.shape[-1] if weights is None else weights[:, draw, None], 0.0
            )
            size *= 0.5 * share[..., None]
            out[..., 1:-1] += size
            out[..., -1] += share
        return out

    def place(self, points: FloatArray) -> IntArray:
        """The cell of each point, from 0 on; 0 for an atom."""
        return np.searchsorted(self.edges, self._placed(points), side="right")

    def _placed(self, points: FloatArray) -> FloatArray:
        safe = np.where(np.isfinite(points), points, self.known[0])
        if len(self.known) > 1:
            safe -= self.moved[np.searchsorted(self.known, safe, side="right") - 1]
        return safe


def _cells(values: list[FloatArray], bandwidth: float) -> _Cells:
    step = bandwidth / CELLS
    points = np.unique(np.concatenate([value[np.isfinite(value)] for value in values]))
    gaps = np.diff(points)
    excess = np.floor(np.maximum(gaps - _GAP * bandwidth, 0.0) / step) * step
    places = np.flatnonzero(excess > 0)
    known = np.concatenate((points[:1], points[places + 1]))
    moved = np.concatenate(([0.0], np.cumsum(excess[places])))
    low, high = np.floor(points[0] / step), np.ceil((points[-1] - moved[-1]) / step)
    edges = step * np.arange(low, high + 1)
    return _Cells(known, moved, edges, bandwidth)


def looks_of(pairs: Pairs, rows: IntArray) -> Looks:
    """The pairs of these people."""
    n, draws = len(pairs.points) // pairs.draws, pairs.draws
    points = pairs.points.reshape(n, draws)
    counts = pairs.starts[rows + 1] - pairs.starts[rows]
    most = int(counts.max(initial=0))
    place = np.arange(most)
    entry = np.minimum(pairs.starts[rows][:, None] + place, np.maximum(pairs.starts[rows + 1][:, None] - 1, 0))
    there = place < counts[:, None]
    database = np.where(there, pairs.entry_database[entry], 0)
    before = points[database]
    after = np.where(there[:, :, None], pairs.entries[entry], before)
    weights = np.full((len(rows), draws), 1.0 / draws)
    return Looks(points, database, before, after, weights, n)


def blocks_of(pairs: Pairs, rows: IntArray, bandwidth: float) -> list[IntArray]:
    """People in blocks that fit in memory, those in equally many databases together."""
    counts = pairs.starts[rows + 1] - pairs.starts[rows]
    rows = rows[np.argsort(counts, kind="stable")]
    finite = pairs.points[np.isfinite(pairs.points)]
    cells = 32 + CELLS * min(float(np.ptp(finite)) / bandwidth, _GAP * len(finite)) if len(finite) else 32
    blocks, start = [], 0
    while start < len(rows):
        stop = start + 1
        while (
            stop < len(rows)
            and (stop + 1 - start) * cells * int(pairs.starts[rows[stop] + 1] - pairs.starts[rows[stop]]) * pairs.draws
            <= _HELD
        ):
            stop += 1
        blocks.append(rows[start:stop])
        start = stop
    return blocks
