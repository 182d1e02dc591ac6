"""What individuals change in a table: which cells, by how much, and whether the rest of the table allows it.

Most people touch few cells, so only what is not 0 is kept. Where a person changes what kind of outcome a cell is (a
number becomes NULL), or moves a cell that is a number too seldom to be regressed on, it `turns` the cell: no
difference is taken there, and bounds count the database as telling for certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.atoms import tie_tolerance
from empriv.measuring.tables.fit import CONSTANT, TableFit, zero_filled
from empriv.results import FloatArray, IntArray, Results

_VALUES = 4_000_000  # held at once
BoolArray = npt.NDArray[np.bool_]


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
    """Take differences, block by block."""
    d, draws = len(fit.cells), results.draws or 1
    q, codes = results.q.reshape(-1, draws, d), results.outcomes.reshape(-1, draws, d)
    entry_q, entry_codes = results.entry_q.reshape(-1, draws, d), results.entry_outcomes.reshape(-1, draws, d)
    tolerance = np.array([tie_tolerance(q[..., cell]) for cell in range(d)])
    least = np.where(fit.carried, np.inf, 0.0)  # cells that are seldom a number are turned by any change
    margins = fit.margins
    allowed = np.maximum(CONSTANT * fit.spreads, 8 * d * tolerance.max(initial=0.0))
    others = np.setdiff1d(np.flatnonzero(fit.carried), np.concatenate((fit.kept, margins.cells)))
    adding = (margins.weights != 0).T.astype(float)
    freedom = len(fit.residuals) - fit.basis.shape[1] - len(fit.kept)
    always = bool((codes == 0).all() and (entry_codes == 0).all())
    same = always and not fit.ridge and freedom > 0 and np.array_equal(margins.parts, fit.kept)  # K is freedom / S
    parts: list[tuple[IntArray, IntArray, FloatArray]] = []
    changing: list[tuple[IntArray, IntArray]] = []
    turns_at, broken = [], []
    sizes, as_sums = np.zeros(len(entry_q)), np.zeros(len(entry_q))
    step = max(1, _VALUES // (d * draws))
    for start in range(0, len(entry_q), step):
        rows = slice(start, start + step)
        at = results.entry_database[rows]
        both = (codes[at] == 0) & (entry_codes[rows] == 0)
        with np.errstate(invalid="ignore"):
            change = q[at] - entry_q[rows]
        change[~both] = 0.0
        change[np.abs(change) <= tolerance] = 0.0
        other_kind = codes[at] != entry_codes[rows]
        turning = (other_kind | (np.abs(change) > least)).any(axis=1)
        entry, cell = np.nonzero(turning | (change != 0).any(axis=1))
        changing.append((start + entry, cell))
        inner = np.ascontiguousarray(change[..., fit.kept])
        sizes[rows] = fit.sizes(inner).max(axis=1) if len(fit.kept) else 0.0
        summed, of_parts = change, inner
        if not always:
            summed = zero_filled(q[at], codes[at]) - zero_filled(entry_q[rows], entry_codes[rows])
        if same:
            as_sums[rows] = sizes[rows] / freedom
        else:
            of_parts = np.ascontiguousarray(summed[..., margins.parts])
            as_sums[rows] = ((of_parts @ margins.root) ** 2).sum(axis=-1).max(axis=1)
        if len(margins.cells):
            beside = np.abs(summed[..., margins.cells] - of_parts @ margins.weights.T)
            off = (beside > allowed[margins.cells]).any(axis=1)
            entry, place = np.nonzero(off & fit.carried[margins.cells])
            broken.append(np.stack((start + entry, margins.cells[place]), axis=1))
            # a margin that goes with the last of its parts is no further outcome
            present = entry_codes[rows] == 0
            with_parts = (present[..., margins.parts] @ adding > 0) == present[..., margins.cells]
            turning[:, margins.cells] &= off | ~(margins.follows & with_parts.all(axis=1))
        turns_at.append(np.argwhere(turning) + np.array([start, 0]))
        if len(others) and not fit.saturated:
            implied = inner @ fit.relations[others].T
            whole = ~turning.any(axis=1, keepdims=True)
            off = (np.abs(change[..., others] - implied) > allowed[others]).any(axis=1) & whole
            entry, place = np.nonzero(off)
            broken.append(np.stack((start + entry, others[place]), axis=1))
        entry, draw, place = np.nonzero(inner)
        parts.append(((start + entry) * draws + draw, place, inner[entry, draw, place]))
    rows_at, places, values = (_joined([part[k] for part in parts]) for k in range(3))
    entries, cells = (_joined([part[k] for part in changing]) for k in range(2))
    by_cell = np.argsort(cells.astype(np.int32), kind="stable")
    return Influences(
        results=results,
        rows=rows_at.astype(np.int64),
        places=places.astype(np.int32),
        values=values.astype(np.float64),
        changing=entries[by_cell].astype(np.int32),
        begins=np.searchsorted(cells[by_cell], np.arange(d + 1)),
        turns=_joined(turns_at).reshape(-1, 2).astype(np.int64),
        broken=_joined(broken).reshape(-1, 2).astype(np.int64),
        sizes=sizes,
        as_sums=as_sums,
    )


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0)
