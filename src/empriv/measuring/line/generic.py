"""Cells for any `Model` through its three functions, one individual at a time: slower, and as good as its nodes.

Serves the differenced empirical distribution and users' own densities. Between two nodes the ratio may turn once;
the turning point is found by sampling and golden section.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.measuring.densities.density import Model
from empriv.measuring.line.hockeystick import Cells
from empriv.results import FloatArray, IntArray

SLACK = 1e-12
_SAMPLES = np.linspace(0.0, 1.0, 12)
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class GenericBlock:
    """Cells of one individual: ends, and log ratio just inside them."""

    model: Model
    points: FloatArray
    without: FloatArray
    left: FloatArray
    right: FloatArray
    ratio_left: FloatArray
    ratio_right: FloatArray

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        ratios = np.concatenate((self.ratio_left, self.ratio_right))
        return np.array([ratios.min()]), np.array([ratios.max()])

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        sign = 1.0 if direction == 0 else -1.0
        ends = np.stack((sign * self.ratio_left, sign * self.ratio_right))
        keep = np.flatnonzero(ends.max(axis=0) > np.log(least))
        left, right, ends = self.left[keep], self.right[keep], ends[:, keep]
        numerator, denominator = (self.points, self.without)[:: 1 if direction == 0 else -1]

        def mass(points: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
            return np.maximum(self.model.cdf(b, points) - self.model.cdf(a, points), 0.0)

        def part(index: IntArray, e: FloatArray) -> tuple[FloatArray, FloatArray]:
            a, b = left[index].copy(), right[index].copy()
            rising = ends[1, index] > ends[0, index]
            for _ in range(60):
                x = 0.5 * (a + b)
                positive = self.model.pdf(x, numerator) > e * self.model.pdf(x, denominator)
                go_left = positive == rising
                a, b = np.where(go_left, a, x), np.where(go_left, x, b)
            x = 0.5 * (a + b)
            start, stop = np.where(rising, x, left[index]), np.where(rising, right[index], x)
            below = mass(denominator, start, stop)
            return np.maximum(mass(numerator, start, stop) - e * below, 0.0), below

        with np.errstate(over="ignore"):
            low, high = np.exp(ends.min(axis=0)), np.exp(ends.max(axis=0))
        above, below = mass(numerator, left, right), mass(denominator, left, right)
        return Cells(np.zeros(len(keep), np.int64), low, high, above, below, part)


def block(model: Model, points: FloatArray, without: FloatArray) -> GenericBlock:
    """The block of one individual's points, (N,) each."""
    nodes = np.union1d(model.nodes(points), model.nodes(without))
    left, right = nodes[:-1], nodes[1:]
    inset = 1e-7 * (right - left)
    x = (left + inset)[:, None] + (right - left - 2 * inset)[:, None] * _SAMPLES
    ratio = _log_ratio(model, points, without, x)
    for sign in (1.0, -1.0):
        at = np.argmax(sign * ratio, axis=1)
        turning = np.flatnonzero((at > 0) & (at < len(_SAMPLES) - 1) & np.isfinite(ratio).all(axis=1))
        turning = turning[np.ptp(ratio[turning], axis=1) > 1e-13]
        if not len(turning):
            continue
        top = _turning_point(model, points, without, x[turning, at[turning] - 1], x[turning, at[turning] + 1], sign)
        x[turning, at[turning]] = top
        ratio[turning, at[turning]] = _log_ratio(model, points, without, top)
    x[:, 0], x[:, -1] = left, right
    ends = x[:, :-1].ravel(), x[:, 1:].ravel()
    return GenericBlock(model, points, without, *ends, ratio[:, :-1].ravel(), ratio[:, 1:].ravel())


def _log_ratio(model: Model, points: FloatArray, without: FloatArray, x: FloatArray) -> FloatArray:
    flat = x.ravel()
    p, p_i = model.pdf(flat, points), model.pdf(flat, without)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p / p_i)
    return np.where((p == 0) & (p_i == 0), 0.0, ratio).reshape(x.shape)


def _turning_point(
    model: Model, points: FloatArray, without: FloatArray, a: FloatArray, b: FloatArray, sign: float
) -> FloatArray:
    """Where sign·log(p/p_i) is largest in [a, b], by golden section."""
    for _ in range(40):
        x, y = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
        lower = sign * _log_ratio(model, points, without, x) < sign * _log_ratio(model, points, without, y)
        a, b = np.where(lower, x, a), np.where(lower, b, y)
    return np.asarray(0.5 * (a + b))
