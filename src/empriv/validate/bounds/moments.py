"""Bounds on the mean of paired values, as the parts of tables and of several numbers take them.

One number is bounded by `judge`; these are what is left of the bounds before it, until tables and publishing again are
judged by it too.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist

import numpy as np

from empriv.judge.upper import LEAST_DATABASES
from empriv.results import FloatArray, IntArray

FOLDS = 5
WIDENED = 1.2  # standard errors: folds that choose share databases, so that what they choose varies together
HALF = 0.5


def narrowing(n_databases: int) -> float:
    """Share of the one-SE bandwidth at which the smooth part is taken."""
    return HALF * min(1.0, float((1000 / n_databases) ** (1 / 6)))


def quantile(level: float) -> float:
    """z with P(normal < z) = level."""
    return NormalDist().inv_cdf(level)


def skewed(mean: FloatArray, variance: FloatArray, third: FloatArray, n: int, level: float) -> FloatArray:
    """``mean + z sd/sqrt(n) + c m3/(sd² n)``, c = (1 + 2z²)/6: a normal bound mended for skewness; sd = 0: the mean."""
    z = quantile(level)
    c = (1 + 2 * z * z) / 6
    varies = variance > 1e-30
    safe = np.where(varies, variance, 1.0)
    return np.asarray(np.where(varies, mean + z * np.sqrt(safe / max(n - 1, 1)) + c * third / (safe * n), mean))


def bound_of(w: FloatArray, level: float) -> FloatArray:
    """`skewed` of values (rows, n)."""
    n = w.shape[-1]
    mean = w.mean(axis=-1)
    centred = w - mean[..., None]
    square = centred * centred
    return skewed(mean, square.mean(axis=-1), np.einsum("...j,...j->...", square, centred) / n, n, level)


def groups(depth: int) -> list[tuple[int, int]]:
    """Half-lines 0..depth looked at together, (first, after the last): two alone, then twice as many each time.

    Further in, many points lie as close to a half-line's end as the influence is large, and the best of many half-lines
    is mostly chance. An edge is seen by all half-lines that end just behind it, so that their average will do.
    """
    ends = [0, 1, 2]
    while ends[-1] <= depth:
        ends.append(2 * ends[-1])
    return [(low, min(high, depth + 1)) for low, high in pairwise(ends) if low <= depth]


def folds_of(n_databases: int, seed: int = 0, folds: int = FOLDS) -> IntArray:
    """(databases,) the fold of each."""
    fold = np.empty(n_databases, np.int64)
    fold[np.random.default_rng(seed).permutation(n_databases)] = np.arange(n_databases) % folds
    return fold


def mean_limits(w: FloatArray, level: float) -> FloatArray:
    """``mean - 1.2 z sd/sqrt(n)`` of values (epsilons, n), from 0 to what n databases can demonstrate at all."""
    n = w.shape[1]
    if n < LEAST_DATABASES:
        return np.zeros(len(w))
    limit = w.mean(axis=1) - WIDENED * quantile(level) * w.std(axis=1, ddof=1) / np.sqrt(n)
    # n successes in n say no more than this: the standard deviation is 0 where it cannot be.
    return np.asarray(np.clip(limit, 0.0, float((1.0 - level) ** (1.0 / n))))


def never_rising(lower: FloatArray, epsilons: FloatArray) -> FloatArray:
    """Lower bounds held down by those at smaller epsilons, since delta falls in epsilon."""
    order = np.argsort(epsilons)
    return np.asarray(np.minimum.accumulate(lower[order])[np.argsort(order)])
