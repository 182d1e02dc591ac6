"""One window of cells: noisy masses with everyone and without some individuals, and their hockey sticks.

Cells come from `cells`, noise from `convolve`, what lies beyond the window from `tails`. `certificate` decides which
individuals share a window, and which need one at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from empriv.errors import InputError
from empriv.noise.certify.cells import LARGEST_CELLS, AnswerSide, RoundedAnswers
from empriv.noise.certify.convolve import TINY, UNIT, Noisy, laplace_parts, noisy
from empriv.noise.certify.tails import End, Reach, kernel_reach, light, power_tail, tail_supremum, widest
from empriv.noise.law import Law
from empriv.results import FloatArray, IntArray

_LARGEST = 700.0  # epsilon beyond which e^epsilon is infinite


@dataclass(frozen=True, eq=False)
class Window:
    """Noisy masses of some individuals in a common window, and all that is needed beyond it."""

    law: Law
    reach: Reach
    everyone: Noisy
    without: Noisy
    others: FloatArray
    others_without: FloatArray
    beyond: tuple[FloatArray, FloatArray]
    slack: float
    error: Noisy | None
    bound: FloatArray
    heavy: FloatArray
    inner: slice

    @staticmethod
    def of(
        answers: RoundedAnswers,
        law: Law,
        reach: Reach,
        sides: tuple[IntArray, AnswerSide, AnswerSide],
        *,
        bound: FloatArray,
        delta: float | None,
    ) -> Window:
        """The window of some individuals.

        ``sides`` are the individuals, and the answers with everyone and without each; ``bound`` is an upper bound of
        each one's log ratio; ``delta`` a target that says how much may be counted beyond the window, or None if
        nothing may: then the tails' own form is used.
        """
        rows, everyone, without = sides
        exact = delta is None
        margin = reach.kernel + reach.noise
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
        followed = math.inf if delta is None else kernel_reach(answers, delta)
        cells = [answers.cells(side, first, count, followed) for side in (everyone, without)]
        noises = [noisy(law, masses, reach.rate) for masses in cells]
        error = None
        if exact and reach.tails in ("bounded", "unknown"):
            # masses here are differences of a distribution function: 4 units of rounding each, wherever there is any
            touched = ((cells[0].max(axis=0) > 0) | (cells[1].max(axis=0) > 0)).astype(float)[None, :]
            error = noisy(law, 4 * UNIT * touched, None)
        inner = slice(reach.noise, count - reach.noise)
        leaves = 2.0 * float(law.tail(reach.noise + 1))  # the window, from an inner cell
        beyond = []
        for side, masses in zip((everyone, without), cells, strict=True):
            total = 1.0 - side.others.sum(axis=1)
            beyond.append(np.maximum(total - masses[:, inner].sum(axis=1), 0.0) + leaves)
        heavy = np.full(len(without.points), np.inf)
        if exact and reach.tails == "power":
            distance = (reach.kernel - 1) * law.granularity
            heavy = power_tail(answers, law, rows, least=least, most=most, distance=distance)
        return Window(
            law=law,
            reach=reach,
            everyone=noises[0],
            without=noises[1],
            others=everyone.others,
            others_without=without.others,
            beyond=(beyond[0], beyond[1]),
            slack=_slack(answers),
            error=error,
            bound=bound,
            heavy=heavy,
            inner=inner if reach.tails == "power" else slice(None),
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

    def above(self) -> FloatArray:
        """Upper bound of log(without/everyone), anywhere."""
        return self._supremum(1)

    def sticks(self, levels: FloatArray) -> FloatArray:
        """(rows, levels): what lies without above each level times with everyone, rounded up."""
        above, below, others, others_below = self._sides(1)
        out = np.empty((len(above), len(levels)))
        for column, level in enumerate(levels * (1 - 2 * self.slack)):
            out[:, column] = np.maximum(above - level * below, 0.0).sum(axis=1)
            out[:, column] += np.maximum(others - level * others_below, 0.0).sum(axis=1)
        return np.minimum(out + self.beyond[1][:, None] + self.slack, 1.0)

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
            up = np.where(above > 0, up, 0.0) if not laplace_parts(self.law) else up
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(down >= TINY, np.log(up) - np.log(down), np.inf)
        lost = (up < TINY) & (down < TINY)
        ratio = np.where(lost, -np.inf, ratio)[:, self.inner]
        lost = lost[:, self.inner]
        largest = np.broadcast_to(ratio.max(axis=1), (rows,)).copy()
        if self._may_be_lost():  # cells too small for doubles: only the bound by influences holds there
            hidden = np.broadcast_to(lost.any(axis=1), (rows,))
            largest[hidden] = np.maximum(largest, self.bound)[hidden]
        with np.errstate(divide="ignore", invalid="ignore"):
            separate = np.where(others > 0, np.log(others) - np.log(others_below), -np.inf)
        largest = np.maximum(largest, separate.max(axis=1))
        largest = np.maximum(largest, self._tail(ends))
        if self.reach.tails == "light" and laplace_parts(self.law):
            pairs = [(side.end_right, side.right) for side in ends] + [(side.end_left, side.left) for side in ends]
            largest = largest + light(self.law, self.reach.fall, pairs)
        return np.asarray(np.maximum(np.minimum(largest, self.bound), 0.0))

    def _may_be_lost(self) -> bool:
        """Whether a cell without mass may only seem so."""
        return bool(laplace_parts(self.law)) or self.reach.tails != "bounded"

    def _tail(self, ends: tuple[Noisy, Noisy]) -> FloatArray:
        """Upper bound of the log ratio beyond both ends of the window."""
        law = self.law
        rows = len(self.without.mass)
        if self.reach.tails == "power":
            return self.heavy
        if self.reach.tails == "unknown":
            return self.bound
        if self.reach.rate is None and not laplace_parts(law):
            # nothing is left beyond the window, or only Gaussian tails, whose ratio has no bound
            return np.zeros(rows) if self.reach.tails == "bounded" else self.bound
        largest = np.full(rows, -np.inf)
        for name in ("right", "left"):
            sides: list[End] = []
            for position, side in enumerate(ends):
                coefficients = getattr(side, name)
                if self.error is not None:
                    wrong = getattr(self.error, name)
                    coefficients = np.maximum(coefficients + (wrong if position == 0 else -wrong), 0.0)
                all_rows = np.broadcast_to(coefficients, (rows, coefficients.shape[1]))
                compact, end = (
                    np.broadcast_to(getattr(side, f"{kind}_{name}"), (rows,)) for kind in ("compact", "end")
                )
                sides.append((all_rows, compact, end))
            largest = np.maximum(largest, tail_supremum(sides[0], sides[1], law, self.reach.rate, self.slack))
        return largest


def _slack(answers: RoundedAnswers) -> float:
    """What rounding may do to a mass, in proportion: exponents of up to 700, and cells far narrower than a kernel."""
    return UNIT * (2000.0 + 32.0 * widest(answers))
