"""Exact leaks of a vector query: directions in which the results of one world are constant, those of the other not.

A sum, and the same sum without one person: their difference is zero whenever that person is left out. No smoothing
may hide this, and a kernel that is not turned to that direction is blind to it. Two things are examined: the plane on
which all results without an individual lie (`plane_leaks`: every direction at once), and atoms of the sums and
differences of two components (`pair_leaks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from empriv.measuring.joint.spaces import CONSTANT, LEAST_POINTS, JointPairs, combination, simplest
from empriv.measuring.line.atoms import Pairs, split
from empriv.results import FloatArray, IntArray, Results
from empriv.words.outcomes import OUTCOMES

MOST_PAIRED = 8  # components whose sums and differences are examined one by one


@dataclass(frozen=True, eq=False)
class Leak:
    """A direction that gives individuals away for certain.

    Attributes
    ----------
    direction : a component or a weighted sum of several, in words
    what : what is so in one of the two worlds only, in words
    rows : individuals, by number
    shares : share of the databases in which each is given away
    """

    direction: str
    what: str
    rows: IntArray
    shares: FloatArray

    @property
    def n_individuals(self) -> int:
        return len(self.rows)

    @property
    def largest_share(self) -> float:
        return float(self.shares.max(initial=0.0))

    @property
    def name(self) -> str:
        return f"{self.direction} {self.what}"


def plane_leaks(pairs: JointPairs, components: Sequence[str]) -> tuple[Leak, ...]:
    """Individuals without whom all results lie on a plane that results with everyone leave."""
    by_direction: dict[str, list[tuple[int, float]]] = {}
    for number, space in enumerate(pairs.spaces):
        names = [components[c] for c in space.columns]
        for row in _suspects(pairs, number):
            off, flat = _off_plane(pairs, number, row)
            share = np.count_nonzero(off) / pairs.size
            if share > 0:
                # f·y with y = standardised @ axes is (axes f)·standardised
                directions = np.linalg.qr(space.axes @ flat)[0]
                words = combination(simplest(directions, space.scale), names)
                by_direction.setdefault(words, []).append((row, share))
    what = "is constant without the individual, and not with them"
    return tuple(
        Leak(direction, what, np.array([row for row, _ in group]), np.array([share for _, share in group]))
        for direction, group in by_direction.items()
    )


def off_own_plane(pairs: JointPairs, number: int, row: int) -> npt.NDArray[np.bool_]:
    """(N,) which results with everyone are in this space and off the plane of the results without an individual."""
    return _off_plane(pairs, number, row)[0]


def pair_leaks(results: Results) -> tuple[tuple[Leak, ...], tuple[Pairs, ...]]:
    """Leaks by atoms of sums and differences of two components, and the pairs that hold these atoms."""
    assert results.components is not None
    if len(results.components) > MOST_PAIRED:
        return (), ()
    leaks, with_atoms = [], []
    for a, b in combinations(results.components, 2):
        for sign in (-1.0, 1.0):
            pairs = split(_rounding_removed(results, a, b, sign), look=True)
            if not pairs.names and not pairs.own:
                continue
            with_atoms.append(pairs)
            direction = combination((1.0, sign), (a, b))
            for what, mass, without, rows in _atoms(pairs):
                share = certain(mass, without)
                given_away = share > 0
                if given_away.any():
                    leaks.append(Leak(direction, what, rows[given_away], share[given_away]))
    return tuple(leaks), tuple(with_atoms)


def merged(leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    """One leak for each direction: the largest share of each individual, in the words that came first."""
    groups: dict[str, list[Leak]] = {}
    for leak in leaks:
        groups.setdefault(leak.direction, []).append(leak)
    out = []
    for direction, group in groups.items():
        rows, shares = np.concatenate([g.rows for g in group]), np.concatenate([g.shares for g in group])
        order = np.lexsort((-shares, rows))
        first = np.concatenate(([True], np.diff(rows[order]) > 0))
        out.append(Leak(direction, group[0].what, rows[order][first], shares[order][first]))
    return tuple(sorted(out, key=lambda leak: -leak.largest_share))


def atom_curves(pairs: Pairs, epsilon: FloatArray) -> FloatArray:
    """(individuals, epsilons) delta_i by the atoms alone; everything else counts as one outcome."""
    out = _hockey_sticks(pairs.mass, pairs.mass_without, epsilon)
    for row, own_pairs in pairs.own:
        out[row] = np.maximum(out[row], _hockey_sticks(own_pairs.mass, own_pairs.mass_without, epsilon)[0])
    return out


def certain(mass: float, without: FloatArray) -> FloatArray:
    """Share of the results that are seen in one of the two worlds only: the atom, or all that is not it."""
    share = np.maximum(np.where(without == 0, mass, 0.0), np.where(without == 1, 1.0 - mass, 0.0))
    share = np.maximum(share, np.where(mass == 0, without, np.where(mass == 1, 1.0 - without, 0.0)))
    return np.asarray(np.where(without == mass, 0.0, share))


def _rounding_removed(results: Results, a: str, b: str, sign: float) -> Results:
    """a + sign b, where values that differ only by the rounding of a and b are made equal.

    A difference of large numbers keeps their roundings, and would be split into several atoms.
    """
    summed = results.combined({a: 1.0, b: sign})
    size = [np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in (results.select((a, b)).q, summed.entry_q)]
    flat = np.concatenate((summed.q.ravel(), summed.entry_q.ravel()))
    numbers = np.flatnonzero(np.isfinite(flat))
    order = numbers[np.argsort(flat[numbers], kind="stable")]
    apart = np.concatenate(([True], np.diff(flat[order]) > 16 * np.spacing(max(size)))) if len(order) else order
    flat[order] = flat[order][np.maximum.accumulate(np.where(apart, np.arange(len(order)), 0))]
    return replace(
        summed,
        q=flat[: summed.q.size].reshape(summed.q.shape),
        entry_q=flat[summed.q.size :].reshape(summed.entry_q.shape),
    )


def _hockey_sticks(mass: FloatArray, without: FloatArray, epsilon: FloatArray) -> FloatArray:
    rest, rest_without = 1.0 - mass.sum(), 1.0 - without.sum(axis=1)
    a = np.append(mass, max(rest, 0.0))[None, :, None]
    b = np.concatenate((without, np.maximum(rest_without, 0.0)[:, None]), axis=1)[:, :, None]
    b = np.where(np.abs(a - b) < 1e-12, a, b)
    e = np.exp(epsilon)[None, None, :]
    return np.asarray(np.maximum(np.maximum(a - e * b, 0.0).sum(axis=1), np.maximum(b - e * a, 0.0).sum(axis=1)))


def _atoms(pairs: Pairs) -> list[tuple[str, float, FloatArray, IntArray]]:
    everyone = np.arange(pairs.n_individuals)
    atoms = [(code, float(pairs.mass[k]), pairs.mass_without[:, k], everyone) for k, code in enumerate(pairs.names)]
    atoms += [
        (own_pairs.names[-1], float(own_pairs.mass[-1]), own_pairs.mass_without[:, -1], np.array([r]))
        for r, own_pairs in pairs.own
    ]
    return [(OUTCOMES[code], mass, without, rows) for code, mass, without, rows in atoms]


def _suspects(pairs: JointPairs, number: int) -> list[int]:
    """Individuals without whom the covariance, in white coordinates, is next to singular.

    From the sums with everyone, updated with what each individual changes: O(entries). The eigenvectors are the
    generalised ones of the covariance without the individual against that with everyone.
    """
    points = pairs.coordinates[number]
    in_space = pairs.places == number
    if not points.shape[1] or np.count_nonzero(in_space) < LEAST_POINTS:
        return []
    centre = points[in_space].mean(axis=0)
    x = np.where(in_space[:, None], points - centre, 0.0)
    before = pairs.places.reshape(-1, pairs.draws)[pairs.entry_database] == number
    y = np.where((pairs.entry_places == number)[..., None], pairs.entry_coordinates[number] - centre, 0.0)
    old = x.reshape(-1, pairs.draws, x.shape[1])[pairs.entry_database]
    owner = np.repeat(np.arange(pairs.n_individuals), np.diff(pairs.starts))
    count = np.count_nonzero(in_space) + np.bincount(
        owner,
        weights=np.count_nonzero(pairs.entry_places == number, axis=1) - np.count_nonzero(before, axis=1),
        minlength=pairs.n_individuals,
    )
    rank = x.shape[1]
    total = np.empty((pairs.n_individuals, rank))
    squares = np.empty((pairs.n_individuals, rank, rank))
    for a in range(rank):
        change = (y[..., a] - old[..., a]).sum(axis=1)
        total[:, a] = x[:, a].sum() + np.bincount(owner, weights=change, minlength=pairs.n_individuals)
        for b in range(a, rank):
            change = (y[..., a] * y[..., b] - old[..., a] * old[..., b]).sum(axis=1)
            sums = (x[:, a] * x[:, b]).sum() + np.bincount(owner, weights=change, minlength=pairs.n_individuals)
            squares[:, a, b] = squares[:, b, a] = sums
    enough = count >= max(LEAST_POINTS, 2 * rank + 1)
    size = np.maximum(count, 1.0)[:, None, None]
    covariance = squares / size - total[:, :, None] * total[:, None, :] / size**2
    values = np.linalg.eigvalsh(covariance)
    close = values[:, 0] <= 1e-9 * np.maximum(values[:, -1], squares.max(axis=(1, 2)) / size[:, 0, 0])
    return [int(row) for row in np.flatnonzero(enough & close)]


def _off_plane(pairs: JointPairs, number: int, row: int) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    """Which results with everyone are off the plane, and the directions in which the plane has no extent."""
    points = pairs.coordinates[number]
    leave, _, _, new = pairs.changes(row, number)
    in_space = pairs.places == number
    kept = in_space.copy()
    kept[leave] = False
    without = np.concatenate((points[kept], new))
    none = np.zeros(pairs.size, bool)
    if len(without) < max(LEAST_POINTS, 2 * points.shape[1] + 1):
        return none, np.zeros((points.shape[1], 0))
    centre = without.mean(axis=0)
    turned = np.linalg.svd((without - centre).T, full_matrices=False)[0]
    spread = float(points[in_space].std(axis=0).max())
    flat = turned[:, np.abs((without - centre) @ turned).max(axis=0) <= CONSTANT * spread]
    if not flat.shape[1]:
        return none, flat
    return in_space & (np.abs((points - centre) @ flat).max(axis=1) > CONSTANT * spread), flat
