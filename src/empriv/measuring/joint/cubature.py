"""Hockey sticks of two mixtures of product Laplace kernels in several dimensions.

In one and two dimensions by a grid of cells whose masses are exact, in more by scrambled Sobol points drawn from
each density itself, so that the integrand ``(1 - e^eps p_i/p)_+`` lies in [0, 1]. Both give the two masses of many
cells; from these a whole curve over epsilon costs next to nothing, and comes with an error bar. Coordinates are in
bandwidths (`spaces`); `joint_risk` decides which individuals are measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.measuring.joint.spaces import JointPairs
from empriv.results import FloatArray, IntArray

SOBOL_POINTS = 4096
REPLICATES = 8
_FINE = {1: 32.0, 2: 6.0}  # cells per bandwidth
_MOST_CELLS = {1: 8192, 2: 256}  # along each axis
_BEYOND = 12.0  # bandwidths beyond the outermost point at which the last cell begins


class Masses(NamedTuple):
    """Masses of cells: ``first`` under the density that is to be larger, ``second`` under the other.

    ``coarse`` holds the same for cells four (two) times as large, of the grid; ``replicate`` says for Sobol points
    which scrambling they are of.
    """

    first: FloatArray
    second: FloatArray
    coarse: tuple[FloatArray, FloatArray] | None = None
    replicate: IntArray | None = None


def curve(masses: Masses, epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Hockey stick at each epsilon, rising, and its error bar."""
    if masses.coarse is not None:
        fine = _sums(masses.first, masses.second, epsilon)
        coarse = _sums(*masses.coarse, epsilon)
        # Merging cells loses detail in proportion to the square of their width: a third of the last loss remains.
        left = (fine - coarse) / 3.0
        return fine + left, left
    assert masses.replicate is not None
    sticks = np.stack(
        [
            REPLICATES * _sums(masses.first[members], masses.second[members], epsilon)
            for members in (masses.replicate == k for k in range(REPLICATES))
        ]
    )
    return sticks.mean(axis=0), sticks.std(axis=0, ddof=1) / math.sqrt(REPLICATES)


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


@dataclass(frozen=True, eq=False)
class Cloud:
    """Sobol points drawn from the density of a space of any number of dimensions.

    Attributes
    ----------
    number : of the space
    owner : (M,) which of the N points each was drawn around
    offsets, points : (M, rank) away from the owner, and in all
    weight : (M,) so that each owner has 1/N
    replicate : (M,) which scrambling
    density : (M,) of the points, with everyone
    """

    number: int
    owner: IntArray
    offsets: FloatArray
    points: FloatArray
    weight: FloatArray
    replicate: IntArray
    density: FloatArray

    @staticmethod
    def of(pairs: JointPairs, number: int, *, most: int = SOBOL_POINTS) -> Cloud:
        centres = pairs.coordinates[number]
        members = np.flatnonzero(pairs.places == number)
        rank = centres.shape[1]
        u = _sobol(rank + 1, len(members), most)
        replicate = np.repeat(np.arange(REPLICATES), len(u) // REPLICATES)
        # The first coordinate picks the database: Sobol points spread evenly over them.
        owner = members[np.minimum((u[:, 0] * len(members)).astype(int), max(len(members) - 1, 0))]
        tail = np.log(np.maximum(1.0 - np.abs(2.0 * u[:, 1:] - 1.0), 1e-300))
        offsets = np.where(u[:, 1:] < 0.5, tail, -tail)
        points = centres[owner] + offsets
        counts = np.bincount(owner, minlength=pairs.size)
        weight = 1.0 / counts[owner]
        weight *= len(members) / (pairs.size * weight.sum())  # in case a database has none
        density = kernel_sums(points, centres[members])
        return Cloud(number, owner, offsets, points, weight, replicate, density)

    def masses(self, pairs: JointPairs, row: int) -> tuple[Masses, Masses]:
        """Both directions: with everyone over without, and the reverse."""
        first, _, second, _, _ = self.samples(pairs, row)
        return first, second

    def samples(self, pairs: JointPairs, row: int) -> tuple[Masses, IntArray, Masses, IntArray, FloatArray]:
        """Both directions, and which of the N points each sample was drawn around (of the second: without)."""
        centres = pairs.coordinates[self.number]
        leave, old, come, new = pairs.changes(row, self.number)
        density_without = self.density + kernel_sums(self.points, new) - kernel_sums(self.points, old)
        density_without = np.maximum(density_without, 0.0)
        first = Masses(self.weight, self.weight * density_without / self.density, replicate=self.replicate)
        # Drawn from the density without: those around points that stay, and those around what comes, with the
        # offsets of the point that it comes for, or of another if that had no part in the density.
        stays = ~np.isin(self.owner, leave)
        lender = np.where(pairs.places[come] == self.number, come, self.owner[0] if len(self.owner) else 0)
        counts = np.bincount(self.owner, minlength=pairs.size)
        order = np.argsort(self.owner, kind="stable")
        begins = np.cumsum(counts) - counts
        take = counts[lender]
        new_row = np.repeat(np.arange(len(come)), take)
        sample = order[np.arange(take.sum()) - np.repeat(np.cumsum(take) - take, take) + begins[lender[new_row]]]
        moved = new[new_row] + self.offsets[sample]
        members = np.flatnonzero(pairs.places == self.number)
        with_all = kernel_sums(moved, centres[members])
        without = np.maximum(with_all + kernel_sums(moved, new) - kernel_sums(moved, old), kernel_sums(moved, new))
        weight = np.concatenate((self.weight[stays], 1.0 / (pairs.size * np.maximum(take, 1))[new_row]))
        top = np.concatenate((density_without[stays], without))
        bottom = np.concatenate((self.density[stays], with_all))
        second = Masses(
            weight,
            weight * bottom / np.where(top > 0, top, 1.0),
            replicate=np.concatenate((self.replicate[stays], self.replicate[sample])),
        )
        owners = np.concatenate((self.owner[stays], come[new_row]))
        return first, self.owner, second, owners, moved


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


def _sobol(dimension: int, n: int, most: int) -> FloatArray:
    """Independent scramblings one after the other; at least as many points in each as there are databases."""
    from scipy.stats import qmc  # slow to import

    power = max(int(math.log2(most // REPLICATES)), math.ceil(math.log2(max(1, n))))
    sets = [qmc.Sobol(dimension, scramble=True, rng=seed).random_base2(power) for seed in range(REPLICATES)]
    return np.asarray(np.concatenate(sets))
