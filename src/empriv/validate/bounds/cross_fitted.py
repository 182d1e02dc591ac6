"""The cross-fitted lower limits on delta and on total risk: what four fifths of the databases choose, the fifth judges.

For any function psi from results to [0, 1], ``E psi(A) - e E psi(B)`` is at most delta_i. In each fold left out the
other databases choose psi: the set where one Laplace density exceeds e times the other, convolved with the kernel
(which costs little of the mean and takes most of the variance), its direction, and the individual. So every database
has a value W that it had no part in choosing, and ``mean - 1.2 z sd/sqrt(n)`` of all of them is the limit. It is normal
theory, so approximate, where the bet of `lower` is exact; it is not corrected for skewness, which would raise it.

What is chosen is the largest over individuals, and sums over individuals add up: stretches of a scan are `joined`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from empriv.measuring.line.atoms import lattice, on_lattice
from empriv.measuring.line.screening import log_reach
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds import structure
from empriv.validate.bounds.lower import never_rising
from empriv.validate.bounds.moments import LEAST_DATABASES, Merged, Smooth, quantile
from empriv.validate.ground import BoolArray, Ground

FOLDS = 5
WIDENED = 1.2  # standard errors: folds that choose share databases, so that what they choose varies together


class Limits(NamedTuple):
    """(epsilons,) lower limits on delta, and on total risk: somebody's privacy fails at least as often as one's."""

    delta: FloatArray
    total: FloatArray


class CrossFitted(NamedTuple):
    """What was chosen without each fold, and how the fold judged it.

    Attributes
    ----------
    scores : (epsilons, folds) how promising the chosen individual and set were to the other folds
    values : (epsilons, databases) W of what was chosen without the database
    sums : (epsilons, databases) sum over everyone of their own W, each with the set chosen without the database
    """

    scores: FloatArray
    values: FloatArray
    sums: FloatArray

    @staticmethod
    def nothing(n_epsilons: int, n_databases: int) -> CrossFitted:
        """Nobody looked at yet."""
        values, sums = np.zeros((2, n_epsilons, n_databases))
        return CrossFitted(np.zeros((n_epsilons, FOLDS)), values, sums)

    def joined(self, other: CrossFitted, fold: IntArray) -> CrossFitted:
        """With other individuals: the more promising choice in each fold, and both sums."""
        better = other.scores > self.scores
        values = np.where(better[:, fold], other.values, self.values)
        return CrossFitted(np.maximum(self.scores, other.scores), values, self.sums + other.sums)

    def limits(self, epsilons: FloatArray, level: float) -> Limits:
        """The limits at the level, falling in epsilon. Total risk 1 - Π(1 - d_i) is at least 1 - exp(-Σ d_i)."""
        delta = never_rising(mean_limits(self.values, level), epsilons)
        total = never_rising(0.0 - np.expm1(-mean_limits(self.sums, level, most=np.inf)), epsilons)
        return Limits(delta, np.maximum(delta, total))


def folds_of(n_databases: int, seed: int = 0, folds: int = FOLDS) -> IntArray:
    """(databases,) the fold of each."""
    fold = np.empty(n_databases, np.int64)
    fold[np.random.default_rng(seed).permutation(n_databases)] = np.arange(n_databases) % folds
    return fold


def cross_fit(ground: Ground, epsilons: Sequence[float] | FloatArray, seed: int = 0) -> CrossFitted:
    """Choose and judge for everyone; nothing below 30 databases."""
    grid = np.asarray(epsilons, float)
    n = ground.n_databases
    total = CrossFitted.nothing(len(grid), n)
    rows = np.flatnonzero((ground.shifts > grid.min()) & (ground.shifts > 0))
    if n < LEAST_DATABASES or not len(rows):
        return total
    # Whose densities stay within e^epsilon of each other has an empty set, or one of hardly any mass.
    reach = log_reach(ground.marked, rows, bandwidth=ground.bandwidth, shifts=ground.shifts[rows])
    fold = folds_of(n, seed)
    rows = rows[reach > grid.min()]
    # Compiled code knows no atoms, and no last digits: who has them comes first, as who moves results most.
    plain = np.isfinite(ground.shifts[rows]) & (structure.compiled_cross_fit is not None) & ground.smooth_everywhere
    for _, part in ground.in_threads(lambda some: _block(ground, some, grid, fold), rows[~plain]):
        total = total.joined(part, fold)
    for _, part in ground.in_threads(
        lambda some: _compiled(ground, some, grid, fold), rows[plain], most=ground.together
    ):
        total = total.joined(part, fold)
    return total


def _compiled(ground: Ground, rows: IntArray, epsilons: FloatArray, fold: IntArray) -> CrossFitted:
    assert structure.compiled_cross_fit is not None
    out = CrossFitted.nothing(len(epsilons), ground.n_databases)
    points, without, z = ground.values.points, ground.values.dense(rows), quantile(0.95)
    structure.compiled_cross_fit(points, without, ground.draws, ground.bandwidth, fold, np.exp(epsilons), z, out)
    return out


def _block(ground: Ground, rows: IntArray, epsilons: FloatArray, fold: IntArray) -> CrossFitted:
    n, draws = ground.n_databases, ground.draws
    without = ground.values.dense(rows)
    merged = Merged.of(ground.values.points, without, ground.smooth(rows), ground.tolerance)
    leaks = np.flatnonzero(np.isinf(ground.shifts[rows]))
    out = CrossFitted.nothing(len(epsilons), n)
    for left_out in range(FOLDS):
        train, test = fold != left_out, fold == left_out
        cut = Smooth.of(merged, ground.bandwidth, np.repeat(train, draws).astype(float))
        off = _off_grids(ground, without[leaks], np.repeat(train, draws)) if len(leaks) else []
        for k, epsilon in enumerate(epsilons):
            e = float(np.exp(epsilon))
            w = _larger(cut.values(0, e, draws), cut.values(1, e, draws), train)
            for off_a, off_b in off:
                for leak in (off_a - e * off_b, off_b - e * off_a):
                    w[leaks] = _larger(w[leaks], leak, train)
            score = _score(w[:, train], n)
            best = int(np.argmax(score))
            if score[best] > 0:
                out.scores[k, left_out] = score[best]
                out.values[k, test] = w[best, test]
            out.sums[k, test] = w[:, test].sum(axis=0)
    return out


def _score(w: FloatArray, n: int) -> FloatArray:
    """How promising values (rows, databases seen) are for a judgement by n databases."""
    return np.asarray(w.mean(axis=-1) - quantile(0.95) * w.std(axis=-1) / np.sqrt(n))


def _larger(first: FloatArray, second: FloatArray, train: BoolArray) -> FloatArray:
    """Of two candidates for each individual, the one whose mean is larger on these databases."""
    return np.where((second[:, train].mean(axis=1) > first[:, train].mean(axis=1))[:, None], second, first)


def _off_grids(ground: Ground, without: FloatArray, train: BoolArray) -> list[tuple[FloatArray, FloatArray]]:
    """Which results lie off a lattice, with everyone and without each: the sets that give away a sum of integers."""
    points, draws = ground.values.points, ground.draws
    smooth = points[train & np.isfinite(ground.marked.points)]
    grids = [grid for grid in (lattice(smooth) if len(smooth) else None, (0.0, 1e-6)) if grid]

    def off(x: FloatArray, grid: tuple[float, float]) -> FloatArray:
        return np.asarray((~on_lattice(x, *grid)).reshape(len(x), -1, draws).mean(axis=2))

    return [(off(points[None, :], grid), off(without, grid)) for grid in grids]


def mean_limits(w: FloatArray, level: float, most: float | None = None) -> FloatArray:
    """``mean - 1.2 z sd/sqrt(n)`` of values (epsilons, n), from 0 to what n databases can demonstrate at all."""
    n = w.shape[1]
    if n < LEAST_DATABASES:
        return np.zeros(len(w))
    limit = w.mean(axis=1) - WIDENED * quantile(level) * w.std(axis=1, ddof=1) / np.sqrt(n)
    # n successes in n say no more than this: the standard deviation is 0 where it cannot be.
    most = float((1.0 - level) ** (1.0 / n)) if most is None else most
    return np.asarray(np.clip(limit, 0.0, most))


def limits_of(ground: Ground, epsilons: FloatArray, level: float, seed: int = 0) -> Limits:
    """Cross-fitted lower limits of what stands on this ground."""
    return cross_fit(ground, epsilons, seed).limits(epsilons, level)
