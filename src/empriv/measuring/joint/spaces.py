"""Where the results of a vector query lie: patterns of outcomes, and for each the plane and the density upon it.

A vector's components may be numbers, NULLs, or at atoms (`atoms`). Which of them are what is the vector's *pattern*, an
outcome of its own. Vectors of one pattern share a `Space`: the plane that their numbers lie on, in coordinates that
are white and measured in bandwidths, so that the kernel is always the product of Laplace kernels of scale 1. Vectors
off that plane, and patterns too rare for a density, are categories that are compared by counts. Integrals are for
`cubature`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities import selection
from empriv.measuring.densities.selection import Score
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.results import FloatArray, IntArray, Results

CONSTANT = 1e-7  # of the spread: what varies less is constant, but for rounding
LEAST_POINTS = 5
_MOST_SCORED = 2000  # points whose likelihood is taken: the sum over pairs grows with the square


@dataclass(frozen=True, eq=False)
class Space:
    """White coordinates of the vectors of one pattern.

    Attributes
    ----------
    columns : which components are numbers here
    centre, scale : (d,) mean and standard deviation of each of them, over the points that were fitted
    axes : (d, rank) from standardised components to coordinates in bandwidths
    flat : (d, d - rank) directions, in standardised components, in which all points agree
    bandwidth : in white coordinates, where each axis has spread 1
    scores : every bandwidth that was considered
    """

    columns: tuple[int, ...]
    centre: FloatArray
    scale: FloatArray
    axes: FloatArray
    flat: FloatArray
    bandwidth: float
    scores: tuple[Score, ...]

    @property
    def rank(self) -> int:
        return int(self.axes.shape[1])

    def coordinates(self, vectors: FloatArray) -> FloatArray:
        """(..., rank) coordinates, in bandwidths, of vectors (..., components)."""
        return self._standard(vectors) @ self.axes

    def off_plane(self, vectors: FloatArray) -> npt.NDArray[np.bool_]:
        """Which vectors do not lie on the plane of all that were fitted."""
        if not self.flat.shape[1]:
            return np.zeros(vectors.shape[:-1], bool)
        return np.asarray(np.abs(self._standard(vectors) @ self.flat).max(axis=-1) > CONSTANT)

    def narrowed(self, factor: float) -> Space:
        """The same with ``factor`` times the bandwidth."""
        return replace(self, axes=self.axes / factor, bandwidth=self.bandwidth * factor)

    def _standard(self, vectors: FloatArray) -> FloatArray:
        return np.asarray((vectors[..., self.columns] - self.centre) / self.scale)


@dataclass(frozen=True, eq=False)
class JointPairs:
    """Vectors with everyone and without each individual, each in a space or a category.

    Attributes
    ----------
    spaces : what has a density
    draws, starts, entry_database : as in `Pairs`
    places : (N,) number of the space of each vector with everyone, or -1 - the number of its category
    entry_places : (n_entries, draws) the same without the individual
    coordinates, entry_coordinates : for each space (N, rank) and (n_entries, draws, rank); meaningless elsewhere
    names : what each category is, in words
    mass, mass_without : (categories,), (n_individuals, categories)
    """

    spaces: tuple[Space, ...]
    draws: int
    starts: IntArray
    entry_database: npt.NDArray[np.int32]
    places: IntArray
    entry_places: IntArray
    coordinates: tuple[FloatArray, ...]
    entry_coordinates: tuple[FloatArray, ...]
    names: tuple[str, ...]
    mass: FloatArray
    mass_without: FloatArray

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def n_individuals(self) -> int:
        return len(self.starts) - 1

    def narrowed(self, factor: float) -> JointPairs:
        """The same with ``factor`` times the bandwidth."""
        return replace(
            self,
            spaces=tuple(space.narrowed(factor) for space in self.spaces),
            coordinates=tuple(points / factor for points in self.coordinates),
            entry_coordinates=tuple(points / factor for points in self.entry_coordinates),
        )

    def shifts(self) -> FloatArray:
        """Largest influence of each individual, as the sum over axes in bandwidths; inf for another place.

        The logarithm of the kernel changes by no more, so by the mediant inequality the ratio of densities does
        not either: delta_i = 0 from this epsilon on.
        """
        before = self.places.reshape(-1, self.draws)[self.entry_database]
        moved = np.where(before == self.entry_places, 0.0, np.inf)
        for number, (points, entries) in enumerate(zip(self.coordinates, self.entry_coordinates, strict=True)):
            in_space = (before == number) & (self.entry_places == number)
            old = points.reshape(-1, self.draws, points.shape[1])[self.entry_database]
            moved = np.where(in_space, np.abs(entries - old).sum(axis=-1), moved)
        out = np.zeros(self.n_individuals)
        owner = np.repeat(np.arange(self.n_individuals), np.diff(self.starts))
        np.maximum.at(out, owner, moved.max(axis=1, initial=0.0))
        return out

    def changes(self, row: int, number: int) -> tuple[IntArray, FloatArray, IntArray, FloatArray]:
        """Points of a space that leave without an individual, and that come: their places among all N, coordinates."""
        entries = slice(self.starts[row], self.starts[row + 1])
        draws = np.arange(self.draws)
        where = (self.entry_database[entries, None].astype(np.int64) * self.draws + draws).ravel()
        new = self.entry_coordinates[number][entries].reshape(len(where), self.coordinates[number].shape[1])
        leaves = self.places[where] == number
        comes = self.entry_places[entries].ravel() == number
        # a point that stays where it was is no change
        still = leaves & comes & np.all(new == self.coordinates[number][where], axis=1)
        leaves, comes = leaves & ~still, comes & ~still
        return where[leaves], self.coordinates[number][where[leaves]], where[comes], new[comes]


def split_vectors(results: Results, alone: Sequence[Pairs]) -> JointPairs:
    """Put every vector in a space or a category; ``alone`` are the pairs of each component, atoms apart."""
    assert results.components is not None
    d, draws = len(results.components), results.draws or 1
    q = results.q.reshape(-1, d)
    entries = results.entry_q.reshape(-1, draws, d)
    codes, entry_codes = _codes(results, alone, q, entries)
    n_points = len(q)
    patterns, inverse = np.unique(np.concatenate((codes, entry_codes.reshape(-1, d))), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    places = np.empty(n_points, np.int64)
    entry_places = np.empty(entry_codes.shape[:2], np.int64)
    spaces: list[Space] = []
    names: list[str] = []
    databases = np.repeat(np.arange(results.n_databases), draws)
    for number, pattern in enumerate(patterns):
        in_pattern, entries_in_pattern = (
            inverse[:n_points] == number,
            inverse[n_points:].reshape(entry_places.shape) == number,
        )
        columns = tuple(np.flatnonzero(pattern == 0).tolist())
        # A pattern's density is fitted to all vectors whose components there are numbers, of whatever pattern.
        fitted = np.all(codes[:, columns] == 0, axis=1) if columns else np.zeros(n_points, bool)
        space = fit_space(q[fitted], columns, databases[fitted]) if columns else None
        if space is None or not space.rank:
            names.append(_category(pattern, results.components))
            places[in_pattern] = entry_places[entries_in_pattern] = -len(names)
            continue
        places[in_pattern] = entry_places[entries_in_pattern] = len(spaces)
        off, entries_off = (
            in_pattern & space.off_plane(_numbers(q)),
            entries_in_pattern & space.off_plane(_numbers(entries)),
        )
        if off.any() or entries_off.any():
            names.append(
                f"{_flat_name(space, results.components)} differs from what it is in all results with everyone"
            )
            places[off] = entry_places[entries_off] = -len(names)
        spaces.append(space)
    mass, mass_without = _masses(places, entry_places, results, len(names))
    return JointPairs(
        spaces=tuple(spaces),
        draws=draws,
        starts=results.starts,
        entry_database=results.entry_database,
        places=places,
        entry_places=entry_places,
        coordinates=tuple(space.coordinates(_numbers(q)) for space in spaces),
        entry_coordinates=tuple(space.coordinates(_numbers(entries)) for space in spaces),
        names=tuple(names),
        mass=mass,
        mass_without=mass_without,
    )


def fit_space(vectors: FloatArray, columns: tuple[int, ...], databases: IntArray) -> Space | None:
    """Whitening and one-SE bandwidth; None for too few points.

    Components are standardised, then turned to their principal axes: so the measure does not depend on the units or
    the order of components. Each axis is then scaled by `selection.spread`, which heavy tails do not stretch.
    """
    x = vectors[:, columns]
    if len(x) < max(LEAST_POINTS, 2 * len(columns) + 1):  # so few lie on a plane by necessity
        return None
    centre, scale = x.mean(axis=0), x.std(axis=0, ddof=1)
    scale = np.where(scale > 1e-12 * np.abs(x).max(axis=0), scale, np.maximum(np.abs(x).max(axis=0), 1e-300))
    standard = (x - centre) / scale
    turned = np.linalg.svd(standard.T, full_matrices=False)[0]  # principal axes, those of no spread last
    along = standard @ turned
    varies = np.abs(along).max(axis=0) > CONSTANT
    axes, flat = turned[:, varies], turned[:, ~varies]
    if not varies.any():
        return Space(columns, centre, scale, axes, flat, float("nan"), ())
    spreads = np.array([selection.spread(column) for column in along[:, varies].T])
    white = along[:, varies] / spreads
    bandwidth, scores = one_se_bandwidth(white, databases)
    return Space(columns, centre, scale, axes / (spreads * bandwidth), flat, bandwidth, scores)


def bandwidth_cap(n: int, rank: int) -> float:
    """Widest bandwidth of the one-SE rule for the product of Laplace kernels on points of unit spread.

    Scott's ``(4/(d + 2))^(1/(d + 4)) n^(-1/(d + 4))`` for the normal kernel, times the ratio of canonical bandwidths
    ``(R^d / mu^2)^(1/(d + 4))``: R = 1/4, mu = 2 for Laplace, R = 1/(2 sqrt(pi)), mu = 1 for the normal.
    """
    power = 1.0 / (rank + 4)
    canonical = ((0.5 * math.sqrt(math.pi)) ** rank / 4.0) ** power
    return float(canonical * (4.0 / (rank + 2)) ** power * n**-power)


def one_se_bandwidth(white: FloatArray, databases: IntArray) -> tuple[float, tuple[Score, ...]]:
    """The one-SE rule of `selection` in several dimensions: a point is scored by those that are not its ties."""
    n, rank = white.shape
    widths = bandwidth_cap(n, rank) * np.geomspace(0.02, 1.0, selection.GRID)
    rows = np.unique(np.linspace(0, n - 1, min(n, _MOST_SCORED)).astype(int))
    log = np.empty((len(widths), len(rows)))
    step = max(1, 2_000_000 // n)
    tolerance = 4 * np.spacing(np.abs(white).max())
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        distance = np.zeros((len(block), n))
        largest = np.zeros((len(block), n))
        for axis in white.T:
            gap = np.abs(axis[block, None] - axis[None, :])
            distance += gap
            np.maximum(largest, gap, out=largest)
        partner = (largest > tolerance) & (databases[block, None] != databases[None, :])
        distance = np.where(partner, distance, np.inf)
        n_others = np.count_nonzero(databases[block, None] != databases[None, :], axis=1)
        with np.errstate(divide="ignore"):
            for k, width in enumerate(widths):
                log[k, start : start + len(block)] = np.log(
                    np.exp(-distance / width).sum(axis=1) / np.maximum(n_others, 1)
                ) - rank * math.log(2 * width)
    means, errors = selection.means_and_errors(selection.per_database(log, databases[rows]))
    if not np.isfinite(means).any():  # all points are tied: any bandwidth compares them by counts
        return float(widths[0]), ()
    best = selection.one_standard_error(means, errors)
    return float(widths[best]), tuple(
        Score(f"bandwidth {width:.6g}", float(mean), float(error), chosen=k == best, bandwidth=float(width))
        for k, (width, mean, error) in enumerate(zip(widths, means, errors, strict=True))
    )


_MANY = 4  # cells that are counted rather than named


def combination(weights: Sequence[float] | FloatArray, names: Sequence[str]) -> str:
    """A weighted sum in words, such as "total less rest", or "total less 11 cells (a, b, ...)"."""
    weights = np.asarray(weights, float)
    if not np.abs(weights).max() > 0:
        return "nothing"
    used = np.flatnonzero(np.abs(weights) > 1e-6 * np.abs(weights).max())
    lead = used[0]
    alike = [used[weights[used] * sign > 0] for sign in (1.0, -1.0)]
    # a total less its cells is led by the total, wherever it stands
    lead = next((group[0] for group in alike if len(group) == 1 and len(used) > _MANY), lead)
    weights, others = weights / weights[lead], used[used != lead]
    if len(others) >= _MANY and np.ptp(weights[others]) < 1e-6 and abs(abs(weights[others[0]]) - 1) < 1e-6:
        sign = "less" if weights[others[0]] < 0 else "plus"
        every = "the other " if len(others) == len(weights) - 1 else ""
        return f"{names[lead]} {sign} {every}{len(others):,} cells ({names[others[0]]}, {names[others[1]]}, ...)"
    text = ""
    for place in (lead, *others):
        weight = weights[place]
        times = "" if abs(abs(weight) - 1) < 1e-6 else f"{abs(weight):.4g} "
        sign = "less" if weight < 0 else "plus"
        text += f" {sign} {times}{names[place]}" if text else f"{times}{names[place]}"
    return text


def simplest(flat: FloatArray, scale: FloatArray) -> FloatArray:
    """Weights, in the components' own units, of the simplest of the directions that ``flat`` (d, k) spans.

    A component, a sum or difference of two, or else the one with the most zeros by elimination.
    """
    d = len(scale)
    candidates = list(np.eye(d))
    for a in range(d):
        for b in range(a + 1, d):
            for sign in (-1.0, 1.0):
                pair = np.zeros(d)
                pair[a], pair[b] = 1.0, sign
                candidates.append(pair)
    for weights in candidates:
        standard = weights * scale  # v·q in standardised components
        standard = standard / np.linalg.norm(standard)
        if np.linalg.norm(standard - flat @ (flat.T @ standard)) < 1e-6:
            return weights
    first = flat[:, 0]
    for k in range(1, flat.shape[1]):  # clear the last components, one with each further direction
        further = flat[:, k]
        pivot = d - k
        if abs(further[pivot]) > 1e-9:
            first = first - further * (first[pivot] / further[pivot])
    return np.asarray(np.where(np.abs(first) > 1e-9 * np.abs(first).max(), first, 0.0) / scale)


def _flat_name(space: Space, components: Sequence[str]) -> str:
    return combination(simplest(space.flat, space.scale), [components[c] for c in space.columns])


def _numbers(vectors: FloatArray) -> FloatArray:
    return np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)


def _codes(
    results: Results, alone: Sequence[Pairs], q: FloatArray, entries: FloatArray
) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """0 for a number in its component's density, its outcome if it is not a number; for an atom of numbers 10 and more,
    or 9 if no result with everyone is there."""
    codes = results.outcomes.reshape(q.shape).astype(np.int16)
    entry_codes = results.entry_outcomes.reshape(entries.shape).astype(np.int16)
    for column, pairs in enumerate(alone):
        x, y = q[:, column], entries[..., column]
        atom = (codes[:, column] == 0) & ~np.isfinite(pairs.points)
        entry_atom = (entry_codes[..., column] == 0) & ~np.isfinite(pairs.entries.reshape(y.shape))
        codes[atom, column] = entry_codes[entry_atom, column] = 9
        tolerance = tie_tolerance(x)
        while np.any(left := codes[:, column] == 9):
            value = x[np.argmax(left)]
            code = max(10, int(codes[:, column].max()) + 1)
            codes[left & (np.abs(x - value) <= tolerance), column] = code
            entry_codes[entry_atom & (np.abs(y - value) <= tolerance), column] = code
    return codes, entry_codes


def _category(pattern: npt.NDArray[np.int16], components: Sequence[str]) -> str:
    kinds = {0: "a number", 1: "null", 2: "nan", 3: "plus infinity", 4: "minus infinity", 5: "an error"}
    parts = [f"{name} is {kinds.get(int(code), 'one value')}" for name, code in zip(components, pattern, strict=True)]
    return "result has " + ", ".join(parts)


def _masses(places: IntArray, entry_places: IntArray, results: Results, count: int) -> tuple[FloatArray, FloatArray]:
    n_individuals, draws = results.n_individuals, results.draws or 1
    mass = np.array([np.count_nonzero(places == -1 - k) for k in range(count)], float)
    mass_without = np.tile(mass, (n_individuals, 1))
    owner = np.repeat(np.arange(n_individuals), results.presence)
    before = places.reshape(-1, draws)[results.entry_database]
    for k in range(count):
        change = np.count_nonzero(entry_places == -1 - k, axis=1) - np.count_nonzero(before == -1 - k, axis=1)
        mass_without[:, k] += np.bincount(owner, weights=change, minlength=n_individuals)
    return mass / len(places), mass_without / len(places)
