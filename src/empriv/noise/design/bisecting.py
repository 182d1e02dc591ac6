"""The least noise that the judge accepts, by bisecting its scale.

The bound falls as the noise grows, and classical noise suffices. The search looks at a few people who move the answer
most; what it ends on is judged for everyone, and whoever misses joins the search.
"""

from __future__ import annotations

import math

import numpy as np

from empriv.judge.noise_kernels import NoiseKernel
from empriv.noise.judging import LEVEL, JudgedAnswer
from empriv.results import IntArray

_FIRST = 8  # people that the search looks at first, by each of two figures
_JOINED = 16  # people who join it when they miss
_ROUNDS = 16
_FALL = 4.0
_TOLERANCE = 0.005  # of the scale
_NARROWEST = 2.0**-20  # of classical noise
_CELLS = 2.0**-6  # of the lattice: narrower noise never leaves 0


def least_noise(judged: JudgedAnswer, widest: list[NoiseKernel], epsilon: float, delta: float) -> NoiseKernel | None:
    """The least noise of the smaller error, no wider than these kernels, one of each kind; None if they do not do.

    Each kind is judged with itself as the kernel, at a level that shares the error out over the kinds that are tried:
    that of whichever is taken is 95%.
    """
    level = 1.0 - (1.0 - LEVEL) / len(widest)
    rows = first_looked_at(judged)
    low = {wide.kind: max(_NARROWEST * wide.scale, _CELLS * wide.step) for wide in widest}
    unsure: dict[str, IntArray] = {}  # by kind: whoever met the target with less noise of the kind meets it with more
    for _ in range(_ROUNDS):
        best: NoiseKernel | None = None
        for wide in widest:
            found = _bisected(judged, wide, low[wide.kind], best, epsilon, delta, rows, level)
            best = best if found is None else found
        if best is None:
            return None
        if best.kind in unsure:
            asked = unsure[best.kind]
            upper = judged.of_rows(best, epsilon, asked, level)
        else:
            asked, upper = judged.of_everyone(best, epsilon, delta, level)
        worst = np.argsort(-upper, kind="stable")[: np.count_nonzero(upper > delta)]
        if not len(worst):
            return best
        unsure[best.kind] = asked[worst]
        rows, low[best.kind] = np.union1d(rows, asked[worst[:_JOINED]]), best.scale
    return None


def _bisected(
    judged: JudgedAnswer,
    widest: NoiseKernel,
    low: float,
    rival: NoiseKernel | None,
    epsilon: float,
    delta: float,
    rows: IntArray,
    level: float,
) -> NoiseKernel | None:
    """The least scale for these people; None if there is none, or none with a smaller error than the rival's."""

    def enough(scale: float) -> bool:
        return judged.meets(widest.of_scale(scale), epsilon, delta, rows, level)

    high = widest.scale if rival is None else min(widest.scale, rival.error * widest.scale / widest.error)
    if high <= low or not enough(high):
        return None
    while high / _FALL > low and enough(high / _FALL):
        high /= _FALL
    low = max(low, high / _FALL)
    while high / low > 1.0 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return widest.of_scale(high)


def first_looked_at(judged: JudgedAnswer) -> IntArray:
    """People who move the answer most, once and over all databases."""
    pairs = judged.pairs
    with np.errstate(invalid="ignore"):
        change = np.abs(pairs.entries - pairs.points.reshape(-1, pairs.draws)[pairs.entry_database]).mean(axis=1)
    owner = np.repeat(np.arange(pairs.n_individuals), np.diff(pairs.starts))
    total = np.bincount(owner, np.where(np.isfinite(change), change, 0.0), pairs.n_individuals)
    first = [np.argsort(-figures, kind="stable")[:_FIRST] for figures in (judged.moved, total)]
    return np.unique(np.concatenate(first))
