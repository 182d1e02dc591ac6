"""`measure_line`: from results of one number to `Risk`, the privacy of every individual at any epsilon.

The parts come together here. Atoms are set apart (`atoms`) and a density is fitted to the rest (`densities`).
Individuals whose influence proves delta_i = 0 are screened out; the others are cut into cells, block by block
(`blocks`), in threads. The sums themselves are in `hockeystick`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.base.machine import workers
from empriv.base.progress import progress
from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.densities.density import Density, Mixture, Model, density_or_default, is_literal
from empriv.measuring.densities.selection import Score
from empriv.measuring.line import other_kernels
from empriv.measuring.line.atoms import Pairs, split, spread_ratios
from empriv.measuring.line.blocks import Block, jobs, largest_shifts
from empriv.measuring.line.last_digits import digit_steps
from empriv.measuring.line.moves import Moves, moves_of
from empriv.results import FloatArray, IntArray, Results


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
    pairs = replace(split(results, look=look), people=results.n_individuals if people is None else people)
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
        blocks = list(jobs(self.pairs, self.density, self.shifts, rows))

        def run(job: tuple[IntArray, Callable[[], Block]]) -> tuple[IntArray, FloatArray]:
            return job[0], task(job[1]())

        count = min(workers(), len(blocks))
        with progress(len(rows), "Measuring") as advance, ExitStack() as stack:
            done = stack.enter_context(ThreadPoolExecutor(count)).map(run, blocks) if count > 1 else map(run, blocks)
            for block_rows, answers in done:
                advance(len(block_rows))
                yield block_rows, answers
