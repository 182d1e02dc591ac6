"""`moves_of`: by how much everybody moved the answer of one number, on every database that they were in.

On a published day everybody's influence is known exactly, so that nothing is extrapolated from other days. Whoever
changes whether there is an answer at all (NULL, not a number, an infinity, an error) moved it beyond any measure on
that day, and on that day alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.results import FloatArray, IntArray, Results

BoolArray = npt.NDArray[np.bool_]

_HEAVIEST = 3  # people whose absence changes the results most
_NARROWER = 0.95  # times the spread: then the results without them are a law of their own


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
    def typical_unit(self) -> float:
        """What one unit of the law is in the answer's units, on a typical day that somebody moved the answer."""
        moved = (self.sizes > 0) & np.isfinite(self.sizes)
        units = self.units[moved] if moved.any() else self.units
        return float(np.median(units)) if len(units) else 1.0

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
        out, worst = np.zeros(len(self.starts) - 1), self.worst
        out[worst >= 0] = self.relative[worst[worst >= 0]]
        return out

    def beyond(self, cover: float) -> BoolArray:
        """(person-days,) which moves are larger than ``cover``, both in units of the law that hides them."""
        return np.asarray(self.relative > cover * (1 + 1e-9))


def moves_of(results: Results, units: FloatArray | None = None, *, shown: FloatArray | None = None) -> Moves:
    """Moves of everybody.

    Parameters
    ----------
    results : of one number
    units : (n,) what one unit of the law is on each database; 1 by default
    shown : (n_entries,) the moves in units of the law, where these are no multiple of the answer's, as of logarithms
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
    if shown is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where((shown > 0) & np.isfinite(sizes), sizes / shown, scale)
        scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    return Moves(sizes, scale, at.astype(np.int64), results.starts)


def as_it_is(moves: Moves, pairs: Pairs) -> Moves:
    """The same without noise: to move the answer to or from an outcome with a mass of its own is beyond any measure."""
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
    """(laws, N) of the results, and of the results without those people without whom they are narrower."""
    everyone = pairs.points[None, :]
    size = np.where(np.isfinite(moves.relative), moves.relative, 0.0) ** 2
    weight = np.bincount(moves.owner, size, minlength=len(moves.starts) - 1)
    rows = np.argsort(-weight, kind="stable")[:_HEAVIEST]
    rows = rows[weight[rows] > 0]
    if not len(rows):
        return everyone
    without = pairs.dense(rows)
    usual = spread_of_law(pairs.points)
    narrow = np.array([0 < spread_of_law(law) < _NARROWER * usual for law in without], bool)
    return np.concatenate((everyone, without[narrow]))


def spread_of_law(law: FloatArray) -> float:
    """Between the 16% and 84% quantiles of what is finite."""
    numbers = law[np.isfinite(law)]
    return float(np.subtract(*np.percentile(numbers, [84, 16]))) if len(numbers) else 0.0
