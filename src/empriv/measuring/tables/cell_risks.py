"""Each cell of a table as results of one number: alone, and its residuals given the other cells.

Only people who touch a cell have entries in its results, and only where they do, so that a hundred cells of ten
thousand people are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from empriv.measuring.densities.density import Density
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.influences import Influences
from empriv.results import FloatArray, IntArray, Results

_SHARED = 3  # people who must share a line of several cells
_PROPORTIONAL = 1e-9  # of the largest influence


@dataclass(frozen=True, eq=False)
class EachCell(Mapping[str, Risk]):
    """The `Risk` of each cell alone, by name; measured when first asked for.

    ``before`` are the cells that these were made from, number by number.
    """

    influences: Influences
    density: Density
    before: Mapping[str, Risk] | None = None
    _kept: dict[str, Risk] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Risk:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._kept:
            risk = measure_line(cell_results(self.influences, self._names[name]), self.density)
            if self.before is not None:
                risk = replace(risk, postprocessed_from=list(self.before.values())[self._names[name]])
            self._kept[name] = risk
        return self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def _names(self) -> dict[str, int]:
        return {name: cell for cell, name in enumerate(self.influences.results.components or ())}


def cell_results(influences: Influences, cell: int) -> Results:
    """One cell alone, with entries where a person changes it."""
    results = influences.results
    entries = influences.changing[influences.begins[cell] : influences.begins[cell + 1]]
    return replace(
        results,
        q=np.ascontiguousarray(results.q[..., cell]),
        outcomes=np.ascontiguousarray(results.outcomes[..., cell]),
        starts=np.searchsorted(entries, results.starts).astype(np.int64),
        entry_database=results.entry_database[entries],
        entry_q=np.ascontiguousarray(results.entry_q[entries, ..., cell]),
        entry_outcomes=np.ascontiguousarray(results.entry_outcomes[entries, ..., cell]),
        components=None,
        cells=None,
        postprocessed_from=None,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Line:
    """People who always change the same kept cells in the same proportion: one number shows all that they do.

    Attributes
    ----------
    places : (t,) the kept cells
    proportion : (t,) by how much each of them changes where the first changes by 1
    rows : the people
    """

    places: IntArray
    proportion: FloatArray
    rows: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class GivenRest:
    """Residuals along lines given all that these people do not touch.

    Attributes
    ----------
    results, influences : the table, and what people change in it
    fit : of the table
    density : how densities are estimated
    """

    results: Results
    influences: Influences
    fit: TableFit
    density: Density

    def risk(self, line: Line) -> Risk:
        """The risk of the people of a line."""
        left = self.along(line) if len(line.places) > 1 else self.of_cell(line)
        return measure_line(left, self.density, digits=False)

    def of_cell(self, line: Line) -> Results:
        """The residuals of one cell, with everyone and without each of these people."""
        place = int(line.places[0])
        alone = cell_results(self.influences, int(self.fit.kept[place])).of_individuals(line.rows)
        n, at = alone.n_databases, alone.entry_database
        t = self.fit.given_rest[:, place].reshape(n, -1)
        q, entries = alone.q.reshape(n, -1), alone.entry_q.reshape(len(at), t.shape[1])
        # where there is no number with everyone, the fit was made with the mean of the others
        filled = np.where(np.isfinite(q), q, np.nanmean(q))
        left = np.where(np.isfinite(q), t, np.nan)
        return replace(
            alone,
            q=left.reshape(alone.q.shape),
            entry_q=(t[at] + entries - filled[at]).reshape(alone.entry_q.shape),
        )

    def along(self, line: Line) -> Results:
        """The residuals along several cells, in units of the first: ``Y K a / (a'K a)``, moved by the amount."""
        fit, places = self.fit, line.places
        loaded = fit.precision[:, places] @ line.proportion
        t = fit.residuals @ loaded / (line.proportion @ loaded[places])
        t = t.reshape(self.results.n_databases, -1)
        some = self.results.of_individuals(line.rows)
        parts = [self.influences.of(row) for row in line.rows.tolist()]
        amounts = [_amounts(changes, line.proportion) for _, _, changes in parts]
        databases = np.concatenate([own for own, _, _ in parts])
        left = t[databases] - np.concatenate(amounts)
        counts = [len(own) for own, _, _ in parts]
        shape = (len(databases), *self.results.q.shape[1:-1])
        return Results(
            q=t.reshape(self.results.q.shape[:-1]),
            outcomes=np.zeros(self.results.q.shape[:-1], np.int8),
            databases=some.databases,
            individuals=some.individuals,
            starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            entry_database=databases.astype(np.int32),
            entry_q=left.reshape(shape),
            entry_outcomes=np.zeros(shape, np.int8),
            draws=some.draws,
            ordered=some.ordered,
        )


def lines_of(influences: Influences, fit: TableFit, exposed: IntArray) -> tuple[list[Line], IntArray]:
    """Lines, and the people who are on none.

    A line of several cells must be shared, or that of one of ``exposed``: every line costs a density.
    """
    places, begins = influences.kept_touched
    count = np.diff(begins)
    single = np.flatnonzero(count == 1)
    own = places[begins[:-1][single]]
    lines = [Line(np.array([p]), np.ones(1), single[own == p]) for p in np.unique(own)]
    shared: dict[bytes, tuple[IntArray, FloatArray, list[int]]] = {}
    apart: list[int] = []
    for row in np.flatnonzero(count > 1).tolist():
        _, touched, changes = influences.of(row)
        proportion = _proportion(changes.reshape(-1, len(touched)), fit.spreads[fit.kept[touched]])
        if proportion is None:
            apart.append(row)
            continue
        key = touched.tobytes() + np.round(proportion, 9).tobytes()
        shared.setdefault(key, (touched, proportion, []))[2].append(row)
    looked_at = set(exposed.tolist())
    for touched, proportion, rows in shared.values():
        if len(rows) >= _SHARED or looked_at.intersection(rows):
            lines.append(Line(touched, proportion, np.array(rows)))
        else:
            apart += rows
    return lines, np.array(sorted(apart), np.int64)


def _proportion(changes: FloatArray, spreads: FloatArray) -> FloatArray | None:
    """(t,) what all changes (m, t) are multiples of, the first 1; None if there is no such thing."""
    scaled = changes / spreads
    longest = scaled[int(np.argmax((scaled**2).sum(axis=1)))] if len(scaled) else np.zeros(len(spreads))
    length = float(longest @ longest)
    if not length > 0 or not longest[0]:
        return None
    rest = scaled - np.outer(scaled @ longest / length, longest)
    if np.abs(rest).max() > _PROPORTIONAL * np.sqrt(length):
        return None
    proportion = longest * spreads
    return np.asarray(proportion / proportion[0])


def _amounts(changes: FloatArray, proportion: FloatArray) -> FloatArray:
    """(m, draws) by how many times ``proportion`` a person changes the cells."""
    return np.asarray(changes @ proportion / (proportion @ proportion))
