"""Cells for any kernel and any bandwidths: roots isolated, then distribution functions, no quadrature.

The line is cut at nodes (kernels' own, `Kernel.nodes`, and every kink), the log ratio of the two densities and its
slope are taken there, and a cell in which the slope changes sign is cut again at the turning point. What is left is
monotone, as `hockeystick` wants it: masses are differences of distribution functions, and where an epsilon crosses
a cell, the root is polished. An error x in a root costs x^2, since the integrand vanishes there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.measuring.hockeystick import Cells, constant_cells, join
from empriv.measuring.kernels import Kernel
from empriv.results import FloatArray, IntArray

NEAR = 0.5  # shifts up to this many bandwidths need no nodes of their own
_INSET = 1e-7  # at a kink, slopes are taken this part of the cell's width inside it
SLACK = 1e-12  # roundings, roots and tails beyond the kernels' reach, with a wide margin


@dataclass(frozen=True, eq=False)
class Side:
    """The mixtures of several individuals on one side: rows of points, or one row shared by all.

    A point at +inf (an atom) has weight 0.
    """

    kernel: Kernel
    points: FloatArray  # (rows or 1, N)
    bandwidths: FloatArray  # (rows or 1, N)
    weights: FloatArray  # (rows or 1, N): 1/N, 0 for an atom

    @staticmethod
    def of(kernel: Kernel, points: FloatArray, bandwidths: FloatArray) -> Side:
        here = np.isfinite(points)
        weights = np.where(here, 1.0 / points.shape[1], 0.0)
        return Side(kernel, np.where(here, points, 0.0), np.broadcast_to(bandwidths, points.shape), weights)

    def _z(self, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """For x of shape (k,) or (k, m), each line belonging to a row: z, bandwidths, weights with N last."""
        at = row if len(self.points) > 1 else np.zeros(1, np.int64)
        shape = (len(at),) + (1,) * (x.ndim - 1) + (self.points.shape[1],)
        points, h = self.points[at].reshape(shape), self.bandwidths[at].reshape(shape)
        return (x[..., None] - points) / h, h, self.weights[at].reshape(shape)

    def pdf_and_slope(self, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
        z, h, weight = self._z(x, row)
        scaled = weight / h
        return (self.kernel.pdf(z) * scaled).sum(axis=-1), (self.kernel.slope(z) * (scaled / h)).sum(axis=-1)

    def pdf(self, x: FloatArray, row: IntArray) -> FloatArray:
        z, h, weight = self._z(x, row)
        return np.asarray((self.kernel.pdf(z) * (weight / h)).sum(axis=-1))

    def cdf(self, x: FloatArray, row: IntArray) -> FloatArray:
        z, _, weight = self._z(x, row)
        return np.asarray((self.kernel.cdf(z) * weight).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class MixtureBlock:
    """Cells of a block of individuals, flat: row, two ends, log ratio and its slope at both ends."""

    with_all: Side
    without: Side
    row: IntArray
    left: FloatArray
    right: FloatArray
    ratio_left: FloatArray
    ratio_right: FloatArray
    slope_left: FloatArray
    slope_right: FloatArray
    tails: tuple[FloatArray, FloatArray]  # limits of the log ratio far to the left and right, (rows,)
    first: FloatArray  # outermost nodes of each row
    last: FloatArray
    rows: int

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of the log ratio of each row, its limits far out among them."""
        low = np.minimum(*self.tails)
        high = np.maximum(*self.tails)
        for direction in (0, 1):
            cut = self._monotone(direction, -np.inf, only_top=True)
            sign = 1 if direction == 0 else -1
            best = np.full(self.rows, -np.inf)
            np.maximum.at(best, cut.row, np.maximum(sign * cut.ratio_left, sign * cut.ratio_right))
            high, low = (np.maximum(high, best), low) if direction == 0 else (high, np.minimum(low, -best))
        return low, high

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        cut = self._monotone(direction, float(np.log(least)), only_top=False)
        sign = 1.0 if direction == 0 else -1.0
        top = np.maximum(sign * cut.ratio_left, sign * cut.ratio_right)
        keep = np.flatnonzero(top > np.log(least))
        row, left, right = cut.row[keep], cut.left[keep], cut.right[keep]
        ratio_left, ratio_right = sign * cut.ratio_left[keep], sign * cut.ratio_right[keep]
        slope_left, slope_right = sign * cut.slope_left[keep], sign * cut.slope_right[keep]
        numerator, denominator = (self.with_all, self.without)[:: 1 if direction == 0 else -1]
        above = numerator.cdf(right, row) - numerator.cdf(left, row)
        below = denominator.cdf(right, row) - denominator.cdf(left, row)

        def part(index: IntArray, e: FloatArray) -> tuple[FloatArray, FloatArray]:
            level = np.log(e)
            a, b = left[index], right[index]
            x = _hermite_root(a, b, ratio_left[index], ratio_right[index], slope_left[index], slope_right[index], level)
            x = _polish(numerator, denominator, row[index], a, b, ratio_left[index] > ratio_right[index], x, e)
            rising = ratio_right[index] > ratio_left[index]
            start, stop = np.where(rising, x, a), np.where(rising, b, x)
            mass = denominator.cdf(stop, row[index]) - denominator.cdf(start, row[index])
            full = numerator.cdf(stop, row[index]) - numerator.cdf(start, row[index])
            return np.maximum(full - e * mass, 0.0), mass

        with np.errstate(over="ignore"):
            low = np.exp(np.minimum(ratio_left, ratio_right))
            high = np.exp(np.maximum(ratio_left, ratio_right))
        inner = Cells(row, low, high, np.maximum(above, 0.0), np.maximum(below, 0.0), part)
        return join(inner, _tail_cells(numerator, denominator, self.first, self.last, self.rows))

    def _monotone(self, direction: int, least: float, *, only_top: bool) -> MixtureBlock:
        """The block cut at turning points, wherever the ratio may exceed ``least`` in this direction."""
        sign = 1.0 if direction == 0 else -1.0
        block = self
        if only_top:  # the supremum lies in the cells about the highest node
            top = np.maximum(sign * block.ratio_left, sign * block.ratio_right)
            best = np.full(self.rows, -np.inf)
            np.maximum.at(best, block.row, top)
            block = block._take(np.flatnonzero(top >= best[block.row]))
        for _ in range(6):
            width = block.right - block.left
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                steepest = np.maximum(np.abs(block.slope_left), np.abs(block.slope_right))
                bound = np.maximum(sign * block.ratio_left, sign * block.ratio_right) + steepest * width
                turns = block.slope_left * block.slope_right < 0
                rise = (block.ratio_right - block.ratio_left) / width
                # A cubic with these ends may turn twice inside (Fritsch and Carlson): look again at half the width.
                doubtful = (block.slope_left**2 + block.slope_right**2 > 9.0001 * rise**2) & (steepest * width > 1e-7)
            finite = np.isfinite(block.ratio_left) & np.isfinite(block.ratio_right) & (width > 0)
            cut = np.flatnonzero(finite & (bound > least) & (turns | doubtful))
            if not len(cut):
                break
            block = block._cut(cut, turns[cut])
        return block

    def _cut(self, index: IntArray, turns: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> MixtureBlock:
        """Cut these cells at the turning point of the log ratio, or in the middle where it is only doubtful."""
        row, a, b = self.row[index], self.left[index], self.right[index]
        low, high = a.copy(), b.copy()
        slope_low, slope_high = self.slope_left[index], self.slope_right[index]
        x = 0.5 * (a + b)
        ratio, slope = _log_ratio(self.with_all, self.without, x, row)
        active = np.flatnonzero(turns)
        for _ in range(12):  # regula falsi with halving (Illinois); ends in the middle of a bracket or at the root
            if not len(active):
                break
            x_a = x[active]
            same = slope[active] * slope_low[active] > 0
            low[active] = np.where(same, x_a, low[active])
            high[active] = np.where(same, high[active], x_a)
            slope_low[active] = np.where(same, slope[active], slope_low[active] * 0.5)
            slope_high[active] = np.where(same, slope_high[active] * 0.5, slope[active])
            with np.errstate(divide="ignore", invalid="ignore"):
                step = low[active] - slope_low[active] * (high[active] - low[active]) / (
                    slope_high[active] - slope_low[active]
                )
            inside = (step > low[active]) & (step < high[active])
            new = np.where(inside, step, 0.5 * (low[active] + high[active]))
            moved = np.abs(new - x_a)
            x[active] = new
            ratio[active], slope[active] = _log_ratio(self.with_all, self.without, new, row[active])
            # an error of t widths in the turning point leaves a part of t^3 out of order
            active = active[(moved > 3e-5 * (b - a)[active]) & np.isfinite(ratio[active])]
        zero = np.where(turns, 0.0, slope)
        keep = np.ones(len(self.row), bool)
        keep[index] = False
        join = np.concatenate
        return MixtureBlock(
            self.with_all,
            self.without,
            row=join((self.row[keep], row, row)),
            left=join((self.left[keep], a, x)),
            right=join((self.right[keep], x, b)),
            ratio_left=join((self.ratio_left[keep], self.ratio_left[index], ratio)),
            ratio_right=join((self.ratio_right[keep], ratio, self.ratio_right[index])),
            slope_left=join((self.slope_left[keep], self.slope_left[index], zero)),
            slope_right=join((self.slope_right[keep], zero, self.slope_right[index])),
            tails=self.tails,
            first=self.first,
            last=self.last,
            rows=self.rows,
        )

    def _take(self, index: IntArray) -> MixtureBlock:
        return MixtureBlock(
            self.with_all,
            self.without,
            self.row[index],
            self.left[index],
            self.right[index],
            self.ratio_left[index],
            self.ratio_right[index],
            self.slope_left[index],
            self.slope_right[index],
            self.tails,
            self.first,
            self.last,
            self.rows,
        )


def common_nodes(kernel: Kernel, points: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """Nodes of the mixture with everyone, thinned where they crowd; kinks are kept."""
    here = np.isfinite(points)
    x, h = points[here], bandwidths[here]
    offsets = np.array(sorted({s * z for z in (*kernel.nodes, kernel.reach) for s in (-1.0, 1.0)}))
    places = (x[:, None] + h[:, None] * offsets).ravel()
    gaps = np.repeat(0.35 * h * kernel.canonical, len(offsets))
    order = np.argsort(places)
    places, gaps = places[order], gaps[order]
    kept = [places[0]]
    for place, gap in zip(places[1:-1].tolist(), gaps[1:-1].tolist(), strict=True):
        if place - kept[-1] >= gap:
            kept.append(place)
    kept.append(places[-1])
    kinks = (x[:, None] + h[:, None] * np.array(kernel.kinks)).ravel()
    return np.unique(np.concatenate((kept, kinks)))


def own_nodes(
    kernel: Kernel, shared: FloatArray, without: FloatArray, bandwidths: FloatArray, *, far: bool
) -> FloatArray:
    """(rows, nodes): the common nodes, and each row's own kinks, or all nodes of its points where they lie far off."""
    offsets = np.array(kernel.kinks)
    if far:
        offsets = np.array(sorted({s * z for z in (*kernel.nodes, kernel.reach) for s in (-1.0, 1.0)}))
    own = without[:, :, None] + np.broadcast_to(bandwidths, without.shape)[:, :, None] * offsets
    own = np.where(np.isfinite(own), own, shared[0]).reshape(len(without), -1)  # an atom has no nodes
    return np.sort(np.concatenate((np.broadcast_to(shared, (len(without), len(shared))), own), axis=1), axis=1)


def block(with_all: Side, without: Side, nodes: FloatArray) -> MixtureBlock:
    """The block over these nodes, (1, nodes) or (rows, nodes)."""
    rows = len(without.points)
    every = np.arange(rows)
    left, right = nodes[:, :-1], nodes[:, 1:]
    if with_all.kernel.kinks:
        inset = _INSET * (right - left)
        ends = [_log_ratio(with_all, without, x, every[: len(nodes)]) for x in (left + inset, right - inset)]
        (ratio_left, slope_left), (ratio_right, slope_right) = ends
    else:
        ratio, slope = _log_ratio(with_all, without, nodes, every)
        ratio_left, ratio_right, slope_left, slope_right = ratio[:, :-1], ratio[:, 1:], slope[:, :-1], slope[:, 1:]
    shape = (rows, left.shape[1])
    flat = [np.broadcast_to(x, shape).reshape(-1) for x in (left, right)]
    return MixtureBlock(
        with_all,
        without,
        np.repeat(every, shape[1]),
        flat[0],
        flat[1],
        ratio_left.reshape(-1),
        ratio_right.reshape(-1),
        slope_left.reshape(-1),
        slope_right.reshape(-1),
        tails=(_tail_limit(with_all, without, -1), _tail_limit(with_all, without, 1)),
        first=np.broadcast_to(nodes[:, 0], rows),
        last=np.broadcast_to(nodes[:, -1], rows),
        rows=rows,
    )


def _log_ratio(with_all: Side, without: Side, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
    """log(p/p_i) and its slope; 0 where both densities are nothing."""
    p, dp = with_all.pdf_and_slope(x, row)
    p_i, dp_i = without.pdf_and_slope(x, row)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p / p_i)
        slope = dp / p - dp_i / p_i
    nothing = (p == 0) & (p_i == 0)
    return np.where(nothing, 0.0, ratio), np.where(nothing | ~np.isfinite(slope), 0.0, slope)


def _hermite_root(
    a: FloatArray, b: FloatArray, ya: FloatArray, yb: FloatArray, da: FloatArray, db: FloatArray, level: FloatArray
) -> FloatArray:
    """Where the cubic with these ends and slopes crosses ``level``: the first guess of a root."""
    width = b - a
    low, high = np.zeros_like(a), np.ones_like(a)
    usable = np.isfinite(ya) & np.isfinite(yb)
    ya, yb, da, db = (np.where(usable, v, 0.0) for v in (ya, yb, da * width, db * width))
    rising = yb > ya
    t = 0.5 * np.ones_like(a)
    for _ in range(14):
        y = (1 + 2 * t) * (1 - t) ** 2 * ya + t * (1 - t) ** 2 * da + t**2 * (3 - 2 * t) * yb + t**2 * (t - 1) * db
        right = (y < level) == rising
        low, high = np.where(right, t, low), np.where(right, high, t)
        t = 0.5 * (low + high)
    return a + width * np.where(usable, t, 0.5)


def _polish(
    numerator: Side,
    denominator: Side,
    row: IntArray,
    a: FloatArray,
    b: FloatArray,
    falling: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    x: FloatArray,
    e: FloatArray,
) -> FloatArray:
    """Newton's method on log(p/p_i) - log e within [a, b], by halves where it leaves the bracket."""
    low, high, x = a.copy(), b.copy(), x.copy()
    active = np.arange(len(x))
    for _ in range(80):
        ratio, slope = _log_ratio(numerator, denominator, x[active], row[active])
        excess = ratio - np.log(e[active])
        beyond = (excess > 0) == falling[active]  # the root lies to the right
        low[active] = np.where(beyond, x[active], low[active])
        high[active] = np.where(beyond, high[active], x[active])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = x[active] - excess / slope
        inside = (step > low[active]) & (step < high[active])
        new = np.where(inside, step, 0.5 * (low[active] + high[active]))
        moved = np.abs(new - x[active])
        x[active] = new
        active = active[moved > 1e-6 * (b - a)[active]]  # Newton squares this; the integral squares it again
        if not len(active):
            break
    return x


def _tail_cells(numerator: Side, denominator: Side, first: FloatArray, last: FloatArray, rows: int) -> Cells:
    """What lies beyond the nodes, less than 1e-13 of the mass: a cell of constant ratio on either side."""
    every = np.arange(rows)
    above = np.stack((numerator.cdf(first, every), _upper(numerator, last, every)), axis=1)
    below = np.stack((denominator.cdf(first, every), _upper(denominator, last, every)), axis=1)
    return constant_cells(above, below)


def _upper(side: Side, x: FloatArray, row: IntArray) -> FloatArray:
    """Mass beyond x, by symmetry of the kernel."""
    mirrored = Side(side.kernel, -side.points, side.bandwidths, side.weights)
    return mirrored.cdf(-x, row)


def _tail_limit(with_all: Side, without: Side, direction: int) -> FloatArray:
    """Limit of log(p/p_i) far to the left (-1) or right (+1)."""
    kinds = [_tail(side, direction) for side in (with_all, without)]
    with np.errstate(invalid="ignore"):
        out: FloatArray = np.zeros(max(len(kinds[0][0]), len(kinds[1][0])))
        undecided = np.ones(len(out), bool)
        for one, other in zip(*kinds, strict=True):
            difference = np.broadcast_to(one - other, out.shape)
            difference = np.where(np.isnan(difference), 0.0, difference)  # -inf on both sides: nothing there
            final = one is kinds[0][-1]
            decided = undecided & (difference != 0)
            out = np.where(decided, difference if final else np.sign(difference) * np.inf, out)
            undecided &= ~decided
    return out


def _tail(side: Side, direction: int) -> tuple[FloatArray, ...]:
    """What decides how a mixture falls far out, most important first; the last is a logarithm of its height.

    Larger means heavier. Earlier entries decide alone (the ratio tends to 0 or infinity), the last one adds up.
    """
    points = np.where(side.weights > 0, direction * side.points, -np.inf)
    h = np.where(side.weights > 0, side.bandwidths, -np.inf)
    tail = side.kernel.tail
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if tail == "power":
            return (np.log((side.weights * side.bandwidths**4).sum(axis=1)),)
        if tail == "bounded":
            return ((points + np.where(np.isfinite(h), h, 0.0)).max(axis=1), np.zeros(len(points)))
        widest = h.max(axis=1)
        leading = np.where(h == widest[:, None], points, -np.inf)
        outermost = leading.max(axis=1)
        relative = np.where(np.isfinite(leading), leading - outermost[:, None], -np.inf)
        if tail == "gaussian":
            count = np.log((relative == 0).sum(axis=1))
            return widest, outermost, count
        height = outermost / widest + np.log(np.exp(relative / widest[:, None]).sum(axis=1))
        return widest, np.where(np.isnan(height), -np.inf, height)
