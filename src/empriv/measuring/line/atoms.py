"""Atoms: point masses, which no smoothing may blur.

There are two kinds. Outcomes that are not numbers (NULL, NaN, an infinity, an error) are always atoms. Where the
density is left to a rule, three more are looked for, because any bandwidth would be made up there:

- a value that holds more than half of the results, with everyone or without an individual (constants above all);
- results off the lattice on which all results with everyone lie (an integer sum that stops being one);
- results that are round (to 1e-6) without an individual, and not with them.

`split` takes them out of the points that a density is fitted to; the rest is `Pairs`.

`spread_ratios` finds people without whom the results spread less: one bandwidth h, fitted with everyone, smears their
narrower law. They are measured with h·r, where r is the ratio of the spreads without and with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.selection import spread, spreads
from empriv.results import FloatArray, IntArray, Outcome, Results

Codes = npt.NDArray[np.int8]

_LARGEST = 1e150
_ROUND = 1e6  # results are called round when they are multiples of 1e-6
_SMALL = 1000  # denominators of averages of few people, and of what is written with three decimals
_LEAST_SHOWN = 5  # distinct values that must show a lattice, or that results are round


@dataclass(frozen=True, eq=False)
class Pairs:
    """Points with everyone and without each individual, atoms apart.

    A point at an atom is +inf: it keeps its place, and has no part in the density. Points are database-major:
    draw d of database j is point j·draws + d.

    Attributes
    ----------
    points : (N,) results with everyone
    draws : points for each database
    starts, entry_database : as in `Results`
    entries : (n_entries, draws) results without the individual
    names : the code of each atom; `outcome_name` puts it in words
    mass, mass_without : (atoms,), (n_individuals, atoms)
        Share of the N points at each atom, with everyone and without each individual.
    own : individuals who have an atom of their own, each with their own pairs
    people : how many individuals there are in all, these or more
    digit_steps : individuals whose results differ in their last digits, each with the step at which they do most
        (`last_digits`)
    ratios : how much less the results spread without each individual, 1 for most (`spreads`); None for 1 throughout
    """

    points: FloatArray
    draws: int
    starts: IntArray
    entry_database: npt.NDArray[np.int32]
    entries: FloatArray
    names: tuple[str, ...]
    mass: FloatArray
    mass_without: FloatArray
    own: tuple[tuple[int, Pairs], ...] = ()
    people: int = 1
    digit_steps: tuple[tuple[int, float], ...] = ()
    ratios: FloatArray | None = None

    @property
    def n_individuals(self) -> int:
        return len(self.starts) - 1

    @property
    def outcomes(self) -> list[Atom]:
        """The atoms of everybody, then those of single individuals."""
        everyone = np.arange(self.n_individuals)
        parts = [(self, column, everyone) for column in range(len(self.names))]
        parts += [(own, -1, np.array([row])) for row, own in self.own]
        return [
            Atom(pairs.names[column], float(pairs.mass[column]), pairs.mass_without[:, column], rows)
            for pairs, column, rows in parts
        ]

    def centred(self) -> Pairs:
        """The same about zero: far from it, places between the points would be coarser than the points' distances."""
        finite = self.points[np.isfinite(self.points)]
        if not len(finite):
            return self
        centre = float(np.sort(finite)[len(finite) // 2])  # one of the points: differences from it are exact nearby
        own = tuple((row, pairs.centred()) for row, pairs in self.own)
        return replace(self, points=self.points - centre, entries=self.entries - centre, own=own)

    def everywhere(self) -> FloatArray | None:
        """(n_individuals, N) points without each individual, if everyone is in every database: no copy is made."""
        n = len(self.points) // self.draws
        if len(self.entries) != n * self.n_individuals or np.any(np.diff(self.starts) != n):
            return None
        return self.entries.reshape(self.n_individuals, len(self.points))

    def entries_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """The entries of these individuals: the place among ``rows`` that each is of, and its position."""
        counts = self.starts[rows + 1] - self.starts[rows]
        row = np.repeat(np.arange(len(rows)), counts)
        return row, np.arange(counts.sum()) + np.repeat(self.starts[rows] - (np.cumsum(counts) - counts), counts)

    def dense(self, rows: IntArray) -> FloatArray:
        """(rows, N) points without each of these individuals."""
        n, m = len(self.points) // self.draws, self.draws
        everywhere = self.everywhere()
        if everywhere is not None:
            return np.asarray(everywhere[rows])
        out = np.repeat(self.points.reshape(1, n, m), len(rows), axis=0)
        row, entry = self.entries_of(rows)
        out[row, self.entry_database[entry]] = self.entries[entry]
        return out.reshape(len(rows), n * m)


@dataclass(frozen=True, eq=False)
class Atom:
    """A point mass: its code, its share of the results with everyone and without each of the individuals ``rows``."""

    code: str
    mass: float
    without: FloatArray
    rows: IntArray

    @property
    def certain(self) -> FloatArray:
        """(rows,) share of the results that are seen in one of the two worlds only: the atom, or all that is not it."""
        mass, without = self.mass, self.without
        share = np.maximum(np.where(without == 0, mass, 0.0), np.where(without == 1, 1.0 - mass, 0.0))
        share = np.maximum(share, np.where(mass == 0, without, np.where(mass == 1, 1.0 - without, 0.0)))
        return np.asarray(np.where(without == mass, 0.0, share))


def take_atoms_out(results: Results, *, look: bool) -> Pairs:
    """Take the atoms out; with ``look``, atoms of numbers too."""
    _check_scale(results)
    draws = results.draws or 1
    n_entries = len(results.entry_database)
    q, q_codes = results.q.reshape(-1), results.outcomes.reshape(-1).copy()
    entries, codes = results.entry_q.reshape(n_entries, draws), results.entry_outcomes.reshape(n_entries, draws)
    codes = codes.copy() if look else codes
    names = {int(code): code.name.lower() for code in Outcome if code}

    if look:
        _number_atoms(q, q_codes, entries, codes, names)
    pairs = _pairs(results.starts, results.entry_database, draws, q, q_codes, entries, codes, names)
    return replace(pairs, own=_own_atoms(pairs)) if look else pairs


def _check_scale(results: Results) -> None:
    """Refuse results on a scale where squares, or quotients by them, do not fit in doubles: figures would be wrong."""
    low = high = np.nan
    for values in (results.q, results.entry_q):  # fmin and fmax pass over NaN
        low, high = np.fmin.reduce(values, axis=None, initial=low), np.fmax.reduce(values, axis=None, initial=high)
        if 0 < high - low < 1 / _LARGEST or max(-low, high) > _LARGEST:
            raise InputError(
                f"Results must be at most {_LARGEST:g} and must not all lie within {1 / _LARGEST:g} of each other, "
                "unless they are equal: beyond that, their densities do not fit in doubles. "
                "Hint: multiply the query by a constant; that changes no figure."
            )


def tie_tolerance(values: FloatArray) -> float:
    """Numbers this close are the same number, computed in another order."""
    finite = np.abs(values[np.isfinite(values)])
    return float(4 * np.spacing(finite.max())) if len(finite) else 0.0


def share_at_most(count: npt.ArrayLike, n: int, level: float) -> FloatArray:
    """Clopper and Pearson: the largest mass, at the level, of what was seen so many times in n."""
    from scipy.special import betaincinv  # heavy, and seldom needed

    seen = np.asarray(count)
    return np.asarray(np.where(seen < n, betaincinv(seen + 1, np.maximum(n - seen, 1), level), 1.0))


def lattice(values: FloatArray) -> tuple[float, float] | None:
    """(offset, step) of the lattice that all values lie on, or None.

    By Euclid's algorithm on the differences. A step must be at least 10^6 roundings wide, so that lying on it is
    no accident, and five distinct values must show it: with two, any step fits.
    """
    distinct = np.unique(values)
    # sums of cents that are equal may differ in their last bits
    distinct = distinct[np.diff(distinct, prepend=-np.inf) > tie_tolerance(distinct)]
    if len(distinct) < _LEAST_SHOWN:
        return None
    resolution = float(np.spacing(np.abs(distinct).max()))
    step, offset = 0.0, float(distinct[0])
    for value, difference in zip(distinct[1:].tolist(), np.diff(distinct).tolist(), strict=True):
        a, b = (step, difference % step) if step else (difference, 0.0)
        b = min(b, a - b)  # a remainder just below a is a rounding of zero
        while b > 1e-4 * a and a >= 1e6 * resolution:
            a, b = b, a % b
            b = min(b, a - b)
        if a < 1e6 * resolution:
            return None
        # The step carries the rounding of the smallest difference: refine it over the range so far.
        step = (value - offset) / max(1, round((value - offset) / a))
    return (offset, step) if np.all(on_lattice(distinct, offset, step)) else None


def _settled(values: FloatArray, step: float) -> bool:
    """Whether further databases would hardly make the step finer: either half of these shows it already.

    Shares and averages of few people keep to 1/lcm of the counts that came up: a count that did not is no leak, so
    fractions of small denominators that have a large one together are not settled, whatever the halves show.
    """
    parts = [Fraction(value).limit_denominator(_SMALL) for value in values.tolist()]
    fractions = np.all(np.abs(np.array([float(part) for part in parts]) - values) <= tie_tolerance(values))
    if fractions and math.lcm(*(part.denominator for part in parts)) > _SMALL:
        return False
    halves = [lattice(half) for half in (values[::2], values[1::2])]
    return all(half is not None and abs(half[1] - step) <= 1e-4 * step for half in halves)


def on_lattice(values: FloatArray, offset: float, step: float) -> npt.NDArray[np.bool_]:
    """Which values lie on the lattice, to a ten-thousandth of its step."""
    turns = (values - offset) / step
    return np.asarray(np.abs(turns - np.round(turns)) <= 1e-4)


def _number_atoms(q: FloatArray, q_codes: Codes, entries: FloatArray, codes: Codes, names: dict[int, str]) -> None:
    """Mark values that are atoms in ``q_codes`` and ``codes``, naming them in ``names``."""
    tolerance = tie_tolerance(q)

    def mark(value: float, name: str) -> None:
        code = len(names) + 1
        names[code] = name
        q_codes[(q_codes == 0) & (np.abs(q - value) <= tolerance)] = code
        codes[(codes == 0) & (np.abs(entries - value) <= tolerance)] = code

    common = _majority(q[q_codes == 0], len(q))
    if common is not None:
        mark(common, "common")
    left = q[q_codes == 0]
    if len(left) and np.ptp(left) <= tolerance:
        mark(float(left[0]), "only_other")
        left = left[:0]
    if not len(left):  # no density can be fitted: all that is not an atom yet is somewhere else
        code = len(names) + 1
        names[code] = "unseen"
        codes[codes == 0] = code
        return
    grid = lattice(left)
    if grid is not None and _settled(left, grid[1]):
        off = (codes == 0) & ~on_lattice(entries, *grid)
        if off.any():
            code = len(names) + 1
            names[code] = "off_lattice"
            codes[off] = code


def _majority(values: FloatArray, total: int) -> float | None:
    """The value that holds more than half of ``total`` points, if one does."""
    if 2 * len(values) <= total:
        return None
    ordered = np.sort(values)
    middle = float(ordered[(len(ordered) - 1) // 2])
    share = np.count_nonzero(np.abs(values - middle) <= tie_tolerance(values))
    return middle if 2 * share > total else None


def _pairs(
    starts: IntArray,
    entry_database: npt.NDArray[np.int32],
    draws: int,
    q: FloatArray,
    q_codes: Codes,
    entries: FloatArray,
    codes: Codes,
    names: dict[int, str],
) -> Pairs:
    n_individuals, total = len(starts) - 1, len(q)
    any_atoms = q_codes.any() or codes.any()
    atoms = [code for code in names if np.any(q_codes == code) or np.any(codes == code)] if any_atoms else []
    mass = np.array([np.count_nonzero(q_codes == code) for code in atoms], float)
    mass_without = np.zeros((n_individuals, len(atoms)))
    if atoms:
        owner = np.repeat(np.arange(n_individuals), np.diff(starts))
        before = q_codes.reshape(-1, draws)[entry_database]
        for column, code in enumerate(atoms):
            change = np.count_nonzero(codes == code, axis=1) - np.count_nonzero(before == code, axis=1)
            mass_without[:, column] = mass[column] + np.bincount(owner, weights=change, minlength=n_individuals)
        q, entries = np.where(q_codes == 0, q, np.inf), np.where(codes == 0, entries, np.inf)
    return Pairs(
        points=q,
        draws=draws,
        starts=starts,
        entry_database=entry_database,
        entries=entries,
        names=tuple(names[code] for code in atoms),
        mass=mass / total,
        mass_without=mass_without / total,
    )


def _own_atoms(pairs: Pairs) -> tuple[tuple[int, Pairs], ...]:
    """Individuals whose absence gives the results an atom, or makes them round, each with their own pairs."""
    own_atoms = []
    total = len(pairs.points)
    smooth = pairs.points[np.isfinite(pairs.points)]
    if not len(smooth):
        return ()
    most_tied = int(np.unique(smooth, return_counts=True)[1].max())
    presence = np.diff(pairs.starts) * pairs.draws
    candidates = np.flatnonzero(2 * (presence + most_tied) > total)
    look_for_round = not is_round(smooth).all() and np.abs(smooth).max() < 1e15 / _ROUND / 1e4
    everywhere = pairs.everywhere() if len(candidates) == pairs.n_individuals else None
    for start in range(0, len(candidates), 4096):
        rows = candidates[start : start + 4096]
        points = pairs.dense(rows) if everywhere is None else everywhere[start : start + 4096]
        # A value with more than half of the places on a circle stands next to itself somewhere.
        suspects = np.any(points[:, 1:] == points[:, :-1], axis=1) | (points[:, 0] == points[:, -1])
        if look_for_round:
            suspects |= is_round(points[:, 0])
        for row in rows[suspects]:
            row_pairs = _own_pairs(pairs, int(row), look_for_round)
            if row_pairs is not None:
                own_atoms.append((int(row), row_pairs))
    return tuple(own_atoms)


def is_round(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Which values are multiples of 1e-6; an atom (+inf) is not."""
    scaled = np.where(np.isfinite(values), values, 0.5 / _ROUND) * _ROUND
    return np.asarray(np.abs(scaled - np.round(scaled)) <= 1e-4)


def _all_round(values: FloatArray) -> bool:
    """Whether all values are round, and enough of them differ for that to be no accident: three averages may be."""
    return len(np.unique(values)) >= _LEAST_SHOWN and bool(is_round(values).all())


def _own_pairs(pairs: Pairs, row: int, look_for_round: bool) -> Pairs | None:
    """This individual's pairs with their own atom taken out, if they have one."""
    q, without = pairs.points, pairs.dense(np.array([row]))[0]
    finite_q, finite_without = np.isfinite(q), np.isfinite(without)
    value = _majority(without[finite_without], len(q))
    if value is not None:
        name = "constant_without"
        at_q, at_without = (
            finite & (np.abs(x - value) <= tie_tolerance(without))
            for finite, x in ((finite_q, q), (finite_without, without))
        )
    elif look_for_round and _all_round(without[finite_without]):
        name = "round_without"
        at_q, at_without = finite_q & ~is_round(q), np.zeros(len(q), bool)
    else:
        return None
    n = len(q) // pairs.draws
    return Pairs(
        points=np.where(at_q, np.inf, q),
        draws=pairs.draws,
        starts=np.array([0, n]),
        entry_database=np.arange(n, dtype=np.int32),
        entries=np.where(at_without, np.inf, without).reshape(n, pairs.draws),
        names=(*pairs.names, name),
        mass=np.append(pairs.mass, at_q.mean()),
        mass_without=np.append(pairs.mass_without[row], at_without.mean())[None, :],
    )


NARROW = 0.9  # ratios from here on are called 1
_VALUES = 2_000_000  # held at once


def spread_ratios(pairs: Pairs) -> FloatArray | None:
    """(individuals,) spread of the results without each over that with everyone, 1 unless below `NARROW`; None: ones.

    Spread is min(sd, IQR/1.349), as bandwidths have it. A person who changes no result by more than D moves an sd by D
    at most, and the distance of the quartiles by 2D.
    """
    with_all = spread(pairs.points[np.isfinite(pairs.points)])
    if not with_all > 0:
        return None
    least = 0.5 * 1.349 * (1 - NARROW) * with_all
    with np.errstate(invalid="ignore"):
        change = np.abs(pairs.entries - np.take(pairs.points.reshape(-1, pairs.draws), pairs.entry_database, axis=0))
    far = np.concatenate(([0], np.cumsum(np.any(change > least, axis=1))))
    rows = np.flatnonzero(far[pairs.starts[1:]] > far[pairs.starts[:-1]])
    if not len(rows):
        return None
    out = np.ones(pairs.n_individuals)
    step = max(1, _VALUES // len(pairs.points))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        out[some] = spreads(pairs.dense(some)) / with_all
    # nothing is left to be narrow where all results without a person are the same: these are atoms
    narrow = (out > 0) & (out < NARROW)
    return np.where(narrow, out, 1.0) if narrow.any() else None
