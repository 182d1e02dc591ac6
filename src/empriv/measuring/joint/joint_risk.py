"""`JointRisk`: the privacy of numbers released together that vary in a plane (docs/composition.md).

Numbers that are private one by one may reveal a person together, so the law of the whole vector is measured: exact
leaks first (`directions`), then a density in white coordinates (`spaces`), integrated by `cubature`. Forgetting
components is post-processing: no individual's joint delta_i is below that of a component alone.

Tables of any rank are for `tables`, which takes out what the other cells tell in straight lines. That is sharper where
straight lines are all there is (upper bounds of .21 instead of .28 for a truth of .16 at 365 databases), and blind to
the rest: of two numbers on a parabola its upper bound held in a quarter of runs, of two peaks in half, where a density
of the plane held in all (benchmarks/joint.py --beside). So two dimensions keep their density.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import numpy as np

from empriv.base.arguments import epsilon_grid, probability
from empriv.base.progress import progress
from empriv.base.threads import workers
from empriv.errors import InputError
from empriv.measuring.contract import RiskContract, Several
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.densities.selection import Score
from empriv.measuring.joint import cubature
from empriv.measuring.joint.cubature import Grid, Masses
from empriv.measuring.joint.directions import Leak, atom_curves, merged, pair_leaks, plane_leaks
from empriv.measuring.joint.spaces import JointPairs, split_vectors
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results

MOST_DIMENSIONS = 2
_CHUNK = 64
_MOST_KNOWN = 20_000_000  # figures kept


@dataclass(frozen=True)
class JointModel:
    """The density of a vector, in words, with the scores of every bandwidth considered."""

    name: str
    scores: tuple[Score, ...]


def measure_joint(results: Results, *, density: Density | None = None) -> JointRisk:
    """Privacy of the results of a vector query that vary in two dimensions at most, jointly.

    Parameters
    ----------
    results : of a vector query
    density : how the densities of single components are estimated; that of the vector is always the product of
        Laplace kernels on white axes, with its one-SE bandwidth
    """
    if results.components is None:
        raise InputError("`results` must be those of a vector query. Hint: empriv.measure(results).")
    density = density_or_default(density)
    alone = {name: measure_line(results.component(name), density) for name in results.components}
    # Atoms of numbers are looked for here even if a literal density does without.
    marked = [measure_line(risk.results).pairs if is_literal(density) else risk.pairs for risk in alone.values()]
    pairs = split_vectors(results, marked)
    dimension = max((space.rank for space in pairs.spaces), default=0)
    if dimension > MOST_DIMENSIONS:
        raise InputError(
            f"`results` must vary in {MOST_DIMENSIONS} dimensions at most, got {dimension}. "
            "Hint: empriv.measure(results) takes any number."
        )
    atoms_leaks, directions = pair_leaks(results)
    return JointRisk(
        results=results,
        components=alone,
        pairs=pairs,
        shifts=pairs.shifts(),
        leaks=merged((*plane_leaks(pairs, results.components), *atoms_leaks)),
        directions=directions,
        dimension=dimension,
    )


@dataclass(frozen=True, eq=False)
class JointRisk(RiskContract):
    """How private numbers released together are for every individual: an estimate from the databases at hand.

    Made by `empriv.measure` and `empriv.audit` of a query that gives two numbers, or several that vary in a plane.

    Attributes
    ----------
    results : what was measured
    components : the `Risk` of each number alone
    pairs : where every vector lies, and the categories compared by counts
    shifts : largest influence of each individual in bandwidths, summed over axes; inf to or from another category
    leaks : exact leaks, each with its direction in words
    directions : sums and differences of two components that have atoms
    dimension : of the plane that the results lie on

    Examples
    --------
    >>> total, own = np.random.default_rng(0).normal(100.0, 10.0, (2, 60))
    >>> everyone = empriv.Results.from_arrays(total + own, [total])
    >>> others = empriv.Results.from_arrays(total, [total])
    >>> risk = empriv.measure(empriv.Results.stack({"everyone": everyone, "others": others}))
    >>> print(f"{risk.components['others'].delta(0.1):.0f} alone, {risk.delta(0.1):.0f} together")
    0 alone, 1 together
    """

    results: Results
    components: Mapping[str, Risk] = field(repr=False)
    pairs: JointPairs = field(repr=False)
    shifts: FloatArray = field(repr=False)
    leaks: tuple[Leak, ...] = field(repr=False)
    directions: tuple[Pairs, ...] = field(repr=False)
    dimension: int
    made_from: RiskContract | None = field(default=None, repr=False, kw_only=True)
    _known: dict[float, tuple[FloatArray, FloatArray]] = field(default_factory=dict, init=False, repr=False)

    def given_presence(self) -> RiskContract:
        """The risk on a database that the person is in: as a table has it, which takes out what is not touched."""
        from empriv.measuring.tables.table_risk import measure_table  # which finds leaks as planes do

        table = measure_table(self.results)
        return (table if self.made_from is None else table.made_by(self.made_from)).given_presence()

    def made_by(self, source: RiskContract) -> JointRisk:
        """The same, of numbers that were computed from others, one by one: no figure is above that of the others."""
        numbers = zip(self.components.items(), source.each_number.values(), strict=True)
        alone = {name: replace(part, made_from=before) for (name, part), before in numbers}
        return replace(self, components=alone, made_from=source)

    @property
    def density(self) -> JointModel | None:
        """The density of the vector in words; None if all results are single outcomes."""
        if not self.pairs.spaces:
            return None
        space = max(self.pairs.spaces, key=lambda candidate: candidate.rank)
        axes = "axis" if space.rank == 1 else "axes"
        name = f"product of laplace kernels on {space.rank} white {axes}, bandwidth {space.bandwidth:.6g} (one-se)"
        return JointModel(name, space.scores)

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return None if self.density is None else (self.density.name, self.density.scores)

    @property
    def each_number(self) -> Mapping[str, RiskContract]:
        return self.components

    def curves(self, epsilons: FloatArray) -> FloatArray:
        """delta_i: the largest of the joint law's, of every component's, and of every exact leak's."""
        return self._with_errors(epsilons)[0]

    def law_delta_i(self, epsilon: float | Several) -> FloatArray:
        """delta_i of the fitted joint law alone: for study."""
        grid = np.atleast_1d(epsilon_grid(epsilon))
        out = np.zeros((len(self.shifts), len(grid)))
        for row in np.flatnonzero(self.shifts > 0).tolist():
            out[row] = self._row(row, grid)[0]
        return out[:, 0] if np.ndim(epsilon) == 0 else out

    @overload
    def error(self, epsilon: float) -> float: ...

    @overload
    def error(self, epsilon: Several) -> FloatArray: ...

    def error(self, epsilon: float | Several) -> float | FloatArray:
        """Error bar of the integration: one standard error, largest over individuals; a float, or an array."""
        grid = epsilon_grid(epsilon)
        largest = self._with_errors(grid)[1].max(axis=0, initial=0.0)
        return float(largest[0]) if grid.ndim == 0 else np.asarray(largest)

    def own_epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is.

        At delta = 0, what is proved to suffice: the largest shift in bandwidths.
        """
        probability("delta", delta)
        out = self._least(delta)
        for rows, smallest in self.in_threads(self._subject_rows(0.0), lambda row: self._invert(row, delta)):
            out[rows] = np.maximum(out[rows], smallest)
        return out

    def own_epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        probability("delta", delta)
        best = float(self._least(delta).max(initial=0.0))
        rows = self._subject_rows(0.0)
        for row in rows[np.argsort(-self.shifts[rows], kind="stable")].tolist():
            if self.shifts[row] <= best:
                break  # nobody further down needs more
            if self._row(row, np.array([best]))[0][0] > delta:
                best = max(best, float(self._invert(row, delta)))
        return best

    # How it is computed

    @cached_property
    def engines(self) -> tuple[Grid, ...]:
        """What integrates over each space."""
        return tuple(Grid.of(self.pairs, number) for number in range(len(self.pairs.spaces)))

    def _with_errors(self, grid: FloatArray) -> tuple[FloatArray, FloatArray]:
        """delta_i and error bars, (individuals, epsilons) each. What was computed is kept: it costs seconds."""
        wanted = grid.ravel().tolist()
        missing = np.array(sorted({epsilon for epsilon in wanted if epsilon not in self._known}))
        if len(missing):
            if (len(self._known) + len(missing)) * len(self.shifts) > _MOST_KNOWN:
                self._known.clear()
                missing = np.unique(grid)
            curves, errors = self._integrated(missing)
            for column, epsilon in enumerate(missing.tolist()):
                self._known[epsilon] = curves[:, column], errors[:, column]
        columns = [self._known[epsilon] for epsilon in wanted]
        return np.stack([delta_i for delta_i, _ in columns], axis=1), np.stack([error for _, error in columns], axis=1)

    def _integrated(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
        out, errors = np.zeros((2, len(self.shifts), len(epsilon)))
        for rows, with_errors in self.in_threads(self._subject_rows(epsilon[0]), lambda row: self._row(row, epsilon)):
            out[rows], errors[rows] = with_errors[:, 0], with_errors[:, 1]
        for floor in self._floors(epsilon):
            # What is known exactly, or to rounding, has no error bar where it is larger.
            errors = np.where(floor >= out, 0.0, errors)
            out = np.maximum(out, floor)
        return np.minimum(out, 1.0), errors

    def _floors(self, epsilon: FloatArray) -> Iterator[FloatArray]:
        for risk in self.components.values():
            yield risk.delta_i(epsilon)
        for pairs in self.directions:
            yield atom_curves(pairs, epsilon)
        yield np.repeat(self.leaked()[:, None], len(epsilon), axis=1)

    def leaked(self) -> FloatArray:
        """Share of the databases in which each individual is given away for certain."""
        out = np.zeros(len(self.shifts))
        for leak in self.leaks:
            out[leak.rows] = np.maximum(out[leak.rows], leak.shares)
        return out

    def _least(self, delta: float) -> FloatArray:
        """epsilon_i as far as components and atoms decide it."""
        out = np.max([risk.epsilon_i(delta) for risk in self.components.values()], axis=0)
        out[self.leaked() > delta] = np.inf
        for pairs in self.directions:
            # Counts only: a ratio of masses is at most N, or infinite.
            low, high = np.zeros(len(out)), np.full(len(out), np.log(len(pairs.points)) + 1.0)
            broken = atom_curves(pairs, high[:1])[:, 0] > delta
            for _ in range(60):
                middle = 0.5 * (low + high)
                over = np.array([row[0] for row in _at_own(pairs, middle)]) > delta
                low, high = np.where(over, middle, low), np.where(over, high, middle)
            out = np.maximum(out, np.where(broken, np.inf, np.where(high < 1e-12, 0.0, high)))
        return np.asarray(out)

    def _subject_rows(self, epsilon: float) -> IntArray:
        """Individuals not cleared by screening at ``epsilon``."""
        return np.flatnonzero((self.shifts > epsilon) & (self.shifts > 0))

    def _masses(self, row: int) -> tuple[list[Masses], list[Masses]]:
        masses = [engine.masses(self.pairs, row) for engine in self.engines]
        return [first for first, _ in masses], [second for _, second in masses]

    def _row(self, row: int, epsilon: FloatArray) -> FloatArray:
        """(2, epsilons): the joint law's delta_i and its error bar."""
        return self._larger(row, self._masses(row), epsilon)

    def _larger(self, row: int, masses: tuple[list[Masses], list[Masses]], epsilon: FloatArray) -> FloatArray:
        forwards, backwards = self._directions(row, masses, epsilon)
        out = np.where(forwards[0] >= backwards[0], forwards, backwards)
        out[:, epsilon >= self.shifts[row]] = 0.0  # proved, whatever the integration says
        return np.asarray(out)

    def both_directions(self, row: int, epsilon: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The joint law's hockey stick with everyone over without an individual (by number), and the reverse."""
        forwards, backwards = self._directions(row, self._masses(row), epsilon)
        return forwards[0], backwards[0]

    def _directions(
        self, row: int, masses: tuple[list[Masses], list[Masses]], epsilon: FloatArray
    ) -> list[tuple[FloatArray, FloatArray]]:
        sticks = []
        categories = self.pairs.mass, self.pairs.mass_without[row]
        for parts, (a, b) in zip(masses, (categories, categories[::-1]), strict=True):
            value = np.maximum(a[:, None] - np.exp(epsilon) * b[:, None], 0.0).sum(axis=0)
            square = np.zeros(len(epsilon))
            for part in parts:
                more, error = cubature.curve(part, epsilon)
                value, square = value + more, square + error**2
            sticks.append((value, np.sqrt(square)))
        return sticks

    def _invert(self, row: int, delta: float) -> FloatArray:
        """Smallest epsilon at which the joint law's delta_i is at most ``delta``, from above."""
        high = float(self.shifts[row])
        if delta == 0 and np.isfinite(high):
            return np.array(high)
        masses = self._masses(row)
        if not np.isfinite(high):
            high = 50.0
            if self._larger(row, masses, np.array([high]))[0][0] > delta:
                return np.array(np.inf)
        low = 0.0
        for _ in range(5):
            grid = np.linspace(low, high, 25)
            over = np.flatnonzero(self._larger(row, masses, grid)[0] > delta)
            if not len(over):
                return np.array(low)
            low, high = float(grid[over[-1]]), float(grid[min(over[-1] + 1, 24)])
        return np.array(high)

    def in_threads(self, rows: IntArray, task: Callable[[int], FloatArray]) -> Iterator[tuple[IntArray, FloatArray]]:
        """``task`` done for each of these individuals, in threads."""
        chunks = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        if len(rows):
            _ = self.engines  # made once, not by each thread

        def run(chunk: IntArray) -> tuple[IntArray, FloatArray]:
            return chunk, np.array([task(int(row)) for row in chunk])

        count = min(workers(), len(chunks))
        with progress(len(rows), "Measuring jointly") as advance, ExitStack() as stack:
            done = stack.enter_context(ThreadPoolExecutor(count)).map(run, chunks) if count > 1 else map(run, chunks)
            for chunk, answers in done:
                advance(len(chunk))
                yield chunk, answers


def _at_own(pairs: Pairs, epsilon: FloatArray) -> Iterator[FloatArray]:
    """`atom_curves` with an epsilon for each individual."""
    values, inverse = np.unique(epsilon, return_inverse=True)
    curves = atom_curves(pairs, values)
    for row, column in enumerate(inverse):
        yield curves[row, column : column + 1]
