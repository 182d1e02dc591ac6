"""What people did in a table on each day that they were in: which cells they moved, and by how much.

On a published day everybody's influence is known exactly. A day is *certain* where a person changes whether a cell has
an answer at all, or, without noise, breaks what else determines a cell: no law hides that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.atoms import tie_tolerance
from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.influences import Influences
from empriv.measuring.tables.leaks import Leak
from empriv.results import FloatArray, IntArray, Results

BoolArray = npt.NDArray[np.bool_]
_VALUES = 4_000_000  # held at once


@dataclass(frozen=True, eq=False, repr=False)
class PersonDays:
    """Person-days, those of one person together.

    Attributes
    ----------
    results : the table
    cells, moves : (k,) positions of cells and by how much they moved, mean over draws, day after day
    starts : (days + 1,) where the cells of each day begin
    certain : (days,) days on which no law hides what a person did
    """

    results: Results
    cells: IntArray
    moves: FloatArray
    starts: IntArray
    certain: BoolArray

    @property
    def count(self) -> int:
        """Person-days in all."""
        return len(self.certain)

    @property
    def database(self) -> IntArray:
        """(days,) position of the database."""
        return self.results.entry_database.astype(np.int64)

    @cached_property
    def owner(self) -> IntArray:
        """(days,) position of the person."""
        return np.repeat(np.arange(self.results.n_individuals), self.results.presence)

    @cached_property
    def touched(self) -> IntArray:
        """(days,) how many cells moved."""
        return np.diff(self.starts)

    @cached_property
    def day(self) -> IntArray:
        """(k,) the day of each cell."""
        return np.repeat(np.arange(self.count), self.touched)

    @cached_property
    def most(self) -> FloatArray:
        """(cells,) the most that anybody moved each cell."""
        out = np.zeros(self.results.q.shape[-1])
        np.maximum.at(out, self.cells, np.abs(self.moves))
        return out

    @cached_property
    def kinds(self) -> list[Kinds]:
        """Days that touch several cells, those of as many cells together; alike ones are one."""
        out = []
        for m in np.unique(self.touched[~self.certain]).tolist():
            if m < 2:
                continue
            days = np.flatnonzero((self.touched == m) & ~self.certain)
            at = self.starts[days][:, None] + np.arange(m)
            both = np.concatenate((self.cells[at].astype(float), self.moves[at]), axis=1)
            alike, kind = np.unique(both, axis=0, return_inverse=True)
            out.append(Kinds(days, kind.reshape(-1), alike[:, :m].astype(np.int64), alike[:, m:]))
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Kinds:
    """Days of m cells each.

    Attributes
    ----------
    days : (days,) which of all
    kind : (days,) the kind of each
    cells, moves : (kinds, m) of each kind
    """

    days: IntArray
    kind: IntArray
    cells: IntArray
    moves: FloatArray


def days_as_they_are(influences: Influences, fit: TableFit, leaks: tuple[Leak, ...]) -> PersonDays:
    """Without noise: the cells that the others do not determine carry all; who breaks a relation is given away."""
    results, draws = influences.results, influences.draws
    width = max(1, len(fit.kept))
    entry = influences.rows // draws
    keys, place = np.unique(entry * width + influences.places, return_inverse=True)
    moves = np.bincount(place, influences.values, minlength=len(keys)) / draws
    keys, moves = keys[moves != 0], moves[moves != 0]
    day = keys // width
    certain = np.zeros(len(results.entry_database), bool)
    certain[influences.turns[:, 0]] = True
    certain[influences.broken[:, 0]] = True
    given_away = np.zeros(results.n_individuals, bool)
    for leak in leaks:
        given_away[leak.rows] = True
    changes = np.zeros(len(certain), bool)
    changes[day] = True
    certain |= given_away[influences.owner] & changes
    starts = np.searchsorted(day, np.arange(len(certain) + 1))
    return PersonDays(results, fit.kept[keys % width], moves, starts, certain)


def days_with_noise(results: Results) -> PersonDays:
    """With noise on each cell: every cell that moved, margins too; only whether there is an answer stays certain."""
    d, draws = results.q.shape[-1], results.draws or 1
    q, codes = results.q.reshape(-1, draws, d), results.outcomes.reshape(-1, draws, d)
    entry_q = results.entry_q.reshape(-1, draws, d)
    entry_codes = results.entry_outcomes.reshape(-1, draws, d)
    tolerance = np.array([tie_tolerance(q[..., cell]) for cell in range(d)])
    days, cells, moves = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    certain = np.zeros(len(entry_q), bool)
    step = max(1, _VALUES // (d * draws))
    for start in range(0, len(entry_q), step):
        rows = slice(start, start + step)
        at = results.entry_database[rows]
        both = (codes[at] == 0) & (entry_codes[rows] == 0)
        with np.errstate(invalid="ignore"):
            change = np.where(both, q[at] - entry_q[rows], 0.0).mean(axis=1)
        change[np.abs(change) <= tolerance] = 0.0
        certain[rows] = (codes[at] != entry_codes[rows]).any(axis=(1, 2))
        day, cell = np.nonzero(change)
        days.append(start + day)
        cells.append(cell)
        moves.append(change[day, cell])
    starts = np.searchsorted(np.concatenate(days), np.arange(len(certain) + 1))
    return PersonDays(results, np.concatenate(cells), np.concatenate(moves), starts, certain)
