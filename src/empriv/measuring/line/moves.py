"""`moves_of`: by how much everybody moved the answer of one number, on every database that they were in.

On a published day everybody's influence is known exactly, so that nothing is extrapolated from other days. Whoever
changes whether there is an answer at all (NULL, not a number, an infinity, an error) moved it beyond any measure on
that day, and on that day alone.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.results import FloatArray, IntArray, Results

HEAVIEST = 3  # people whose absence changes the results most
_DIFFERENT = 200_000  # moves that are told apart when those of many people are added up


@dataclass(frozen=True, eq=False)
class Moves:
    """What each person did on each database that they were in: person-days, those of one person together.

    Attributes
    ----------
    sizes : (person-days,) by how much the answer moved, in its own units; inf where there is an answer on one side only
    units : (person-days,) what one unit of the law that hides it is on that database, in the answer's units; 1 where
        nothing is known that changes the spread
    database : (person-days,) position of the database
    starts : (people + 1,) where the person-days of each person begin
    """

    sizes: FloatArray
    units: FloatArray
    database: IntArray
    starts: IntArray

    @property
    def relative(self) -> FloatArray:
        """(person-days,) moves in units of the law that hides them."""
        return np.asarray(self.sizes / self.units)

    @property
    def owner(self) -> IntArray:
        """(person-days,) position of the person."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def worst(self) -> IntArray:
        """(people,) place of each person's largest move among the person-days, by `relative`; -1 for who has none."""
        out = np.full(len(self.starts) - 1, -1, np.int64)
        if len(self.sizes):
            owner = self.owner
            order = np.lexsort((-np.arange(len(owner)), self.relative, owner))  # the first of equals comes last
            here = np.flatnonzero(np.diff(self.starts) > 0)
            out[here] = order[self.starts[1:][here] - 1]
        return out

    @property
    def largest(self) -> FloatArray:
        """(people,) the largest of `relative`; 0 for who is in no database."""
        return self._most_of_each(self.relative)

    @property
    def largest_sizes(self) -> FloatArray:
        """(people,) the same in the answer's units."""
        return self._most_of_each(np.where(self.relative == self.largest[self.owner], self.sizes, 0.0))

    def _most_of_each(self, values: FloatArray) -> FloatArray:
        out, here = np.zeros(len(self.starts) - 1), np.flatnonzero(np.diff(self.starts) > 0)
        if len(here):
            out[here] = np.maximum.reduceat(values, self.starts[:-1][here])
        return out

    @property
    def weight(self) -> FloatArray:
        """(people,) how much the results change without each: the sum of squares of `relative`, where it is finite."""
        size = np.where(np.isfinite(self.relative), self.relative, 0.0) ** 2
        return np.asarray(np.bincount(self.owner, size, minlength=len(self.starts) - 1))

    def with_those_of(self, other: Moves) -> Moves:
        """Those of the same people on further databases too; their positions follow."""
        owner = np.concatenate((self.owner, other.owner))
        order = np.argsort(owner, kind="stable")
        return Moves(
            np.concatenate((self.sizes, other.sizes))[order],
            np.concatenate((self.units, other.units))[order],
            np.concatenate((self.database, other.database))[order],
            self.starts + other.starts,
        )

    def totals(self) -> MoveTotals:
        """What is asked of all of them together."""
        moved = (self.sizes > 0) & np.isfinite(self.sizes)
        each = (self.relative, self.largest, self.units, self.units[moved])
        counted = [CountedMoves(values, np.ones(len(values), np.int64)) for values in each]
        return MoveTotals(float(self.sizes.max(initial=0.0)), *counted)


@dataclass(frozen=True, eq=False)
class CountedMoves:
    """Numbers from 0 on, and how many there are of each."""

    values: FloatArray
    counts: IntArray

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    def above(self, limit: float) -> int:
        """How many are larger."""
        return int(self.counts[self.values > limit].sum())

    def median(self) -> float:
        """As of all of them one by one."""
        order = np.argsort(self.values, kind="stable")
        ends = np.cumsum(self.counts[order])
        middle = np.searchsorted(ends, [(self.n - 1) // 2, self.n // 2], side="right")
        return float(self.values[order][middle].mean())

    def with_those_of(self, other: CountedMoves) -> CountedMoves:
        """Both together."""
        values, counts = np.concatenate((self.values, other.values)), np.concatenate((self.counts, other.counts))
        return CountedMoves(values, counts).short()

    def short(self) -> CountedMoves:
        """The different ones; where these are too many, each is rounded up to as many bits as leave few enough.

        A number is rounded only if there are too many different ones in all: the order in which parts are joined is no
        matter.
        """
        order = np.argsort(self.values, kind="stable")
        # of numbers from 0 on, the bits read as an integer are in the same order
        ordered = np.ascontiguousarray(self.values[order]).view(np.int64)

        def rounded(bits: int) -> npt.NDArray[np.int64]:
            low = np.int64((1 << bits) - 1)
            return (ordered + low) & ~low

        bits = bisect_left(
            range(53), True, key=lambda bits: bool(np.count_nonzero(np.diff(rounded(bits))) < _DIFFERENT)
        )  # fmt: skip
        numbers = rounded(bits)
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        counts = np.add.reduceat(self.counts[order], firsts) if len(firsts) else np.zeros(0, np.int64)
        return CountedMoves(numbers[firsts].view(np.float64), counts)


@dataclass(frozen=True, eq=False)
class MoveTotals:
    """What is asked of the moves of many people together; those of some people and of others add up.

    Attributes
    ----------
    most : the most that anybody moved the answer, in its units
    relative : of person-days, in units of the law that hides them
    largest : the largest of each person's
    units, moved_units : of person-days, and of those on which a person moved the answer
    """

    most: float
    relative: CountedMoves
    largest: CountedMoves
    units: CountedMoves
    moved_units: CountedMoves

    @property
    def typical_unit(self) -> float:
        """What one unit of the law is in the answer's units, on a typical day that a person moved the answer."""
        units = self.moved_units if self.moved_units.n else self.units
        return units.median() if units.n else 1.0

    @property
    def varies(self) -> bool:
        """Whether the units differ from database to database."""
        return bool(self.units.n) and bool(np.ptp(self.units.values) > 1e-9 * self.typical_unit)

    def short(self) -> MoveTotals:
        """With numbers that are different alone."""
        return MoveTotals(self.most, *(getattr(self, name).short() for name in COUNTED))

    def with_those_of(self, other: MoveTotals) -> MoveTotals:
        """Of the people of both."""
        parts = [getattr(self, name).with_those_of(getattr(other, name)) for name in COUNTED]
        return MoveTotals(max(self.most, other.most), *parts)


COUNTED = ("relative", "largest", "units", "moved_units")


def moves_of(results: Results, units: FloatArray | None = None) -> Moves:
    """Moves of everybody.

    Parameters
    ----------
    results : of one number
    units : (n,) what one unit of the law is on each database; 1 by default
    """
    at = results.entry_database
    n_entries = len(at)
    before = results.q.reshape(results.n_databases, -1)[at]
    after = results.entry_q.reshape(n_entries, before.shape[1])
    codes = results.outcomes.reshape(results.n_databases, -1)[at]
    after_codes = results.entry_outcomes.reshape(n_entries, before.shape[1])
    both = (codes == 0) & (after_codes == 0)
    with np.errstate(invalid="ignore"):
        change = np.where(both, before - after, 0.0)
    count = np.maximum(np.count_nonzero(both, axis=1), 1)
    sizes = np.abs(change.sum(axis=1) / count)  # draws share their chance: their mean is what the person did
    sizes[sizes <= tie_tolerance(results.q)] = 0.0
    sizes[(codes != after_codes).any(axis=1)] = np.inf
    scale = np.ones(n_entries) if units is None else np.asarray(units)[at]
    return Moves(sizes, scale, at.astype(np.int64), results.starts)


def with_exact_leaks(moves: Moves, pairs: Pairs) -> Moves:
    """The same without noise: to move the answer to or from a point mass is beyond any measure."""
    sizes = moves.sizes.copy()
    if pairs.names:
        before = np.isfinite(pairs.points).reshape(-1, pairs.draws)[pairs.entry_database]
        apart = (before != np.isfinite(pairs.entries)).any(axis=1)
        # from one such outcome to another
        apart |= (~before & ~np.isfinite(pairs.entries)).any(axis=1) & (sizes > 0)
        sizes[apart] = np.inf
    for row, _ in pairs.own:
        own = slice(int(pairs.starts[row]), int(pairs.starts[row + 1]))
        sizes[own] = np.where(sizes[own] > 0, np.inf, sizes[own])
    return replace(moves, sizes=sizes)


def others_laws(pairs: Pairs, moves: Moves) -> FloatArray:
    """(laws, N) of the results, and of those without each of the people whose absence changes them most.

    Who moves them up and down fills gaps between the others' results and smooths their edges, also where the spread
    stays as it is."""
    everyone = pairs.points[None, :]
    weight = moves.weight
    rows = np.argsort(-weight, kind="stable")[:HEAVIEST]
    without = pairs.dense(rows[weight[rows] > 0])
    varied = np.array([spread_of_law(law) > 0 for law in without], bool)
    return np.concatenate((everyone, without[varied]))


def spread_of_law(law: FloatArray) -> float:
    """Between the 16% and 84% quantiles of what is finite."""
    numbers = law[np.isfinite(law)]
    return float(np.subtract(*np.percentile(numbers, [84, 16]))) if len(numbers) else 0.0
