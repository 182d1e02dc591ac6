"""`measure_line`: from results of one number to `Risk`, the privacy of every individual at any epsilon.

The parts come together here. Atoms are set apart (`atoms`) and a density is fitted to the rest (`densities`).
Individuals whose influence proves delta_i = 0 are screened out. `jobs` sorts the others into blocks by how their cells
are made: in closed form (`laplace`), or for any other kernel or model (`other_kernels`). A `Block` answers for all of
its individuals at once, atoms included; blocks are asked in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.base.machine import workers
from empriv.base.progress import progress
from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk, largest_of
from empriv.measuring.densities.density import Density, Mixture, Model, density_or_default, is_literal
from empriv.measuring.densities.selection import Score
from empriv.measuring.line import laplace, other_kernels
from empriv.measuring.line.atoms import Pairs, spread_ratios, take_atoms_out
from empriv.measuring.line.hockeystick import LARGEST_EPSILON, Cells, at, constant_cells, curve, invert, join
from empriv.measuring.line.last_digits import digit_steps, pairs_at_step
from empriv.measuring.line.moves import Moves, moves_of
from empriv.results import FloatArray, IntArray, Results

_KNOTS = 336_000  # knots of a block of individuals held at once
_VALUES = 400_000  # kernel values held at once


def measure_line(
    results: Results, density: Density | None = None, *, people: int | None = None, digits: bool = True
) -> Risk:
    """Privacy of the results of one number; `measure` takes arrays and several numbers too.

    ``people`` is how many individuals there are in all, where ``results`` are of some of them. ``digits`` is whether to
    look for patterns in the last digits: what a regression leaves over has none.
    """
    if results.components is not None:
        raise InputError(
            f"`results` must be of one number, got a vector of {len(results.components)} components. "
            "Hint: results.component(name) is one of them."
        )
    density = density_or_default(density)
    pairs = pairs_of(results, look=not is_literal(density), digits=digits, people=people)
    databases = np.repeat(np.arange(results.n_databases), pairs.draws)
    model = density.fit(pairs.points, databases) if np.isfinite(pairs.points).any() else None
    return Risk(results=results, density=model, pairs=pairs, shifts=largest_shifts(pairs, model))


def pairs_of(results: Results, *, look: bool, digits: bool = True, people: int | None = None) -> Pairs:
    """The pairs of results; with ``look``, atoms of numbers, patterns in their digits, and changes of their spread."""
    pairs = replace(take_atoms_out(results, look=look), people=results.n_individuals if people is None else people)
    if look:
        pairs = replace(pairs, ratios=spread_ratios(pairs))
    if look and digits:
        pairs = replace(pairs, digit_steps=digit_steps(pairs))
    return pairs


@dataclass(frozen=True, eq=False)
class Risk(AnyRisk):
    """How private the query results are for every individual: an estimate from the databases at hand.

    Made by `empriv.measure`, and by `empriv.audit`, which keeps it in `Audit.risk`.

    Attributes
    ----------
    results : what was measured
    density : the fitted model, with its ``name`` and the ``scores`` of every candidate; None if all results are atoms
    pairs : the points that the density is of, and the atoms
    shifts : largest influence of each individual in bandwidths: 0 for people who never change the result, inf for
        people who move a result to or from an atom, or change the last digits

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> risk.delta_i(0.1).round(3)
    array([0.077, 0.071, 0.054])
    >>> print(f"{risk.epsilon(delta=0.01):.2f}")
    0.73
    """

    results: Results
    density: Model | None = field(repr=False)
    pairs: Pairs = field(repr=False)
    shifts: FloatArray = field(repr=False)
    postprocessed_from: AnyRisk | None = field(default=None, repr=False, kw_only=True)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        """delta_i; exactly 0 where the ratio of densities is proved to stay within e^epsilon."""
        out = np.zeros((len(self.shifts), len(epsilons)))
        for rows, block_curves in self._map(self._subject_rows(epsilons[0]), lambda block: block.curves(epsilons)):
            out[rows] = np.maximum(out[rows], block_curves)
        # Screened by a bound that may be tiny rather than zero: it is stated, not rounded down.
        bounded = isinstance(self.density, Mixture) and np.isfinite(self.density.kernel.log_lipschitz)
        least, moving = 0.0 if bounded else other_kernels.SLACK, self.shifts > 0
        out[moving & ~self._beyond(self.shifts, epsilons[0])] = least
        if np.isinf(epsilons[-1]):
            # e^inf times a density that rounds to 0 says nothing: what is proved for a single epsilon holds here too.
            out[moving & ~self._beyond(self.shifts, np.inf), -1] = least
        return out

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return None if self.density is None else (self.density.name, self.density.scores)

    def own_epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is.

        At delta = 0 this is sup |log p/p_i|: far out it is decided by the kernel's tails, not by the data.
        """
        probability("delta", delta)
        out = np.zeros(len(self.shifts))
        for rows, smallest in self._map(self._subject_rows(0.0), lambda block: block.epsilons(delta)):
            out[rows] = np.maximum(out[rows], smallest)
        return out

    def own_epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        probability("delta", delta)
        best = 0.0
        rows = self._subject_rows(0.0)
        provable = isinstance(self.density, Mixture) and np.isfinite(self.density.kernel.log_lipschitz)
        rows = rows[np.argsort(-self.shifts[rows], kind="stable")]
        start, stop = 0, 16  # a few who change most first: what they need shows who can be skipped
        while start < len(rows) and best < np.inf:
            block_rows = rows[start:stop]
            if provable:  # people who cannot need more than the worst so far are skipped
                block_rows = block_rows[self._beyond(self.shifts[block_rows], best)]
            for _, smallest in self._map(block_rows, lambda block: block.epsilons(delta)):
                best = max(best, float(smallest.max(initial=0.0)))
            start, stop = stop, min(8 * stop, stop + max(1024, len(rows) // 16))
        return best

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

    def moves(self) -> Moves:
        """By how much everybody moved the answer, on every database that they were in."""
        return moves_of(self.results)

    # How it is computed

    def _subject_rows(self, epsilon: float) -> IntArray:
        """Individuals not cleared by screening at ``epsilon``."""
        return np.flatnonzero(self._beyond(self.shifts, epsilon) & (self.shifts > 0))

    def _beyond(self, shifts: FloatArray, epsilon: float) -> npt.NDArray[np.bool_]:
        """Which of these shifts may break ``epsilon`` (docs/method.md, "Screening")."""
        if not isinstance(self.density, Mixture):
            return np.ones(len(shifts), bool)
        kernel = self.density.kernel
        if np.isfinite(kernel.log_lipschitz):
            # people who move a result to or from an atom are beyond any epsilon
            return np.asarray((shifts * kernel.log_lipschitz * (1 + 1e-14) > epsilon) | np.isinf(shifts))
        if kernel.tail == "gaussian":
            # The hockey stick of two normal laws s apart is below Phi(s/2 - epsilon/s); 8.3 makes it 1e-16.
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(~(epsilon / shifts - 0.5 * shifts > 8.3))
        return np.ones(len(shifts), bool)

    def _map(self, rows: IntArray, task: Callable[[Block], FloatArray]) -> Iterator[tuple[IntArray, FloatArray]]:
        """Blocks of these individuals, ``task`` done on each in threads."""
        blocks = list(blocks_of(self.pairs, self.density, self.shifts, rows))

        def run(job: tuple[IntArray, Callable[[], Block]]) -> tuple[IntArray, FloatArray]:
            return job[0], task(job[1]())

        count = min(workers(), len(blocks))
        with progress(len(rows), "Measuring") as advance, ExitStack() as stack:
            done = stack.enter_context(ThreadPoolExecutor(count)).map(run, blocks) if count > 1 else map(run, blocks)
            for block_rows, answers in done:
                advance(len(block_rows))
                yield block_rows, answers


@dataclass(frozen=True, eq=False)
class Block:
    """Cells of a block of individuals, atoms included, and what rounding may do to their sums."""

    source: laplace.LaplaceBlock | other_kernels.MixtureBlock | None
    mass: FloatArray
    mass_without: FloatArray
    slack: float

    @property
    def rows(self) -> int:
        return len(self.mass_without)

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere, and all atoms."""
        atoms = self._atoms(direction)
        return atoms if self.source is None else join(self.source.cells(direction, least), atoms)

    def _atoms(self, direction: int) -> Cells:
        masses = np.broadcast_to(self.mass, self.mass_without.shape), self.mass_without
        return constant_cells(*(masses if direction == 0 else masses[::-1]))

    def log_suprema(self) -> tuple[FloatArray, FloatArray]:
        """sup log p/p_i and sup log p_i/p of each individual, atoms included."""
        low = high = np.zeros(self.rows)
        if self.source is not None:
            low, high = self.source.log_range()
        return self._with_atoms(low, high)

    def _with_atoms(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Both suprema, from the range of log p/p_i where there are no atoms."""
        ups = []
        for direction, smooth in ((0, high), (1, -low)):
            atoms = self._atoms(direction)
            top = smooth.copy()
            with np.errstate(divide="ignore"):
                np.maximum.at(top, atoms.row, np.log(atoms.high))
            ups.append(np.maximum(top, 0.0))
        return ups[0], ups[1]

    def curves(self, epsilon: FloatArray) -> FloatArray:
        """(rows, epsilons): the larger hockey stick, rounded up; 0 where the supremum proves it."""
        epsilon = np.minimum(epsilon, LARGEST_EPSILON)
        e = np.exp(epsilon) * (1.0 - self.slack)
        if isinstance(self.source, laplace.LaplaceBlock):
            smooth, low, high = self.source.sticks(e)
            stick = np.maximum(*(smooth[:, k] + curve(self._atoms(k), e, self.rows) for k in (0, 1)))
            largest = np.maximum(*self._with_atoms(low, high))
        else:
            stick = np.maximum(*(curve(self.cells(direction, e[0]), e, self.rows) for direction in (0, 1)))
            largest = np.maximum(*self.log_suprema())
        np.clip(stick, 0.0, 1.0 - self.slack, out=stick)
        stick += self.slack
        stick[largest[:, None] - np.log1p(-self.slack) <= epsilon] = 0.0
        return stick

    def epsilons(self, delta: float) -> FloatArray:
        """(rows,): smallest epsilon at which `curves` is at most ``delta``."""
        out = np.zeros(self.rows)
        target = delta - self.slack
        for direction, largest in enumerate(self.log_suprema()):
            # the supremum, rounded so that `curves` is 0 from there on
            ends = np.where(largest > 0, np.nextafter(largest - np.log1p(-self.slack), np.inf), 0.0)
            if target <= 0:
                smallest = ends
            else:
                cells = self.cells(direction, 1.0 - self.slack)
                e = invert(cells, target, np.exp(np.minimum(largest, LARGEST_EPSILON)))
                smallest = np.minimum(np.maximum(np.nextafter(np.log(e) - np.log1p(-self.slack), np.inf), 0.0), ends)
                smallest = np.where(at(cells, np.ones(self.rows) * (1.0 - self.slack))[0] <= target, 0.0, smallest)
                smallest = np.where(at(cells, e)[0] > target, ends, smallest)
            out = np.maximum(out, smallest)
        return out


def blocks_of(
    pairs: Pairs, model: Model | None, shifts: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, Callable[[], Block]]]:
    """Blocks of individuals that can be cut together, each with the function that does it.

    Individuals whose results differ in their last digits come twice. Their figure is the larger: atoms know nothing of
    where on the line their results are.
    """
    ratios = np.ones(pairs.n_individuals) if pairs.ratios is None or not _one_width(model) else pairs.ratios
    steps = dict(pairs.digit_steps)
    for row in rows[np.isin(rows, np.fromiter(steps, np.int64, len(steps)))].tolist():
        yield np.array([row]), partial(_block_at_step, pairs, narrowed(model, ratios[row]), row, steps[row])
    if isinstance(model, Mixture) and not closed_form(model):
        pairs = pairs.centred()
    own_pairs = dict(pairs.own)
    alone = np.isin(rows, np.fromiter(own_pairs, np.int64, len(own_pairs))) | (ratios[rows] < 1)
    for row in rows[alone].tolist():
        row_pairs, place = (own_pairs[row], 0) if row in own_pairs else (pairs, row)
        yield np.array([row]), partial(block_of, row_pairs, narrowed(model, ratios[row]), np.array([place]))
    rows = rows[~alone]
    size = len(pairs.points)
    groups, step = [rows], 4096 if model is None else 1
    if isinstance(model, Mixture) and closed_form(model):
        # Similar individuals share a block, which needs no more of the curve than its most exposed individual.
        groups, step = [rows[np.argsort(-shifts[rows], kind="stable")]], max(1, _KNOTS // (2 * size))
    elif isinstance(model, Mixture):  # who moves points little needs no nodes of their own
        near = shifts[rows] <= other_kernels.NEAR
        groups, step = [rows[near], rows[~near]], max(1, _VALUES // (40 * size))
    for group in groups:
        for start in range(0, len(group), step):
            yield group[start : start + step], partial(block_of, pairs, model, group[start : start + step])


def narrowed(model: Model | None, ratio: float) -> Model | None:
    """The model for a person without whom the results spread less, by this ratio, if it has one bandwidth."""
    return replace(model, bandwidths=ratio * model.bandwidths) if ratio < 1 and _one_width(model) else model


def _one_width(model: Model | None) -> TypeGuard[Mixture]:
    return isinstance(model, Mixture) and bool(np.isfinite(model.bandwidth))


def closed_form(model: Mixture) -> bool:
    """Whether `laplace` serves."""
    return model.kernel.name == "laplace" and _one_width(model)


def block_of(pairs: Pairs, model: Model | None, rows: IntArray) -> Block:
    """These individuals' results, cut into cells."""
    points, without = pairs.points, pairs.dense(rows)
    masses = pairs.mass, pairs.mass_without[rows]
    nothing = not np.isfinite(points).any() and not np.isfinite(without).any()
    if model is None or nothing:
        return Block(None, *masses, slack=1e-15)
    if isinstance(model, Mixture) and closed_form(model):
        return Block(laplace.LaplaceBlock(points, without, model.bandwidth), *masses, slack=laplace.slack(points))
    if isinstance(model, Mixture):
        cells = other_kernels.mixture_block(model.kernel, model.bandwidths, points, without)
    else:
        cells = other_kernels.model_block(model, points, without[0])
    return Block(cells, *masses, slack=other_kernels.SLACK)


def _block_at_step(pairs: Pairs, model: Model | None, row: int, step: float) -> Block:
    """One individual's results, cut into atoms of last digits and cells of the rest."""
    with_atoms = pairs_at_step(pairs, row, step).centred()
    # the rest may be too little for a density of the user's own: then the atoms alone count
    return block_of(with_atoms, model if isinstance(model, Mixture) else None, np.array([0]))


def largest_shifts(pairs: Pairs, model: Model | None) -> FloatArray:
    """Largest influence of each individual, in bandwidths of the pair; inf to or from an atom."""
    q = pairs.points.reshape(-1, pairs.draws)
    h = model.bandwidths.reshape(q.shape) if isinstance(model, Mixture) else np.ones_like(q)
    everywhere = pairs.everywhere()
    with np.errstate(invalid="ignore"):
        if everywhere is not None and not len(pairs.mass):
            change = everywhere - pairs.points
            if np.all(h == h[0, 0]):
                shifts = np.maximum(change.max(axis=1), -change.min(axis=1)) / h[0, 0]
            else:
                shifts = np.abs(change / h.reshape(-1)).max(axis=1)
        else:
            change = np.abs(pairs.entries - np.take(q, pairs.entry_database, axis=0))
            change /= h[0, 0] if np.all(h == h[0, 0]) else h[pairs.entry_database]
            shifts = largest_of(np.where(np.isnan(change), 0.0, change) if len(pairs.mass) else change, pairs.starts)
    # A pair at an atom on both sides counts as no change here; the masses show whether it is the same atom.
    if len(pairs.mass):
        shifts[np.any(pairs.mass_without != pairs.mass, axis=1)] = np.inf
    if pairs.ratios is not None and _one_width(model):
        shifts = shifts / pairs.ratios
    for row, _ in (*pairs.own, *pairs.digit_steps):
        shifts[row] = np.inf
    return np.asarray(shifts)
