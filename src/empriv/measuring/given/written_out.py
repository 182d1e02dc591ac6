"""Individuals written out for comparisons under weights: their points on both sides, and their atoms told apart.

`atoms.Pairs` holds the share of databases at each atom; under weights one must know which databases these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.results import FloatArray, IntArray, Results


@dataclass(frozen=True, eq=False)
class WrittenOut:
    """Some individuals: points with everyone and without them, and at which atom each point is (0 for none)."""

    individuals: IntArray
    points: FloatArray  # (rows, N)
    without: FloatArray
    codes: npt.NDArray[np.int8]
    codes_without: npt.NDArray[np.int8]

    @cached_property
    def distance(self) -> FloatArray:
        """(rows, N) how far each point moves; inf to or from an atom, 0 for one that stays at its atom."""
        with np.errstate(invalid="ignore"):
            moved = np.abs(self.without - self.points)
        moved = np.where(np.isnan(moved), 0.0, moved)
        return np.where(self.codes == self.codes_without, moved, np.inf)


def rows_of(results: Results, pairs: Pairs, rows: IntArray) -> WrittenOut:
    """Individuals written out, their atoms told apart.

    `Pairs` says which points are at an atom. Which one: the outcome, if it is no number; the number, if results
    with everyone are there too; otherwise "elsewhere", which only results without the individual are.
    """
    n_points, n_entries = len(pairs.points), len(pairs.entry_database)
    raw, outcomes = results.q.reshape(-1), results.outcomes.reshape(-1)
    at_atom = ~np.isfinite(pairs.points)
    values = raw[at_atom & (outcomes == 0)]
    tolerance = tie_tolerance(raw)
    distinct = np.unique(values)
    distinct = distinct[np.concatenate(([True], np.diff(distinct) > tolerance))] if len(distinct) else distinct
    elsewhere = 100  # outcomes are 1 to 5, numbers from 10 on, an individual's own atom 101

    def codes(raw: FloatArray, outcomes: npt.NDArray[np.int8], at_atom: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
        out = np.where(at_atom, np.where(outcomes == 0, elsewhere, outcomes), 0).astype(np.int8)
        for place, value in enumerate(distinct[:80]):
            with np.errstate(invalid="ignore"):
                out[at_atom & (outcomes == 0) & (np.abs(raw - value) <= tolerance)] = 10 + place
        return out

    base = codes(raw, outcomes, at_atom)
    entry_codes = codes(
        results.entry_q.reshape(n_entries, pairs.draws),
        results.entry_outcomes.reshape(n_entries, pairs.draws),
        ~np.isfinite(pairs.entries),
    )
    holder = Pairs(
        points=base.astype(float), draws=pairs.draws, starts=pairs.starts, entry_database=pairs.entry_database,
        entries=entry_codes.astype(float), names=(), mass=np.zeros(0), mass_without=np.zeros((0, 0)),
    )  # fmt: skip
    points, without = np.broadcast_to(pairs.points, (len(rows), n_points)).copy(), pairs.dense(rows)
    codes_with = np.broadcast_to(base, (len(rows), n_points)).copy()
    codes_without = holder.dense(rows).astype(np.int8)
    own = dict(pairs.own)
    for place, row in enumerate(rows.tolist()):
        if row in own:
            mine = own[row]
            moved = mine.points, mine.dense(np.array([0]))[0]
            for values, code, new in ((points, codes_with, moved[0]), (without, codes_without, moved[1])):
                code[place][np.isfinite(values[place]) & ~np.isfinite(new)] = 101
                values[place] = new
    return WrittenOut(rows, points, without, codes_with, codes_without)
