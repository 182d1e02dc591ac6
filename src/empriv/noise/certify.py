"""`certify`: what noise really achieves, for every individual, from the very law that is drawn.

The answer is rounded to the lattice (`answers`) and convolved with every part of the law (`convolve`), cell by cell,
with everyone and without each individual; delta_i is the sum of what remains above e^epsilon times the other side.
Nothing of the designer is used. What lies beyond a window is counted in full, or bounded by the tails' own form;
rounding is counted too: a certificate never understates. Individuals whom a bound clears (`screen`) are not convolved.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities import Differences, Mixture
from empriv.measuring.risk import Risk
from empriv.noise.answers import LARGEST_CELLS, Answers, Side
from empriv.noise.convolve import TINY, UNIT, End, Noisy, compact_width, laplace_parts, noisy, tail_supremum
from empriv.noise.lattice import Law
from empriv.noise.screen import Screen
from empriv.results import FloatArray, IntArray

_CELLS = 1_000_000  # cells of a block of individuals held at once
_LARGEST = 700.0  # epsilon beyond which e^epsilon is infinite
_WORKERS = min(4, os.cpu_count() or 1)


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
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"`epsilon` must be finite and at least 0, got {epsilon}.")
    for name, limit in (("delta", delta), ("total_risk", total_risk)):
        if limit is not None and not 0.0 <= limit <= 1.0:
            raise InputError(f"`{name}` must lie in [0, 1], got {limit}.")
    if delta is None and total_risk is None:
        raise InputError("`delta` or `total_risk` must be given: a certificate needs a target.")
    return Certificate(risk, law, float(epsilon), delta, total_risk)


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
        epsilon = _check_epsilon(epsilon)
        if epsilon not in self._known:
            self._known.clear()
            self._known[epsilon] = self._deltas(epsilon)
        return self._known[epsilon].copy()

    def achieved_delta(self, epsilon: float) -> float:
        """Largest delta_i of the noisy answer."""
        epsilon = _check_epsilon(epsilon)
        if epsilon in self._known:
            return float(self._known[epsilon].max(initial=0.0))
        bounds = self._screen.deltas(self.law, epsilon)
        bounds[self._largest <= epsilon] = 0.0
        best = 0.0
        order = np.argsort(-bounds, kind="stable")
        step = 64
        for start, stop in _growing(len(order), step):
            some = order[start:stop]
            some = some[bounds[some] > best]  # nobody else can be worse
            if not len(some):
                break
            best = max(best, float(self._exact_deltas(some, epsilon).max()))
        return best

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
            some = order[start:stop]
            some = some[self._largest[some] > best]
            if len(some) and delta > 0:
                some = some[self._screen.deltas(self.law, best)[some] > delta]
            if len(some):
                best = max(best, float(self._exact_epsilons(some, delta).max()))
        return best

    # How it is computed

    @cached_property
    def _answers(self) -> Answers:
        return Answers.of(self.risk, self.law.granularity)

    @cached_property
    def _screen(self) -> Screen:
        return Screen.of(self.risk, self.law.granularity)

    @cached_property
    def _largest(self) -> FloatArray:
        return self._screen.largest(self.law)

    def _delta(self, delta: float | None) -> float:
        chosen = (self.delta or 0.0) if delta is None else float(delta)
        if not 0.0 <= chosen <= 1.0:
            raise InputError(f"`delta` must lie in [0, 1], got {chosen}.")
        return chosen

    def _delta_holds(self, delta: float) -> bool:
        rows = np.flatnonzero(self._largest > self.epsilon)
        if delta == 0.0:
            rows = rows[np.argsort(-self._largest[rows], kind="stable")]
            for start, stop in _growing(len(rows), 64):
                if np.any(self._exact_epsilons(rows[start:stop], 0.0) > self.epsilon):
                    return False
            return True
        bounds = self._screen.deltas(self.law, self.epsilon)
        rows = rows[bounds[rows] > delta]
        rows = rows[np.argsort(-bounds[rows], kind="stable")]
        for start, stop in _growing(len(rows), 64):
            if np.any(self._exact_deltas(rows[start:stop], self.epsilon) > delta):
                return False
        return True

    def _total_holds(self, total_risk: float) -> bool:
        bounds = self._screen.deltas(self.law, self.epsilon)
        bounds[self._largest <= self.epsilon] = 0.0
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

        def task(block: _Block) -> FloatArray:
            return np.stack(block.delta(epsilon), axis=1)

        for places, found in self._map(rows, task, exact_tails=False):
            out[places], slack[places] = found[:, 0], found[:, 1]
        tiny = np.flatnonzero(out <= 4 * slack)  # perhaps nothing at all
        if len(tiny):
            proved = self._exact_epsilons(rows[tiny], 0.0) <= epsilon
            out[tiny[proved]] = 0.0
        return out

    def _exact_epsilons(self, rows: IntArray, delta: float) -> FloatArray:
        out = np.zeros(len(rows))
        exact = delta == 0.0
        for places, found in self._map(rows, lambda block: block.epsilon(delta), exact_tails=exact):
            out[places] = found
        # the bound by influences holds at every delta
        return np.minimum(out, self._largest[rows])

    def _map(
        self, rows: IntArray, task: Callable[[_Block], FloatArray], *, exact_tails: bool
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """``task`` done on blocks of these individuals in threads, with the places of each block in ``rows``."""
        if not len(rows):
            return
        place = np.full(len(self._largest), -1)
        place[rows] = np.arange(len(rows))
        jobs = list(self._blocks(rows, exact_tails))

        def run(job: tuple[IntArray, Side, Side]) -> tuple[IntArray, FloatArray]:
            return place[job[0]], task(_Block.of(self, *job, exact_tails=exact_tails))

        if len(jobs) == 1 or _WORKERS == 1:
            yield from map(run, jobs)
            return
        with ThreadPoolExecutor(_WORKERS) as pool:
            yield from pool.map(run, jobs)

    def _blocks(self, rows: IntArray, exact_tails: bool) -> Iterator[tuple[IntArray, Side, Side]]:
        """Blocks whose windows are alike, so that one far-flung individual does not widen everybody's."""
        for some, everyone, without in self._answers.blocks(rows, 4096):
            low, high = without.low, without.high
            order = np.argsort(high - low, kind="stable")
            start = 0
            while start < len(order):
                # as many as fit, counting the widest of them
                margin = sum(_margins(self, exact_tails))
                reach = np.maximum(high[order[start:]], everyone.high) - np.minimum(low[order[start:]], everyone.low)
                reach = np.maximum(np.where(np.isfinite(reach), reach, 0.0), 0.0)
                cells = np.maximum.accumulate(reach) + 2 * margin + 3
                fits = int(np.searchsorted(cells * np.arange(1, len(cells) + 1), _CELLS, side="right"))
                fits = max(1, fits)
                some_rows = order[start : start + fits]
                yield some[some_rows], everyone, _select(without, some_rows)
                start += fits


@dataclass(frozen=True, eq=False)
class _Block:
    """Noisy masses of some individuals in a common window, and all that is needed beyond it."""

    certificate: Certificate
    everyone: Noisy
    without: Noisy
    others: FloatArray
    others_without: FloatArray
    beyond: tuple[FloatArray, FloatArray]
    tails: str
    rate: float | None
    slack: float
    error: Noisy | None
    bound: FloatArray
    heavy: FloatArray
    inner: slice

    @staticmethod
    def of(certificate: Certificate, rows: IntArray, everyone: Side, without: Side, *, exact_tails: bool) -> _Block:
        answers, law = certificate._answers, certificate.law
        kernel_margin, noise_margin = _margins(certificate, exact_tails)
        margin = kernel_margin + noise_margin
        least = min(float(everyone.low.min()), float(without.low.min()))
        most = max(float(everyone.high.max()), float(without.high.max()))
        if not (math.isfinite(least) and math.isfinite(most)):
            least = most = 0.0  # nobody has a number
        first, last = math.floor(least) - margin, math.ceil(most) + margin
        count = last - first + 1
        if count > LARGEST_CELLS:
            coarser = law.granularity * 2.0 ** math.ceil(math.log2(count / LARGEST_CELLS))
            raise InputError(
                f"`granularity` must be coarser here: results and noise span {count:,} multiples of it, "
                f"{LARGEST_CELLS:,} can be certified. Hint: granularity={coarser:g}."
            )
        tails, rate = _tails(certificate)
        reach = math.inf if exact_tails else _reach(certificate)
        sides = [answers.cells(side, first, count, reach) for side in (everyone, without)]
        kept_rate = rate if exact_tails else None
        noises = [noisy(law, cells, kept_rate) for cells in sides]
        error = None
        if exact_tails and tails in ("bounded", "unknown"):
            # masses here are differences of a distribution function: 4 units of rounding each, wherever there is any
            touched = ((sides[0].max(axis=0) > 0) | (sides[1].max(axis=0) > 0)).astype(float)[None, :]
            error = noisy(law, 4 * UNIT * touched, None)
        inner = slice(noise_margin, count - noise_margin)
        leaves = 2.0 * float(law.tail(noise_margin + 1))  # the window, from an inner cell
        beyond = []
        for side, cells in zip((everyone, without), sides, strict=True):
            total = 1.0 - side.others.sum(axis=1)
            beyond.append(np.maximum(total - cells[:, inner].sum(axis=1), 0.0) + leaves)
        distance = (kernel_margin - 1) * law.granularity
        heavy = np.full(len(without.points), np.inf)
        if exact_tails and tails == "power":
            heavy = _power_tail(certificate, rows, least, most, distance)
        return _Block(
            certificate=certificate,
            everyone=noises[0],
            without=noises[1],
            others=everyone.others,
            others_without=without.others,
            beyond=(beyond[0], beyond[1]),
            tails=tails,
            rate=kept_rate,
            slack=_slack(certificate),
            error=error,
            bound=certificate._largest[rows],
            heavy=heavy,
            inner=inner if tails == "power" else slice(None),
        )

    def delta(self, epsilon: float) -> tuple[FloatArray, FloatArray]:
        """delta_i, rounded up, and how much of it is only what could not be excluded."""
        e = math.exp(min(epsilon, _LARGEST)) * (1 - 2 * self.slack)
        out, unsure = [], []
        for direction in (0, 1):
            above, below, others, others_below = self._sides(direction)
            stick = np.maximum(above - e * below, 0.0).sum(axis=1)
            stick = stick + np.maximum(others - e * others_below, 0.0).sum(axis=1)
            more = np.broadcast_to(self.beyond[direction], stick.shape) + self.slack
            out.append(stick + more)
            unsure.append(more)
        return np.minimum(np.maximum(*out), 1.0), np.maximum(*unsure)

    def epsilon(self, delta: float) -> FloatArray:
        """The smallest epsilon at which delta_i is at most ``delta``; inf where none is found."""
        if delta == 0.0:
            return np.maximum(self._supremum(0), self._supremum(1))
        return np.maximum(self._inverse(0, delta), self._inverse(1, delta))

    def _sides(self, direction: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        pair = (self.everyone.mass, self.without.mass, self.others, self.others_without)
        return pair if direction == 0 else (pair[1], pair[0], pair[3], pair[2])

    def _inverse(self, direction: int, delta: float) -> FloatArray:
        """By Newton's method: the stick is convex and falling in e, so that it never steps too far."""
        above, below, others, others_below = self._sides(direction)
        rows = len(self.without.mass)
        # a little below the target, so that what Newton's method leaves is not above it
        target = (delta - np.broadcast_to(self.beyond[direction], (rows,)) - self.slack) * (1 - 2e-13)
        e = np.ones(rows)
        for _ in range(200):
            active = above - e[:, None] * below
            inside = active > 0
            active_others = others - e[:, None] * others_below
            inside_others = active_others > 0
            stick = (active * inside).sum(axis=1) + (active_others * inside_others).sum(axis=1)
            slope = (below * inside).sum(axis=1) + (others_below * inside_others).sum(axis=1)
            more = stick - target
            moving = (more > 1e-13 * target) & np.isfinite(e) & (target > 0)
            if not moving.any():
                break
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.where(slope > 0, more / slope, np.inf)
            e = np.where(moving, e + step, e)
            e[e > math.exp(_LARGEST)] = np.inf
        return np.where(target <= 0, np.inf, np.where(e > 1, np.log(e) + 4 * self.slack, 0.0))

    def _supremum(self, direction: int) -> FloatArray:
        """sup log(above/below) over all cells and other outcomes, rounded up."""
        above, below, others, others_below = self._sides(direction)
        rows = len(self.without.mass)
        ends = (self.everyone, self.without) if direction == 0 else (self.without, self.everyone)
        up, down = above * (1 + self.slack), below * (1 - self.slack)
        if self.error is not None:
            up, down = up + self.error.mass, np.maximum(down - self.error.mass, 0.0)
            up = np.where(above > 0, up, 0.0) if not laplace_parts(self.certificate.law) else up
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(down >= TINY, np.log(up) - np.log(down), np.inf)
        lost = (up < TINY) & (down < TINY)
        ratio = np.where(lost, -np.inf, ratio)[:, self.inner]
        lost = lost[:, self.inner]
        found = np.broadcast_to(ratio.max(axis=1), (rows,)).copy()
        if self._may_be_lost():  # cells too small for doubles: only the bound by influences holds there
            hidden = np.broadcast_to(lost.any(axis=1), (rows,))
            found[hidden] = np.maximum(found, self.bound)[hidden]
        with np.errstate(divide="ignore", invalid="ignore"):
            separate = np.where(others > 0, np.log(others) - np.log(others_below), -np.inf)
        found = np.maximum(found, separate.max(axis=1))
        found = np.maximum(found, self._tail(ends))
        if self.tails == "light" and laplace_parts(self.certificate.law):
            found = found + self._light(ends)
        return np.asarray(np.maximum(np.minimum(found, self.bound), 0.0))

    def _may_be_lost(self) -> bool:
        """Whether a cell without mass may only seem so."""
        return bool(laplace_parts(self.certificate.law)) or self.tails != "bounded"

    def _tail(self, ends: tuple[Noisy, Noisy]) -> FloatArray:
        """Upper bound of the log ratio beyond both ends of the window."""
        law = self.certificate.law
        rows = len(self.without.mass)
        if self.tails == "power":
            return self.heavy
        if self.tails == "unknown":
            return self.bound
        if self.rate is None and not laplace_parts(law):
            # nothing is left beyond the window, or only Gaussian tails, whose ratio has no bound
            return np.zeros(rows) if self.tails == "bounded" else self.bound
        found = np.full(rows, -np.inf)
        for name in ("right", "left"):
            sides: list[End] = []
            for which, one in enumerate(ends):
                coefficients = getattr(one, name)
                if self.error is not None:
                    wrong = getattr(self.error, name)
                    coefficients = np.maximum(coefficients + (wrong if which == 0 else -wrong), 0.0)
                whole = np.broadcast_to(coefficients, (rows, coefficients.shape[1]))
                compact, end = (np.broadcast_to(getattr(one, f"{kind}_{name}"), (rows,)) for kind in ("compact", "end"))
                sides.append((whole, compact, end))
            found = np.maximum(found, tail_supremum(sides[0], sides[1], law, self.rate, self.slack))
        return found

    def _light(self, ends: tuple[Noisy, Noisy]) -> FloatArray:
        """What the kernels' own tails beyond the window may add to the log ratio, anywhere.

        With rho = e^(-1/s) of the slowest part, the answers beyond the last cell add at most ``rho^t E`` at t cells
        from it, inside or outside, E = sum_u rho^(-u) P(last + u) <= P(last) r/(rho - r), and the slowest part alone is
        at least ``rho^t c`` there: so they add at most E/c in proportion.
        """
        law = self.certificate.law
        parts = laplace_parts(law)
        speed = parts[0][0]
        widest = _widest(self.certificate)
        kernel = _kernel_rate(self.certificate, widest)
        if kernel <= speed:
            return np.full(len(self.without.mass), np.inf)
        weight = sum(kappa * share for _, kappa, share in parts) + sum(
            share for share, part in law.shares() if part.kind != "laplace"
        )
        more = np.zeros(len(self.without.mass))
        for one in ends:
            for end, coefficients in ((one.end_right, one.right), (one.end_left, one.left)):
                with np.errstate(divide="ignore", invalid="ignore"):
                    share = weight * (end + 1e-300) / math.expm1(kernel - speed) / coefficients[:, 0]
                more = more + np.where(np.isfinite(share), share, np.inf)
        return np.log1p(more)


def _select(side: Side, rows: IntArray) -> Side:
    def some(array: FloatArray) -> FloatArray:
        return array if len(array) == 1 and len(side.points) != 1 else array[rows]

    bandwidths = None if side.bandwidths is None else some(side.bandwidths)
    return Side(some(side.points), bandwidths, some(side.atoms), some(side.others), side.low[rows], side.high[rows])


def _tails(certificate: Certificate) -> tuple[str, float | None]:
    """How answers go on beyond the window, and their rate if they are geometric there."""
    model = certificate._answers.model
    if model is None or isinstance(model, Differences):
        return "bounded", None
    if not isinstance(model, Mixture):
        return "unknown", None
    kernel = model.kernel
    if kernel.tail == "bounded":
        return "bounded", None
    if kernel.tail == "power":
        return "power", None
    if kernel.tail == "exponential" and model.refit is None and math.isfinite(model.bandwidth):
        return "geometric", certificate.law.granularity / model.bandwidth
    return ("unknown" if model.refit is not None else "light"), None


def _widest(certificate: Certificate) -> float:
    """Largest bandwidth in granularities."""
    h = certificate._answers.bandwidths
    return 0.0 if h is None else float(h.max())


def _kernel_rate(certificate: Certificate, widest: float) -> float:
    """Rate at which the kernels' tails fall beyond the window, at least: per cell."""
    model = certificate._answers.model
    if isinstance(model, Mixture) and model.kernel.tail == "gaussian":
        return 30.0 / widest  # beyond 38.5 bandwidths the log density falls faster than that
    return 1.0 / widest if widest else math.inf


def _reach(certificate: Certificate) -> float:
    """Bandwidths to which kernels are followed where what lies beyond is counted in full."""
    model = certificate._answers.model
    if not isinstance(model, Mixture):
        return 0.0
    if model.kernel.tail == "power":
        # 3/z^4 lies beyond z on each side: a thousandth of the target, or 6e-8 in all
        delta = certificate.delta or 0.0
        return float(np.clip((3000.0 / max(delta, 1e-9)) ** 0.25, 100.0, model.kernel.reach))
    return model.kernel.reach


def _margins(certificate: Certificate, exact_tails: bool) -> tuple[int, int]:
    """Cells of the window beyond all results: for the kernels, and for the noise."""
    law, widest = certificate.law, _widest(certificate)
    tails, _ = _tails(certificate)
    if not exact_tails:
        return math.ceil(_reach(certificate) * widest) + 2, _noise_reach(law)
    scale = max((1.0 / speed for speed, _, _ in laplace_parts(law)), default=0.0)
    compact = compact_width(law)
    if tails == "power":
        kernel = max(120.0 * scale, 60.0 * widest, 4.0 * compact)
        return math.ceil(kernel) + 2, math.ceil(60.0 * scale) + compact + 2
    kernel = 41.0 * widest
    if tails == "light" and scale:
        gap = _kernel_rate(certificate, widest) - 1.0 / scale
        kernel = max(kernel, min(45.0 / gap, 400.0 * widest)) if gap > 0 else kernel
    if tails == "bounded":
        kernel = widest
    if tails == "geometric":  # a Laplace kernel is geometric from its centre on, a logistic one from 41 bandwidths
        exact = isinstance(certificate._answers.model, Mixture) and certificate._answers.model.kernel.name == "laplace"
        kernel = max(12.0 * widest if exact else kernel, 6.0 * scale)
    return math.ceil(kernel) + 2, compact + 2


def _noise_reach(law: Law) -> int:
    """Cells beyond which less than 1e-14 of the noise lies."""
    high = 1
    while 2.0 * float(law.tail(high)) > 1e-14:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if 2.0 * float(law.tail(middle)) <= 1e-14 else (middle, high)
    return high


def _power_tail(certificate: Certificate, rows: IntArray, least: float, most: float, distance: float) -> FloatArray:
    """Upper bound of the log ratio beyond the window for kernels with power tails (Student, four degrees of freedom).

    Take a cell at distance D' >= D from all results, and noise of at most D'/2 apart from more. Of the former, every
    kernel is D'/2 or further away, where |d log k/dz| <= 5/z: shifts of at most d change it by at most 10 d/D in log.
    The latter is at most 2 tail(D'/2), against at least half of the kernel's density at span + 3/2 D'; exponential
    against power, so that their ratio falls with D' from 10 scales on.
    """
    law, g = certificate.law, certificate.law.granularity
    model = certificate._answers.model
    assert isinstance(model, Mixture)
    widest, narrowest = float(model.bandwidths.max()), float(model.bandwidths.min())
    scale = max((part.scale for part in law.parts), default=0.0)
    d_max = np.where(np.isfinite(certificate.risk.shifts), certificate.risk.shifts * widest, np.inf)[rows]
    if distance < 20.0 * scale or distance <= 4 * g:
        return np.full(len(rows), np.inf)
    span = (most - least) * g
    farthest = (span + 1.5 * distance + g) / narrowest
    least_mass = 0.5 * (g / narrowest) * float(model.kernel.pdf(np.array([farthest]))[0])
    rest = 2.0 * float(law.tail(max(1, math.floor(0.5 * distance / g)))) / least_mass
    return np.asarray(10.0 * d_max / (distance - 2 * g) + math.log1p(rest))


def _slack(certificate: Certificate) -> float:
    """What rounding may do to a mass, in proportion: exponents of up to 700, and cells far narrower than a kernel."""
    return UNIT * (2000.0 + 32.0 * _widest(certificate))


def _total(delta_i: FloatArray) -> float:
    with np.errstate(divide="ignore"):
        total = float(-np.expm1(np.log1p(-delta_i).sum()))
    return max(total, float(delta_i.max(initial=0.0)))


def _growing(count: int, step: int) -> Iterator[tuple[int, int]]:
    """Stretches of 0..count, each four times the one before: the worst are first, and often enough."""
    start = 0
    while start < count:
        stop = min(count, start + step)
        yield start, stop
        start, step = stop, step * 4


def _check_epsilon(epsilon: Any) -> float:
    number = float(epsilon)
    if not number >= 0:
        raise InputError(f"`epsilon` must be at least 0, got {number}.")
    return number
