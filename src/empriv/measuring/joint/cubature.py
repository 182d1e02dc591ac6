"""Hockey sticks of two mixtures of product Laplace kernels in one or two dimensions.

A grid of cells whose masses are exact gives the two masses of many cells; from these a whole curve over epsilon costs
next to nothing, and comes with an error bar. Coordinates are in bandwidths (`spaces`); `joint_risk` decides which
individuals are measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.measuring.joint.spaces import JointPairs
from empriv.results import FloatArray

_FINE = {1: 32.0, 2: 6.0}  # cells per bandwidth
_MOST_CELLS = {1: 8192, 2: 256}  # along each axis
_BEYOND = 12.0  # bandwidths beyond the outermost point at which the last cell begins


class Masses(NamedTuple):
    """Masses of cells: ``first`` under the density that is to be larger, ``second`` under the other; ``coarse`` holds
    the same for cells four (two) times as large."""

    first: FloatArray
    second: FloatArray
    coarse: tuple[FloatArray, FloatArray]


def curve(masses: Masses, epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Hockey stick at each epsilon, rising, and its error bar."""
    fine = _sums(masses.first, masses.second, epsilon)
    coarse = _sums(*masses.coarse, epsilon)
    # Merging cells loses detail in proportion to the square of their width: a third of the last loss remains.
    left = (fine - coarse) / 3.0
    return fine + left, left


def _sums(first: FloatArray, second: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Σ (first - e^eps second)_+ at each epsilon."""
    if len(epsilon) <= 3:
        return np.array([np.maximum(first - math.exp(value) * second, 0.0).sum() for value in epsilon.tolist()])
    larger = first > math.exp(epsilon[0]) * second
    a, b = first[larger], second[larger]
    with np.errstate(divide="ignore"):
        ratio = np.log(a / b)
    # Cells count at the epsilons below their log ratio: sorted into the grid, then summed from above.
    place = np.searchsorted(epsilon, ratio, side="left")
    count = len(epsilon) + 1
    over = [np.cumsum(np.bincount(place, weights=w, minlength=count)[::-1])[::-1][1:] for w in (a, b)]
    return np.asarray(np.maximum(over[0] - np.exp(epsilon) * over[1], 0.0))


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells along each axis of a space of one or two dimensions, and what each kernel has in them.

    Attributes
    ----------
    number : of the space
    edges : for each axis, the inner edges; the first and last cells go on for ever
    shares : for each axis (N, cells): share of each point's kernel; 0 for points elsewhere
    total : masses of all cells, with everyone
    """

    number: int
    edges: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]
    total: FloatArray

    @staticmethod
    def of(pairs: JointPairs, number: int, *, fine: float | None = None) -> Grid:
        """``fine`` cells for each bandwidth; by default as fine as the error bar of an estimate asks."""
        points = pairs.coordinates[number]
        in_space = pairs.places == number
        edges = tuple(_edges(points[in_space, axis], points.shape[1], fine) for axis in range(points.shape[1]))
        shares = tuple(
            np.where(in_space[:, None], kernel_shares(points[:, k], edge), 0.0) for k, edge in enumerate(edges)
        )
        return Grid(number, edges, shares, _product(shares) / pairs.size)

    def without(self, pairs: JointPairs, row: int) -> FloatArray:
        """Masses of all cells without an individual."""
        leave, _, _, new = pairs.changes(row, self.number)
        added = tuple(kernel_shares(new[:, axis], edge) for axis, edge in enumerate(self.edges))
        if 2 * len(leave) > pairs.size:  # most points change: the rest is less work
            kept = np.ones(pairs.size, bool)
            kept[leave] = False
            kept &= pairs.places == self.number
            parts = tuple(np.concatenate((share[kept], new)) for share, new in zip(self.shares, added, strict=True))
            return _product(parts) / pairs.size
        removed = _product(tuple(share[leave] for share in self.shares))
        return np.maximum(self.total + (_product(added) - removed) / pairs.size, 0.0)

    def masses(self, pairs: JointPairs, row: int) -> tuple[Masses, Masses]:
        """Both directions: with everyone over without, and the reverse."""
        a, b = self.total, self.without(pairs, row)
        coarse = _merged(a), _merged(b)
        return (
            Masses(a.ravel(), b.ravel(), coarse=coarse),
            Masses(b.ravel(), a.ravel(), coarse=(coarse[1], coarse[0])),
        )


def share_within(shares: list[FloatArray] | tuple[FloatArray, ...], inside: npt.NDArray[np.bool_]) -> FloatArray:
    """(points,) share of each kernel that lies in the cells ``inside``."""
    if len(shares) == 1:
        return np.asarray(shares[0] @ inside.astype(float))
    return np.asarray(np.einsum("jh,jh->j", shares[0] @ inside.astype(float), shares[1]))


def kernel_shares(points: FloatArray, edges: FloatArray) -> FloatArray:
    """(points, cells) share of a Laplace kernel of scale 1 in each cell; the cells make up the line."""
    z = edges[None, :] - points[:, None]
    tail = 0.5 * np.exp(-np.abs(z))
    # Differences within one tail, so that small shares keep their digits.
    below = np.where(z < 0, tail, 1.0 - tail)
    inner = np.where(z[:, :-1] >= 0, tail[:, :-1] - tail[:, 1:], below[:, 1:] - below[:, :-1])
    above = np.where(z[:, -1:] >= 0, tail[:, -1:], 1.0 - tail[:, -1:])
    return np.concatenate((below[:, :1], inner, above), axis=1)


def _edges(points: FloatArray, rank: int, fine: float | None) -> FloatArray:
    low, high = (float(points.min()), float(points.max())) if len(points) else (0.0, 0.0)
    inner = high - low + 4.0
    count = min(_MOST_CELLS[rank] - 32, max(32, math.ceil(inner * (fine or _FINE[rank]))))
    middle = np.linspace(low - 2.0, high + 2.0, count + 1)
    # Beyond, the density only falls off: cells grow by a fifth each.
    width = inner / count
    steps = width * 1.2 ** np.arange(1, 200)
    out = np.cumsum(steps)
    out = out[out < _BEYOND]
    edges = np.concatenate((low - 2.0 - out[::-1], middle, high + 2.0 + out))
    return edges if len(edges) % 2 == 1 else np.append(edges, edges[-1] + _BEYOND)  # an even number of cells


def _product(shares: tuple[FloatArray, ...]) -> FloatArray:
    return np.asarray(shares[0].sum(axis=0) if len(shares) == 1 else shares[0].T @ shares[1])


def _merged(cells: FloatArray) -> FloatArray:
    if cells.ndim == 1:
        return np.asarray(cells[::2] + cells[1::2])
    pairs = cells[::2] + cells[1::2]
    return np.asarray((pairs[:, ::2] + pairs[:, 1::2]).ravel())


def kernel_sums(points: FloatArray, centres: FloatArray) -> FloatArray:
    """(M,) sums over centres of exp(-|x - c|_1): densities but for a factor common to all."""
    out = np.zeros(len(points))
    if not len(centres) or not len(points):
        return out
    step = max(1, 400_000 // len(centres))  # stays in the cache
    for start in range(0, len(points), step):
        block = points[start : start + step]
        distance = np.abs(block[:, :1] - centres[None, :, 0])
        for axis in range(1, points.shape[1]):
            distance += np.abs(block[:, axis : axis + 1] - centres[None, :, axis])
        out[start : start + step] = np.exp(-distance).sum(axis=1)
    return out
