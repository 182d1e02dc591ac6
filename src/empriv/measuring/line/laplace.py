"""Exact cells for the Laplace kernel with one bandwidth.

Between neighbouring knots of the merged, sorted points each density is ``(L t + R/t)/2h`` with
``t = exp(-(x - knot)/h)``: L gathers the points to the left, R those to the right, each damped by its distance.
The difference ``p - e p_i = (A t + B/t)/2h`` has one root at most, and where it has one, the integral of the positive
part is a square: ``(sqrt(A) - sqrt(-B T))^2 / 2`` with T = exp(-width/h) (docs/mathematics.md, "Laplace kernel").

Two ways to the same numbers: `scan_block` (points within 300 bandwidths: prefix sums of exp(x/h), and sides carried in
the last bit of the sorted numbers) and `sweep_block` (any range, atoms standing at +inf). Where the package was built
with a C compiler, `compiled` does the first much faster.
Arrays are (knots, individuals), so that each step of a sweep is one vector operation over the individuals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.line import compiled
from empriv.measuring.line.hockeystick import Cells, curve
from empriv.results import FloatArray, IntArray

SCAN_REACH = 300.0  # exp(±300) squared stays a double
CROSSING_LIMIT = 8.0  # e^epsilon up to which a hockey stick is taken from its crossings

# For some cells: L of the numerator and of the denominator, R of both, T
Sums = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Knots(ABC):
    """The knots of a block of individuals, and what lies between them, before a direction is chosen.

    Cell c lies between knots c-1 and c; cells 0 and K are the tails, where the ratio is constant.
    ``ratio`` is p/p_i at the knots, (K, individuals).
    """

    ratio: FloatArray
    weight: float

    def range(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest ratio p/p_i of each individual: both are attained at knots."""
        return self.ratio.min(axis=0), self.ratio.max(axis=0)

    @abstractmethod
    def sums_at(self, cell: IntArray, column: IntArray, direction: int) -> Sums:
        """L, R and T of cells given by their place; L at the cell's left end, R at its right end."""

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
        left_a, left_b, right_a, right_b, decay = self.sums_at(cell, column, direction)
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
class SweepBlock(Knots):
    """Cells with their sums written out."""

    left: FloatArray  # (K + 1, 2, individuals)
    right: FloatArray
    decay: FloatArray  # (K + 1, individuals)

    def sums_at(self, cell: IntArray, column: IntArray, direction: int) -> Sums:
        other = 1 - direction
        return (
            self.left[cell, direction, column],
            self.left[cell, other, column],
            self.right[cell, direction, column],
            self.right[cell, other, column],
            self.decay[cell, column],
        )


@dataclass(frozen=True, eq=False)
class ScanBlock(Knots):
    """Cells in prefix sums: ``L = sums of e^x / e^x`` and ``R = sums of e^-x · e^x``."""

    sums: FloatArray  # (K, 5, individuals), the 3rd and 4th backwards
    up: FloatArray  # (K, individuals): e^x, and its inverse
    down: FloatArray

    def sums_at(self, cell: IntArray, column: IntArray, direction: int) -> Sums:
        knots, rows = self.ratio.shape
        before, after = np.maximum(cell - 1, 0), np.minimum(cell, knots - 1)
        at_before, at_after = before * rows + column, after * rows + column
        up, down, sums = self.up.reshape(-1), self.down.reshape(-1), self.sums.reshape(-1)
        fall, rise = down[at_before], up[at_after]
        decay = up[at_before] * down[at_after]
        fall[cell == 0] = 0.0  # no points left of the left tail, none right of the right one
        rise[cell == knots] = 0.0
        decay[(cell == 0) | (cell == knots)] = 0.0
        side, other = direction * rows, (1 - direction) * rows
        left, right = before * (5 * rows) + column, (knots - 1 - after) * (5 * rows) + 2 * rows + column
        return (
            sums[left + side] * fall,
            sums[left + other] * fall,
            sums[right + side] * rise,
            sums[right + other] * rise,
            decay,
        )

    def curve(self, direction: int, e: FloatArray) -> FloatArray:
        rows = self.ratio.shape[1]
        out = np.zeros((rows, len(e)))
        extreme = self.ratio.max() if direction == 0 else 1.0 / self.ratio.min()
        few = int(np.searchsorted(e, min(extreme, CROSSING_LIMIT), side="left"))
        for column in range(few):
            out[:, column] = self._stick(direction, float(e[column]))
        if extreme > CROSSING_LIMIT and few < len(e):
            out[:, few:] = super().curve(direction, e[few:])
        return out

    def _stick(self, direction: int, e: float) -> FloatArray:
        """The hockey stick at one e from its crossings alone.

        With D the points passed, numerator minus e times denominator, the integral of p - e p_i up to a root is
        ``D ∓ sqrt(-A B)``, minus where it falls through zero and plus where it rises; A and B are the sums of e^x
        and e^-x on either side. Exact for moderate e: a large one would cancel.
        """
        knots, rows = self.ratio.shape
        above = self.ratio > e if direction == 0 else self.ratio < 1.0 / e
        place = np.flatnonzero(above[1:] != above[:-1])
        before, column = np.divmod(place, rows)
        sums = self.sums.reshape(-1)
        left, right = before * (5 * rows) + column, (knots - 2 - before) * (5 * rows) + 2 * rows + column
        side, other = direction * rows, (1 - direction) * rows
        a = sums[left + side] - e * sums[left + other]
        b = sums[right + side] - e * sums[right + other]
        without = sums[left + 4 * rows]
        with_all = (before + 1) - without
        passed = with_all - e * without if direction == 0 else without - e * with_all
        falls = above.reshape(-1)[place]
        root = np.sqrt(np.maximum(-(a * b), 0.0))
        total = np.bincount(column, np.where(falls, passed, -passed) - root, rows).astype(float)
        total += above[-1] * (0.5 * knots * (1.0 - e))  # positive to the very end
        return np.asarray(total * self.weight)


@dataclass(frozen=True, eq=False)
class LaplaceBlock:
    """A block of individuals: points with everyone (N,) and without each (individuals, N), and the one bandwidth."""

    points: FloatArray
    without: FloatArray
    bandwidth: float

    @cached_property
    def knots(self) -> Knots:
        """The knots in numpy."""
        centre = self._centre
        if centre is None:
            return sweep_block(self.points, self.without, self.bandwidth)
        return scan_block(self.points, self.without, self.bandwidth, centre)

    @cached_property
    def _centre(self) -> float | None:
        """A place within `SCAN_REACH` bandwidths of all points, if there is one and none of them is an atom."""
        if not np.isfinite(self.points).all():
            return None
        low, high = float(self.points.min()), float(self.points.max())
        centre, reach = 0.5 * (low + high), SCAN_REACH * self.bandwidth
        ends = high - centre, self.without.max() - centre, centre - self.without.min()
        return centre if max(ends) <= reach else None

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks at ascending e, the larger of both directions, and the least and largest ratio p/p_i."""
        centre = self._centre
        if compiled.sticks is None or centre is None:
            return np.maximum(self.knots.curve(0, e), self.knots.curve(1, e)), *self.knots.range()
        few = int(np.searchsorted(e, CROSSING_LIMIT, side="right"))
        scale = 1.0 / self.bandwidth
        without = (self.without - centre) * scale
        without.sort(axis=1)
        curves, low, high = compiled.sticks(np.sort((self.points - centre) * scale), without, e[:few].copy())
        if few < len(e):
            rest = np.zeros((len(without), len(e) - few))
            if max(high.max(), 1.0 / low.min()) > e[few]:
                rest = np.maximum(self.knots.curve(0, e[few:]), self.knots.curve(1, e[few:]))
            curves = np.concatenate((curves, rest), axis=1)
        return curves, low, high

    def sticks_apart(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """The same where points at +inf are atoms: sticks (rows, 2, len(e)) of both directions. None where they are not
        compiled, points are too far apart, or e is too large."""
        if compiled.sticks_apart is None or e[-1] > CROSSING_LIMIT:
            return None
        scale = 1.0 / self.bandwidth
        finite = self.points[np.isfinite(self.points)]
        if not len(finite) or not np.isfinite(self.without).any(axis=1).all():
            return None
        centre = 0.5 * float(finite.min() + finite.max())
        points, without = np.sort((self.points - centre) * scale), np.sort((self.without - centre) * scale, axis=1)
        for values in (points, without):
            if np.abs(values[np.isfinite(values)]).max() > SCAN_REACH:
                return None
        return compiled.sticks_apart(points, without, np.ascontiguousarray(e))

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
    roundings for each step, and distances up to `SCAN_REACH` bandwidths as many again."""
    return float(8 * np.finfo(float).eps * (2 * len(points) + SCAN_REACH))


def scan_block(points: FloatArray, without: FloatArray, bandwidth: float, centre: float) -> Knots:
    """Prefix sums of exp(±x/h). Needs all points within `SCAN_REACH` bandwidths of ``centre``, none at infinity."""
    rows, n = without.shape
    knots = 2 * n
    merged = np.empty((rows, knots))
    np.subtract(points, centre, out=merged[:, :n])
    np.subtract(without, centre, out=merged[:, n:])
    merged *= 1.0 / bandwidth
    # The side goes into the last bit, so that sorting numbers alone also sorts the sides: a change of one rounding.
    bits = merged.view(np.int64)
    bits &= ~1
    bits[:, n:] |= 1
    merged.sort(axis=1)
    x = np.ascontiguousarray(merged.T)
    # Sums over knots of: e^x with, e^x without, e^-x with and without (backwards), points without
    sums = np.empty((knots, 5, rows))
    back = sums[::-1]
    side = sums[:, 4]
    np.bitwise_and(x.view(np.int64), 1, out=side, casting="unsafe")
    up = np.exp(x)
    down = np.divide(1.0, up, out=x)
    np.multiply(up, side, out=sums[:, 1])
    np.subtract(up, sums[:, 1], out=sums[:, 0])
    np.multiply(down, side, out=back[:, 3])
    np.subtract(down, back[:, 3], out=back[:, 2])
    # p at a knot = L + R, its own point counted once of twice
    with_all = side - 1.0
    ratio = -side
    for k in range(1, knots):
        np.add(sums[k], sums[k - 1], out=sums[k])
    product = np.empty_like(up)
    for total, forwards, backwards in ((with_all, sums[:, 0], back[:, 2]), (ratio, sums[:, 1], back[:, 3])):
        total += np.multiply(forwards, down, out=product)
        total += np.multiply(backwards, up, out=product)
    np.divide(with_all, ratio, out=ratio)
    return ScanBlock(ratio=ratio, weight=1.0 / n, sums=sums, up=up, down=down)


def sweep_block(points: FloatArray, without: FloatArray, bandwidth: float) -> Knots:
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
    return SweepBlock(ratio=ratio, weight=1.0 / n, left=left, right=right, decay=decay)


def sweep(sides: FloatArray, decay: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The ratio of both densities at every knot, and what comes to it from the left and from the right.

    ``sides`` (knots, 2, columns) is the mass of either density at each knot, ``decay`` (knots + 1, columns) what is
    left of the kernel from one knot to the next.
    """
    knots, _, columns = sides.shape
    left, right = np.zeros((knots + 1, 2, columns)), np.zeros((knots + 1, 2, columns))
    density = np.empty((knots, 2, columns))
    if columns == 1:  # numbers one by one are far quicker than arrays of two, and add up to the same
        for side in range(2):
            left[:, side, 0], right[:, side, 0] = _sweep_one(sides[:, side, 0].tolist(), decay[:, 0].tolist())
        np.multiply(left[:-1], decay[:-1, None, :], out=density)
    else:
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


def _sweep_one(side: list[float], decay: list[float]) -> tuple[list[float], list[float]]:
    """What comes to every knot of one density from the left and from the right."""
    left, right = [0.0], [0.0]
    came = 0.0
    for mass, kept in zip(side, decay, strict=False):
        came = came * kept + mass
        left.append(came)
    came = 0.0
    for mass, kept in zip(reversed(side), reversed(decay), strict=False):
        came = came * kept + mass
        right.append(came)
    return left, right[::-1]


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
