"""Bounds on the risk of whole tables (docs/tables.md, "Bounds").

Upper: people on a line get the whole bound of one number on what is left along it, on every scale that suits it, with
residuals shrunk by the ``g`` of the fit. People of several cells get, for days when they are there, the composition of
what each cell adds to those before it (`innovations`), each bounded as one number; on a random day, what that leaves
where they are there with their share of databases. Everybody also gets the bound of each cell alone, and databases in
which they change what kind of outcome a cell is count as telling for certain. Where parameters are too many for the
databases nobody who touches the table has an upper bound.

Lower: an individual and a direction, chosen by influence and by part of the databases, with the fit of these alone;
judged by the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from empriv.base.progress import progress
from empriv.base.threads import workers
from empriv.errors import InputError
from empriv.judge import noisy_laws
from empriv.judge.noise_kernels import NoiseKernel
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.densities.density import Kde
from empriv.measuring.given.presence import GroupedPeople, PresenceRisk, presence_of
from empriv.measuring.line.atoms import share_at_most
from empriv.measuring.tables.innovations import EPSILONS, SHIFTS, RatioGrid, on_random_day, one_of_several
from empriv.measuring.tables.several import DAYS, Directions, pairs_block
from empriv.measuring.tables.table_presence import TablePresenceRisk
from empriv.measuring.tables.table_risk import TableRisk
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.line_bounds import floor, upper_of_cell
from empriv.validate.bounds.moments import folds_of, mean_limits, never_rising, quantile
from empriv.validate.bounds.present import grouped_bounds, presence_upper_bounds, whole_bound
from empriv.validate.ground import BoolArray

WHOLE = 24  # people who get the whole bound on a day when they are there, the most exposed
_MOST_CELLS = 12  # whose innovations are composed one by one; of more, along the axes of what somebody does
_LOOKED_AT = 150  # people of one cell who get a bound of their own where they are there, the most exposed
_CANDIDATES = 12  # people among whom a lower bound chooses
_BLOCK = 32
_ROAMING = 400  # people whose different cells on different days are looked at, those with the largest bounds
_APART = 3.0  # standard errors by which parts may move together, and still count as independent


def table_upper_bounds(risk: TableRisk, epsilons: FloatArray, level: float) -> FloatArray:
    """(individuals, epsilons) upper bounds of each individual's delta_i."""
    n = risk.results.n_databases
    if risk.fit.ridge:
        return _none(risk, epsilons, level)
    out = np.full((risk.results.n_individuals, len(epsilons)), floor(n, level))
    cells = len(risk.components)
    with progress(len(risk.touching) + len(risk.lines) + 1, "Bounding cells") as advance:
        for name, rows in risk.touching.items():
            alone = upper_of_cell(risk.components[name], epsilons, level, cells)
            out[rows] = np.maximum(out[rows], alone[rows])
            advance(1)
        for number, line in enumerate(risk.lines):
            for part in risk.along_line(number, shrink=risk.fit.g).values():
                out[line.rows] = np.maximum(out[line.rows], upper_of_cell(part, epsilons, level, cells))
            advance(1)
        rows = composed_rows(risk)
        if len(rows):
            there = composed_there(risk, rows, level)
            share = presence_share(risk, rows, level)
            amplified = on_random_day(there.grid, there.curves, share, epsilons)
            amplified = np.minimum(amplified, roaming_bounds(risk, rows, share, amplified, epsilons, level))
            out[rows] = np.maximum(out[rows], amplified)
        advance(1)
    return np.minimum(_with_certain(risk, out, epsilons, level, present=False), 1.0)


def table_presence_bounds(risk: TablePresenceRisk, epsilons: FloatArray, level: float) -> FloatArray:
    """The same on a database that people are in."""
    table, n = risk.on_random_day, risk.results.n_databases
    if table.fit.ridge:
        return _none(table, epsilons, level)
    out = np.full((risk.results.n_individuals, len(epsilons)), floor(n, level))
    single = _by_cells(table, level)
    looked_at = _most_exposed(table, single)
    whole: list[tuple[int, float, PresenceRisk, int]] = []
    with progress(len(table.lines) + 1, "Bounding cells") as advance:
        for number, line in enumerate(table.lines):
            known = single.get(number)
            if known is not None:
                out[line.rows] = np.maximum(out[line.rows], known.grid.at(known.curves, epsilons))
            rows = line.rows if known is None else np.intersect1d(line.rows, looked_at)
            if len(rows):
                shrunk = (
                    table.along_line(number, shrink=table.fit.g)
                    if known is None
                    else table.rest.risks(replace(line, rows=rows), shrink=table.fit.g)
                )
                for part in shrunk.values():
                    present = presence_of(part)
                    upper = presence_upper_bounds(present, epsilons, level, whole=0)
                    # what they do counts as known by cells, and as unknown here, which is less
                    least = np.full(len(rows), known is None)[:, None]
                    out[rows] = np.where(least, np.maximum(out[rows], upper), np.minimum(out[rows], upper))
                    whole += [(int(row), float(upper[k, 0]), present, k) for k, row in enumerate(rows)]
            advance(1)
        for row, _, present, k in sorted(whole, key=lambda part: -part[1])[:WHOLE]:
            out[row] = np.maximum(out[row], whole_bound(present, k, epsilons, level))
        rows = composed_rows(table)
        if len(rows):
            there = composed_there(table, rows, level)
            out[rows] = np.maximum(out[rows], there.grid.at(there.curves, epsilons))
        advance(1)
    out = np.maximum(_with_certain(table, out, epsilons, level, present=True), floor(n, level))
    return np.asarray(np.minimum(out, 1.0))


def _by_cells(risk: TableRisk, level: float) -> dict[int, Composed]:
    """For lines of one cell without outcomes that have a mass of their own, curves of their people on average over the
    days when they are there: what they do that day counts as known."""
    places = np.unique([line.places[0] for line in risk.lines if len(line.places) == 1])
    curves = cell_curves(risk, level)
    curves.known(places.astype(np.int64))
    owner = risk.influences.owner[risk.influences.rows // risk.influences.draws]
    out = {}
    for number, (line, risks) in enumerate(risk.along_lines()):
        pairs = next(iter(risks.values())).pairs
        if len(line.places) > 1 or len(risks) > 1 or len(pairs.names) or pairs.own:
            continue
        place = int(line.places[0])
        begins = risk.influences.starts
        spans = [np.arange(begins[row], begins[row + 1]) for row in line.rows.tolist()]
        at = np.concatenate(spans)
        size = np.abs(risk.influences.values[at]) * np.sqrt(risk.fit.precision[place, place])
        by_day = curves.at(np.full(len(at), place), size)
        position = np.searchsorted(line.rows, owner[at])
        total = np.zeros((len(line.rows), by_day.shape[1]))
        np.add.at(total, position, by_day)
        out[number] = Composed(curves.grid, total / np.bincount(position, minlength=len(line.rows))[:, None])
    return out


def _most_exposed(risk: TableRisk, single: dict[int, Composed]) -> IntArray:
    """People of single cells who are looked at further, those with the largest bounds."""
    if not single:
        return np.zeros(0, np.int64)
    rows = np.concatenate([risk.lines[number].rows for number in single])
    bounds = np.concatenate([known.curves[:, len(known.grid.x) // 2] for known in single.values()])
    return np.sort(rows[np.argsort(-bounds, kind="stable")[:_LOOKED_AT]])


def composed_rows(risk: TableRisk) -> IntArray:
    """People who touch several cells, on a line or not, and for whom a direction may not be all: those of few cells,
    unless their cells are as good as normal."""
    on_lines = [
        line.rows for line in risk.lines if 1 < len(line.places) <= _MOST_CELLS and risk.peculiar[line.places].any()
    ]
    return np.concatenate((*on_lines, risk.several.rows)).astype(np.int64)


def _none(risk: TableRisk, epsilons: FloatArray, level: float) -> FloatArray:
    n = risk.results.n_databases
    out = np.full((risk.results.n_individuals, len(epsilons)), floor(n, level))
    out[risk.from_below] = 1.0
    return out


def _with_certain(
    risk: TableRisk, upper: FloatArray, epsilons: FloatArray, level: float, *, present: bool
) -> FloatArray:
    """With what tells for certain: exact leaks, and databases in which the kind of an outcome changes elsewhere than in
    somebody's only cell. Taking a share s of databases out changes a hockey stick by e^epsilon s at most."""
    n = risk.results.n_databases
    days = np.full(risk.results.n_individuals, float(n)) if not present else np.maximum(risk.days_there, 1.0)
    turned = np.minimum(risk.turned_elsewhere, days)
    out = upper.copy()
    some = turned > 0
    if some.any():
        out[some] += np.exp(epsilons) * _shares(turned[some], days[some], level)[:, None]
    leaked = np.minimum(np.rint(risk.leaked() * n), days)
    some = leaked > 0
    if some.any():
        out[some] = np.maximum(out[some], _shares(leaked[some], days[some], level)[:, None])
    return out


def _shares(counts: FloatArray, days: FloatArray, level: float) -> FloatArray:
    return np.array([float(share_at_most(count, int(n), level)) for count, n in zip(counts, days, strict=True)])


def presence_share(risk: TableRisk, rows: IntArray, level: float) -> FloatArray:
    """(rows,) the most, at the level, of databases that each is in; 1 for people who are in all."""
    n = risk.results.n_databases
    days = risk.days_there[rows]
    return np.where(days < n, share_at_most(days, n, level), 1.0)


class Composed(NamedTuple):
    """Curves from above on days when people are there, (rows, G) on a grid of ratios."""

    grid: RatioGrid
    curves: FloatArray


def composed_there(risk: TableRisk, rows: IntArray, level: float) -> Composed:
    """The composition of innovations for these people, on average over days at quantiles of what they did."""
    curves = cell_curves(risk, level)
    grid = curves.grid
    curves.known(curves.needed(rows))

    def task(block: IntArray) -> FloatArray:
        return _composed_block(risk, block, curves)

    out = np.zeros((len(rows), len(grid.x)))
    blocks = [np.arange(start, min(start + _BLOCK, len(rows))) for start in range(0, len(rows), _BLOCK)]
    with ThreadPoolExecutor(workers()) as pool:
        for places, values in zip(blocks, pool.map(lambda block: task(rows[block]), blocks), strict=True):
            out[places] = values
    return Composed(grid, out)


def _composed_block(risk: TableRisk, rows: IntArray, curves: CellCurves) -> FloatArray:
    """(rows, G) of one block of people.

    The days when they were there are themselves drawn from what they do: the mean over days gets its standard error.
    """
    grid = curves.grid
    owner: list[int] = []
    cells: list[IntArray] = []
    shifts: list[FloatArray] = []
    for number, row in enumerate(rows.tolist()):
        places, moves = innovations_of(risk, row)
        owner += [number] * len(moves)
        cells += [places] * len(moves)
        shifts += list(moves)
    out = np.zeros((len(rows), len(grid.x)))
    out[:] = np.maximum(1.0 - grid.x, 0.0)  # nothing to be told
    if not owner:
        return out
    width = max(len(moves) for moves in shifts)
    place, size = np.full((len(owner), width), -2), np.zeros((len(owner), width))
    for line, (own, moves) in enumerate(zip(cells, shifts, strict=True)):
        place[line, : len(moves)], size[line, : len(moves)] = own, np.abs(moves)
    total = curves.at(place[:, 0], size[:, 0])
    for column in range(1, width):
        moved = np.flatnonzero(size[:, column] > 0)
        if len(moved):
            total[moved] = grid.composed(total[moved], curves.at(place[moved, column], size[moved, column]))
    belongs = np.array(owner)
    counts = np.bincount(belongs, minlength=len(rows))
    mean, square = np.zeros_like(out), np.zeros_like(out)
    np.add.at(mean, belongs, total)
    np.add.at(square, belongs, total**2)
    there = counts > 0
    mean, square = mean[there] / counts[there, None], square[there] / counts[there, None]
    error = np.sqrt(np.maximum(square - mean**2, 0.0) / np.maximum(risk.days_there[rows[there]], 1.0)[:, None])
    out[there] = np.minimum(mean + quantile(curves.level) * error, 1.0)
    return out


def innovations_of(risk: TableRisk, row: int) -> tuple[IntArray, FloatArray]:
    """Cells (t,) of the innovations of somebody's cells, and by how much each is moved on some days (days, t).

    Of more than `_MOST_CELLS` cells, the axes of what they do instead, as if of any cell: -1.
    """
    _, touched, changes = risk.influences.of(row)
    mean = changes.mean(axis=1)
    white = mean @ risk.fit.root[touched]
    sizes = (white**2).sum(axis=1)
    order = np.argsort(sizes, kind="stable")[np.sort(sizes) > 0]
    count = min(DAYS, len(order))
    if not count:
        return touched, np.zeros((0, len(touched)))
    chosen = order[((np.arange(count) + 0.5) * len(order) / count).astype(int)]
    if len(touched) > _MOST_CELLS:
        axes = np.linalg.svd(white, full_matrices=False)[2]
        moves = white[chosen] @ axes.T
        moves[np.abs(moves) < 1e-9 * np.abs(moves).max()] = 0.0
        return np.full(len(axes), -1), moves
    covariance = np.linalg.inv(risk.fit.precision[np.ix_(touched, touched)])
    root = np.linalg.cholesky(0.5 * (covariance + covariance.T))
    return touched, np.linalg.solve(root, mean[chosen].T).T


def roaming_bounds(
    risk: TableRisk, rows: IntArray, share: FloatArray, bounds: FloatArray, epsilons: FloatArray, level: float
) -> FloatArray:
    """(rows, epsilons) for people who are in other cells on other days: whoever looks at the table does not know in
    which, and what is left of one cell given all others has little to do with what is left of another. 1 for others."""
    out = np.ones_like(bounds)
    if risk.influences.draws > 1:
        return out
    curves = cell_curves(risk, level)
    for place in np.argsort(-bounds[:, 0], kind="stable")[:_ROAMING].tolist():
        parts = _parts(risk, int(rows[place]), curves)
        if parts is not None:
            made, days = parts
            out[place] = one_of_several(curves.grid, made, float(share[place]) * days, epsilons)
    return out


def _parts(risk: TableRisk, row: int, curves: CellCurves) -> tuple[FloatArray, FloatArray] | None:
    """Curves (m, G) of sets of cells that somebody is never in on the same day, and the share of their days in each;
    None if there is one such set only."""
    _, touched, changes = risk.influences.of(row)
    added = changes[:, 0]
    added = added[added.any(axis=1)]
    precision = risk.fit.precision[np.ix_(touched, touched)]
    label = _never_together(added != 0)
    groups = [label == k for k in np.unique(label)]
    if len(groups) < 2:
        return None
    days = [added[added[:, group].any(axis=1)] for group in groups]
    made = np.stack(
        [_given_all_others(touched, group, own, precision, curves) for group, own in zip(groups, days, strict=True)]
    )
    weights = np.array([len(own) for own in days]) / len(added)
    # Parts that move together spread the sum of their ratios more than independent ones: such are taken as one, which
    # is the most that they can spread it, until the variance that normal cells would have is reached.
    middle = np.stack([own.mean(axis=0) for own in days]) * weights[:, None]
    products = middle @ precision @ middle.T
    lengths = np.sqrt(np.maximum(np.diag(products), 0.0))
    apart = float((lengths**2).sum())
    wanted = float(products.sum())
    if wanted > apart * (1 + _APART * np.sqrt(2 / max(1, risk.fit.n - risk.fit.rank))):
        joined = np.arange(len(groups))
        pairs = np.argwhere(np.triu(products > 0, 1))
        order = np.argsort(-products[pairs[:, 0], pairs[:, 1]], kind="stable")
        for first, second in pairs[order].tolist():
            joined[joined == joined[second]] = joined[first]
            if sum(float(lengths[joined == k].sum()) ** 2 for k in np.unique(joined)) >= wanted:
                break
        sets = [joined == k for k in np.unique(joined)]
        made = np.stack([weights[k] @ made[k] / weights[k].sum() for k in sets])
        weights = np.array([float(weights[k].sum()) for k in sets])
    return made, weights


def _never_together(there: BoolArray) -> IntArray:
    """(cells,) a number for each cell (columns), the same where two are ever there on the same day (rows)."""
    label = np.arange(there.shape[1])
    for row in np.unique(there, axis=0):
        label[np.isin(label, label[row])] = label[row].min()
    return label


def _given_all_others(
    touched: IntArray, group: BoolArray, days: FloatArray, precision: FloatArray, curves: CellCurves
) -> FloatArray:
    """(G,) the curve of a set of cells given all others, on average over days at quantiles of what was done."""
    inside = precision[np.ix_(group, group)]
    sizes = np.einsum("mi,ij,mj->m", days[:, group], inside, days[:, group])
    order = np.argsort(sizes, kind="stable")
    count = min(DAYS, len(order))
    chosen = days[order[((np.arange(count) + 0.5) * len(order) / count).astype(int)]][:, group]
    covariance = np.linalg.inv(inside)
    root = np.linalg.cholesky(0.5 * (covariance + covariance.T))
    moves = np.abs(np.linalg.solve(root, chosen.T).T)
    places = touched[group]
    total = curves.at(np.full(count, places[0]), moves[:, 0])
    for column in range(1, len(places)):
        total = curves.grid.composed(total, curves.at(np.full(count, places[column]), moves[:, column]))
    return np.asarray(total.mean(axis=0))


def cell_curves(risk: TableRisk, level: float) -> CellCurves:
    """The curves of a table at a level, which are kept."""
    return risk.workspace.setdefault(("cell curves", level), CellCurves(risk, level))  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, repr=False)
class CellCurves:
    """Upper curves of each cell's innovation by how far it is moved, made when first asked for.

    An innovation has the law of what is left of its cell given all others, at variance 1, and shrunk.
    """

    risk: TableRisk
    level: float

    @cached_property
    def grid(self) -> RatioGrid:
        return RatioGrid(EPSILONS)

    @cached_property
    def _kept(self) -> dict[int, FloatArray]:
        return {}

    def needed(self, rows: IntArray) -> IntArray:
        """Places of the cells that these people touch."""
        places, begins = self.risk.influences.kept_touched
        return np.unique(np.concatenate([places[begins[row] : begins[row + 1]] for row in rows.tolist()]))

    def known(self, places: IntArray) -> dict[int, FloatArray]:
        """(SHIFTS, G) of each of these cells."""
        missing = [int(place) for place in places if int(place) not in self._kept]
        with ThreadPoolExecutor(workers()) as pool:
            for place, curves in zip(missing, pool.map(self._made, missing), strict=True):
                self._kept[place] = curves
        return self._kept

    def at(self, places: IntArray, sizes: FloatArray) -> FloatArray:
        """(rows, G) the curve of each cell where it is moved by ``sizes``; of -1, the largest of all cells."""
        place = np.clip(np.searchsorted(SHIFTS, sizes, side="right") - 1, 0, len(SHIFTS) - 2)
        share = np.clip((sizes - SHIFTS[place]) / (SHIFTS[place + 1] - SHIFTS[place]), 0.0, 1.0)[:, None]
        out = np.empty((len(places), len(self.grid.x)))
        for cell in np.unique(places).tolist():
            own = places == cell
            curves = self._kept[cell] if cell >= 0 else self._largest
            out[own] = curves[place[own]] * (1 - share[own]) + curves[place[own] + 1] * share[own]
        out[sizes > SHIFTS[-1]] = 1.0
        return out

    @cached_property
    def _largest(self) -> FloatArray:
        return np.asarray(np.max(list(self._kept.values()), axis=0))

    def _made(self, place: int) -> FloatArray:
        fit, several = self.risk.fit, self.risk.several
        points = fit.given_rest[:, place] * np.sqrt(fit.precision[place, place]) * fit.g
        rows = len(SHIFTS) - 1
        others = np.tile(points, (rows, 1))
        moved = others + SHIFTS[1:, None]
        h = np.full(rows, several.relative_bandwidths[place] * several.spread_of(points))
        people = as_people(Directions(np.arange(rows), others, moved, np.ones(rows)), h, self.risk.influences.draws)
        upper = None if people is None else grouped_bounds(people, EPSILONS, self.level)
        curves = np.ones((len(SHIFTS), len(EPSILONS)))
        curves[0] = 0.0
        if upper is not None:
            # more is moved, more is told: the bound of one shift may be above that of the next by chance
            curves[1:] = np.maximum.accumulate(np.clip(upper, 0.0, 1.0), axis=0)
        return self.grid.both_signs(curves)


def as_people(directions: Directions, bandwidths: FloatArray, draws: int) -> GroupedPeople | None:
    """Rows of pairs as people of one influence each; only the first draw of each database, on which bounds count."""
    others, moved = (side.reshape(len(side), -1, draws)[:, :, 0] for side in (directions.others, directions.moved))
    first = Directions(directions.owner, others, moved, directions.weight)
    block = pairs_block(first, bandwidths)
    if block is None:
        return None
    count = len(others)
    return GroupedPeople(block, others, (moved - others)[:, None, :], np.ones((count, 1)), bandwidths, np.zeros(count))


# Lower bounds


class _Trained(NamedTuple):
    """A direction chosen and fitted on some databases: its points with everyone and without, on all."""

    points: FloatArray
    without: FloatArray


def table_lower_bounds(
    risk: TableRisk, epsilons: FloatArray, level: float, seed: int, *, present: bool = False
) -> FloatArray:
    """(epsilons,) cross-fitted lower bounds, on a random day or where people are there."""
    n = risk.results.n_databases
    candidates = _candidates(risk)
    if n < LEAST_DATABASES or not len(candidates):
        return np.zeros(len(epsilons))
    fold = folds_of(n, seed)
    values = np.zeros((len(epsilons), n))
    for left_out in np.unique(fold).tolist():
        train = fold != left_out
        for k, w in enumerate(_chosen(risk, candidates, train, epsilons, present=present)):
            if w is not None:
                values[k, ~train] = w[~train]
    limit = never_rising(mean_limits(values, level), epsilons)
    return np.maximum(limit, _leak_limits(risk, level, present=present))


def _candidates(risk: TableRisk) -> IntArray:
    """People who move the table most, by influence alone, which the bounds take as it was seen."""
    mean = np.bincount(risk.influences.owner, np.sqrt(risk.influences.sizes), minlength=risk.results.n_individuals)
    return np.argsort(-mean, kind="stable")[: min(_CANDIDATES, int(np.count_nonzero(mean > 0)))]


def _leak_limits(risk: TableRisk, level: float, *, present: bool) -> float:
    """What an exact leak demonstrates: the least share, at the level, of databases in which somebody is given away."""
    n = risk.results.n_databases
    shares = risk.leaked()
    if not shares.max(initial=0.0) > 0:
        return 0.0
    row = int(np.argmax(shares))
    days = int(risk.days_there[row]) if present else n
    count = min(int(np.rint(shares[row] * n)), days)
    return float(1.0 - share_at_most(days - count, days, level))


def _chosen(
    risk: TableRisk, candidates: IntArray, train: BoolArray, epsilons: FloatArray, *, present: bool
) -> list[FloatArray | None]:
    """(n,) W of the direction and set that these databases choose, at each epsilon; None if none is promising."""
    n, draws = risk.results.n_databases, risk.influences.draws
    weights = np.repeat(train, draws).astype(float)
    best: list[tuple[float, FloatArray | None]] = [(0.0, None)] * len(epsilons)
    widths: dict[bytes, float | None] = {}  # people who change the same cell most have the same points
    for trained in _trained(risk, candidates, train, present=present):
        seen = trained.points[weights > 0]
        key = seen.tobytes()
        if key not in widths:
            widths[key] = _width(seen, np.flatnonzero(weights > 0) // draws)
        width = widths[key]
        if width is None:
            continue
        kernel = NoiseKernel("laplace", width)
        each = noisy_laws.values(
            trained.points, trained.without[None, :], kernel, epsilons, draws=draws, weights=weights
        )[0]
        for k in range(len(epsilons)):
            for w in each[k]:
                score = float(w[train].mean() - quantile(0.95) * w[train].std() / np.sqrt(n))
                if score > best[k][0]:
                    best[k] = (score, w)
    return [w for _, w in best]


def _width(points: FloatArray, databases: IntArray) -> float | None:
    """The bandwidth of these points; None where nothing varies."""
    try:
        return float(Kde().fit(points, databases).bandwidth)
    except InputError:
        return None


def _trained(risk: TableRisk, candidates: IntArray, train: BoolArray, *, present: bool) -> Iterator[_Trained]:
    """Each candidate given the rest, and by the cell alone that they change most: fitted on these databases."""
    fit, draws = risk.fit, risk.influences.draws
    rows = np.repeat(train, draws)
    cells = risk.kept_values
    known = fit.basis
    level = np.linalg.lstsq(known[rows], cells[rows], rcond=1e-10)[0]
    residuals = cells - known @ level
    inside = residuals[rows]
    if len(inside) <= inside.shape[1] + known.shape[1] + 5:
        directions: list[FloatArray | None] = [None]
    else:
        directions = [np.asarray(np.linalg.pinv(inside.T @ inside, rcond=1e-12, hermitian=True)), None]
    for row in candidates.tolist():
        databases, places, changes = risk.influences.of(row)
        own = np.zeros((fit.n, draws, len(fit.kept)))
        own[np.ix_(databases, np.arange(draws), places)] = changes
        a = own.mean(axis=(0, 1))
        if not np.any(a):
            continue
        for inverse in directions:
            weights = inverse @ a if inverse is not None else np.eye(len(a))[np.argmax(np.abs(a) / risk.kept_spreads)]
            points = residuals @ weights
            moved = own.reshape(-1, len(a)) @ weights
            if present:  # on every database, what they did on one of the days when they were there
                others = points - moved
                days = np.resize(np.arange(len(databases)), fit.n)
                yield _Trained(others + (changes[days] @ weights[places]).reshape(-1), others)
            else:
                yield _Trained(points, points - moved)
