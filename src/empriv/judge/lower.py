"""The lower bound, which makes FAIL: what four fifths of the databases choose, the fifth judges.

For any set A, P(a + noise in A) - e^epsilon P(b + noise in A) is at most the hockey stick of the two laws. In each fold
left out the other databases choose the set, its direction, and the pair. So every database has a value W that it had no
part in choosing, and ``mean - 1.2 z sd/sqrt(n)`` of all of them is the limit: normal theory, a fifth wider because the
folds that choose share databases. Without noise the set is convolved with a kernel of one bandwidth all the same: any
function into [0, 1] will do, and a smooth one varies less.

A bet on half of the databases is proved to hold; on shift pairs it is seldom above half the truth where this is often
(benchmarks/judge.py). So this is the one that is kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from empriv.judge.noise_kernels import NoiseKernel
from empriv.judge.noisy_laws import corrections, values
from empriv.judge.upper import LEAST_DATABASES, row_bandwidths
from empriv.measuring.line.atoms import Pairs
from empriv.results import FloatArray, IntArray

FOLDS = 5
WIDENED = 1.2  # standard errors
_ROWS = 256  # pairs whose values are held at once
_CANDIDATES = 64  # people who may be chosen: those who moved the answer most


def folds_of(n: int) -> IntArray:
    """(databases,) the fold of each."""
    fold = np.empty(n, np.int64)
    fold[np.random.default_rng(0).permutation(n)] = np.arange(n) % FOLDS
    return fold


def of_pairs(
    a: FloatArray,
    b: FloatArray,
    epsilons: npt.ArrayLike,
    kernel: NoiseKernel | None = None,
    *,
    draws: int = 1,
    level: float = 0.95,
) -> FloatArray:
    """(rows, epsilons) lower limits, each by itself: ``a`` (N,) or (rows, N), ``b`` (rows, N); 0 below 30 databases."""
    grid = np.atleast_1d(np.asarray(epsilons, float))
    b = np.atleast_2d(b)
    out = np.zeros((len(b), len(grid)))
    for start in range(0, len(b), _ROWS):
        some = slice(start, start + _ROWS)
        _, w = _cross_fitted(a if a.ndim == 1 else a[some], b[some], grid, kernel, draws)
        out[some] = limits(w, level)
    return out


def of_anyone(
    a: FloatArray,
    b: FloatArray,
    epsilons: npt.ArrayLike,
    kernel: NoiseKernel | None = None,
    *,
    draws: int = 1,
    level: float = 0.95,
) -> FloatArray:
    """(epsilons,) a lower limit on the largest over all these pairs: a fold judges the pair that the others chose."""
    grid = np.atleast_1d(np.asarray(epsilons, float))
    b = np.atleast_2d(b)
    n = b.shape[1] // draws
    fold = folds_of(n)
    scores, chosen = np.zeros((FOLDS, len(grid))), np.zeros((len(grid), n))
    for start in range(0, len(b), _ROWS):
        some = slice(start, start + _ROWS)
        score, w = _cross_fitted(a if a.ndim == 1 else a[some], b[some], grid, kernel, draws)
        if not w.size:
            continue
        for left_out in range(FOLDS):
            best = np.argmax(score[left_out], axis=0)  # (epsilons,)
            for k, row in enumerate(best.tolist()):
                if score[left_out, row, k] > scores[left_out, k]:
                    scores[left_out, k] = score[left_out, row, k]
                    chosen[k, fold == left_out] = w[row, k, fold == left_out]
    return np.asarray(limits(chosen[None], level)[0])


def of_people(
    pairs: Pairs, moved: FloatArray, epsilons: npt.ArrayLike, kernel: NoiseKernel | None = None, *, level: float = 0.95
) -> FloatArray:
    """(epsilons,) a lower limit on the largest over people, of those who ``moved`` (people,) the answer most."""
    rows = np.argsort(-moved, kind="stable")[:_CANDIDATES]
    rows = rows[moved[rows] > 0]
    if not len(rows):
        return np.zeros(np.size(epsilons))
    return of_anyone(pairs.points, pairs.dense(rows), epsilons, kernel, draws=pairs.draws, level=level)


def of_moves(
    x: FloatArray,
    moves: npt.ArrayLike,
    epsilons: npt.ArrayLike,
    kernel: NoiseKernel | None = None,
    *,
    draws: int = 1,
    level: float = 0.95,
) -> FloatArray:
    """(rows, epsilons) lower limits of shift pairs (x + d, x), each by itself."""
    d = np.atleast_1d(np.asarray(moves, float))
    laws = np.broadcast_to(np.asarray(x, float), (len(d), np.shape(x)[-1]))
    return of_pairs(laws + d[:, None], laws, epsilons, kernel, draws=draws, level=level)


def limits(w: FloatArray, level: float) -> FloatArray:
    """mean - 1.2 z sd/sqrt(n) along the last axis, from 0 to what n databases can show at all."""
    n = w.shape[-1]
    if n < LEAST_DATABASES:
        return np.zeros(w.shape[:-1])
    z, _ = corrections(level)
    limit = w.mean(axis=-1) - WIDENED * z * w.std(axis=-1, ddof=1) / np.sqrt(n)
    return np.asarray(np.clip(limit, 0.0, (1.0 - level) ** (1.0 / n)))


def _cross_fitted(
    a: FloatArray, b: FloatArray, grid: FloatArray, kernel: NoiseKernel | None, draws: int
) -> tuple[FloatArray, FloatArray]:
    """(folds, rows, epsilons) how promising each pair is to the other folds, and (rows, epsilons, n) W."""
    rows, n = len(b), b.shape[1] // draws
    out, scores = np.zeros((rows, len(grid), n)), np.full((FOLDS, rows, len(grid)), -np.inf)
    if n < LEAST_DATABASES:
        return scores, out
    z, _ = corrections(0.95)
    fold = folds_of(n)
    for some, noise in _by_kernel(a, b, kernel, draws):
        first = a if a.ndim == 1 else a[some]
        for left_out in range(FOLDS):
            train = fold != left_out
            w = values(first, b[some], noise, grid, draws=draws, weights=np.repeat(train, draws).astype(float))
            seen = w[..., train]
            score = seen.mean(axis=-1) - z * seen.std(axis=-1) / np.sqrt(n)
            second = score[..., 1] > score[..., 0]
            scores[left_out, some] = score.max(axis=-1)
            own_w = np.where(second[..., None], w[..., 1, :], w[..., 0, :])
            out[some] = np.where(train, out[some], own_w)
    return scores, out


def _by_kernel(
    a: FloatArray, b: FloatArray, kernel: NoiseKernel | None, draws: int
) -> list[tuple[IntArray, NoiseKernel]]:
    """Which rows are judged with which kernel: without noise, their own bandwidth."""
    everyone = np.arange(len(b))
    if kernel is not None:
        return [(everyone, kernel)]
    h = np.minimum(row_bandwidths(np.atleast_2d(a), draws), row_bandwidths(b, draws))
    here = np.isfinite(a) & np.isfinite(b)
    apart = np.abs(np.subtract(a, b, out=np.zeros(b.shape), where=here)).max(axis=-1)
    h = np.where(h > 0, h, 1e-3 * np.maximum(1e-300, apart))
    shared, index = np.unique(h, return_inverse=True)
    return [(everyone[index == k], NoiseKernel("laplace", float(width))) for k, width in enumerate(shared)]
