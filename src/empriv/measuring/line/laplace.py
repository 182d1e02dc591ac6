"""Hockey sticks of two Laplace kernel estimates with one bandwidth, exactly: the primitive behind most figures.

Between neighbouring knots of the merged, sorted points each density is ``(L t + R/t)/2h`` with
``t = exp(-(x - knot)/h)``: L gathers the points to the left, R those to the right, each damped by its distance.
The difference ``p - e p_i = (A t + B/t)/2h`` has one root at most, and where it has one, the integral of the positive
part is a square: ``(sqrt(A) - sqrt(-B T))^2 / 2`` with T = exp(-width/h) (docs/method.md, "Laplace kernel").

`LaplaceBlock.sticks` asks `_laplace.c` where the package was built with a C compiler, points lie within 300 bandwidths
and e is moderate; `Knots`, in numpy, serves everywhere else, and gives the cells that an epsilon is found from.
Arrays are (knots, individuals), so that each step of a sweep is one vector operation over the individuals.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.base.machine import DOUBLES, LONG, LONGS, library
from empriv.measuring.line.hockeystick import Cells, curve
from empriv.results import FloatArray, IntArray

REACH = 300.0  # bandwidths from the middle of the points: exp(±300) squared stays a double
CROSSING_LIMIT = 8.0  # e^epsilon up to which a hockey stick is taken from its crossings: a large one would cancel

# Sticks (rows, 2, len(e)) of p over p_i and of p_i over p, and the least and largest ratio p/p_i of each row
Sticks = tuple[FloatArray, FloatArray, FloatArray]
CompiledSticks = Callable[[FloatArray, FloatArray, FloatArray], Sticks]


def _compiled_sticks(compiled: ctypes.CDLL) -> CompiledSticks:
    function = compiled.empriv_laplace_sticks
    function.argtypes = [LONG, LONG, LONG, *[DOUBLES] * 2, LONGS, *[DOUBLES] * 2, LONG, *[DOUBLES] * 5]
    function.restype = None

    def sticks(points: FloatArray, without: FloatArray, e: FloatArray) -> Sticks:
        """``points`` (N,) and ``without`` (rows, N) in bandwidths, about zero, sorted, atoms at +inf last."""
        rows, n = without.shape
        out, low, high, scratch = np.empty((rows, 2, len(e))), np.empty(rows), np.empty(rows), np.empty(14 * n)
        counts = np.isfinite(without).sum(axis=1, dtype=np.int64)
        up, up_without = np.exp(points), np.exp(without)
        many = int(np.isfinite(points).sum())
        function(rows, n, many, points, up, counts, without, up_without, len(e), e, out, low, high, scratch)
        out /= n
        return out, low, high

    return sticks


# The argument types of a C function are set once, here: threads that set them would see each other's.
LIBRARY = library("empriv.measuring.line._laplace")
compiled_sticks = None if LIBRARY is None else _compiled_sticks(LIBRARY)


@dataclass(frozen=True, eq=False)
class Knots:
    """The knots of a block of individuals, and what lies between them, before a direction is chosen.

    Cell c lies between knots c-1 and c; cells 0 and K are the tails, where the ratio is constant.
    ``ratio`` is p/p_i at the knots, (K, individuals).
    """

    ratio: FloatArray
    weight: float
    left: FloatArray  # (K + 1, 2, individuals): L of p and of p_i at the right end of each cell's left knot
    right: FloatArray
    decay: FloatArray  # (K + 1, individuals): T of each cell

    def range(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest ratio p/p_i of each individual: both are attained at knots."""
        return self.ratio.min(axis=0), self.ratio.max(axis=0)

    def curve(self, direction: int, e: FloatArray) -> FloatArray:
        """(individuals, len(e)) hockey sticks of p over p_i (direction 0) or p_i over p (1) at ascending e."""
        return curve(self.cells(direction, e[0]), e, self.ratio.shape[1])

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        above = self.ratio > least if direction == 0 else self.ratio < 1.0 / least
        touched = np.empty((len(above) + 1, above.shape[1]), bool)
        touched[0], touched[-1] = above[0], above[-1]
        np.logical_or(above[1:], above[:-1], out=touched[1:-1])
        cell, column = np.divmod(np.flatnonzero(touched), above.shape[1])
        last = len(self.ratio) - 1
        left = self.ratio[np.maximum(cell - 1, 0), column]
        right = self.ratio[np.minimum(cell, last), column]
        low, high = np.minimum(left, right), np.maximum(left, right)
        if direction == 1:
            with np.errstate(divide="ignore", over="ignore"):
                low, high = 1.0 / high, 1.0 / low
        other = 1 - direction
        left_a, left_b = self.left[cell, direction, column], self.left[cell, other, column]
        right_a, right_b = self.right[cell, direction, column], self.right[cell, other, column]
        decay = self.decay[cell, column]
        half_width = 0.5 * self.weight * (1.0 - decay)
        weight = self.weight

        def part(index: IntArray, e: FloatArray) -> tuple[FloatArray, FloatArray]:
            la, lb, ra, rb, t = (x[index] for x in (left_a, left_b, right_a, right_b, decay))
            a, b = la - e * lb, ra - e * rb
            # Positive where a > 0 at the left end, or b > 0 at the right: the square of a difference of roots.
            positive, negative = np.maximum(a, b), np.minimum(a, b)
            outer, inner = np.sqrt(np.maximum(positive, 0.0)), np.sqrt(np.maximum(-negative * t, 0.0))
            # t at the root, counted from the positive end, hence the denominator's mass up to it
            with np.errstate(divide="ignore", invalid="ignore"):
                root = np.where(outer > 0, np.minimum(inner / outer, 1.0), 1.0)
                near, far = np.where(a > b, lb, rb), np.where(a > b, rb, lb) * t
                mass = near * (1.0 - root) + np.where(root > 0, far * (1.0 / root - 1.0), 0.0)
            return 0.5 * weight * (outer - inner) ** 2, 0.5 * weight * mass

        return Cells(
            row=column,
            low=low,
            high=high,
            above=half_width * (left_a + right_a),
            below=half_width * (left_b + right_b),
            part=part,
        )


@dataclass(frozen=True, eq=False)
class LaplaceBlock:
    """Points with everyone (N,) and without each of some individuals (rows, N), and the one bandwidth.

    Atoms stand at +inf: they count among the N, and have no part in the densities.
    """

    points: FloatArray
    without: FloatArray
    bandwidth: float

    @cached_property
    def knots(self) -> Knots:
        """The knots in numpy."""
        return knots_of(self.points, self.without, self.bandwidth)

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks (rows, 2, len(e)) of p over p_i and of p_i over p at ascending e; inf and sup of log(p/p_i)."""
        scaled = self._scaled() if compiled_sticks is not None else None
        if compiled_sticks is None or scaled is None:
            return self._sticks_in_numpy(e), *self.log_range()
        few = int(np.searchsorted(e, CROSSING_LIMIT, side="right"))
        sticks, low, high = compiled_sticks(*scaled, np.ascontiguousarray(e[:few]))
        if few < len(e):
            beyond = max(high.max(), 1.0 / low.min()) > e[few]
            rest = self._sticks_in_numpy(e[few:]) if beyond else np.zeros((len(low), 2, len(e) - few))
            sticks = np.concatenate((sticks, rest), axis=2)
        return sticks, np.log(low), np.log(high)

    def _sticks_in_numpy(self, e: FloatArray) -> FloatArray:
        return np.stack([self.knots.curve(direction, e) for direction in (0, 1)], axis=1)

    def _scaled(self) -> tuple[FloatArray, FloatArray] | None:
        """Both sides about zero, in bandwidths, sorted; None if they reach too far or a side is nothing but atoms."""
        finite = self.points[np.isfinite(self.points)]
        if not len(finite) or not np.isfinite(self.without).any(axis=1).all():
            return None
        centre, scale = 0.5 * float(finite.min() + finite.max()), 1.0 / self.bandwidth
        sides = np.sort((self.points - centre) * scale), np.sort((self.without - centre) * scale, axis=1)
        return sides if all(np.abs(side[np.isfinite(side)]).max() <= REACH for side in sides) else None

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of log(p/p_i) of each individual."""
        with np.errstate(divide="ignore"):
            low, high = (np.log(end) for end in self.knots.range())
        for row in np.flatnonzero(np.isinf(low) | np.isinf(high)):  # points so far apart that exp underflows
            low[row], high[row] = log_ratio_range(self.points, self.without[row], self.bandwidth)
        return low, high

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        return self.knots.cells(direction, least)


def slack(points: FloatArray) -> float:
    """What rounding can do to a hockey stick of these points, with a wide margin: each knot's sums carry a few
    roundings for each step, and distances up to `REACH` bandwidths as many again."""
    return float(8 * np.finfo(float).eps * (2 * len(points) + REACH))


def knots_of(points: FloatArray, without: FloatArray, bandwidth: float) -> Knots:
    """One sweep forwards and one backwards over the knots; points at +inf (atoms) have no part in it."""
    rows, n = without.shape
    knots = 2 * n
    merged = np.empty((rows, knots))
    merged[:, :n] = points
    merged[:, n:] = without
    merged.sort(axis=1)
    with_count = np.searchsorted(np.sort(points), merged.ravel(), side="right").reshape(rows, knots)
    x = np.ascontiguousarray(merged.T)
    weights = np.empty((knots, 2, rows))
    # Tied knots share a place, so it does not matter in which order their sides are counted.
    weights[:, 0] = np.diff(with_count, axis=1, prepend=0).T
    weights[:, 1] = 1.0 - weights[:, 0]
    absent = np.isinf(x)
    weights[np.broadcast_to(absent[:, None, :], weights.shape)] = 0.0
    decay = np.zeros((knots + 1, rows))
    gaps = decay[1:knots]
    with np.errstate(invalid="ignore"):
        np.subtract(x[:-1], x[1:], out=gaps)
    gaps[absent[:-1]] = -np.inf
    gaps /= bandwidth
    np.exp(gaps, out=gaps)
    ratio, left, right = sweep(weights, decay)
    carry_forward(ratio, absent)
    return Knots(ratio=ratio, weight=1.0 / n, left=left, right=right, decay=decay)


def sweep(sides: FloatArray, decay: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The ratio of both densities at every knot, and what comes to it from the left and from the right.

    ``sides`` (knots, 2, columns) is the mass of either density at each knot, ``decay`` (knots + 1, columns) by
    which factor the kernel falls from one knot to the next.
    """
    knots, _, columns = sides.shape
    left, right = np.zeros((knots + 1, 2, columns)), np.zeros((knots + 1, 2, columns))
    density = np.empty((knots, 2, columns))
    for k in range(knots):
        np.multiply(left[k], decay[k], out=density[k])
        np.add(density[k], sides[k], out=left[k + 1])
    for k in range(knots - 1, -1, -1):
        np.multiply(right[k + 1], decay[k + 1], out=right[k])
        right[k] += sides[k]
    density += right[:-1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = density[:, 0] / density[:, 1]
    return ratio, left, right


def carry_forward(ratio: FloatArray, absent: npt.NDArray[np.bool_]) -> None:
    """Beyond the last real knot the ratio stays what it was there; without any, both densities are nothing."""
    if absent.any():
        ratio[0][absent[0]] = 1.0
        last = np.where(absent, 0, np.arange(len(ratio))[:, None])
        ratio[:] = np.take_along_axis(ratio, np.maximum.accumulate(last, axis=0), axis=0)


def log_ratio_range(points: FloatArray, without: FloatArray, bandwidth: float) -> tuple[float, float]:
    """inf and sup of log(p/p_i) for one individual, in logarithms throughout: for distances where exp underflows."""
    logs = []
    samples = points[np.isfinite(points)], without[np.isfinite(without)]
    if not len(samples[0]) or not len(samples[1]):  # nothing on one side, so that the ratio is 0 or infinite
        limit = float("inf") if len(samples[0]) else float("-inf")
        return limit, limit
    knots = np.unique(np.concatenate(samples))
    for x in samples:
        z = -np.abs(knots[:, None] - x[None, :]) / bandwidth
        largest = z.max(axis=1)
        logs.append(largest + np.log(np.exp(z - largest[:, None]).sum(axis=1)))
    difference = logs[0] - logs[1]
    return float(difference.min()), float(difference.max())
