"""Two samples under Laplace noise of one scale, exactly: the one primitive behind estimates and the judge's bounds.

The noise at every result makes the mixtures p_a and p_b of two samples; a kernel estimate with bandwidth h is that with
noise of scale h. Between neighbouring knots of the merged, sorted results each is ``(L t + R/t)/2h`` with
``t = exp(-(x - knot)/h)``: L gathers the points to the left, R those to the right, each damped by its distance.
The difference ``p_a - e p_b = (A t + B/t)/2h`` has one root at most. From one sweep over the knots follow

    hockey sticks, the integral of (p_a - e p_b)+, by cells: where a cell has a root, that of the positive part is a
        square, ``(sqrt(A) - sqrt(-B T))^2 / 2`` with T = exp(-width/h) (docs/method.md, "Laplace kernel")
    paired values ``W_k = psi(a_k) - e psi(b_k)`` of the set A = {p_a > f p_b}, psi = 1_A convolved with the noise:
        their mean is P(a + noise in A) - e P(b + noise in A), for f = e the hockey stick
    bounds on that mean, ``B(W) = mean + z sd/sqrt(n - 1) + c m3/(sd^2 n)``

`_line.c` does it where the package was built with a C compiler, for sticks where e is moderate; `Knots`, in numpy,
everywhere else, and gives the cells that an epsilon is found from. What is not finite is an atom, and lies in no set.
Arrays of `Knots` are (knots, rows), so that each step of a sweep is one vector operation over the rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.base.machine import DOUBLE, DOUBLES, LONG, library
from empriv.measuring.line.hockeystick import Cells, curve
from empriv.results import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

CROSSING_LIMIT = 8.0  # e^epsilon up to which a hockey stick is taken from its crossings: a large one would cancel
_REACH = 300.0  # bandwidths: distances between points that `slack` allows roundings for
_SLACK = 1e-10  # relative: rounding must not make a set of where both laws are the same
_CHUNK = 256  # rows in one call: what numpy holds at once, and how soon an interruption is heard


def _load() -> ctypes.CDLL | None:
    """The compiled functions. Their argument types are set once, here: threads that set them would see each other's."""
    found = library("empriv.measuring.line._line")
    if found is not None:
        samples, several = [LONG, DOUBLES, DOUBLES], [LONG, DOUBLES]
        argument_types = {
            "empriv_sticks": [LONG, LONG, *samples, DOUBLE, *several, *[DOUBLES] * 3],
            "empriv_values": [
                *[LONG] * 3, *samples, DOUBLES, DOUBLE, *several, DOUBLES, *several, *several, DOUBLE, DOUBLE, LONG,
                DOUBLES,
            ],
            "empriv_ends": [*[LONG] * 3, *samples, LONG, *several, DOUBLE, DOUBLE, DOUBLES],
            "empriv_rayleigh": [*several, DOUBLE, DOUBLE, LONG, DOUBLES],
        }  # fmt: skip
        for name, types in argument_types.items():
            function = getattr(found, name)
            function.argtypes, function.restype = types, LONG
    return found


COMPILED = _load()


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
        return knots_of(self.points, self.without, np.full(len(self.without), self.bandwidth))

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks (rows, 2, len(e)) of p over p_i and of p_i over p at ascending e; inf and sup of log(p/p_i)."""
        if COMPILED is None:
            return self._sticks_in_numpy(e), *self.log_range()
        few = np.ascontiguousarray(e[: np.searchsorted(e, CROSSING_LIMIT, side="right")])
        (rows, n), a, b = self.without.shape, np.sort(self.points), np.sort(self.without, axis=1)
        out, low, high = np.empty((rows, 2, len(few))), np.empty(rows), np.empty(rows)
        if COMPILED.empriv_sticks(rows, n, 1, a, b, self.bandwidth, len(few), few, out, low, high):
            raise MemoryError
        out /= n
        if len(few) < len(e):
            with np.errstate(divide="ignore"):
                beyond = max(high.max(), (1.0 / low).max()) > e[len(few)]
            rest = self._sticks_in_numpy(e[len(few) :]) if beyond else np.zeros((rows, 2, len(e) - len(few)))
            out = np.concatenate((out, rest), axis=2)
        return out, *self._logs(low, high)

    def _sticks_in_numpy(self, e: FloatArray) -> FloatArray:
        rows = len(self.without)
        return np.stack([curve(self.cells(direction, e[0]), e, rows) for direction in (0, 1)], axis=1)

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of log(p/p_i) of each individual: both are attained at knots."""
        return self._logs(self.knots.ratio.min(axis=0), self.knots.ratio.max(axis=0))

    def _logs(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        with np.errstate(divide="ignore"):
            low, high = np.log(low), np.log(high)
        for row in np.flatnonzero(np.isinf(low) | np.isinf(high)):  # points so far apart that exp underflows
            low[row], high[row] = log_ratio_range(self.points, self.without[row], self.bandwidth)
        return low, high

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        return self.knots.cells(direction, least)


def slack(points: FloatArray) -> float:
    """What rounding can do to a hockey stick of these points, with a wide margin: each knot's sums carry a few
    roundings for each step, and distances up to 300 bandwidths as many again."""
    return float(8 * np.finfo(float).eps * (2 * len(points) + _REACH))


def paired_values(
    a: FloatArray,
    b: FloatArray,
    scales: FloatArray,
    coefficients: FloatArray,
    e: FloatArray,
    *,
    draws: int = 1,
    step: float = 0.0,
    weights: FloatArray | None = None,
) -> FloatArray:
    """(rows, len(e), 2, databases) W in both directions, of sets that results with these ``weights`` (N,) choose.

    ``a`` is (N,) or (rows, N), ``b`` (rows, N), database by database; N is databases times draws, and W is averaged
    over the draws. The values at each of the ``scales`` (rows, parts) are added up with their ``coefficients``. With a
    ``step`` the noise is the discrete law on its multiples, and so are the results.
    """
    out = np.empty((len(b), len(e), 2, b.shape[1] // draws))
    for own, other, widths, part in _chunks(a, b, scales, out):
        if COMPILED is not None:
            _compiled_values(
                own, other, widths, coefficients, e, np.ones(1), 0.0, 0.0, draws, step, weights, True, part
            )
            continue
        knots = _knots_at(own, other, widths, weights)
        for k, factor in enumerate(e.tolist()):
            for direction in (0, 1):
                part[:, k, direction] = _values(knots, coefficients, factor, factor, direction, draws, step)
    return out


def largest_bounds(
    a: FloatArray,
    b: FloatArray,
    scales: FloatArray,
    coefficients: FloatArray,
    e: FloatArray,
    levels: Sequence[float],
    z: float,
    c: float,
    *,
    draws: int = 1,
    step: float = 0.0,
) -> FloatArray:
    """(rows, len(e)) the largest B(W), at least 0, over both directions and the sets {p_a > e^level p_b}.

    Arguments are those of `paired_values`.
    """
    out = np.zeros((len(b), len(e)))
    for own, other, widths, part in _chunks(a, b, scales, out):
        if COMPILED is not None:
            shares = np.array(levels, float)
            _compiled_values(own, other, widths, coefficients, e, shares, z, c, draws, step, None, False, part)
            continue
        knots = _knots_at(own, other, widths, None)
        for k, factor in enumerate(e.tolist()):
            for direction in (0, 1):
                for level in levels:
                    w = _values(knots, coefficients, factor, factor**level, direction, draws, step)
                    part[:, k] = np.maximum(part[:, k], bound(w, z, c))
    return out


def end_bounds(
    a: FloatArray, b: FloatArray, e: FloatArray, depth: int, z: float, c: float, *, draws: int = 1
) -> FloatArray:
    """(rows, len(e)) the largest B less 1/n, at least 0, over half-lines with up to ``depth`` + 1 results of a side.

    They end at the lowest and highest results of either side, and are averaged in groups of 1, 1, 2, 4, ...
    """
    out, n = np.zeros((len(b), len(e))), b.shape[1] // draws
    for own, other, _, part in _chunks(a, b, np.zeros((len(b), 0)), out):
        if COMPILED is None:
            for row, pair in enumerate(zip(np.broadcast_to(own, other.shape), other, strict=True)):
                for first, second in (pair, pair[::-1]):
                    for sign in (1.0, -1.0):
                        w = _half_lines(sign * first, sign * second, e, depth, n)
                        part[row] = np.maximum(part[row], (bound(w, z, c) - 1 / n).max(axis=1, initial=0.0))
        elif COMPILED.empriv_ends(len(other), n, draws, own.ndim == 1, own, other, depth, len(e), e, z, c, part):
            raise MemoryError
    return out


def _half_lines(own: FloatArray, other: FloatArray, e: FloatArray, depth: int, n: int) -> FloatArray:
    """(len(e), groups, n) W of half-lines below the lowest results of the other side, by groups of them."""
    edge = np.sort(other[np.isfinite(other)])[: depth + 1]
    groups, low, high = [], 0, 1
    while low < len(edge):
        line = edge[low:high, None]
        shares = (np.where(np.isfinite(x), (x < line).mean(axis=0), 0.0) for x in (own, other))
        mine, theirs = (share.reshape(n, -1).mean(axis=1) for share in shares)
        groups.append(mine - e[:, None] * theirs)
        low, high = high, 2 if high == 1 else 2 * high
    return np.stack(groups, axis=1) if groups else np.zeros((len(e), 0, n))


def bound(w: FloatArray, z: float, c: float) -> FloatArray:
    """B(W) along the last axis; the mean where nothing varies."""
    n, mean = w.shape[-1], w.mean(axis=-1)
    if n < 2:
        return np.asarray(mean)
    d = w - mean[..., None]
    v = (d * d).mean(axis=-1)
    safe = np.where(v > 1e-30, v, 1.0)
    whole = mean + z * np.sqrt(safe / (n - 1)) + c * (d**3).mean(axis=-1) / (safe * n)
    return np.asarray(np.where(v > 1e-30, whole, mean))


def _contiguous(x: FloatArray) -> FloatArray:
    return np.ascontiguousarray(x, float)


def _chunks(
    a: FloatArray, b: FloatArray, scales: FloatArray, out: FloatArray
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Both samples, the scales and where the answer goes, so many rows at once."""
    a, b, scales = _contiguous(a), _contiguous(b), _contiguous(scales)
    for start in range(0, len(b), _CHUNK):
        some = slice(start, start + _CHUNK)
        yield a if a.ndim == 1 else a[some], b[some], scales[some], out[some]


def _compiled_values(
    a: FloatArray,
    b: FloatArray,
    scales: FloatArray,
    coefficients: FloatArray,
    e: FloatArray,
    levels: FloatArray,
    z: float,
    c: float,
    draws: int,
    step: float,
    weights: FloatArray | None,
    want_values: bool,
    out: FloatArray,
) -> None:
    assert COMPILED is not None
    rows, size = b.shape
    weights = np.ones(size) if weights is None else _contiguous(weights)
    if COMPILED.empriv_values(
        rows, size // draws, draws, a.ndim == 1, a, b, weights, step, len(coefficients), scales, coefficients, len(e),
        e, len(levels), levels, z, c, want_values, out,
    ):  # fmt: skip
        raise MemoryError


@dataclass(frozen=True, eq=False)
class Knots:
    """Both samples of some rows, merged, and what lies between the knots.

    Cell c lies between knots c-1 and c; cells 0 and K are the tails, where the ratio is constant. Results that are not
    finite are knots too, beyond all others, and count for nothing.

    Attributes
    ----------
    order : (K, rows) which result each knot is: below N one with, then those without
    present : (K, rows) whether it is finite
    gap : (K - 1, rows) widths of the cells between knots, in scales; inf beyond the last
    decay : (K + 1, rows) T = exp(-gap) of each cell
    left, right : (K + 1, 2, rows) L of p_a and p_b at the right end of each cell's left knot, R at its right knot
    law : (K, 2, rows) both mixtures, times 2h
    scale : (rows,)
    """

    order: IntArray
    present: BoolArray
    gap: FloatArray
    decay: FloatArray
    left: FloatArray
    right: FloatArray
    law: FloatArray
    scale: FloatArray

    @cached_property
    def ratio(self) -> FloatArray:
        """(K, rows) p_a/p_b at the knots; beyond the last real one it stays what it was there, 1 if there is none."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = self.law[:, 0] / self.law[:, 1]
        if not self.present.all():
            ratio[0][~self.present[0]] = 1.0
            last = np.where(self.present, np.arange(len(ratio))[:, None], 0)
            ratio = np.take_along_axis(ratio, np.maximum.accumulate(last, axis=0), axis=0)
        return np.asarray(ratio)

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p_a/p_b (direction 0) or p_b/p_a (direction 1) exceeds ``least`` somewhere."""
        ratio, other, weight = self.ratio, 1 - direction, 2.0 / len(self.order)
        above = ratio > least if direction == 0 else ratio < 1.0 / least
        touched = np.empty((len(above) + 1, above.shape[1]), bool)
        touched[0], touched[-1] = above[0], above[-1]
        np.logical_or(above[1:], above[:-1], out=touched[1:-1])
        cell, column = np.divmod(np.flatnonzero(touched), above.shape[1])
        ends = ratio[np.maximum(cell - 1, 0), column], ratio[np.minimum(cell, len(ratio) - 1), column]
        low, high = np.minimum(*ends), np.maximum(*ends)
        if direction == 1:
            with np.errstate(divide="ignore", over="ignore"):
                low, high = 1.0 / high, 1.0 / low
        left_a, left_b = self.left[cell, direction, column], self.left[cell, other, column]
        right_a, right_b = self.right[cell, direction, column], self.right[cell, other, column]
        decay = self.decay[cell, column]
        half_width = 0.5 * weight * (1.0 - decay)

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

        return Cells(column, low, high, half_width * (left_a + right_a), half_width * (left_b + right_b), part)

    def psi(self, direction: int, f: float, step: float) -> FloatArray:
        """(2N, rows) 1_A convolved with the noise at every result, A = {p_a > f p_b}; 1: the other way round.

        1_A changes where p_a - f p_b has its roots, u from the knot to the left: each adds a tail to either side.
        """
        a, b = direction, 1 - direction
        inside = (self.law[:, a] > f * (1 + _SLACK) * self.law[:, b]) & self.present
        left = self.left[1:-1, a] - f * self.left[1:-1, b]
        right = self.right[1:-1, a] - f * self.right[1:-1, b]
        gap = np.where(np.isfinite(self.gap), self.gap, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = 0.5 * (np.log(-left / right) + gap)
        u = np.clip(np.where(left * right < 0, root, np.where(left > 0, gap, 0.0)), 0.0, gap)
        amplitude: FloatArray | float = 0.5
        if step:  # the last of the noise's cells on this side, and half a cell more
            cells = np.rint(gap * self.scale / step)
            cell = np.clip(np.floor(u * self.scale / step + 1e-9), 0, np.maximum(cells - 1, 0))
            u = np.minimum((cell + 0.5) * step / self.scale, gap)
            amplitude = 0.5 / np.cosh(0.5 * step / self.scale)
        turn = (inside[:-1].astype(float) - inside[1:]) * self.present[1:]
        start, end, decay = np.zeros(inside.shape), np.zeros(inside.shape), self.decay[1:-1]
        start[1:], end[:-1] = turn * np.exp(u - gap), turn * np.exp(-u)
        for k in range(len(decay)):
            start[k + 1] += start[k] * decay[k]
            end[-k - 2] += end[-k - 1] * decay[-k - 1]
        out = np.empty(inside.shape)
        np.put_along_axis(out, self.order, np.where(self.present, inside + amplitude * (start - end), 0.0), axis=0)
        return out


def knots_of(a: FloatArray, b: FloatArray, scale: FloatArray, weights: FloatArray | None = None) -> Knots:
    """One sweep forwards and one backwards over the knots of both samples, at a scale (rows,) for each row."""
    rows, n = b.shape
    x = np.concatenate((np.broadcast_to(a, b.shape), b), axis=1)
    x = np.where(np.isfinite(x), x, np.inf)
    order = np.argsort(x, axis=1)
    x = np.ascontiguousarray(np.take_along_axis(x, order, axis=1).T)
    order = np.ascontiguousarray(order.T)
    present, with_all = np.isfinite(x), order < n
    weight = 1.0 if weights is None else np.concatenate((weights, weights))[order]
    sides = np.stack((with_all * present * weight, ~with_all * present * weight), axis=1)
    gap = np.full((2 * n - 1, rows), np.inf)
    np.subtract(x[1:], x[:-1], out=gap, where=present[1:])
    gap /= scale
    decay = np.zeros((2 * n + 1, rows))
    np.exp(-gap, out=decay[1:-1])
    left, right = np.zeros((2 * n + 1, 2, rows)), np.zeros((2 * n + 1, 2, rows))
    law = np.empty((2 * n, 2, rows))
    for k in range(2 * n):
        np.multiply(left[k], decay[k], out=law[k])
        np.add(law[k], sides[k], out=left[k + 1])
    for k in range(2 * n - 1, -1, -1):
        np.multiply(right[k + 1], decay[k + 1], out=right[k])
        right[k] += sides[k]
    law += right[:-1]
    return Knots(order, present, gap, decay, left, right, law, scale)


def _knots_at(a: FloatArray, b: FloatArray, scales: FloatArray, weights: FloatArray | None) -> list[Knots]:
    return [knots_of(a, b, scale, weights) for scale in scales.T]


def _values(
    knots: Sequence[Knots], coefficients: FloatArray, e: float, f: float, direction: int, draws: int, step: float
) -> FloatArray:
    """(rows, databases) W of one set."""
    w: FloatArray | float = 0.0
    for at, coefficient in zip(knots, coefficients.tolist(), strict=True):
        psi = at.psi(direction, f, step)
        both = psi.reshape(2, -1, draws, psi.shape[1]).mean(axis=2)
        w = w + coefficient * (both[direction] - e * both[1 - direction])
    return np.asarray(w).T


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
