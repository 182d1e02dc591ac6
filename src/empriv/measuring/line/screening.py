"""People proved to have delta_i = 0 before anything is integrated: a bound on log p/p_i for the Laplace kernel.

With ``s_j = |q_j - q_ij|/h``, every kernel changes by a factor between ``e^-s_j`` and ``e^s_j``, so that at each place
``p_i/p`` is at most the average of ``e^s_j`` over the kernels that are there, and p/p_i no more (docs/mathematics.md,
"Screening"). The largest shift alone gives one bound for every place; the average also sees how few results change.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.line import compiled
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.compiled import Int32Array
from empriv.measuring.line.laplace import slack
from empriv.results import FloatArray, IntArray

_FAR = 100.0  # bandwidths beyond which an individual's largest shift is left as it is
_VALUES = 1_000_000  # held at once, in numpy


def log_reach(pairs: Pairs, rows: IntArray, *, bandwidth: float, shifts: FloatArray) -> FloatArray:
    """Bound on sup |log p/p_i| of each of these individuals at this bandwidth; never too small.

    ``shifts`` are their largest changes in bandwidths, inf to or from an atom, as `blocks.largest_shifts` gives them.
    """
    points = pairs.points
    order = np.argsort(points, kind="stable").astype(np.int32)
    ordered = points[order]
    finite = np.isfinite(ordered)  # atoms stand at the end, and have no part in it
    decay = np.zeros(len(points))
    decay[1:][finite[1:]] = np.exp(-np.diff(ordered[finite]) / bandwidth)
    weight = np.where(finite, 1.0 / kernels_at_points(decay), 0.0)
    average = _averages(pairs, rows, order, decay, weight, 1.0 / bandwidth)
    rounding = slack(points)
    bound = np.log1p(average * (1.0 + rounding)) + 2.0 * rounding
    return np.where(shifts < _FAR, np.minimum(bound, shifts), shifts)


def _averages(
    pairs: Pairs, rows: IntArray, order: Int32Array, decay: FloatArray, weight: FloatArray, scale: float
) -> FloatArray:
    """Largest weighted average of e^s - 1 over all places, which is at one of the points."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=order.dtype)
    if compiled.reach is None:
        return reach_in_numpy(pairs, rows, order, decay, weight, scale)
    draws = pairs.draws
    entry_point: Int32Array = np.ascontiguousarray(pairs.entry_database, np.int32)
    if draws > 1:
        within = np.arange(draws, dtype=np.int32)
        entry_point = np.asarray(entry_point[:, None] * draws + within, np.int32).reshape(-1)
    starts = np.ascontiguousarray(pairs.starts * draws, np.int64)
    entries = np.ascontiguousarray(pairs.entries).reshape(-1)
    points, rows = np.ascontiguousarray(pairs.points), np.ascontiguousarray(rows, np.int64)
    return compiled.reach(rows, points, place, decay, weight, scale, starts, entry_point, entries)


def reach_in_numpy(
    pairs: Pairs, rows: IntArray, order: Int32Array, decay: FloatArray, weight: FloatArray, scale: float
) -> FloatArray:
    """The same as the compiled function, more slowly."""
    out = np.empty(len(rows))
    step = max(1, _VALUES // len(order))
    for start in range(0, len(out), step):
        block = slice(start, start + step)
        with np.errstate(invalid="ignore"):
            shift = np.abs(pairs.dense(rows[block]) - pairs.points)[:, order].T * scale
        change = np.expm1(np.where(shift < _FAR, shift, _FAR)) * (1.0 + 1e-12)
        out[block] = (_kernel_sums(change, decay) * weight[:, None]).max(axis=0, initial=0.0)
    return out


def _kernel_sums(values: FloatArray, decay: FloatArray) -> FloatArray:
    """(points, columns): at each of the sorted points, the values at all of them times the kernel from there to it."""
    left, right = values.copy(), np.zeros_like(values)
    for k in range(1, len(values)):
        left[k] += left[k - 1] * decay[k]
        right[-1 - k] = (right[-k] + values[-k]) * decay[-k]
    return left + right


def kernels_at_points(decay: FloatArray) -> FloatArray:
    """(points,) `_kernel_sums` of ones: numbers one by one are faster than arrays of one. Points that are tied, such as
    a person's several draws of the others, have the same sum, and are taken together."""
    first = decay != 1.0
    first[:1] = True
    run = np.cumsum(first) - 1
    counts = np.bincount(run).astype(float)

    def sums(decays: list[float], weights: list[float]) -> list[float]:
        total, out = weights[0], [weights[0]]
        for step, weight in zip(decays, weights[1:], strict=True):
            total = total * step + weight
            out.append(total)
        return out

    steps, weights = decay[first][1:].tolist(), counts.tolist()
    both = np.array(sums(steps, weights)) + np.array(sums(steps[::-1], weights[::-1])[::-1])
    return np.asarray((both - counts)[run])
