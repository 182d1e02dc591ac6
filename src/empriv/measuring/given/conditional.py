"""Results given what an adversary knows: delta_i under the worst condition of all views.

A *condition* is one value z of one view (`views`). `ViewSearch` finds each individual's worst condition, and computes
only those that could be: conditions are ruled out by a bound (`weighted.ceiling`), and individuals whose influence is
within epsilon bandwidths are cleared under any weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.base.progress import progress
from empriv.base.threads import workers
from empriv.measuring.given.views import View, database_means, exactness
from empriv.measuring.given.weighted import WeightedBlock, ceiling, slack
from empriv.measuring.given.written_out import WrittenOut, rows_of
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.measuring.line.blocks import Block, largest_shifts
from empriv.results import FloatArray, IntArray, Results

_KNOTS = 300_000  # knots of a block of columns held at once
_BOUNDS = 12_000_000  # bounds held at once
_FIRST = 4  # conditions looked at for each individual before the bounds are looked at again


@dataclass(frozen=True, eq=False)
class ViewSearch:
    """delta_i under the worst condition of some views.

    Attributes
    ----------
    results, pairs : what was measured
    views : those with at least one condition
    show : whether progress is shown, as for `progress`
    """

    results: Results
    pairs: Pairs
    views: tuple[View, ...]
    show: bool | None = None

    @cached_property
    def weights(self) -> FloatArray:
        """(conditions, n)"""
        return np.concatenate([view.weights for view in self.views])

    @cached_property
    def view(self) -> IntArray:
        """View of each condition."""
        return np.repeat(np.arange(len(self.views)), [len(view.places) for view in self.views])

    @cached_property
    def owners(self) -> IntArray:
        """Who alone has each condition's view, or -1."""
        return np.array([view.owner if view.second < 0 else -1 for view in self.views])[self.view]

    @property
    def n_determined(self) -> int:
        """Views in which what is known determines the results."""
        return int(self.determined.sum())

    @cached_property
    def bandwidths(self) -> FloatArray:
        """(conditions,); NaN where what is known determines the results, so that any change is a leak."""
        return np.concatenate([view.bandwidths for view in self.views])

    @cached_property
    def determined(self) -> npt.NDArray[np.bool_]:
        """Views in which what is known determines the results."""
        return np.array([bool(np.isnan(view.bandwidths).any()) for view in self.views])

    @cached_property
    def trends(self) -> FloatArray:
        return np.array([view.trend for view in self.views])

    @cached_property
    def scaling(self) -> FloatArray:
        """(conditions, n)"""
        return np.concatenate([view.scaling for view in self.views])

    @cached_property
    def leftovers(self) -> FloatArray:
        """Standard deviation of what each view's trend leaves of the results."""
        mean, counts = database_means(self.pairs)
        inside = [(view.fitted[:, 0] > 0) & (counts > 0) for view in self.views]
        return np.array([np.std((mean - view.trend)[here]) for view, here in zip(self.views, inside, strict=True)])

    @cached_property
    def shifts(self) -> FloatArray:
        """Largest influence of each individual, in units of the result; inf to or from an atom."""
        return largest_shifts(self.pairs, None)

    @property
    def n_conditions(self) -> int:
        return len(self.weights)

    @cached_property
    def centre(self) -> float:
        finite = self.pairs.points[np.isfinite(self.pairs.points)]
        return float(np.median(finite)) if len(finite) else 0.0

    def subject(self, epsilon: float) -> IntArray:
        """Individuals whom no screening clears: the bound |d|/h <= epsilon holds under any weights."""
        narrowest = 0.0 if np.isnan(self.bandwidths).any() else float(self.bandwidths.min())
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = self.shifts * (1 + 1e-14) > epsilon * narrowest
        return np.flatnonzero(beyond & (self.shifts > 0))

    def curves(
        self, epsilon: FloatArray, *, prune: bool = True, rows: IntArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        """(individuals, epsilons) at ascending epsilons: delta_i, and the worst condition (-1 where delta_i is 0); of
        all individuals, or of ``rows`` alone."""
        out = np.zeros((len(self.shifts), len(epsilon)))
        worst = np.full(out.shape, -1)
        rows = self.subject(float(epsilon[0])) if rows is None else rows
        together = self.n_conditions <= 200 or not prune
        with self._workers(len(rows), "Measuring against adversaries") as (run, advance):
            for some in self._row_blocks(rows):
                block = rows_of(self.results, self.pairs, some)
                for columns in [slice(None)] if together else [slice(c, c + 1) for c in range(len(epsilon))]:
                    out[some, columns], worst[some, columns] = self._worst(block, epsilon[columns], run, prune)
                advance(len(some))
        return out, worst

    def _worst(self, block: WrittenOut, epsilon: FloatArray, run: Run, prune: bool) -> tuple[FloatArray, IntArray]:
        n_rows = len(block.individuals)
        best, worst = np.zeros((n_rows, len(epsilon))), np.full((n_rows, len(epsilon)), -1)
        bounds, floors = self.bounds(block, float(epsilon[0])), self.floors(block)
        if not prune:
            bounds = np.where(self.excluded(block), 0.0, 2.0)
        tried = 0
        order = np.argsort(-bounds, axis=0, kind="stable") if prune and self.n_conditions > _FIRST else None
        step = _FIRST if order is not None else self.n_conditions
        while tried < self.n_conditions:
            if order is None:
                condition, row = np.nonzero(bounds > 0)
            else:
                some = order[tried : tried + step]
                ahead = np.take_along_axis(bounds, some, axis=0)
                # at a delta of 1 nothing is left to find; several epsilons are looked at until the first is settled
                least = best.min(axis=1) if len(epsilon) > 1 else best[:, 0]
                wanted = (ahead > least) & (least < 1.0)
                if not wanted.any():
                    break
                place, row = np.nonzero(wanted)
                condition = some[place, row]
            found = self._columns(block, row, condition, floors, lambda made: made.curves(epsilon), run)
            for column in range(len(epsilon)):
                _raise(best[:, column], worst[:, column], row, condition, found[:, column])
            tried += step
            step *= 4
        return best, worst

    def epsilons(self, delta: float, rows: IntArray | None = None, *, only_worst: bool = False) -> FloatArray:
        """(individuals,) smallest epsilon at which delta_i is at most ``delta`` under every condition.

        With ``only_worst`` only the largest of them is right: whoever cannot need more than it is not looked at.
        """
        out = np.zeros(len(self.shifts))
        rows = self.subject(0.0) if rows is None else rows
        rows = rows[np.argsort(-self.shifts[rows], kind="stable")]
        top = 0.0
        with self._workers(len(rows), "Measuring against adversaries") as (run, advance):
            for some in self._row_blocks(rows):
                block = rows_of(self.results, self.pairs, some)
                reach = np.where(self.bounds(block, 0.0) > delta, self._reach(block), 0.0)
                floors = self.floors(block)
                best, worst = np.full(len(some), top if only_worst else 0.0), np.full(len(some), -1)
                order = np.argsort(-reach, axis=0, kind="stable")
                tried, step = 0, _FIRST
                while tried < self.n_conditions:
                    chosen = order[tried : tried + step]
                    if only_worst:
                        best[:] = best.max()
                    place, row = np.nonzero(np.take_along_axis(reach, chosen, axis=0) > best)
                    if not len(row):
                        break
                    condition = chosen[place, row]
                    found = self._columns(block, row, condition, None, lambda made: made.epsilons(delta)[:, None], run)
                    needed = found[:, 0]
                    if floors is not None:
                        needed = np.where(floors[condition, row] > delta, np.inf, needed)
                    _raise(best, worst, row, condition, needed)
                    tried, step = tried + step, step * 4
                out[some] = best
                top = max(top, float(best.max(initial=0.0)))
                advance(len(some))
        return out

    def by_condition(self, individual: int, epsilon: float) -> FloatArray:
        """(conditions,) delta_i of one individual under each condition; NaN under their own view."""
        block = rows_of(self.results, self.pairs, np.array([individual]))
        condition = np.flatnonzero(~self.excluded(block)[:, 0])
        out = np.full(self.n_conditions, np.nan)
        row = np.zeros(len(condition), np.int64)
        out[condition] = self.compute(block, row, condition, np.array([epsilon]))[:, 0]
        return out

    def compute(self, block: WrittenOut, row: IntArray, condition: IntArray, epsilon: FloatArray) -> FloatArray:
        """(columns, epsilons) delta_i of individual ``row`` of the block under each ``condition``."""
        with self._workers(1, "") as (run, _):
            return self._columns(block, row, condition, self.floors(block), lambda made: made.curves(epsilon), run)

    # Bounds

    def excluded(self, block: WrittenOut) -> npt.NDArray[np.bool_]:
        """(conditions, rows): an adversary is not asked about themselves."""
        return np.asarray(self.owners[:, None] == block.individuals[None, :])

    def bounds(self, block: WrittenOut, epsilon: float) -> FloatArray:
        """(conditions, rows) upper bounds of delta_i, never below what `_columns` gives; 0 for what is cleared."""
        n = self.weights.shape[1]
        out = np.empty((self.n_conditions, len(block.individuals)))
        largest = block.distance.max(axis=1)
        order = np.argsort(self.bandwidths, kind="stable")  # NaN, where any change is a leak, comes last
        h = self.bandwidths[order]
        start = 0
        while start < len(order):
            # views of nearly the same bandwidth share the narrowest of them: the bound only grows
            stop = max(start + 1, int(np.searchsorted(h, 1.02 * h[start], side="right")))
            stop = len(order) if np.isnan(h[start]) else stop
            with np.errstate(divide="ignore", invalid="ignore"):
                shifts = block.distance / h[start] if h[start] > 0 else np.where(block.distance > 0, np.inf, 0.0)
            parts = ceiling(shifts, epsilon).reshape(len(shifts), n, -1).mean(axis=2)
            part = self.weights[order[start:stop]] @ parts.T
            if h[start] > 0:
                cleared = largest[None, :] * (1 + 1e-14) <= epsilon * h[start:stop, None]
                part = np.where(cleared, 0.0, part + 4 * slack(block.points.shape[1]))
            out[order[start:stop]] = part
            start = stop
        floors = self.floors(block)
        if floors is not None:
            np.maximum(out, floors, out=out)
        out[self.excluded(block)] = 0.0
        return out

    def _reach(self, block: WrittenOut) -> FloatArray:
        """(conditions, rows): an epsilon that is enough for delta = 0: the largest shift in bandwidths."""
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = block.distance.max(axis=1)[None, :] / self.bandwidths[:, None]
        reach = np.where(np.isnan(reach), np.where(block.distance.max(axis=1)[None, :] > 0, np.inf, 0.0), reach)
        floors = self.floors(block)
        if floors is not None:
            reach = np.where(floors > 0, np.inf, reach)
        return np.where(self.excluded(block), 0.0, reach * (1 + 1e-9) + 1e-9)

    def floors(self, block: WrittenOut) -> FloatArray | None:
        """(conditions, rows) delta_i that exact knowledge gives, None where nobody has any.

        If the results without somebody are a linear function of what is known, and not those with everyone (or the
        other way round), then the share of databases where the two differ gives that somebody away, however smooth
        a density may be fitted.
        """
        largest = block.distance.max(axis=1, initial=0.0)
        n = self.weights.shape[1]
        finite = largest[np.isfinite(largest)]
        # Least squares leave no more of q than q - q_i if q_i is linear: who moves less cannot be exact.
        suspects = np.flatnonzero(self.determined | (finite.max(initial=0.0) >= 0.999 * self.leftovers))
        differs = (block.distance > tie_tolerance(self.pairs.points)).reshape(len(largest), n, -1).mean(axis=2)
        out: FloatArray | None = None
        for place in suspects:
            view = self.views[place]
            if self.determined[place]:
                rows = np.arange(len(largest))
            else:
                rows = np.flatnonzero((largest >= 0.999 * self.leftovers[place]) & np.isfinite(largest))
                rows = rows[self._linear(block, rows, view)] if len(rows) else rows
            if not len(rows):
                continue
            out = np.zeros((self.n_conditions, len(largest))) if out is None else out
            here = np.flatnonzero(self.view == place)
            out[np.ix_(here, rows)] = np.minimum(view.weights @ differs[rows].T, 1.0)
        if out is not None:
            out[self.excluded(block)] = 0.0
        return out

    def _linear(self, block: WrittenOut, rows: IntArray, view: View) -> npt.NDArray[np.bool_]:
        """Whose results are a linear function of what is known, to within `exactness`."""
        inside = np.repeat(view.fitted[:, 0] > 0, self.pairs.draws)
        without = block.without[rows][:, inside] - self.centre
        usable = np.asarray(np.all(np.isfinite(without), axis=1))
        design = np.repeat(view.fitted, self.pairs.draws, axis=0)[inside]
        scale = np.abs(design).max(axis=0)
        basis = np.linalg.svd(design / np.where(scale > 0, scale, 1.0), full_matrices=False)
        basis_u = basis[0][:, basis[1] > 1e-10 * basis[1].max()]
        safe = np.where(usable[:, None], without, 0.0)
        left = safe - (safe @ basis_u) @ basis_u.T
        return np.asarray(usable & (np.ptp(left, axis=1) <= exactness(self.pairs.points)))

    # Columns

    def _columns(
        self,
        block: WrittenOut,
        row: IntArray,
        condition: IntArray,
        floors: FloatArray | None,
        task: Callable[[Block], FloatArray],
        run: Run,
    ) -> FloatArray:
        """(columns, ...): ``task`` on individual ``row`` of the block under each ``condition``; never below floors."""
        step = max(1, _KNOTS // (2 * block.points.shape[1]))
        pieces = [slice(start, start + step) for start in range(0, len(row), step)]
        parts = list(run(lambda piece: task(self._make(block, row[piece], condition[piece])), pieces))
        found = np.concatenate(parts) if parts else np.zeros((0, 1))
        return found if floors is None else np.maximum(found, floors[condition, row][:, None])

    def _make(self, block: WrittenOut, row: IntArray, condition: IntArray) -> Block:
        draws = self.pairs.draws
        view = self.view[condition]
        weights = np.repeat(self.weights[condition], draws, axis=1) / draws
        h = self.bandwidths[condition]
        trend, scaling = (np.repeat(x, draws, axis=1) for x in (self.trends[view], self.scaling[condition]))
        # Where what is known determines the results there is no density: all is said by `floors`, and by atoms.
        points, without = ((x[row] - trend) for x in (block.points, block.without))
        with np.errstate(invalid="ignore"):  # inf - inf, at atoms
            change = without - points
        points = points * scaling
        # What an individual changes stays what it is: to scale it too would hide it where results spread less.
        without = np.where(np.isfinite(change), points + change, without * scaling)
        points, without = points / h[:, None], without / h[:, None]
        determined = np.isnan(h)
        points[determined], without[determined] = np.inf, np.inf
        codes, codes_without = block.codes[row], block.codes_without[row]
        names = np.union1d(np.unique(codes), np.unique(codes_without))
        names = names[names != 0]
        masses = [
            np.stack([np.where(c == name, weights, 0.0).sum(axis=1) for name in names], axis=1)
            if len(names)
            else np.zeros((len(row), 0))
            for c in (codes, codes_without)
        ]
        source = WeightedBlock(points, without, 1.0, weights)
        return Block(source, masses[0] if len(names) else np.zeros(0), masses[1], slack(points.shape[1]))

    def _row_blocks(self, rows: IntArray) -> Iterator[IntArray]:
        step = max(1, min(_BOUNDS // max(1, self.n_conditions), 4_000_000 // max(1, len(self.pairs.points))))
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def _workers(self, total: int, title: str) -> Workers:
        return Workers(total, title, self.show)


Task = Callable[[slice], FloatArray]
Run = Callable[[Task, Sequence[slice]], Iterator[FloatArray]]


class Workers(ExitStack):
    """Threads and a progress bar, for as long as the body runs; an interrupt drops what has not begun."""

    def __init__(self, total: int, title: str, show: bool | None) -> None:
        super().__init__()
        self._asked = total, title, show

    def __enter__(self) -> tuple[Run, Callable[[int], None]]:  # type: ignore[override]
        super().__enter__()
        total, title, show = self._asked
        advance = self.enter_context(progress(total, title, show=show if title else False))
        pool = ThreadPoolExecutor(workers())
        self.callback(pool.shutdown, wait=True, cancel_futures=True)
        return pool.map, advance


def _raise(best: FloatArray, worst: IntArray, row: IntArray, condition: IntArray, found: FloatArray) -> None:
    """Take what is larger than the best so far into ``best`` and ``worst``; of equals the first condition."""
    order = np.lexsort((-condition, found))  # of repeated places the last assignment stays
    top, first = np.zeros(len(best)), np.full(len(best), -1)
    top[row[order]], first[row[order]] = found[order], condition[order]
    better = (top > best) | ((top == best) & (top > 0) & (first < worst))
    best[better], worst[better] = top[better], first[better]
