"""The least noise, by the same bound: the smallest scale at which U <= delta for everyone.

Never more than classical noise, which hides any move up to the reach whatever the data are: at its scale U is at most
what the noise alone leaves. Laplace and Gaussian noise are each judged with itself as the kernel; the smaller mean
absolute noise wins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from empriv.judge import upper
from empriv.judge.cover import of_moves
from empriv.judge.noise_kernels import KINDS, NoiseKernel, alone, classical
from empriv.measuring.line.atoms import Pairs
from empriv.results import FloatArray, IntArray

DITHER = 0.7  # bandwidths: covers are then .7 to .8 of the true ones, with .5 they are .55 to .7 (benchmarks/judge.py)
_FEW = 48  # people on whom a scale is found before everyone is asked
_STEPS = 9  # halvings of the logarithm, from a factor of 4 to less than a hundredth
_FALL = 4.0
_ROUNDS = 12


def dither(points: FloatArray, *, draws: int = 1, step: float = 0.0) -> NoiseKernel | None:
    """The smallest Laplace noise with which nothing is assumed of the law; None if all results are equal."""
    h = upper.bandwidth(points, draws)
    return NoiseKernel("laplace", DITHER * h, step) if h > 0 else None


def least(
    epsilon: float,
    delta: float,
    pairs: Pairs | None = None,
    laws: FloatArray | None = None,
    moves: npt.ArrayLike = (),
    *,
    reach: float | None = None,
    kinds: Sequence[str] = KINDS,
    step: float = 0.0,
    level: float = 0.95,
) -> NoiseKernel | None:
    """The least noise with which U(epsilon) <= delta for these people and these moves; None if nobody moves anything.

    Parameters
    ----------
    pairs : results with everyone and without each person, judged on a random database
    laws, moves : ``laws`` (N,) or (rows, N), ``moves`` (rows,): shift pairs, what people did on the day they did it
    reach : the most that anybody may do, declared; by default twice what each person was seen to do
    step : what released answers are multiples of; 0 for continuous noise
    level : of the bound of whichever kind is taken: errors are shared out over the kinds that are tried
    """
    level = 1 - (1 - level) / max(1, len(kinds))
    best: NoiseKernel | None = None
    shifts = np.abs(np.atleast_1d(np.asarray(moves, float)))
    moved = np.zeros(0) if pairs is None else upper.moves(pairs)[0]
    furthest = max(2 * float(moved.max(initial=0.0)) if reach is None else reach, float(shifts.max(initial=0.0)))
    furthest = max(furthest, float(moved.max(initial=0.0)))
    if not furthest > 0:
        return None
    for kind in kinds:
        if kind == "gaussian" and delta <= 0:
            continue
        judge = _Judge(epsilon, delta, pairs, moved, laws, shifts, reach, level)
        found = _smallest(judge, classical(epsilon, delta, furthest, kind, step), best)
        if found is not None and (best is None or found.error < best.error):
            best = found
    return best


class _Judge:
    """Who is above delta with this noise?"""

    def __init__(
        self,
        epsilon: float,
        delta: float,
        pairs: Pairs | None,
        moved: FloatArray,
        laws: FloatArray | None,
        shifts: FloatArray,
        reach: float | None,
        level: float,
    ) -> None:
        self.epsilon, self.delta, self.pairs, self.moved = epsilon, delta, pairs, moved
        self.laws, self.shifts, self.reach, self.level = laws, shifts, reach, level

    def people(self, kernel: NoiseKernel, rows: IntArray) -> FloatArray:
        """U of these people; 0 for those whom noise hides whatever the law is."""
        out = np.zeros(len(rows))
        if self.pairs is None or not len(rows):
            return out
        reach = 2 * self.moved[rows] if self.reach is None else np.maximum(self.reach, self.moved[rows])
        above = alone(kernel, self.epsilon, reach) > self.delta
        if above.any():
            judged = upper.of_people(
                self.pairs,
                self.epsilon,
                kernel,
                rows=rows[above],
                reach=self.reach,
                level=self.level,
                enough=self.delta,
            )
            out[above] = judged.values[:, 0]
        return out

    def days(self, kernel: NoiseKernel, rows: IntArray) -> FloatArray:
        out = np.zeros(len(rows))
        above = alone(kernel, self.epsilon, self.shifts[rows]) > self.delta
        if above.any() and self.laws is not None:
            own = self.laws if self.laws.ndim == 1 else self.laws[rows[above]]
            draws = 1 if self.pairs is None else self.pairs.draws
            out[above] = of_moves(
                own, self.shifts[rows[above]], self.epsilon, kernel, draws=draws, level=self.level
            ).values[:, 0]
        return out

    def enough(self, kernel: NoiseKernel, people: IntArray, days: IntArray) -> bool:
        return bool(
            self.days(kernel, days).max(initial=0.0) <= self.delta
            and self.people(kernel, people).max(initial=0.0) <= self.delta
        )


def _smallest(judge: _Judge, most: NoiseKernel, rival: NoiseKernel | None) -> NoiseKernel | None:
    """The smallest scale up to that of ``most``, which suffices; None if it is no smaller than the rival's."""
    people = np.argsort(-judge.moved, kind="stable")[:_FEW]
    one_law = judge.laws is None or judge.laws.ndim == 1
    everyone = np.arange(len(judge.moved))
    # with one law the largest move is the only one that matters
    days = np.array([np.argmax(judge.shifts)]) if one_law and len(judge.shifts) else np.arange(len(judge.shifts))
    if rival is not None:  # what would be no better than the rival is not looked for
        per_scale = most.error / most.scale
        ceiling = min(most.scale, rival.error / per_scale)
        if ceiling < most.scale and not judge.enough(most.of_scale(ceiling), people, days):
            return None
        top = most.of_scale(ceiling)
    else:
        top = most
    low = _least_scale(most)
    scale = _bisect(judge, top, low, people, days)
    for _ in range(_ROUNDS):
        if scale >= top.scale:
            break
        above = judge.people(most.of_scale(scale), everyone) > judge.delta
        failing = everyone[above]
        if not len(failing):
            return most.of_scale(scale)
        people = np.union1d(people, failing[np.argsort(-judge.moved[failing], kind="stable")[:_FEW]])
        scale = _bisect(judge, top, scale, people, days)
    if top.scale < most.scale and not judge.enough(top, everyone, days):
        return None
    return top


def _least_scale(most: NoiseKernel) -> float:
    return max(most.scale * 2.0**-20, most.step * 2.0**-8)


def _bisect(judge: _Judge, top: NoiseKernel, low: float, people: IntArray, days: IntArray) -> float:
    """The smallest scale that suffices for these, to within a hundredth, between ``low`` and ``top``'s."""
    high = top.scale
    while high / _FALL > low and judge.enough(top.of_scale(high / _FALL), people, days):
        high /= _FALL
    low = max(low, high / _FALL)
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (low, middle) if judge.enough(top.of_scale(middle), people, days) else (middle, high)
    return high
