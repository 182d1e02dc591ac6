"""People's residuals in the direction in which they move a table: pairs of one number each.

What people do not touch is known. Whoever always changes the same cells in the same proportion is in a
`DirectionGroup`: the residual in its direction, given all that they do not touch, is one number that they share. For
the others (`MultiCellPeople`) the direction that shows a person best depends on them, so that everyone has points of
their own, with a bandwidth that directions share in units of their spread.

Cells alone (`EachCell`) have entries only of people who touch them, and only where they do, so that a hundred cells of
ten thousand people are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from empriv.base.machine import workers
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.densities.density import Density, Mixture, density_or_default
from empriv.measuring.densities.selection import spread as spread_of
from empriv.measuring.densities.selection import spreads
from empriv.measuring.line.laplace import LaplaceBlock, slack
from empriv.measuring.line.risk import Block, Risk, measure_line
from empriv.measuring.tables.fit import TableFit
from empriv.measuring.tables.influences import Influences
from empriv.results import FloatArray, IntArray, Results

MOST_EXPOSED = 200
_SHARED = 3  # people who must share a direction of several cells
_PROPORTIONAL = 1e-9  # of the largest influence
_HALVINGS = 30
_BY_RATIO = 100  # people who are also measured by a likelihood ratio
_BLOCK = 64  # people whose directions are held at once
_MOST_EPSILONS = 16  # of a curve; between them it is a chord, which is above it
_CANCELS = 0.25  # influences whose sum is shorter than this share of what it could be have no common direction


# Cells alone


@dataclass(frozen=True, eq=False)
class EachCell(Mapping[str, Risk]):
    """The `Risk` of each cell alone, by name; measured when first asked for.

    ``before`` are the cells that these were made from, number by number.
    """

    influences: Influences
    density: Density
    before: Mapping[str, AnyRisk] | None = None
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


# People who share a direction


@dataclass(frozen=True, eq=False, repr=False)
class DirectionGroup:
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


def groups_of(influences: Influences, fit: TableFit, exposed: IntArray) -> tuple[list[DirectionGroup], IntArray]:
    """Groups, and the people who are in none.

    A direction of several cells must be shared, or that of one of ``exposed``: every group costs a density.
    """
    places, begins = influences.kept_touched
    count = np.diff(begins)
    single = np.flatnonzero(count == 1)
    own = places[begins[:-1][single]]
    groups = [DirectionGroup(np.array([p]), np.ones(1), single[own == p]) for p in np.unique(own)]
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
    kept = set(exposed.tolist())
    for touched, proportion, rows in shared.values():
        if len(rows) >= _SHARED or kept.intersection(rows):
            groups.append(DirectionGroup(touched, proportion, np.array(rows)))
        else:
            apart += rows
    return groups, np.array(sorted(apart), np.int64)


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


def risk_of_group(group: DirectionGroup, influences: Influences, fit: TableFit, density: Density) -> Risk:
    """The risk of these people, given all that they do not touch."""
    residuals = residuals_along if len(group.places) > 1 else residuals_of_cell
    return measure_line(residuals(group, influences, fit), density, digits=False)


def residuals_of_cell(group: DirectionGroup, influences: Influences, fit: TableFit) -> Results:
    """The residuals of one cell, with everyone and without each of these people."""
    place = int(group.places[0])
    alone = cell_results(influences, int(fit.kept[place])).of_individuals(group.rows)
    n, at = alone.n_databases, alone.entry_database
    t = fit.given_rest[:, place].reshape(n, -1)
    q, entries = alone.q.reshape(n, -1), alone.entry_q.reshape(len(at), t.shape[1])
    # where there is no number with everyone, the fit was made with the mean of the others
    filled = np.where(np.isfinite(q), q, np.nanmean(q))
    residuals = np.where(np.isfinite(q), t, np.nan)
    return replace(
        alone,
        q=residuals.reshape(alone.q.shape),
        entry_q=(t[at] + entries - filled[at]).reshape(alone.entry_q.shape),
    )


def residuals_along(group: DirectionGroup, influences: Influences, fit: TableFit) -> Results:
    """The residuals along several cells, in units of the first: ``Y K a / (a'K a)``, moved by the amount."""
    results, places = influences.results, group.places
    loaded = fit.precision[:, places] @ group.proportion
    t = fit.residuals @ loaded / (group.proportion @ loaded[places])
    t = t.reshape(results.n_databases, -1)
    some = results.of_individuals(group.rows)
    parts = [influences.of(row) for row in group.rows.tolist()]
    amounts = [_amounts(changes, group.proportion) for _, _, changes in parts]
    databases = np.concatenate([own for own, _, _ in parts])
    without = t[databases] - np.concatenate(amounts)
    counts = [len(own) for own, _, _ in parts]
    shape = (len(databases), *results.q.shape[1:-1])
    return Results(
        q=t.reshape(results.q.shape[:-1]),
        outcomes=np.zeros(results.q.shape[:-1], np.int8),
        databases=some.databases,
        individuals=some.individuals,
        starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        entry_database=databases.astype(np.int32),
        entry_q=without.reshape(shape),
        entry_outcomes=np.zeros(shape, np.int8),
        draws=some.draws,
        ordered=some.ordered,
    )


def _amounts(changes: FloatArray, proportion: FloatArray) -> FloatArray:
    """(m, draws) by how many times ``proportion`` a person changes the cells."""
    return np.asarray(changes @ proportion / (proportion @ proportion))


# People of several cells


class Directions(NamedTuple):
    """Pairs of one number, a row each.

    Attributes
    ----------
    owner : (rows,) the individual
    others, moved : (rows, N) the two sides, at variance about 1
    """

    owner: IntArray
    others: FloatArray
    moved: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class MultiCellPeople:
    """People who touch several cells.

    Attributes
    ----------
    fit, influences : of the table
    rows : (k,) the individuals, the most exposed first, by the largest D'K D
    """

    fit: TableFit
    influences: Influences
    rows: IntArray

    @cached_property
    def relative_bandwidths(self) -> FloatArray:
        """(r,) one-SE bandwidth of the residuals of each kept cell, in units of its spread."""
        databases = np.repeat(np.arange(self.fit.n), self.influences.draws)
        places = self.influences.kept_touched[0]
        out = np.ones(len(self.fit.kept))
        for place in np.unique(places):
            points = self.fit.given_rest[:, place]
            if np.ptp(points) > 0:
                model = density_or_default(None).fit(points, databases)
                assert isinstance(model, Mixture)
                out[place] = model.bandwidth / spread_of(points)
        return out

    def bandwidths(self, directions: Directions) -> FloatArray:
        """(rows,) of each direction: that of its owner's cells, by the spread of its points."""
        places, begins = self.influences.kept_touched
        logs = np.log(self.relative_bandwidths)
        owners, back = np.unique(directions.owner, return_inverse=True)
        shared = np.array([np.exp(logs[places[begins[row] : begins[row + 1]]].mean()) for row in owners])
        spread = spreads(directions.others)
        return np.asarray(shared[back] * np.where(spread > 0, spread, 1.0))

    def whitened(self, row: int) -> tuple[IntArray, FloatArray]:
        """Databases (m,) that a person changes, and what they change in white coordinates (m, draws, r)."""
        databases, places, changes = self.influences.of(row)
        return databases, changes @ self.fit.root[places]

    def unconditional(self, rows: IntArray) -> Directions:
        """With everyone against without, in the direction of what each does on the whole."""
        axes = [self._axis_of(row) for row in rows.tolist()]
        points = np.array([unit for unit, _, _ in axes]).reshape(len(rows), len(self.fit.kept)) @ self.fit.whitened.T
        moved = points.reshape(len(rows), self.fit.n, -1).copy()
        for place, (_, databases, along) in enumerate(axes):
            moved[place, databases] -= along
        return Directions(rows, points, moved.reshape(points.shape))

    def _axis_of(self, row: int) -> tuple[FloatArray, IntArray, FloatArray]:
        """Where a person moves the answers on the whole, of length 1; the databases, and how far along it in each."""
        if row not in self._axes:
            databases, white = self.whitened(row)
            flat = white.reshape(-1, white.shape[-1])
            total = flat.sum(axis=0)
            if total @ total < _CANCELS * len(flat) * (flat**2).sum():
                # mean influence near 0: use the first principal axis
                axis = np.linalg.svd(flat, full_matrices=False)[2][0]
                total = axis if total @ axis >= 0 else -axis
            length = float(np.linalg.norm(total))
            unit = total / length if length > 0 else total
            self._axes[row] = unit, databases, white @ unit
        return self._axes[row]

    @cached_property
    def _axes(self) -> dict[int, tuple[FloatArray, IntArray, FloatArray]]:
        return {}

    def blocks(self, rows: IntArray) -> Iterator[Directions]:
        """Directions of these people, some at a time."""
        for start in range(0, len(rows), _BLOCK):
            yield self.unconditional(rows[start : start + _BLOCK])

    def curves(self, epsilons: FloatArray) -> FloatArray:
        """(rows, epsilons) delta of each of ``rows``, in one direction or by a likelihood ratio."""
        grid = epsilons if len(epsilons) <= _MOST_EPSILONS else _spread_out(epsilons)
        position = np.full(int(self.rows.max(initial=-1)) + 1, -1)
        position[self.rows] = np.arange(len(self.rows))
        out = np.zeros((len(self.rows), len(grid)))

        def task(directions: Directions) -> tuple[IntArray, FloatArray]:
            return directions.owner, hockey_sticks(directions, self.bandwidths(directions), grid)

        _ = self.relative_bandwidths  # computed once, not by each thread
        with ThreadPoolExecutor(workers()) as pool:
            for owner, sticks in pool.map(task, self.blocks(self.rows)):
                out[position[owner]] = sticks
        for place, row in enumerate(self.rows[:_BY_RATIO].tolist()):
            risk = self._ratio_of(row)
            if risk is not None:
                out[place] = np.maximum(out[place], risk.curves(grid)[0])
        out = np.minimum(out, 1.0)
        return out if grid is epsilons else chords(np.exp(epsilons), np.exp(grid), out)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at which everybody's delta on a random day is at most ``delta``, from above.

        Blocks in which nobody needs more than the largest so far are passed over.
        """
        best = 0.0
        for directions in self.blocks(self.rows):
            h = self.bandwidths(directions)
            if not np.any(hockey_sticks(directions, h, np.array([best])) > delta):
                continue
            low, high = best, float((np.abs(directions.moved - directions.others).max(axis=1) / h).max())
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                over = bool(np.any(hockey_sticks(directions, h, np.array([middle])) > delta))
                low, high = (middle, high) if over else (low, middle)
            best = high
        for row in self.rows[:_BY_RATIO].tolist():
            risk = self._ratio_of(row)
            if risk is not None and risk.delta(best) > delta:
                best = max(best, risk.epsilon(delta))
        return best

    @cached_property
    def _by_ratio(self) -> dict[int, Risk | None]:
        """What `_ratio_of` gave: curves are asked at many epsilons."""
        return {}

    def _ratio_of(self, row: int) -> Risk | None:
        if row not in self._by_ratio:
            self._by_ratio[row] = self._measure_ratio(row)
        return self._by_ratio[row]

    def _measure_ratio(self, row: int) -> Risk | None:
        """The likelihood ratio that a normal table would have, as one number; None where it never varies. It sees
        people who do another thing each day, whom no direction shows."""
        databases, white = self.whitened(row)
        changes = white.mean(axis=1)
        draws, n = self.influences.draws, self.fit.n
        share = len(databases) / n
        without = self.fit.whitened.reshape(n, draws, -1).copy()
        without[databases] -= white
        centre = without.mean(axis=(0, 1))

        def ratio(tables: FloatArray) -> FloatArray:
            exponents = (tables - centre) @ changes.T - 0.5 * (changes**2).sum(axis=1)
            largest = np.maximum(exponents.max(axis=-1, keepdims=True), 0.0)
            mean = np.exp(exponents - largest).mean(axis=-1, keepdims=True)
            return np.asarray((np.log(share * mean + (1 - share) * np.exp(-largest)) + largest)[..., 0])

        q, moved = ratio(self.fit.whitened.reshape(n, draws, -1)), ratio(without[databases])
        if np.ptp(q) <= 0:
            return None
        results = Results(
            q=q,
            outcomes=np.zeros(q.shape, np.int8),
            databases=np.arange(n),
            individuals=np.zeros(1, np.int64),
            starts=np.array([0, len(databases)]),
            entry_database=databases.astype(np.int32),
            entry_q=moved,
            entry_outcomes=np.zeros(moved.shape, np.int8),
            draws=draws,
        )
        return measure_line(results, digits=False)


def hockey_sticks(directions: Directions, bandwidths: FloatArray, epsilons: FloatArray) -> FloatArray:
    """(rows, epsilons) the larger of both directions; exactly 0 where the ratio of densities is proved to stay within
    e^epsilon."""
    out = np.zeros((len(directions.owner), len(epsilons)))
    shifts = np.abs(directions.moved - directions.others).max(axis=1) / bandwidths
    for row in np.flatnonzero(shifts > epsilons.min()).tolist():
        others, moved = directions.others[row], directions.moved[row]
        source = LaplaceBlock(others, moved[None, :], float(bandwidths[row]))
        out[row] = Block(source, np.zeros(0), np.zeros((1, 0)), slack=slack(others)).curves(epsilons)[0]
    return np.where(shifts[:, None] > epsilons, np.minimum(out, 1.0), 0.0)


def chords(x: FloatArray, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Falling convex curves (rows, knots) at ``x``, by chords between the knots, which are never below them."""
    place = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    with np.errstate(invalid="ignore"):
        share = np.clip((x - knots[place]) / (knots[place + 1] - knots[place]), 0.0, 1.0)
    share = np.where(np.isinf(x), 1.0, share)
    return np.asarray(values[:, place] * (1 - share) + values[:, place + 1] * share)


def _spread_out(epsilons: FloatArray) -> FloatArray:
    """Some of many rising epsilons, the first and the last among them."""
    places = np.unique(np.linspace(0, len(epsilons) - 1, _MOST_EPSILONS).astype(int))
    return np.asarray(epsilons[places])
