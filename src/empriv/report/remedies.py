"""What would protect the people of a cell: other cells to hide with it, or a neighbour to add it to.

Hiding one cell changes nothing where its total is published; which cells must go with it follows from how the table
adds up. Whether adding it to a neighbour helps is measured again, of the people of the two, in the table with the two
as one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.tables import measure_table
from empriv.measuring.tables.relations import Relations, relations_of
from empriv.results import Cell, FloatArray, IntArray, Outcome, Results

_MOST_NEIGHBOURS = 4
_MOST_PEOPLE = 40  # of two cells, those who change them most, that are measured again


@dataclass(frozen=True)
class Remedy:
    """What would protect the people of a cell; cells are given by position.

    Attributes
    ----------
    had_back : whether the cell, if hidden alone, follows from the others
    hide : further cells that must be hidden with it, so that none follows
    neighbour : the cell whose sum with this one tells least, None where sums mean nothing
    delta : of the most exposed of the people of both, if the two are published as one
    """

    had_back: bool
    hide: tuple[int, ...] = ()
    neighbour: int | None = None
    delta: float = 1.0


def remedies(results: Results, cells: Sequence[int], epsilon: float) -> dict[int, Remedy]:
    """Remedies of these cells."""
    try:
        relations = relations_of(results)
    except InputError:  # too few answers to see how cells add up
        return {}
    return {cell: _remedy(results, relations, cell, epsilon) for cell in cells}


def _remedy(results: Results, relations: Relations, cell: int, epsilon: float) -> Remedy:
    hidden = np.arange(len(results.components or ())) == cell
    had_back = bool(relations.recovered(hidden)[cell])
    further = relations.complement(hidden) if had_back else ()
    neighbours = _neighbours(results.cells or (), cell) if _counts(results) else []
    tried = [(_together(results, cell, other, epsilon), other) for other in neighbours]
    delta, neighbour = min(tried, default=(1.0, None))
    return Remedy(had_back, further, neighbour, delta)


def _counts(results: Results) -> bool:
    """Whether every cell is a count: then two of them are one by adding them up."""
    numbers = results.q[results.outcomes == Outcome.NUMBER]
    return bool(results.draws is None and (numbers >= 0).all() and (numbers == np.rint(numbers)).all())


def _neighbours(cells: Sequence[Cell], cell: int) -> list[int]:
    """Cells that differ in one key alone, the next and the one before; along columns of numbers, if there are any."""
    own = cells[cell] if cells else Cell("")
    near = []
    # ages and years have neighbours; wards stand beside each other by their names only
    columns = [column for column, value in own.keys if any(map(str.isdigit, value))] or [
        column for column, _ in own.keys
    ]
    for column in columns:
        others = dict(own.keys)
        others.pop(column)
        along = [
            c for c, other in enumerate(cells)
            if other.number == own.number and {k: v for k, v in other.keys if k != column} == others
            and column in dict(other.keys)
        ]  # fmt: skip
        place = along.index(cell)
        near += along[max(0, place - 1) : place] + along[place + 1 : place + 2]
    return near[:_MOST_NEIGHBOURS]


def _together(results: Results, first: int, second: int, epsilon: float) -> float:
    """delta of the most exposed of the people of two cells, in the table with the two as one."""
    pair = [first, second]
    moved = results.entry_q[:, pair] - results.q[results.entry_database][:, pair]
    moved = np.where(results.entry_outcomes[:, pair] == results.outcomes[results.entry_database][:, pair], moved, 1.0)
    size = np.nan_to_num(np.abs(moved)).sum(axis=1)
    own = np.add.reduceat(np.append(size, 0.0), results.starts[:-1]) * (results.presence > 0)
    people: IntArray = np.flatnonzero(own > 0)
    people = np.sort(people[np.argsort(-own[people], kind="stable")][:_MOST_PEOPLE])
    merged = _merged(results.of_individuals(people), first, second)
    return float(measure_table(merged).delta(epsilon))


def _merged(results: Results, first: int, second: int) -> Results:
    """The table with two counts added up; a cell that is absent counts 0, and the sum of two absent cells is absent."""
    kept = [c for c in range(len(results.components or ())) if c != second]

    def added(values: FloatArray, codes: npt.NDArray[np.int8]) -> tuple[FloatArray, npt.NDArray[np.int8]]:
        values, codes = values.copy(), codes.copy()
        both = values[:, [first, second]]
        there = (codes[:, [first, second]] == Outcome.NUMBER).any(axis=1)
        codes[:, first] = np.where(there, Outcome.NUMBER, codes[:, first])
        values[:, first] = np.where(there, np.nansum(both, axis=1), np.nan)
        return values[:, kept], codes[:, kept]

    q, outcomes = added(results.q, results.outcomes)
    entry_q, entry_outcomes = added(results.entry_q, results.entry_outcomes)
    return replace(
        results, q=q, outcomes=outcomes, entry_q=entry_q, entry_outcomes=entry_outcomes,
        components=tuple((results.components or ())[c] for c in kept), cells=None, postprocessed_from=None,
    )  # fmt: skip
