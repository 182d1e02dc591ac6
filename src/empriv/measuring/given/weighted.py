"""Exact hockey sticks for the Laplace kernel where each database has a weight of its own.

As in `laplace`: between neighbouring knots each density is ``(L t + R/t)/2h``, with L and R now sums of weights
rather than counts. A column is one individual under one set of weights, with its own points on both sides and its own
bandwidth, so that individuals, values of what an adversary knows, and adversaries are all swept together.

`ceiling` bounds a hockey stick before it is computed: what it rules out need not be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from empriv.measuring.given import compiled_blocks
from empriv.measuring.line.laplace import (
    CROSSING_LIMIT,
    SCAN_REACH,
    Knots,
    LaplaceBlock,
    SweepBlock,
    carry_forward,
    sweep,
)
from empriv.results import FloatArray


@dataclass(frozen=True, eq=False)
class WeightedBlock(LaplaceBlock):
    """Columns of points with everyone (columns, N) and without somebody (columns, N), all divided by the bandwidth.

    ``weights`` (columns, N) add up to at most 1, the rest being atoms; a point at +inf is one of them.
    """

    weights: FloatArray

    @cached_property
    def knots(self) -> Knots:
        return _sweep(self.points, self.without, self.weights)

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        code = compiled_blocks.compiled
        if code is not None and e[-1] <= CROSSING_LIMIT:
            # a place without weight may lie anywhere
            counts = np.tile(self.weights > 0, 2)
            both = np.concatenate((self.points, self.without), axis=1)
            low, high = np.where(counts, both, np.inf).min(axis=1), np.where(counts, both, -np.inf).max(axis=1)
            if np.isfinite(low).all() and np.isfinite(high).all() and np.all(high - low <= 2 * SCAN_REACH):
                return code.weighted(np.where(counts, both - 0.5 * (low + high)[:, None], 0.0), self.weights, e)
        return np.maximum(self.knots.curve(0, e), self.knots.curve(1, e)), *self.knots.range()

    def sticks_apart(self, e: FloatArray) -> None:  # noqa: ARG002 — atoms have weights of their own
        return None

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of log(p/p_i); where exp underflows, by the largest shift, which is never less."""
        with np.errstate(divide="ignore"):
            low, high = (np.log(end) for end in self.knots.range())
        lost = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))
        if len(lost):
            one_sided = np.isfinite(self.points[lost]) != np.isfinite(self.without[lost])
            with np.errstate(invalid="ignore"):
                shift = np.nan_to_num(np.abs(self.points[lost] - self.without[lost]), nan=0.0, posinf=np.inf)
            shift = np.where((self.weights[lost] > 0) & ~one_sided, shift, 0.0).max(axis=1)
            unbounded = np.any(one_sided & (self.weights[lost] > 0), axis=1)
            shift = np.where(unbounded, np.inf, shift)
            low[lost], high[lost] = np.maximum(low[lost], -shift), np.minimum(high[lost], shift)
        return low, high


def slack(n_points: int) -> float:
    """What rounding can do to a weighted hockey stick: each knot's sums carry a few roundings for each step."""
    return float(16 * np.finfo(float).eps * (2 * n_points + 300))


def ceiling(shifts: FloatArray, epsilon: float) -> FloatArray:
    """Hockey stick of two Laplace kernels, each ``shift`` bandwidths from the other: 1 - exp((epsilon - shift)/2).

    The hockey stick is convex in the pair of densities, so a mixture's is at most the weighted mean of these.
    """
    return np.asarray(-np.expm1(0.5 * np.minimum(epsilon - shifts, 0.0)))


def _sweep(points: FloatArray, without: FloatArray, weights: FloatArray) -> SweepBlock:
    columns, n = points.shape
    knots = 2 * n
    merged = np.concatenate((points, without), axis=1)
    order = np.argsort(merged, axis=1, kind="stable")
    x = np.ascontiguousarray(np.take_along_axis(merged, order, axis=1).T)
    mass = np.take_along_axis(np.concatenate((weights, weights), axis=1), order, axis=1).T
    absent = np.isinf(x)
    mass = np.where(absent, 0.0, mass)
    sides = np.empty((knots, 2, columns))
    with_all = (order < n).T
    np.multiply(mass, with_all, out=sides[:, 0])
    np.multiply(mass, ~with_all, out=sides[:, 1])
    decay = np.zeros((knots + 1, columns))
    with np.errstate(invalid="ignore"):
        np.subtract(x[:-1], x[1:], out=decay[1:knots])
    decay[1:knots][absent[:-1]] = -np.inf
    np.exp(decay[1:knots], out=decay[1:knots])
    ratio, left, right = sweep(sides, decay)
    # 0/0: beyond the last real knot, or where every weight near has underflowed; nothing lies there
    carry_forward(ratio, absent | np.isnan(ratio))
    return SweepBlock(ratio=ratio, weight=1.0, left=left, right=right, decay=decay)
