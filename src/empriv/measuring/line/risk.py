"""`measure`: from results to `Risk`, the privacy of every individual at any epsilon.

Here the parts come together: atoms apart (`atoms`), a density fitted to the rest (`densities`), individuals screened
out whose influence proves delta_i = 0, and the rest cut into cells, block by block (`blocks`), in threads. The sums
themselves are in `hockeystick`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import epsilon_grid, probability
from empriv.base.progress import progress
from empriv.base.threads import workers
from empriv.errors import InputError
from empriv.measuring.densities.density import Density, Mixture, Model, density_or_default
from empriv.measuring.line import mixtures
from empriv.measuring.line.atoms import Pairs, split
from empriv.measuring.line.blocks import Block, closed_form, jobs, largest_of, largest_shifts
from empriv.measuring.line.screening import log_reach
from empriv.results import FloatArray, IntArray, Results


@overload
def measure(
    q: Results,
    q_without: None = None,
    *,
    density: Density | None = None,
    individuals: None = None,
) -> Any: ...


@overload
def measure(
    q: npt.ArrayLike,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> Risk: ...


def measure(
    q: npt.ArrayLike | Results,
    q_without: npt.ArrayLike | None = None,
    *,
    density: Density | None = None,
    individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> Any:
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
        ``delta_i``, ``delta``, ``total_risk`` at any epsilon, and their inverses; for results of a vector query a
        `JointRisk`, which has the same and more.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> print(f"{risk.delta(0.1):.3f}")
    0.077
    """
    if isinstance(q, Results):
        if q_without is not None or individuals is not None:
            raise InputError("`q_without` and `individuals` must not be given with `Results`, which hold both.")
        results = q
    elif q_without is None:
        raise InputError("`q_without` must be given: the results without each individual.")
    else:
        results = Results.from_arrays(q, q_without, individuals=individuals)
    density = density_or_default(density)
    if results.components is not None:
        return import_module("empriv.measuring.joint.joint_risk").measure_joint(results, density=density)
    pairs = split(results, look=not getattr(density, "literal", False))
    databases = np.repeat(np.arange(results.n_databases), pairs.draws)
    model = density.fit(pairs.points, databases) if np.isfinite(pairs.points).any() else None
    return Risk(results=results, density=model, pairs=pairs, shifts=largest_shifts(pairs, model))


@dataclass(frozen=True, eq=False)
class Risk:
    """How private the query results are for every individual: an estimate from the databases at hand.

    Made by `empriv.measure`, and by `empriv.audit`, which keeps it in `Audit.risk`.

    Attributes
    ----------
    results : what was measured
    density : the fitted model, with its ``name`` and the ``scores`` of every candidate; None if all results are atoms
    pairs : the points that the density is of, and the atoms
    shifts : largest influence of each individual in bandwidths: 0 for people who never change the result, inf for
        people who move a result to or from an atom

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
    _known: dict[tuple[float, ...], FloatArray] = field(default_factory=dict, repr=False)

    def delta_i(self, epsilon: npt.ArrayLike) -> FloatArray:
        """Failure probability of each individual: (individuals,), or (individuals, epsilons) for an array.

        Never understated by rounding; exactly 0 where the ratio of densities is proved to stay within e^epsilon.
        """
        grid = epsilon_grid(epsilon)
        key = tuple(grid.ravel().tolist())
        if key not in self._known:
            self._known.clear()  # one curve is kept: large tables would fill the memory otherwise
            ordered, back = np.unique(grid.ravel(), return_inverse=True)
            curves = self._curves(ordered)
            self._known[key] = curves if np.array_equal(ordered, grid.ravel()) else curves[:, back]
        found = self._known[key]
        return found[:, 0].copy() if grid.ndim == 0 else found.copy()

    def delta(self, epsilon: npt.ArrayLike) -> Any:
        """Largest delta_i: a float, or an array for an array."""
        worst = self.delta_i(np.atleast_1d(epsilon_grid(epsilon))).max(axis=0, initial=0.0)
        return float(worst[0]) if np.ndim(epsilon) == 0 else worst

    def total_risk(self, epsilon: npt.ArrayLike) -> Any:
        """``1 - prod(1 - delta_i)``: chance that somebody's privacy fails, if failures are independent."""
        total = total_risk_of(self.delta_i(np.atleast_1d(epsilon_grid(epsilon))))
        return float(total[0]) if np.ndim(epsilon) == 0 else total

    def epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is.

        At delta = 0 this is sup |log p/p_i|: far out it is decided by the kernel's tails, not by the data.
        """
        check_delta(delta)
        out = np.zeros(len(self.shifts))
        for rows, found in self._map(self._subject_rows(0.0), lambda block: block.epsilons(delta)):
            out[rows] = found
        return out

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``; inf where none is."""
        check_delta(delta)
        best = 0.0
        rows = self._subject_rows(0.0)
        reach = self._reach(rows)
        order = np.argsort(-reach, kind="stable")  # who may need most, first
        rows, reach = rows[order], reach[order]
        provable = isinstance(self.density, Mixture) and np.isfinite(self.density.kernel.log_lipschitz)
        start, stop = 0, 128  # a few first: they tell of whom there is no need to look at
        while start < len(rows):
            some = rows[start:stop]
            if provable:  # who cannot need more than the worst so far is not looked at
                some = some[self._beyond(reach[start:stop], best)]
            for _, found in self._map(some, lambda block: block.epsilons(delta)):
                best = max(best, float(found.max(initial=0.0)))
            start, stop = stop, stop + max(1024, len(rows) // 16)
        return best

    def bounds(self, epsilon: npt.ArrayLike, level: float = 0.95, method: str = "analytic", **options: Any) -> Any:
        """Lower bound, estimate and upper bound; the same as ``empriv.bounds(risk, ...)``, which documents them."""
        # The one door backwards, for convenience: measuring knows nothing of validating, and imports none of it.
        return import_module("empriv.validate.bounds.figures").bounds(self, epsilon, level, method, **options)

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the individuals, riskiest first; ``pandas.DataFrame`` takes it as it is.

        individual, delta_i, largest_influence (in units of the result; NaN if a result changes to or from an
        outcome that is no number), databases (in how many the individual is).
        """
        return ranking(self.results, self.delta_i(float(epsilon)), self.influence(), top)[1]

    def influence(self) -> FloatArray:
        """Largest change that each individual makes to a result; NaN where a result is no number on one side only."""
        results = self.results
        with np.errstate(invalid="ignore"):
            change = np.abs(results.entry_q - results.q[results.entry_database])
        if results.entry_outcomes.any():
            same = results.entry_outcomes == results.outcomes[results.entry_database]
            change = np.where(same & (results.entry_outcomes != 0), 0.0, change)
        return largest_of(change.reshape(len(change), -1), results.starts)

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
        # Screened by a bound that may be tiny rather than zero: said so, not rounded down.
        bounded = isinstance(self.density, Mixture) and np.isfinite(self.density.kernel.log_lipschitz)
        least, moving = 0.0 if bounded else mixtures.SLACK, self.shifts > 0
        out[moving & ~self._beyond(self.shifts, epsilon[0])] = least
        if np.isinf(epsilon[-1]):
            # e^inf times a density that rounds to 0 says nothing: what is proved for a single epsilon holds here too.
            out[moving & ~self._beyond(self.shifts, np.inf), -1] = least
        return out

    def _subject_rows(self, epsilon: float) -> IntArray:
        """Individuals whom no screening clears at ``epsilon``."""
        rows = np.flatnonzero(self._beyond(self.shifts, epsilon) & (self.shifts > 0))
        return rows if epsilon <= 0 else rows[self._beyond(self._reach(rows), epsilon)]

    def _reach(self, rows: IntArray) -> FloatArray:
        """What screening of these individuals goes by: the largest shift, or less for who is in few databases."""
        if not isinstance(self.density, Mixture) or not closed_form(self.density):
            return self.shifts[rows]
        known, presence = self._reaches, np.diff(self.pairs.starts)
        # who is in most databases gains little from a second look, which is not for nothing
        new = rows[np.isnan(known[rows])]
        few = 2 * presence[new] * self.pairs.draws <= len(self.pairs.points)
        known[new[~few]] = self.shifts[new[~few]]
        if few.any():
            new = new[few]
            known[new] = log_reach(self.pairs, new, bandwidth=self.density.bandwidth, shifts=self.shifts[new])
        return np.asarray(known[rows])

    @cached_property
    def _reaches(self) -> FloatArray:
        """What is known of `_reach` already, NaN elsewhere."""
        return np.full(len(self.shifts), np.nan)

    def _beyond(self, shifts: FloatArray, epsilon: float) -> npt.NDArray[np.bool_]:
        """Whose shifts may break ``epsilon`` (docs/mathematics.md, "Screening")."""
        if not isinstance(self.density, Mixture) or self.density.refit is not None:
            return np.ones(len(shifts), bool)
        kernel = self.density.kernel
        if np.isfinite(kernel.log_lipschitz):
            # who moves a result to or from an atom is beyond any epsilon
            return np.asarray((shifts * kernel.log_lipschitz * (1 + 1e-14) > epsilon) | np.isinf(shifts))
        if kernel.tail == "gaussian":
            # The hockey stick of two normal laws s apart is below Phi(s/2 - epsilon/s); 8.3 makes it 1e-16.
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(~(epsilon / shifts - 0.5 * shifts > 8.3))
        return np.ones(len(shifts), bool)

    def _map(self, rows: IntArray, task: Callable[[Block], FloatArray]) -> Iterator[tuple[IntArray, FloatArray]]:
        """Blocks of these individuals, ``task`` done on each in threads."""
        centred = isinstance(self.density, Mixture) and not closed_form(self.density)
        pairs = self.pairs.centred() if centred else self.pairs
        blocks = list(jobs(pairs, self.density, self.shifts, rows))

        def run(job: tuple[IntArray, Callable[[], Block]]) -> tuple[IntArray, FloatArray]:
            return job[0], task(job[1]())

        count = min(workers(), len(blocks))
        with progress(len(rows), "Measuring") as advance, ExitStack() as stack:
            done = stack.enter_context(ThreadPoolExecutor(count)).map(run, blocks) if count > 1 else map(run, blocks)
            for some, found in done:
                advance(len(some))
                yield some, found


def ranking(
    results: Results, delta_i: FloatArray, influence: FloatArray, top: int | None
) -> tuple[IntArray, dict[str, npt.NDArray[Any]]]:
    """Individuals by risk, then by influence, as positions and as columns of a table; all, or the first ``top``."""
    size = np.where(np.isnan(influence), np.inf, influence)
    order = np.lexsort((-size, -delta_i))[:top]
    return order, {
        "individual": results.individuals[order],
        "delta_i": delta_i[order],
        "largest_influence": influence[order],
        "databases": results.presence[order],
    }


def total_risk_of(delta_i: FloatArray) -> FloatArray:
    """``1 - prod(1 - delta_i)`` over the individuals, down the first axis."""
    with np.errstate(divide="ignore"):
        total = -np.expm1(np.log1p(-delta_i).sum(axis=0))
    return np.asarray(np.maximum(total, delta_i.max(axis=0, initial=0.0)))  # never below delta, by rounding


def check_delta(delta: float) -> None:
    """Refuse what is no probability."""
    probability("delta", delta)
