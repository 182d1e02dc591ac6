"""Upper bounds on the mean of paired values, and the values themselves: smooth sets, half-lines, end runs.

For samples A, B and a set E, the values ``W_j = 1{A_j in E} - e 1{B_j in E}`` average to a lower estimate of the
hockey stick at ``e = exp(epsilon)``; for the set where one density exceeds e times the other they average to it.
Arrays are (individuals, ...); what a bound is made of these is for `analytic`, `bootstrap` and `lower`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from empriv.results import FloatArray, IntArray
from empriv.validate.ground import BoolArray

LEAST_DATABASES = 30  # fewer support no bound by normal theory
_REACH = 300.0  # exp(±300) squared stays a double


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


@dataclass(frozen=True, eq=False)
class Merged:
    """Both samples of a block of individuals, sorted together.

    Attributes
    ----------
    x : (rows, 2N) sorted points
    order : where each came from: the first N are the points with everyone, the others those without
    smooth : (rows, 2N) which, in sorted order, are part of the density; None: all
    tolerance : numbers this close are the same number
    """

    x: FloatArray
    order: IntArray
    smooth: BoolArray | None
    tolerance: float

    @property
    def size(self) -> int:
        return int(self.x.shape[1]) // 2

    @staticmethod
    def of(points: FloatArray, without: FloatArray, smooth: BoolArray | None, tolerance: float = 0.0) -> Merged:
        size = points.shape[-1]
        both = np.empty((len(without), 2 * size))
        both[:, :size] = points
        both[:, size:] = without
        order = np.argsort(both, axis=1)
        sorted_smooth = None if smooth is None else np.take_along_axis(smooth, order, axis=1)
        return Merged(np.take_along_axis(both, order, axis=1), order, sorted_smooth, tolerance)

    def some(self, rows: IntArray | BoolArray | slice) -> Merged:
        smooth = None if self.smooth is None else self.smooth[rows]
        return Merged(self.x[rows], self.order[rows], smooth, self.tolerance)

    def sides(self) -> BoolArray:
        """Which points are those without the individual."""
        return np.asarray(self.order >= self.size)

    def runs(self) -> IntArray:
        """(rows, 2N) number of the run of ties that each point is in."""
        runs = np.zeros(self.x.shape, np.int64)
        np.cumsum(np.diff(self.x, axis=1) > self.tolerance, axis=1, out=runs[:, 1:])
        return runs

    def counts(self, runs: IntArray, weights: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """(rows, 2N) points with everyone, and without, in each point's run."""
        rows, knots = self.x.shape
        place = (runs + np.arange(rows)[:, None] * knots).ravel()
        share = np.ones(rows * knots) if weights is None else np.tile(weights, 2)[self.order.ravel()]
        without = np.bincount(place, self.sides().ravel() * share, rows * knots)
        both = np.bincount(place, share, rows * knots)
        return (both - without)[place].reshape(rows, knots), without[place].reshape(rows, knots)


@dataclass(frozen=True, eq=False)
class Smooth:
    """Laplace densities of both samples at one bandwidth, and the sets where one exceeds e times the other.

    ``forwards`` are prefix sums of exp(x/h), ``backwards`` suffix sums of exp(-x/h), with everyone and without. Where
    points are too far apart for these, they are sums as seen from each point, and ``decay`` is exp of minus the steps.
    """

    merged: Merged
    scaled: FloatArray
    density: tuple[FloatArray, FloatArray]
    forwards: tuple[FloatArray, FloatArray]
    backwards: tuple[FloatArray, FloatArray]
    up: FloatArray
    down: FloatArray
    weights: FloatArray | None = None
    decay: FloatArray | None = None

    @staticmethod
    def of(merged: Merged, bandwidth: float, weights: FloatArray | None = None) -> Smooth:
        """``weights``: (N,) of the databases, for a bootstrap."""
        x = merged.x
        sides = merged.sides()
        b = sides.astype(float)
        a = 1.0 - b
        if weights is not None:
            share = np.tile(weights, 2)[merged.order]
            a, b = a * share, b * share
        if merged.smooth is not None:
            a, b = a * merged.smooth, b * merged.smooth
            # Atoms have no part in the density: a far one may stand anywhere.
            there = x[merged.smooth]
            x = np.clip(x, there.min(), there.max()) if len(there) else np.zeros_like(x)
        low, high = float(x.min()), float(x.max())
        x = (x - (low + 0.5 * (high - low))) / bandwidth
        if 0.5 * (high - low) > _REACH * bandwidth:
            decay = np.exp(-np.diff(x, axis=1))
            forwards = (_running(a, decay), _running(b, decay))
            backwards = (_running_back(a, decay), _running_back(b, decay))
            density = (forwards[0] + backwards[0] - a, forwards[1] + backwards[1] - b)
            return Smooth(merged, x, density, forwards, backwards, a, b, weights, decay)
        up = np.exp(x)
        down = 1.0 / up
        forwards = (np.cumsum(up * a, axis=1), np.cumsum(up * b, axis=1))
        backwards = (_suffix(down * a), _suffix(down * b))
        density = (
            down * forwards[0] + up * backwards[0] - a,  # its own point is in both sums
            down * forwards[1] + up * backwards[1] - b,
        )
        return Smooth(merged, x, density, forwards, backwards, up, down, weights)

    def values(self, direction: int, e: float, draws: int) -> FloatArray:
        """(rows, n) W of the direction: 0 is with everyone over without, 1 the other way; without regard to weights."""
        if self.merged.smooth is None:
            # Where the set is empty every value is 0; at a larger e that is so for nearly everyone.
            there = np.any(self.inside(direction, e), axis=1)
            if not there.all():
                w = np.zeros((len(there), self.merged.size // draws))
                if there.any():
                    w[there] = self._some(there).values(direction, e, draws)
                return w
        psi = self.share(direction, e)
        rows, size = len(psi), self.merged.size
        at = np.empty_like(psi)
        np.put_along_axis(at, self.merged.order, psi, axis=1)
        own, other = (at[:, :size], at[:, size:]) if direction == 0 else (at[:, size:], at[:, :size])
        w = own - e * other
        return w if draws == 1 else w.reshape(rows, -1, draws).mean(axis=2)

    def _some(self, rows: BoolArray) -> Smooth:
        def part(both: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
            return both[0][rows], both[1][rows]

        return replace(
            self,
            merged=self.merged.some(rows),
            scaled=self.scaled[rows],
            density=part(self.density),
            forwards=part(self.forwards),
            backwards=part(self.backwards),
            up=self.up[rows],
            down=self.down[rows],
            decay=None if self.decay is None else self.decay[rows],
        )

    def inside(self, direction: int, e: float) -> BoolArray:
        """(rows, 2N) which points lie in the set; rounding alone puts none into it."""
        return np.asarray(self.density[direction] > e * (1 + 1e-10) * self.density[1 - direction])

    def share(self, direction: int, e: float) -> FloatArray:
        """(rows, 2N) psi: how much of the kernel at each point lies in the set; 0 or 1 for an atom."""
        inside = self.inside(direction, e)
        psi = self._share_scan(direction, e, inside) if self.decay is None else self._share_far(direction, e, inside)
        if self.merged.smooth is not None:
            runs = self.merged.runs()
            counts = self.merged.counts(runs, self.weights)
            psi = np.where(self.merged.smooth, psi, counts[direction] > e * counts[1 - direction])
        return psi

    def _share_scan(self, direction: int, e: float, inside: BoolArray) -> FloatArray:
        rows, knots = inside.shape
        psi = inside.astype(float)
        place = np.flatnonzero(inside[:, 1:] != inside[:, :-1])
        row, before = np.divmod(place, knots - 1)
        here = row * knots + before
        if not len(here):
            return psi
        one, two = (f.ravel() for f in (self.forwards[direction], self.forwards[1 - direction]))
        three, four = (b.ravel() for b in (self.backwards[direction], self.backwards[1 - direction]))
        left, right = one[here] - e * two[here], three[here + 1] - e * four[here + 1]
        up = self.up.ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(-left / right, 0.0))  # exp of the root, where left/t + right t = 0
        # Rounding alone takes it out of its cell; fmin and fmax also end a 0/0.
        root = np.fmin(np.fmax(root, up[here]), up[here + 1])
        sign = np.where(inside.ravel()[here], 1.0, -1.0)  # the set ends here, or begins
        starts, ends = np.zeros(rows * knots), np.zeros(rows * knots)
        starts[here + 1] = sign * root
        ends[here] = sign / root
        # The kernel reaches over the roots on the left and on the right.
        psi += 0.5 * self.down * np.cumsum(starts.reshape(rows, knots), axis=1)
        psi -= 0.5 * self.up * _suffix(ends.reshape(rows, knots))
        return psi

    def _share_far(self, direction: int, e: float, inside: BoolArray) -> FloatArray:
        """The same for points any distance apart."""
        assert self.decay is not None
        psi = inside.astype(float)
        row, k = np.nonzero(inside[:, 1:] != inside[:, :-1])
        if not len(row):
            return psi
        left = self.forwards[direction][row, k] - e * self.forwards[1 - direction][row, k]
        right = self.backwards[direction][row, k + 1] - e * self.backwards[1 - direction][row, k + 1]
        gap = self.scaled[row, k + 1] - self.scaled[row, k]
        with np.errstate(divide="ignore", invalid="ignore"):
            # left e^(-t) + right e^(t - gap) = 0, t counted from the left knot
            t = np.where(left * right < 0, 0.5 * (np.log(-left / right) + gap), np.where(left > 0, gap, 0.0))
        t = np.clip(t, 0.0, gap)
        sign = np.where(inside[row, k], 1.0, -1.0)  # the set ends here, or begins
        starts, ends = np.zeros_like(psi), np.zeros_like(psi)
        starts[row, k + 1] = sign * np.exp(t - gap)
        ends[row, k] = sign * np.exp(-t)
        return np.asarray(psi + 0.5 * (_running(starts, self.decay) - _running_back(ends, self.decay)))


def groups(depth: int) -> list[tuple[int, int]]:
    """Half-lines 0..depth looked at together, (first, after the last): two alone, then twice as many each time.

    Further in, many points lie as close to a half-line's end as the influence is large, and the best of many half-lines
    is mostly chance. An edge is seen by all half-lines that end just behind it, so that their average will do.
    """
    ends = [0, 1, 2]
    while ends[-1] <= depth:
        ends.append(2 * ends[-1])
    return [(low, min(high, depth + 1)) for low, high in pairwise(ends) if low <= depth]


def edges(
    a: FloatArray,
    b: FloatArray,
    e: FloatArray,
    draws: int,
    together: Sequence[tuple[int, int]],
    level: float,
    *,
    mend: bool = True,
    thresholds: FloatArray | None = None,
) -> FloatArray:
    """Largest bound over groups of half-lines {x < B_(m+1)}, (rows, len(e)); ``mend`` it for skewness.

    ``a`` and ``b`` are (rows, N) or (N,). In a group, W is the average over its half-lines. For the right side, pass
    the negatives. ``thresholds`` are those of ``b`` if not given.
    """
    rows = max(len(np.atleast_2d(a)), len(np.atleast_2d(b)))
    n, depth = a.shape[-1] // draws, together[-1][1] - 1
    ends = b if thresholds is None else thresholds
    ends = np.atleast_2d(np.sort(np.partition(ends, depth, axis=-1)[..., : depth + 1], axis=-1))
    best = np.full((rows, len(e)), -np.inf)
    for first, after in together:
        share = [np.zeros((rows, n * draws)), np.zeros((rows, n * draws))]
        for m in range(first, after):
            share[0] += a < ends[:, m : m + 1]
            share[1] += b < ends[:, m : m + 1]
        x, y = (side.reshape(rows, n, draws).mean(axis=2) / (after - first) for side in share)
        np.maximum(best, bound_from_raw(raw_moments(x, y), e, n, level, mend), out=best)
    return best


def raw_moments(x: FloatArray, y: FloatArray) -> tuple[FloatArray, ...]:
    """(rows,) means over databases of x, y and their products, as `bound_from_raw` wants them."""
    n = x.shape[1]
    xx, xy, yy = x * x, x * y, y * y
    products = ((xx, x), (xx, y), (yy, x), (yy, y))
    return (
        *(part.mean(axis=1) for part in (x, y, xx, xy, yy)),
        *(np.einsum("ij,ij->i", left, right) / n for left, right in products),
    )


def bound_from_raw(raw: tuple[FloatArray, ...], e: FloatArray, n: int, level: float, mend: bool = True) -> FloatArray:
    """`skewed` of ``a - e b`` from the means of a, b, aa, ab, bb, aaa, aab, abb, bbb."""
    a, b, aa, ab, bb, aaa, aab, abb, bbb = (value[:, None] for value in raw)
    mean = a - e * b
    second = aa - 2 * e * ab + e * e * bb
    third = aaa - 3 * e * aab + 3 * e * e * abb - e**3 * bbb
    variance = np.maximum(second - mean * mean, 0.0)
    variance = np.where(variance < 1e-12, 0.0, variance)
    skew = third - 3 * mean * second + 2 * mean**3
    return skewed(mean, variance, skew if mend else np.zeros_like(skew), n, level)


def end_runs(merged: Merged, gap: float) -> IntArray:
    """(rows,) most points at an end that one sample holds alone: over all, or added up over clusters.

    Clusters are cut where neighbours are more than ``gap`` apart, and count with five points of each sample.
    """
    rows, knots = merged.x.shape
    sides = merged.sides()
    flat = sides.ravel()
    x = merged.x.ravel()
    cut = np.flatnonzero(np.diff(merged.x, axis=1).ravel() > gap)
    row, column = np.divmod(cut, knots - 1)
    inner = row * knots + column + 1
    first = np.arange(rows) * knots
    starts = np.sort(np.concatenate((first, inner)))
    stops = np.append(starts[1:], rows * knots)
    owner = starts // knots
    passed = np.concatenate(([0], np.cumsum(flat)))
    without = passed[stops] - passed[starts]
    large = (without >= 5) & (stops - starts - without >= 5)
    most = np.zeros(rows, np.int64)
    whole = (first, first + knots, np.arange(rows))
    clusters = (starts[large], stops[large], owner[large])
    where = np.flatnonzero(flat), np.flatnonzero(~flat)
    for begin, end, whose in (whole, clusters):
        for place in where:  # the other sample's points end the run
            low = place[np.minimum(np.searchsorted(place, begin), len(place) - 1)]
            high = place[np.searchsorted(place, end) - 1]
            left, right = low - begin, end - 1 - high
            # A point tied with the other sample's is not alone.
            for run, at, step in ((left, low, -1), (right, high, 1)):
                run = run.copy()
                open_ = np.flatnonzero(run > 0)
                back = 1
                while len(open_):
                    open_ = open_[x[at[open_] + step * back] == x[at[open_]]]
                    run[open_] -= 1
                    open_ = open_[run[open_] > 0]
                    back += 1
                np.maximum(most, np.bincount(whose, run, rows).astype(np.int64), out=most)
    return most


def _suffix(values: FloatArray) -> FloatArray:
    return np.asarray(np.cumsum(values[:, ::-1], axis=1)[:, ::-1])


def _running(values: FloatArray, decay: FloatArray) -> FloatArray:
    """(rows, knots) sums of the values so far, each less by the decay of every step since."""
    out = np.array(values, dtype=np.float64, order="F")
    for knot in range(1, out.shape[1]):
        out[:, knot] += out[:, knot - 1] * decay[:, knot - 1]
    return out


def _running_back(values: FloatArray, decay: FloatArray) -> FloatArray:
    return _running(values[:, ::-1], decay[:, ::-1])[:, ::-1]
