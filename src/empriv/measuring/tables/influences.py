"""What individuals change in a table: which cells, by how much, and whether the rest of the table allows it.

`Influences` are of the kept cells, for measures. Most people touch few cells, so only what is not 0 is kept. Where a
person changes what kind of outcome a cell is (a number becomes NULL), or moves a cell that is a number too seldom to be
regressed on, it `turns` the cell: no difference is taken there, and bounds count the database as telling for certain.

`PersonDays` are what people did on each day that they were in, for the cover: on a published day everybody's influence
is known exactly. A day is *certain* where a person changes whether a cell has an answer at all, or, without noise,
breaks what else determines a cell: no law hides that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.atoms import tie_tolerance
from empriv.measuring.tables.fit import CONSTANT, BoolArray, TableFit, zero_filled
from empriv.results import FloatArray, IntArray, Results

_VALUES = 4_000_000  # held at once


@dataclass(frozen=True, eq=False, repr=False)
class Influences:
    """What is not 0, of `n_entries` times `draws` rows.

    Attributes
    ----------
    results : whose entries these are
    rows, places, values : (k,) the row (entry times draws, plus draw), the place among the kept cells, and the change
    changing, begins : (c,) entries that change or turn each cell, cell after cell, and (cells + 1,) where each begins
    turns : (t, 2) pairs of an entry and a cell that it turns
    broken : (b, 2) pairs of an entry and a cell whose relation to the kept cells does not hold without the individual
    sizes : (entries,) the largest D'K D of the draws
    as_sums : (entries,) the largest ``D'S^-1 D`` of the draws, of the parts of `Margins`: cells without an answer are 0
    """

    results: Results
    rows: IntArray
    places: npt.NDArray[np.int32]
    values: FloatArray
    changing: npt.NDArray[np.int32]
    begins: IntArray
    turns: IntArray
    broken: IntArray
    sizes: FloatArray
    as_sums: FloatArray

    @property
    def draws(self) -> int:
        return self.results.draws or 1

    @cached_property
    def owner(self) -> IntArray:
        """(entries,) the individual of each entry."""
        return np.repeat(np.arange(self.results.n_individuals, dtype=np.int64), self.results.presence)

    @cached_property
    def total_sizes(self) -> FloatArray:
        """(individuals,) the sum of `sizes` of each."""
        return np.asarray(np.bincount(self.owner, self.sizes, minlength=self.results.n_individuals), float)

    @cached_property
    def touched(self) -> IntArray:
        """(j, 2) pairs of an individual and a cell that they change or turn, sorted."""
        cells = np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))
        pairs = np.unique(self.owner[self.changing] * len(self.begins) + cells)
        return np.stack(np.divmod(pairs, len(self.begins)), axis=1)

    @cached_property
    def starts(self) -> IntArray:
        """(individuals + 1,) where the values of each individual begin."""
        return np.searchsorted(self.rows, self.results.starts * self.draws)

    @cached_property
    def kept_touched(self) -> tuple[IntArray, IntArray]:
        """Places among the kept cells that each individual changes, one after the other, and where each begins."""
        width = int(self.places.max(initial=0)) + 1
        pairs = np.unique(self.owner[self.rows // self.draws] * width + self.places)
        begins = np.searchsorted(pairs // width, np.arange(self.results.n_individuals + 1))
        return np.asarray(pairs % width), begins

    def of(self, row: int) -> tuple[IntArray, IntArray, FloatArray]:
        """What one individual changes: databases (m,), places (t,), changes (m, draws, t), 0 where a cell is turned."""
        entries = slice(int(self.results.starts[row]), int(self.results.starts[row + 1]))
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        touched, begins = self.kept_touched
        places = touched[begins[row] : begins[row + 1]]
        column = np.searchsorted(places, self.places[part])
        changes = np.zeros((entries.stop - entries.start, self.draws, len(places)))
        at, draw = np.divmod(self.rows[part] - entries.start * self.draws, self.draws)
        changes[at, draw, column] = self.values[part]
        databases = self.results.entry_database[entries].astype(np.int64)
        return databases, places, changes


def influences_on(results: Results, fit: TableFit) -> Influences:
    """Take differences, and hold them against the relations of the cells."""
    d, draws, n_entries = len(fit.cells), results.draws or 1, len(results.entry_database)
    tolerance, margins = _tolerances(results), fit.margins
    least = np.where(fit.carried, np.inf, 0.0)  # cells that are seldom a number are turned by any change
    allowed = np.maximum(CONSTANT * fit.spreads, 8 * d * tolerance.max(initial=0.0))
    others = np.setdiff1d(np.flatnonzero(fit.carried), np.concatenate((fit.kept, margins.cells)))
    adding = (margins.weights != 0).T.astype(float)
    freedom = len(fit.residuals) - fit.basis.shape[1] - len(fit.kept)
    always = bool((results.outcomes == 0).all() and (results.entry_outcomes == 0).all())
    same = always and not fit.ridge and freedom > 0 and np.array_equal(margins.parts, fit.kept)  # K is freedom / S
    values: list[tuple[IntArray, IntArray, FloatArray]] = []
    changing: list[tuple[IntArray, IntArray]] = []
    turns, broken = [], []
    sizes, as_sums = np.zeros(n_entries), np.zeros(n_entries)
    for start, rows, before, after, before_codes, after_codes, change in _differences(results):
        change[np.abs(change) <= tolerance] = 0.0
        turning = ((before_codes != after_codes) | (np.abs(change) > least)).any(axis=1)
        entry, cell = np.nonzero(turning | (change != 0).any(axis=1))
        changing.append((start + entry, cell))
        inner = np.ascontiguousarray(change[..., fit.kept])
        sizes[rows] = fit.sizes(inner).max(axis=1) if len(fit.kept) else 0.0
        summed = change if always else zero_filled(before, before_codes) - zero_filled(after, after_codes)
        of_parts = inner
        if same:
            as_sums[rows] = sizes[rows] / freedom
        else:
            of_parts = np.ascontiguousarray(summed[..., margins.parts])
            as_sums[rows] = ((of_parts @ margins.root) ** 2).sum(axis=-1).max(axis=1)
        if len(margins.cells):
            excess = np.abs(summed[..., margins.cells] - of_parts @ margins.weights.T)
            off = (excess > allowed[margins.cells]).any(axis=1)
            entry, place = np.nonzero(off & fit.carried[margins.cells])
            broken.append(np.stack((start + entry, margins.cells[place]), axis=1))
            # a margin that goes with the last of its parts is no further outcome
            present = after_codes == 0
            with_parts = (present[..., margins.parts] @ adding > 0) == present[..., margins.cells]
            turning[:, margins.cells] &= off | ~(margins.follows & with_parts.all(axis=1))
        turns.append(np.argwhere(turning) + np.array([start, 0]))
        if len(others) and not fit.saturated:
            implied = inner @ fit.relations[others].T
            whole = ~turning.any(axis=1, keepdims=True)
            off = (np.abs(change[..., others] - implied) > allowed[others]).any(axis=1) & whole
            entry, place = np.nonzero(off)
            broken.append(np.stack((start + entry, others[place]), axis=1))
        entry, draw, place = np.nonzero(inner)
        values.append(((start + entry) * draws + draw, place, inner[entry, draw, place]))
    rows_at, places, moved = (_joined([part[k] for part in values]) for k in range(3))
    entries, cells = (_joined([part[k] for part in changing]) for k in range(2))
    by_cell = np.argsort(cells.astype(np.int32), kind="stable")
    return Influences(
        results=results,
        rows=rows_at.astype(np.int64),
        places=places.astype(np.int32),
        values=moved.astype(np.float64),
        changing=entries[by_cell].astype(np.int32),
        begins=np.searchsorted(cells[by_cell], np.arange(d + 1)),
        turns=_joined(turns).reshape(-1, 2).astype(np.int64),
        broken=_joined(broken).reshape(-1, 2).astype(np.int64),
        sizes=sizes,
        as_sums=as_sums,
    )


class _Differences(NamedTuple):
    """Some entries: cells (rows, draws, cells) with everyone and without the individual, and by how much they differ
    where both are numbers."""

    start: int
    rows: slice
    before: FloatArray
    after: FloatArray
    before_codes: npt.NDArray[np.int8]
    after_codes: npt.NDArray[np.int8]
    change: FloatArray


def _differences(results: Results) -> Iterator[_Differences]:
    """All entries, some at a time."""
    d, draws = results.q.shape[-1], results.draws or 1
    shape = (-1, draws, d)
    step = max(1, _VALUES // (d * draws))
    for start in range(0, len(results.entry_database), step):
        rows = slice(start, start + step)
        at = results.entry_database[rows]
        before, before_codes = results.q.reshape(shape)[at], results.outcomes.reshape(shape)[at]
        after, after_codes = results.entry_q.reshape(shape)[rows], results.entry_outcomes.reshape(shape)[rows]
        with np.errstate(invalid="ignore"):
            change = np.where((before_codes == 0) & (after_codes == 0), before - after, 0.0)
        yield _Differences(start, rows, before, after, before_codes, after_codes, change)


def _tolerances(results: Results) -> FloatArray:
    """(cells,) changes that are no more are rounding."""
    q = results.q.reshape(results.n_databases, -1, results.q.shape[-1])
    return np.array([tie_tolerance(q[..., cell]) for cell in range(q.shape[-1])])


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0)


# Day by day


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
    def of_one_cell(self) -> tuple[IntArray, IntArray, FloatArray]:
        """(k,) days on which one cell moved, but for certain ones, its cell and by how much it moved."""
        days = np.flatnonzero((self.touched == 1) & ~self.certain)
        at = self.starts[:-1][days]
        return days, self.cells[at], np.abs(self.moves[at])

    @cached_property
    def of_several_cells(self) -> DaysOfSeveralCells:
        """Days on which more cells moved, but for certain ones."""
        days, kinds, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        groups: list[tuple[IntArray, FloatArray]] = []
        for m in np.unique(self.touched[~self.certain]).tolist():
            if m < 2:
                continue
            days.append(np.flatnonzero((self.touched == m) & ~self.certain))
            at = self.starts[days[-1]][:, None] + np.arange(m)
            both = np.concatenate((self.cells[at].astype(float), self.moves[at]), axis=1)
            alike, kind = np.unique(both, axis=0, return_inverse=True)
            kinds.append(count + kind.reshape(-1))
            groups.append((alike[:, :m].astype(np.int64), alike[:, m:]))
            count += len(alike)
        return DaysOfSeveralCells(np.concatenate(days), np.concatenate(kinds), groups)


@dataclass(frozen=True, eq=False, repr=False)
class DaysOfSeveralCells:
    """Days on which a person moved several cells; alike ones are one kind.

    Attributes
    ----------
    day, kind : (days,) which of all person-days, and the kind of each
    groups : cells and moves (kinds, m) of the kinds of m cells, for each m
    """

    day: IntArray
    kind: IntArray
    groups: list[tuple[IntArray, FloatArray]]

    @cached_property
    def cells(self) -> list[IntArray]:
        """(m,) of each kind."""
        return [row for cells, _ in self.groups for row in cells]

    @cached_property
    def moves(self) -> list[FloatArray]:
        """(m,) of each kind."""
        return [row for _, moves in self.groups for row in moves]


def days_as_they_are(influences: Influences, fit: TableFit, given_away: BoolArray) -> PersonDays:
    """Without noise: the cells that the others do not determine carry all; who breaks a relation is given away, and
    ``given_away`` (individuals,) says for whom all days are so."""
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
    changes = np.zeros(len(certain), bool)
    changes[day] = True
    certain |= given_away[influences.owner] & changes
    starts = np.searchsorted(day, np.arange(len(certain) + 1))
    return PersonDays(results, fit.kept[keys % width], moves, starts, certain)


def days_with_noise(results: Results) -> PersonDays:
    """With noise on each cell: every cell that moved, margins too; only whether there is an answer stays certain."""
    tolerance = _tolerances(results)
    days, cells, moves = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    certain = np.zeros(len(results.entry_database), bool)
    for part in _differences(results):
        change = part.change.mean(axis=1)
        change[np.abs(change) <= tolerance] = 0.0
        certain[part.rows] = (part.before_codes != part.after_codes).any(axis=(1, 2))
        day, cell = np.nonzero(change)
        days.append(part.start + day)
        cells.append(cell)
        moves.append(change[day, cell])
    starts = np.searchsorted(np.concatenate(days), np.arange(len(certain) + 1))
    return PersonDays(results, np.concatenate(cells), np.concatenate(moves), starts, certain)
