"""`measure`: from results to `Risk`, the privacy of every individual at any epsilon.

Here the parts come together: atoms apart (`atoms`), a density fitted to the rest (`densities`), individuals screened
out whose influence proves delta_i = 0, and the rest cut into cells (`laplace`, `mixtures`, `generic`) block by block,
in threads. The sums themselves are in `hockeystick`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring import generic, laplace, mixtures
from empriv.measuring.atoms import Pairs, split
from empriv.measuring.densities import Density, Kde, Mixture, Model
from empriv.measuring.hockeystick import LARGEST_EPSILON, Cells, at, constant_cells, curve, invert, join
from empriv.results import FloatArray, IntArray, Results

_KNOTS = 42_000  # knots of a block of individuals held at once: small enough for the processor's cache
_VALUES = 400_000  # kernel values held at once
_WORKERS = os.cpu_count() or 1


def measure(
    q: npt.ArrayLike | Results,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> Risk:
    """Privacy of query results.

    Parameters
    ----------
    q : (n,) results with everyone, (n, m) with m draws for each database, or `Results`
    q_without : (individuals, n) or (individuals, n, m) results without each individual; not with `Results`
    density : how densities are estimated; default ``Kde("laplace", "one-se")``
    individuals : labels, one for each row of ``q_without``

    Returns
    -------
    Risk
        ``delta_i``, ``delta``, ``total_risk`` at any epsilon, and their inverses.
    """
    if isinstance(q, Results):
        if q_without is not None or individuals is not None:
            raise InputError("`q_without` and `individuals` must not be given with `Results`, which hold both.")
        results = q
    elif q_without is None:
        raise InputError("`q_without` must be given: the results without each individual.")
    else:
        results = Results.from_arrays(q, q_without, individuals=individuals)
    if results.components is not None:
        raise InputError(
            f"`measure` takes the results of one number, got a vector of {len(results.components)} components. "
            "Hint: results.component(name) is one of them."
        )
    density = Kde() if density is None else density
    if not isinstance(density, Density):
        raise InputError(f"`density` must have a method `fit`, got {type(density).__name__}. Hint: empriv.Kde().")
    pairs = split(results, look=not getattr(density, "literal", False))
    databases = np.repeat(np.arange(results.n_databases), pairs.draws)
    model = density.fit(pairs.points, databases) if np.isfinite(pairs.points).any() else None
    return Risk(results=results, density=model, pairs=pairs, shifts=_shifts(pairs, model))


@dataclass(frozen=True, eq=False)
class Risk:
    """How private the query results are for every individual: an estimate from the databases at hand.

    Attributes
    ----------
    results : what was measured
    density : the fitted model, with its ``name`` and the ``scores`` of every candidate; None if all results are atoms
    pairs : the points that the density is of, and the atoms
    shifts : largest influence of each individual in bandwidths: 0 for who never changes the result, inf for who
        moves a result to or from an atom
    """

    results: Results
    density: Model | None
    pairs: Pairs = field(repr=False)
    shifts: FloatArray = field(repr=False)
    _known: dict[tuple[float, ...], FloatArray] = field(default_factory=dict, repr=False)

    def delta_i(self, epsilon: npt.ArrayLike) -> FloatArray:
        """Failure probability of each individual: (individuals,), or (individuals, epsilons) for an array.

        Never understated by rounding; exactly 0 where the ratio of densities is proved to stay within e^epsilon.
        """
        grid = _epsilons(epsilon)
        key = tuple(grid.ravel().tolist())
        if key not in self._known:
            self._known.clear()  # one curve is kept: large tables would fill the memory otherwise
            ordered, back = np.unique(grid.ravel(), return_inverse=True)
            self._known[key] = self._curves(ordered)[:, back]
        found = self._known[key]
        return found[:, 0].copy() if grid.ndim == 0 else found.copy()

    def delta(self, epsilon: npt.ArrayLike) -> Any:
        """Largest delta_i: a float, or an array for an array."""
        worst = self.delta_i(np.atleast_1d(_epsilons(epsilon))).max(axis=0, initial=0.0)
        return float(worst[0]) if np.ndim(epsilon) == 0 else worst

    def total_risk(self, epsilon: npt.ArrayLike) -> Any:
        """``1 - prod(1 - delta_i)``: chance that somebody's privacy fails, if failures are independent."""
        delta_i = self.delta_i(np.atleast_1d(_epsilons(epsilon)))
        with np.errstate(divide="ignore"):
            total = -np.expm1(np.log1p(-delta_i).sum(axis=0))
        total = np.maximum(total, delta_i.max(axis=0, initial=0.0))  # never below delta, by rounding
        return float(total[0]) if np.ndim(epsilon) == 0 else total

    def epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is.

        At delta = 0 this is sup |log p/p_i|: far out it is decided by the kernel's tails, not by the data.
        """
        _check_delta(delta)
        out = np.zeros(len(self.shifts))
        for rows, found in self._map(self._subject_rows(0.0), lambda block: block.epsilons(delta)):
            out[rows] = found
        return out

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        _check_delta(delta)
        best = 0.0
        rows = self._subject_rows(0.0)
        rows = rows[np.argsort(-self.shifts[rows], kind="stable")]  # who moves the results most, first
        step = max(1024, len(rows) // 16)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            lipschitz = self.density.kernel.log_lipschitz if isinstance(self.density, Mixture) else np.inf
            some = some[self._own_or_beyond(some, best, lipschitz)]
            for _, found in self._map(some, lambda block: block.epsilons(delta)):
                best = max(best, float(found.max(initial=0.0)))
        return best

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the individuals, riskiest first; ``pandas.DataFrame`` takes it as it is.

        individual, delta_i, largest_influence (in units of the result; NaN if a result changes to or from an
        outcome that is no number), databases (in how many the individual is).
        """
        delta_i = self.delta_i(float(epsilon))
        influence = self.influence()
        size = np.where(np.isnan(influence), np.inf, influence)
        order = np.lexsort((-size, -delta_i))[:top]
        return {
            "individual": self.results.individuals[order],
            "delta_i": delta_i[order],
            "largest_influence": influence[order],
            "databases": self.results.presence[order],
        }

    def influence(self) -> FloatArray:
        """Largest change that each individual makes to a result; NaN where a result is no number on one side only."""
        results = self.results
        with np.errstate(invalid="ignore"):
            change = np.abs(results.entry_q - results.q[results.entry_database])
        same = results.entry_outcomes == results.outcomes[results.entry_database]
        change = np.where(same & (results.entry_outcomes != 0), 0.0, change)
        return _largest(change.reshape(len(change), -1), results.starts)

    def pdf(self, x: npt.ArrayLike) -> FloatArray:
        """Density of the results with everyone; atoms have none."""
        x = np.asarray(x, float)
        return np.zeros_like(x) if self.density is None else self.density.pdf(x, self.pairs.points)

    def pdf_without(self, individual: Any, x: npt.ArrayLike) -> FloatArray:
        """Density of the results without an individual, given by label."""
        row = self.results.position(individual)
        x = np.asarray(x, float)
        if self.density is None:
            return np.zeros_like(x)
        return self.density.pdf(x, self.pairs.dense(np.array([row]))[0])

    # How it is computed

    def _curves(self, epsilon: FloatArray) -> FloatArray:
        out = np.zeros((len(self.shifts), len(epsilon)))
        for rows, found in self._map(self._subject_rows(epsilon[0]), lambda block: block.curves(epsilon)):
            out[rows] = found
        if isinstance(self.density, Mixture) and not np.isfinite(self.density.kernel.log_lipschitz):
            # Screened by a bound that is tiny rather than zero: said so, not rounded down.
            screened = (self.shifts > 0) & ~self._beyond(self.shifts, epsilon[0])
            out[screened] = mixtures.SLACK
        return out

    def _subject_rows(self, epsilon: float) -> IntArray:
        """Individuals whom no screening clears at ``epsilon``."""
        return np.flatnonzero(self._beyond(self.shifts, epsilon) & (self.shifts > 0))

    def _beyond(self, shifts: FloatArray, epsilon: float) -> npt.NDArray[np.bool_]:
        """Whose shifts may break ``epsilon`` (docs/mathematics.md, "Screening")."""
        if not isinstance(self.density, Mixture) or self.density.refit is not None:
            return np.ones(len(shifts), bool)
        kernel = self.density.kernel
        if np.isfinite(kernel.log_lipschitz):
            return np.asarray(shifts * kernel.log_lipschitz * (1 + 1e-14) > epsilon)
        if kernel.tail == "gaussian":
            # The hockey stick of two normal laws s apart is below Phi(s/2 - epsilon/s); 8.3 makes it 1e-16.
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(~(epsilon / shifts - 0.5 * shifts > 8.3))
        return np.ones(len(shifts), bool)

    def _own_or_beyond(self, rows: IntArray, epsilon: float, lipschitz: float) -> npt.NDArray[np.bool_]:
        if not np.isfinite(lipschitz):
            return np.ones(len(rows), bool)
        return self._beyond(self.shifts[rows], epsilon)

    def _map(self, rows: IntArray, task: Callable[[_Block], FloatArray]) -> Iterator[tuple[IntArray, FloatArray]]:
        """Blocks of these individuals, ``task`` done on each in threads."""
        pairs = self.pairs.centred() if isinstance(self.density, Mixture) else self.pairs
        jobs = list(_jobs(pairs, self.density, self.shifts, rows))

        def run(job: tuple[IntArray, Callable[[], _Block]]) -> tuple[IntArray, FloatArray]:
            return job[0], task(job[1]())

        if len(jobs) < 2 or _WORKERS < 2:
            yield from map(run, jobs)
            return
        with ThreadPoolExecutor(_WORKERS) as pool:
            yield from pool.map(run, jobs)


@dataclass(frozen=True, eq=False)
class _Block:
    """Cells of a block of individuals, atoms included, and what rounding may do to their sums."""

    source: laplace.LaplaceBlock | mixtures.MixtureBlock | generic.GenericBlock | None
    mass: FloatArray
    mass_without: FloatArray
    slack: float
    exact_range: Callable[[int], tuple[float, float]] | None = None

    @property
    def rows(self) -> int:
        return len(self.mass_without)

    def cells(self, direction: int, least: float) -> Cells:
        both = np.broadcast_to(self.mass, self.mass_without.shape), self.mass_without
        atoms = constant_cells(*(both if direction == 0 else both[::-1]))
        if self.source is None:
            return atoms
        cells = self.source.cells(direction, least)
        if not len(atoms.row):
            return cells
        return join(cells, atoms)

    def log_suprema(self) -> tuple[FloatArray, FloatArray]:
        """sup log p/p_i and sup log p_i/p of each individual, atoms included."""
        if isinstance(self.source, laplace.LaplaceBlock):
            low, high = self.source.range()
            with np.errstate(divide="ignore"):
                low, high = np.log(low), np.log(high)
            for row in np.flatnonzero(np.isinf(low) | np.isinf(high)):
                if self.exact_range is not None:
                    low[row], high[row] = self.exact_range(int(row))
        elif self.source is not None:
            low, high = self.source.log_range()
        else:
            low = high = np.zeros(self.rows)
        ups = []
        for direction, smooth in ((0, high), (1, -low)):
            atoms = _Block(None, self.mass, self.mass_without, 0.0).cells(direction, 0.0)
            top = smooth.copy()
            with np.errstate(divide="ignore"):
                np.maximum.at(top, atoms.row, np.log(atoms.high))
            ups.append(np.maximum(top, 0.0))
        return ups[0], ups[1]

    def curves(self, epsilon: FloatArray) -> FloatArray:
        """(rows, epsilons): the larger hockey stick, rounded up; 0 where the supremum shows that there is none."""
        epsilon = np.minimum(epsilon, LARGEST_EPSILON)
        e = np.exp(epsilon) * (1.0 - self.slack)
        sticks = [self._curve(direction, e) for direction in (0, 1)]
        largest = np.maximum(*self.log_suprema()) - np.log1p(-self.slack)
        some = largest[:, None] > epsilon
        return np.where(some, np.clip(np.maximum(*sticks), 0.0, 1.0 - self.slack) + self.slack, 0.0)

    def _curve(self, direction: int, e: FloatArray) -> FloatArray:
        if isinstance(self.source, laplace.LaplaceBlock) and not len(self.mass):
            return self.source.curve(direction, e)
        return curve(self.cells(direction, e[0]), e, self.rows)

    def epsilons(self, delta: float) -> FloatArray:
        """(rows,): smallest epsilon at which `curves` is at most ``delta``."""
        out = np.zeros(self.rows)
        target = delta - self.slack
        for direction, largest in enumerate(self.log_suprema()):
            # the supremum, rounded so that `curves` is 0 from there on
            ends = np.where(largest > 0, np.nextafter(largest - np.log1p(-self.slack), np.inf), 0.0)
            if target <= 0:
                found = ends
            else:
                cells = self.cells(direction, 1.0 - self.slack)
                e = invert(cells, target, np.exp(np.minimum(largest, LARGEST_EPSILON)))
                found = np.minimum(np.maximum(np.nextafter(np.log(e) - np.log1p(-self.slack), np.inf), 0.0), ends)
                found = np.where(at(cells, np.ones(self.rows) * (1.0 - self.slack))[0] <= target, 0.0, found)
                found = np.where(at(cells, e)[0] > target, ends, found)
            out = np.maximum(out, found)
        return out


def _jobs(
    pairs: Pairs, model: Model | None, shifts: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, Callable[[], _Block]]]:
    """Blocks of individuals that can be cut together, each with the function that does it."""
    own = dict(pairs.own)
    alone = np.isin(rows, np.fromiter(own, np.int64, len(own)))
    for row in rows[alone]:
        yield np.array([row]), _maker(own[int(row)], model, np.array([0]), None)
    rows = rows[~alone]
    size = len(pairs.points)
    if not isinstance(model, Mixture):
        groups: list[tuple[IntArray, int, mixtures.Near | None]] = [(rows, 4096 if model is None else 1, None)]
    elif _closed_form(model):
        # Like with like: a block needs no more of the curve than its most exposed individual.
        groups = [(rows[np.argsort(-shifts[rows], kind="stable")], max(1, _KNOTS // (2 * size)), None)]
    else:
        groups = list(_mixture_groups(pairs, model, shifts, rows))
    for some, step, near in groups:
        for start in range(0, len(some), step):
            block_rows = some[start : start + step]
            yield block_rows, _maker(pairs, model, block_rows, near)


def _closed_form(model: Mixture) -> bool:
    return model.kernel.name == "laplace" and model.refit is None and bool(np.isfinite(model.bandwidth))


def _mixture_groups(
    pairs: Pairs, model: Mixture, shifts: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, int, mixtures.Near | None]]:
    """Individuals by the size of their shifts: those who move points little share nodes."""
    size = len(pairs.points)
    if not model.kernel.kinks and model.refit is None and np.isfinite(pairs.points).any():
        side = mixtures.Side.of(model.kernel, pairs.points[None, :], model.bandwidths[None, :])
        nodes = mixtures.common_nodes(model.kernel, pairs.points, model.bandwidths)
        for reach in mixtures.NEAR:
            some = rows[shifts[rows] <= reach]
            rows = rows[shifts[rows] > reach]
            if len(some):
                near = mixtures.Near.of(side, nodes, reach)
                yield some, max(1, _VALUES // (size * near.degree)), near
    near_enough = shifts[rows] <= mixtures.NEAR[-1]
    for some in (rows[near_enough], rows[~near_enough]):
        yield some, max(1, _VALUES // (400 * size)), None


def _maker(pairs: Pairs, model: Model | None, rows: IntArray, near: mixtures.Near | None) -> Callable[[], _Block]:
    """The function that cuts these individuals' results into cells."""

    def make() -> _Block:
        points, without = pairs.points, pairs.dense(rows)
        masses = pairs.mass, pairs.mass_without[rows]
        nothing = not np.isfinite(points).any() and not np.isfinite(without).any()
        if model is None or nothing:
            return _Block(None, *masses, slack=1e-15)
        if not isinstance(model, Mixture):
            return _Block(generic.block(model, points, without[0]), *masses, slack=generic.SLACK)
        if _closed_form(model):
            h = model.bandwidth

            def exact(row: int) -> tuple[float, float]:
                return laplace.log_ratio_range(points, without[row], h)

            return _Block(laplace.block(points, without, h), *masses, slack=laplace.slack(points), exact_range=exact)
        return _Block(_mixture(model, points, without, near), *masses, slack=mixtures.SLACK)

    return make


def _mixture(
    model: Mixture, points: FloatArray, without: FloatArray, near: mixtures.Near | None
) -> mixtures.MixtureBlock:
    own = model.bandwidths[None, :]
    if model.refit is not None:
        own = np.stack([_refitted(model, row) for row in without])
    with_all = mixtures.Side.of(model.kernel, points[None, :], model.bandwidths[None, :])
    side = mixtures.Side.of(model.kernel, without, own)
    if near is not None:
        return mixtures.near_block(with_all, side, near)
    with np.errstate(invalid="ignore"):
        near_enough = np.all(np.abs(points - without) <= mixtures.NEAR[-1] * model.bandwidths)
    if near_enough and model.refit is None:
        shared = mixtures.common_nodes(model.kernel, points, model.bandwidths)
        nodes = mixtures.kink_nodes(model.kernel, shared, without, own)
    else:
        nodes = mixtures.far_nodes(model.kernel, points, model.bandwidths, without, own)
    return mixtures.far_block(with_all, side, nodes)


def _refitted(model: Mixture, points: FloatArray) -> FloatArray:
    """Bandwidths fitted anew to the results without an individual; the shared ones where that cannot be done."""
    try:
        fitted = model.refit.fit(points, np.arange(len(points)))
    except InputError:
        return model.bandwidths
    return np.asarray(fitted.bandwidths)


def _shifts(pairs: Pairs, model: Model | None) -> FloatArray:
    """Largest influence of each individual, in bandwidths of the pair; inf to or from an atom."""
    q = pairs.points.reshape(-1, pairs.draws)
    h = model.bandwidths.reshape(q.shape) if isinstance(model, Mixture) else np.ones_like(q)
    with np.errstate(invalid="ignore"):
        if len(pairs.entries) == len(q) * pairs.n_individuals and np.all(np.diff(pairs.starts) == len(q)):
            # everyone everywhere: no need to look at which database
            change = pairs.entries.reshape(pairs.n_individuals, *q.shape) - q
            change /= h
            change = np.abs(change, out=change).reshape(pairs.n_individuals, -1)
            shifts = change.max(axis=1) if not len(pairs.mass) else np.fmax.reduce(change, axis=1)
        else:
            change = np.abs(pairs.entries - q[pairs.entry_database]) / h[pairs.entry_database]
            shifts = _largest(np.where(np.isnan(change), 0.0, change), pairs.starts)
    # A pair at an atom on both sides is NaN; the masses below tell whether it is at the same one.
    shifts = np.where(np.isnan(shifts), 0.0, shifts)
    if len(pairs.mass):
        shifts[np.any(pairs.mass_without != pairs.mass, axis=1)] = np.inf
    for row, _ in pairs.own:
        shifts[row] = np.inf
    return shifts


def _largest(change: FloatArray, starts: IntArray) -> FloatArray:
    """Largest of each individual's entries, 0 where there are none; NaN wins."""
    out = np.zeros(len(starts) - 1)
    some = np.diff(starts) > 0
    if some.any():
        out[some] = np.maximum.reduceat(change.max(axis=1), starts[:-1][some])
    return out


def _epsilons(epsilon: npt.ArrayLike) -> FloatArray:
    try:
        grid = np.asarray(epsilon, float)
    except (TypeError, ValueError):
        raise InputError("`epsilon` must be a number or an array of numbers.") from None
    if grid.ndim > 1 or grid.size == 0:
        raise InputError(f"`epsilon` must be a number or a non-empty array of one dimension, got shape {grid.shape}.")
    if np.isnan(grid).any() or (grid < 0).any():
        raise InputError("`epsilon` must be at least 0, got a negative number or NaN.")
    return grid


def _check_delta(delta: float) -> None:
    if not 0.0 <= delta <= 1.0:
        raise InputError(f"`delta` must lie in [0, 1], got {delta}.")
