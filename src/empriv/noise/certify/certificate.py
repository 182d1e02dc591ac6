"""`certify`: what noise really achieves, for every individual, from the very law that is drawn.

The answer is rounded to the lattice (`cells`) and convolved with every part of the law (`convolve`), cell by cell
(`window`), with everyone and without each individual; delta_i is what remains above e^epsilon times the other side.
Nothing from the design is used. What lies beyond a window is counted in full, or bounded by the tails' own form;
rounding is counted too: a certificate never understates. Individuals that a bound clears (`screen`, `shares`) are not
convolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import finite_epsilon, one_epsilon, probability
from empriv.base.threads import workers
from empriv.errors import InputError
from empriv.measuring.line.risk import Risk
from empriv.noise.certify.cells import AnswerSide, RoundedAnswers
from empriv.noise.certify.screen import Screen
from empriv.noise.certify.shares import LEVELS, deltas_by_share, largest_by_share, levels
from empriv.noise.certify.tails import Reach
from empriv.noise.certify.window import Window
from empriv.noise.law import Law
from empriv.noise.measured import sharpened
from empriv.results import FloatArray, IntArray

_Sides = tuple[IntArray, AnswerSide, AnswerSide]  # rows, with everyone, without each

_CELLS = 1_000_000  # cells of a block of individuals held at once
_MOST_WORKERS = 4


def certify(
    risk: Risk, law: Law, *, epsilon: float, delta: float | None = 0.0, total_risk: float | None = None
) -> Certificate:
    """What ``law`` achieves on the answers that ``risk`` was measured from.

    Parameters
    ----------
    risk : what was measured: its density is taken for the law of the answer
    law : of the noise
    epsilon, delta, total_risk : the target; ``delta=None`` sets none for single individuals
    """
    finite_epsilon(epsilon)
    for name, limit in (("delta", delta), ("total_risk", total_risk)):
        if limit is not None:
            probability(name, limit)
    if delta is None and total_risk is None:
        raise InputError("`delta` or `total_risk` must be given: a certificate needs a target.")
    return Certificate(sharpened(risk), law, float(epsilon), delta, total_risk)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a law of noise achieves; computed when asked, and kept.

    Attributes
    ----------
    risk, law : what was certified
    epsilon, delta, total_risk : the target
    """

    risk: Risk = field(repr=False)
    law: Law = field(repr=False)
    epsilon: float
    delta: float | None
    total_risk: float | None
    _known: dict[float, FloatArray] = field(default_factory=dict, repr=False)

    @cached_property
    def holds(self) -> bool:
        """Whether every individual's target is met, and that of total risk."""
        if self.delta is not None and not self._delta_holds(self.delta):
            return False
        return self.total_risk is None or self._total_holds(self.total_risk)

    def achieved_delta_i(self, epsilon: float) -> FloatArray:
        """Failure probability of each individual, of the noisy answer."""
        epsilon = one_epsilon(epsilon)
        if epsilon not in self._known:
            self._known.clear()
            self._known[epsilon] = self._deltas(epsilon)
        return self._known[epsilon].copy()

    def curves_of(self, rows: IntArray, epsilons: FloatArray) -> FloatArray:
        """(rows, epsilons) failure probability of these individuals, by position."""
        out = np.zeros((len(rows), len(epsilons)))

        def task(window: Window) -> FloatArray:
            return np.stack([window.delta(epsilon)[0] for epsilon in epsilons.tolist()], axis=1)

        for places, values in self._map(rows, task, exact_tails=False):
            out[places] = values
        return out

    def epsilon_i_of(self, rows: IntArray, delta: float) -> FloatArray:
        """Smallest epsilon at which delta_i of these individuals, by position, is at most ``delta``."""
        return self._exact_epsilons(rows, delta)

    def achieved_delta(self, epsilon: float) -> float:
        """Largest delta_i of the noisy answer."""
        epsilon = one_epsilon(epsilon)
        if epsilon in self._known:
            return float(self._known[epsilon].max(initial=0.0))
        bounds = self._bounds(epsilon)
        best = 0.0
        order = np.argsort(-bounds, kind="stable")
        step = 64
        for start, stop in _growing(len(order), step):
            block = order[start:stop]
            block = block[bounds[block] > best]  # nobody else can be worse
            if not len(block):
                break
            best = max(best, float(self._exact_deltas(block, epsilon).max()))
        return best

    def riskiest(self, most: int) -> IntArray:
        """Individuals of the largest delta_i at the target's epsilon, of those that the screen puts first."""
        bounds = self._bounds(self.epsilon)
        first = np.lexsort((-self.risk.shifts, -bounds))[: 4 * most]
        return first[np.argsort(-self._exact_deltas(first, self.epsilon), kind="stable")][:most]

    def achieved_total_risk(self, epsilon: float) -> float:
        """``1 - prod(1 - delta_i)`` of the noisy answer, if failures are independent."""
        delta_i = self.achieved_delta_i(epsilon)
        return _total(delta_i)

    def achieved_epsilon_i(self, delta: float | None = None) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``, by default the target's."""
        delta = self._delta(delta)
        out = np.zeros(len(self._largest))
        rows = np.flatnonzero(self._largest > 0)
        out[rows] = self._exact_epsilons(rows, delta)
        return out

    def achieved_epsilon(self, delta: float | None = None) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``, by default the target's."""
        delta = self._delta(delta)
        best = 0.0
        order = np.argsort(-np.where(np.isfinite(self._largest), self._largest, np.finfo(float).max), kind="stable")
        for start, stop in _growing(len(order), 64):
            block = order[start:stop]
            block = block[self._largest[block] > best]
            if len(block) and delta > 0:
                block = block[self._screen.deltas(self.law, best)[block] > delta]
            if len(block):
                best = max(best, float(self._exact_epsilons(block, delta).max()))
        return best

    # How it is computed

    @cached_property
    def _answers(self) -> RoundedAnswers:
        return RoundedAnswers.of(self.risk, self.law.granularity)

    @cached_property
    def _exact_reach(self) -> Reach:
        return Reach.exact(self._answers, self.law)

    @cached_property
    def _counted_reach(self) -> Reach:
        return Reach.counted(self._answers, self.law, self.delta or 0.0)

    @cached_property
    def _screen(self) -> Screen:
        return Screen.of(self.risk, self.law.granularity)

    @cached_property
    def _largest(self) -> FloatArray:
        largest = self._screen.largest(self.law)
        if self._many(largest > self.epsilon) and self._exact_reach.tails != "power":
            share = np.empty(self._screen.total)
            for pairs, above in self._each_pair(Window.above, exact_tails=True):
                share[pairs] = np.exp(above) / len(share)
            largest = np.minimum(largest, largest_by_share(self._screen, self._screen.log_ratios(self.law), share))
        return largest

    def _bounds(self, epsilon: float) -> FloatArray:
        """Upper bounds of each delta_i."""
        bounds = np.where(self._largest <= epsilon, 0.0, self._screen.deltas(self.law, epsilon))
        if self._many(bounds > (self.delta or 0.0)):
            log_ratios = self._screen.log_ratios(self.law)
            bounds = np.minimum(bounds, deltas_by_share(self._screen, log_ratios, self._sticks, epsilon))
        return bounds

    @cached_property
    def _sticks(self) -> FloatArray:
        """(pairs, levels) sticks of each pair against the mean of all."""
        sticks = np.empty((self._screen.total, LEVELS))
        for pairs, values in self._each_pair(lambda window: window.sticks(levels(len(sticks))), exact_tails=False):
            sticks[pairs] = values
        return sticks

    def _many(self, chosen: npt.NDArray[np.bool_]) -> bool:
        """Whether looking at every pair is less work than at all of these individuals."""
        mean_of_pairs = self.risk.density is None or self._screen.kernel is not None
        return mean_of_pairs and int(np.count_nonzero(chosen)) > 2 * self._screen.total

    def _each_pair(
        self, task: Callable[[Window], FloatArray], *, exact_tails: bool
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        pairs = np.arange(self._screen.total)
        sides = [(pairs, self._answers.everyone(), self._answers.each_pair())]
        # no law of a pair is more than so many times the mean of all of them
        return self._windows(sides, task, np.full(len(pairs), math.log(len(pairs))), exact_tails=exact_tails)

    def _delta(self, delta: float | None) -> float:
        return (self.delta or 0.0) if delta is None else probability("delta", delta)

    def _delta_holds(self, delta: float) -> bool:
        if delta == 0.0:
            rows = np.flatnonzero(self._largest > self.epsilon)
            rows = rows[np.argsort(-self._largest[rows], kind="stable")]
            for start, stop in _growing(len(rows), 64):
                if np.any(self._exact_epsilons(rows[start:stop], 0.0) > self.epsilon):
                    return False
            return True
        bounds = self._bounds(self.epsilon)
        rows = np.flatnonzero(bounds > delta)
        rows = rows[np.argsort(-bounds[rows], kind="stable")]
        for start, stop in _growing(len(rows), 64):
            if np.any(self._exact_deltas(rows[start:stop], self.epsilon) > delta):
                return False
        return True

    def _total_holds(self, total_risk: float) -> bool:
        bounds = self._bounds(self.epsilon)
        if _total(bounds) <= total_risk:
            return True
        return self.achieved_total_risk(self.epsilon) <= total_risk

    def _deltas(self, epsilon: float) -> FloatArray:
        out = np.zeros(len(self._largest))
        rows = np.flatnonzero(self._largest > epsilon)
        out[rows] = self._exact_deltas(rows, epsilon)
        return out

    def _exact_deltas(self, rows: IntArray, epsilon: float) -> FloatArray:
        """delta_i of these individuals; exactly 0 only where all ratios are proved to stay within e^epsilon."""
        out, slack = np.zeros(len(rows)), np.zeros(len(rows))

        def task(window: Window) -> FloatArray:
            return np.stack(window.delta(epsilon), axis=1)

        for places, values in self._map(rows, task, exact_tails=False):
            out[places], slack[places] = values[:, 0], values[:, 1]
        tiny = np.flatnonzero(out <= 4 * slack)  # perhaps nothing at all
        if len(tiny):
            proved = self._exact_epsilons(rows[tiny], 0.0) <= epsilon
            out[tiny[proved]] = 0.0
        return out

    def _exact_epsilons(self, rows: IntArray, delta: float) -> FloatArray:
        out = np.zeros(len(rows))
        exact = delta == 0.0
        for places, values in self._map(rows, lambda window: window.epsilon(delta), exact_tails=exact):
            out[places] = values
        # the bound by influences holds at every delta
        return np.minimum(out, self._largest[rows])

    def _map(
        self, rows: IntArray, task: Callable[[Window], FloatArray], *, exact_tails: bool
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """``task`` done on blocks of these individuals, with the places of each block in ``rows``."""
        place = np.full(len(self._largest), -1)
        place[rows] = np.arange(len(rows))
        sides = self._answers.blocks(rows, 4096)
        for individuals, values in self._windows(sides, task, self._largest, exact_tails=exact_tails):
            yield place[individuals], values

    def _windows(
        self, sides: Iterable[_Sides], task: Callable[[Window], FloatArray], bound: FloatArray, *, exact_tails: bool
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """``task`` done in threads on windows of these rows, with which rows they are; ``bound`` is of all rows."""
        reach = self._exact_reach if exact_tails else self._counted_reach
        delta = None if exact_tails else self.delta or 0.0
        jobs = [job for block in sides for job in _alike(block, reach)]

        def run(job: _Sides) -> tuple[IntArray, FloatArray]:
            return job[0], task(Window.of(self._answers, self.law, reach, job, bound=bound[job[0]], delta=delta))

        if len(jobs) < 2 or workers(_MOST_WORKERS) == 1:
            yield from map(run, jobs)
            return
        with ThreadPoolExecutor(workers(_MOST_WORKERS)) as pool:
            yield from pool.map(run, jobs)


def _alike(block: _Sides, reach: Reach) -> Iterator[_Sides]:
    """Rows whose windows are alike, so that one outlying individual does not widen everybody's."""
    rows, everyone, without = block
    low, high = without.low, without.high
    order = np.argsort(high - low, kind="stable")
    start = 0
    while start < len(order):
        # as many as fit, counting the widest of them
        span = np.maximum(high[order[start:]], everyone.high) - np.minimum(low[order[start:]], everyone.low)
        span = np.maximum(np.where(np.isfinite(span), span, 0.0), 0.0)
        cells = np.maximum.accumulate(span) + 2 * (reach.kernel + reach.noise) + 3
        fits = int(np.searchsorted(cells * np.arange(1, len(cells) + 1), _CELLS, side="right"))
        fits = max(1, fits)
        chosen = order[start : start + fits]
        yield rows[chosen], everyone, _select(without, chosen)
        start += fits


def _select(side: AnswerSide, rows: IntArray) -> AnswerSide:
    def selected(array: FloatArray) -> FloatArray:
        return array if len(array) == 1 and len(side.points) != 1 else array[rows]

    return AnswerSide(
        points=selected(side.points),
        bandwidths=None if side.bandwidths is None else selected(side.bandwidths),
        atoms=selected(side.atoms),
        others=selected(side.others),
        low=side.low[rows],
        high=side.high[rows],
    )


def _total(delta_i: FloatArray) -> float:
    with np.errstate(divide="ignore"):
        total = float(-np.expm1(np.log1p(-delta_i).sum()))
    return max(float(delta_i.max(initial=0.0)), total)


def _growing(count: int, step: int) -> Iterator[tuple[int, int]]:
    """Stretches of 0..count, each four times the one before: the worst come first, and are often enough."""
    start = 0
    while start < count:
        stop = min(count, start + step)
        yield start, stop
        start, step = stop, step * 4
