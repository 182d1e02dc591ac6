"""Cells for any kernel and any bandwidths: roots isolated, then distribution functions, no quadrature.

The line is cut at nodes (kernels' own, `Kernel.nodes`, and every kink), the log ratio of the two densities and its
slope are taken there, and a cell in which the slope changes sign is cut again at the turning point. What is left is
monotone, as `hockeystick` wants it: masses are differences of distribution functions, and where an epsilon crosses
a cell, the root is polished. An error x in a root costs x^2, since the integrand vanishes there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.hockeystick import Cells, constant_cells, join
from empriv.measuring.line.sides import Moved, ShiftMatrices, Side, tail_limit
from empriv.results import FloatArray, IntArray

SLACK = 2e-12  # roundings, roots and tails beyond the kernels' reach, with a wide margin
_CACHED = 80_000  # kernel values evaluated at once
_INSET = 1e-7  # at a kink, slopes are taken this part of the cell's width inside it

# What is known at the end of a cell, as rows of an array: the place, log(p/p_i), its slope, and of both sides the
# distribution, density and its slope
X, RATIO, SLOPE, MASS, MASS_WITHOUT, PDF, PDF_WITHOUT, RISE, RISE_WITHOUT = range(9)


@dataclass(frozen=True, eq=False)
class MixtureBlock:
    """Cells of a block of individuals, flat: the row of each, and what is known at both ends (9, cells).

    Distributions are known if ``massed``; else they are taken where a cell counts.
    """

    with_all: Side
    without: Side | Moved
    row: IntArray
    left: FloatArray
    right: FloatArray
    massed: bool

    @property
    def rows(self) -> int:
        return len(_points(self.without).points)

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of the log ratio of each row, its limits far out among them."""
        ends = []
        limits = [tail_limit(self.with_all, _points(self.without), side) for side in (-1, 1)]
        for sign in (-1.0, 1.0):
            top = np.maximum(sign * self.left[RATIO], sign * self.right[RATIO])
            best = np.maximum(sign * limits[0], sign * limits[1])
            highest = best.copy()
            np.maximum.at(highest, self.row, top)
            # the supremum lies in the cells about the highest node
            about = self._take(np.flatnonzero(top >= highest[self.row]))._monotone(sign, -np.inf)
            np.maximum.at(best, about.row, np.maximum(sign * about.left[RATIO], sign * about.right[RATIO]))
            ends.append(sign * np.maximum(best, highest))
        return ends[0], ends[1]

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        sign = 1.0 if direction == 0 else -1.0
        level = float(np.log(least))
        cut = self._monotone(sign, level)
        top, bottom = (MASS, MASS_WITHOUT) if direction == 0 else (MASS_WITHOUT, MASS)
        cut = cut._take(np.flatnonzero(np.maximum(sign * cut.left[RATIO], sign * cut.right[RATIO]) > level))
        if not self.massed:
            cut._take_masses()
        row, left, right = cut.row, cut.left, cut.right
        start, stop = sign * left[RATIO], sign * right[RATIO]
        denominator = _points(self.without) if direction == 0 else self.with_all
        above = np.maximum(right[top] - left[top], 0.0)
        below = _mass(denominator, row, left, right, bottom, np.minimum(start, stop))
        below[np.minimum(start, stop) == np.inf] = 0.0  # there is nothing of the denominator here

        def part(index: IntArray, e: FloatArray) -> tuple[FloatArray, FloatArray]:
            root = _root(self.with_all, self.without, row[index], left[:, index], right[:, index], sign * np.log(e))
            rising = stop[index] > start[index]
            first, last = np.where(rising, root, left[:, index]), np.where(rising, right[:, index], root)
            mass = _mass(denominator, row[index], first, last, bottom, np.log(e))
            return np.maximum(last[top] - first[top] - e * mass, 0.0), mass

        with np.errstate(over="ignore"):
            low, high = np.exp(np.minimum(start, stop)), np.exp(np.maximum(start, stop))
        return join(Cells(row, low, high, above, below, part), self._tails(direction))

    def _tails(self, direction: int) -> Cells:
        """What lies beyond the nodes, less than 1e-13 of the mass: a cell of constant ratio on either side."""
        every = np.arange(self.rows)
        size = len(self.row) // self.rows
        first, last = self.left[X].reshape(self.rows, size)[:, 0], self.right[X].reshape(self.rows, size)[:, -1]
        masses = []
        for side in (self.with_all, _points(self.without)):
            tails = side.distribution(first, every), side.mirrored().distribution(-last, every)
            masses.append(np.stack(np.broadcast_arrays(*tails), axis=1))
        above, below = masses if direction == 0 else masses[::-1]
        return constant_cells(*np.broadcast_arrays(above, below))

    def _monotone(self, sign: float, level: float) -> MixtureBlock:
        """The cells in which sign · log ratio may exceed ``level``, cut at turning points."""
        block = self
        for _ in range(7):
            left, right = block.left, block.right
            width = right[X] - left[X]
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                steepest = np.maximum(np.abs(left[SLOPE]), np.abs(right[SLOPE]))
                bound = np.maximum(sign * left[RATIO], sign * right[RATIO]) + steepest * width
                turns = left[SLOPE] * right[SLOPE] < 0
                rise = (right[RATIO] - left[RATIO]) / width
                # A cubic with these ends may turn twice inside (Fritsch and Carlson): look again at half the width.
                doubtful = (left[SLOPE] ** 2 + right[SLOPE] ** 2 > 9.0001 * rise**2) & (steepest * width > 1e-7)
                finite = np.isfinite(left[RATIO]) & np.isfinite(right[RATIO]) & (width > 0)
            above = np.flatnonzero(bound > level)
            cut = finite[above] & (turns[above] | doubtful[above])
            block = block._take(above)
            if not cut.any():
                break
            block = block._cut(np.flatnonzero(cut), turns[above][cut])
        return block

    def _cut(self, index: IntArray, turns: npt.NDArray[np.bool_]) -> MixtureBlock:
        """Cut these cells at the turning point of the log ratio, or in the middle where it is only doubtful."""
        row, left, right = self.row[index], self.left[:, index], self.right[:, index]
        middle = _ratios(self.with_all, self.without, np.where(turns, _turn(left, right), _midpoint(left, right)), row)
        low, high = left[[X, SLOPE]], right[[X, SLOPE]]
        active = np.flatnonzero(turns)
        for _ in range(12):  # regula falsi with halving (Illinois)
            current, low_a, high_a = middle[:, active], low[:, active], high[:, active]
            same = current[SLOPE] * low_a[SLOPE - 1] > 0
            halved = np.array([[1.0], [0.5]])
            low[:, active] = np.where(same, current[[X, SLOPE]], low_a * halved)
            high[:, active] = np.where(same, high_a * halved, current[[X, SLOPE]])
            (a, slope_a), (b, slope_b) = low[:, active], high[:, active]
            with np.errstate(divide="ignore", invalid="ignore"):
                step = a - slope_a * (b - a) / (slope_b - slope_a)
            step = np.where((step > a) & (step < b), step, 0.5 * (a + b))
            # an error of t widths in the turning point leaves a part of t^3 out of order
            far = np.abs(step - current[X]) > 1e-3 * (right[X] - left[X])[active]
            active, step = active[far], step[far]
            if not len(active):
                break
            middle[:, active] = _ratios(self.with_all, self.without, step, row[active])
        if self.massed:
            _add_masses(self.with_all, self.without, middle, row)
        middle[SLOPE] = np.where(turns, 0.0, middle[SLOPE])
        keep = np.ones(len(self.row), bool)
        keep[index] = False
        return replace(
            self,
            row=np.concatenate((self.row[keep], row, row)),
            left=np.concatenate((self.left[:, keep], left, middle), axis=1),
            right=np.concatenate((self.right[:, keep], middle, right), axis=1),
        )

    def _take_masses(self) -> None:
        """Distributions at all ends of these cells; most of them are ends of two."""
        row, x = np.concatenate((self.row, self.row)), np.concatenate((self.left[X], self.right[X]))
        order = np.lexsort((x, row))
        first = np.concatenate(([True], (np.diff(x[order]) != 0) | (np.diff(row[order]) != 0)))[: len(x)]
        place = np.empty(len(x), np.int64)
        place[order] = np.cumsum(first) - 1
        ends = np.zeros((9, np.count_nonzero(first)))
        ends[X] = x[order[first]]
        _add_masses(self.with_all, self.without, ends, row[order[first]])
        for quantity in (MASS, MASS_WITHOUT):
            self.left[quantity], self.right[quantity] = np.split(ends[quantity][place], 2)

    def _take(self, index: IntArray) -> MixtureBlock:
        return replace(self, row=self.row[index], left=self.left[:, index], right=self.right[:, index])


def far_block(with_all: Side, without: Side | Moved, nodes: FloatArray) -> MixtureBlock:
    """The block over each row's own nodes, (rows, nodes)."""
    rows, size = nodes.shape
    row = np.arange(rows)
    if with_all.kernel.kinks:  # what jumps at the nodes is taken just inside the cells
        inset = _INSET * (nodes[:, 1:] - nodes[:, :-1])
        left, right = (
            _ratios(with_all, without, nodes[:, :-1] + inset, row),
            _ratios(with_all, without, nodes[:, 1:] - inset, row),
        )
        left[X], right[X] = nodes[:, :-1], nodes[:, 1:]
    else:
        ends = _ratios(with_all, without, nodes, row, _once(with_all, nodes))
        left, right = ends[..., :-1], ends[..., 1:]
    left, right = (end.reshape(9, rows * (size - 1)) for end in (left, right))
    return MixtureBlock(with_all, without, np.repeat(row, size - 1), left, right, massed=False)


def near_block(with_all: Side, without: Side | Moved, near: ShiftMatrices) -> MixtureBlock:
    """The block over common nodes, all rows at once."""
    side = _points(without)
    rows, size = len(side.points), len(near.nodes)
    nodes, first = near.nodes[None, :], np.zeros(1, np.int64)
    pdf, slope, mass = np.split(near.evaluate(side.shifts_from(with_all)), 3, axis=1)
    shared = with_all.density(nodes, first)
    ends = _assemble(near.nodes, shared, (pdf, slope), with_all.distribution(nodes, first), mass)
    left, right = ends[..., :-1], ends[..., 1:]
    left, right = (end.reshape(9, rows * (size - 1)) for end in (left, right))
    return MixtureBlock(with_all, without, np.repeat(np.arange(rows), size - 1), left, right, massed=True)


def _points(side: Side | Moved) -> Side:
    return side.full if isinstance(side, Moved) else side


def _once(with_all: Side, nodes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Density and slope with everyone at the nodes of all rows, who share most of them."""
    places, back = np.unique(nodes, return_inverse=True)
    first = np.zeros(len(places), np.int64)
    parts = [with_all.density(places[part], first[part]) for part in _pieces(with_all, places)]
    pdf, slope = (np.concatenate(values)[back].reshape(nodes.shape) for values in zip(*parts, strict=True))
    return pdf, slope


def _ratios(
    with_all: Side,
    without: Side | Moved,
    x: FloatArray,
    row: IntArray,
    known: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """What is known at x, (9, ...) shaped like x, but for distributions: they take most of the time, and are not needed
    on the way to a root. ``known`` are density and slope with everyone."""

    def piece(part: slice) -> FloatArray:
        places, rows, nothing = x[part], row[part], np.zeros(x[part].shape)
        p = with_all.density(places, rows) if known is None else (known[0][part], known[1][part])
        q = without.density(places, rows, p) if isinstance(without, Moved) else without.density(places, rows)
        return _assemble(places, p, q, nothing, nothing)

    if not len(x):
        return np.zeros((9, *x.shape))
    return np.concatenate([piece(part) for part in _pieces(with_all, x)], axis=1)


def _add_masses(with_all: Side, without: Side | Moved, ends: FloatArray, row: IntArray) -> None:
    """Distributions at the places of what is known."""
    for part in _pieces(with_all, ends[X]):
        x, rows = ends[X][part], row[part]
        mass = with_all.distribution(x, rows)
        ends[MASS][part] = mass
        if isinstance(without, Moved):
            ends[MASS_WITHOUT][part] = without.distribution(x, rows, mass)
        else:
            ends[MASS_WITHOUT][part] = without.distribution(x, rows)


def _pieces(side: Side, x: FloatArray) -> list[slice]:
    """Pieces that stay in the processor's cache: three times faster."""
    step = max(1, _CACHED // max(1, (x[0].size if len(x) else 1) * side.points.shape[1]))
    return [slice(start, start + step) for start in range(0, len(x), step)]


def _assemble(
    x: FloatArray,
    with_all: tuple[FloatArray, FloatArray],
    without: tuple[FloatArray, FloatArray],
    mass: FloatArray,
    mass_without: FloatArray,
) -> FloatArray:
    (p, dp), (p_i, dp_i) = with_all, without
    out = np.empty((9, *np.broadcast_shapes(p.shape, p_i.shape)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        out[RATIO] = np.log(p / p_i)
        out[SLOPE] = dp / p - dp_i / p_i
    nothing = (p <= 0) & (p_i <= 0)  # neither side has any mass here
    out[RATIO][np.broadcast_to(nothing, out.shape[1:])] = 0.0
    out[SLOPE][~np.isfinite(out[SLOPE])] = 0.0
    out[X], out[MASS], out[MASS_WITHOUT] = x, mass, mass_without
    out[PDF], out[PDF_WITHOUT], out[RISE], out[RISE_WITHOUT] = p, p_i, dp, dp_i
    return out


def _mass(
    side: Side, row: IntArray, left: FloatArray, right: FloatArray, quantity: int, epsilon: FloatArray
) -> FloatArray:
    """Mass of the denominator between two ends: a difference of distributions, or, where e^epsilon would make its
    rounding large, quadrature of the density, whose error is relative to it."""
    mass = np.asarray(right[quantity] - left[quantity])
    few = np.flatnonzero((mass < 1e-7) & (epsilon > 7.0) & np.isfinite(epsilon))
    if len(few):
        places, weights = np.polynomial.legendre.leggauss(16)
        half = 0.5 * (right[X] - left[X])[few]
        x = (0.5 * (right[X] + left[X])[few])[:, None] + half[:, None] * places
        mass[few] = half * (side.density(x, row[few])[0] @ weights)
    return np.asarray(np.maximum(mass, 0.0))


def _midpoint(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (left[X] + right[X]))


def _turn(left: FloatArray, right: FloatArray) -> FloatArray:
    """Where the cubic through both ends turns, as a first guess; the middle where that lies outside."""
    width = right[X] - left[X]
    a, b = left[SLOPE] * width, right[SLOPE] * width
    rise = right[RATIO] - left[RATIO]
    # slope of the cubic at t: a + 2 (3 rise - 2a - b) t + 3 (a + b - 2 rise) t^2; a root by the stable formula
    c2, c1 = 3 * (a + b - 2 * rise), 3 * rise - 2 * a - b
    with np.errstate(divide="ignore", invalid="ignore"):
        q = -(c1 + np.where(c1 >= 0, 1.0, -1.0) * np.sqrt(c1 * c1 - a * c2))
        t = np.where((q / c2 > 0) & (q / c2 < 1), q / c2, a / q)
    return np.asarray(left[X] + width * np.where((t > 0) & (t < 1), t, 0.5))


def _root(
    with_all: Side, without: Side | Moved, row: IntArray, left: FloatArray, right: FloatArray, level: FloatArray
) -> FloatArray:
    """What is known where the log ratio crosses ``level`` in each cell, by Newton's method within the cell."""
    low, high = left[X].copy(), right[X].copy()
    width = high - low
    falling = left[RATIO] > right[RATIO]
    out = _ratios(with_all, without, _cubic_root(left, right, level), row)
    active, last = np.arange(len(row)), np.zeros(len(row))
    for _ in range(80):
        current = out[:, active]
        excess = current[RATIO] - level[active]
        beyond = (excess > 0) == falling[active]  # the root lies to the right
        low[active] = np.where(beyond, current[X], low[active])
        high[active] = np.where(beyond, high[active], current[X])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = current[X] - excess / current[SLOPE]
        inside = (step > low[active]) & (step < high[active])
        step = np.where(inside, step, 0.5 * (low[active] + high[active]))
        move = step - current[X]
        # A last step this small needs no new evaluation: what it leaves out is of third order.
        small = np.abs(move) <= np.where(inside & (np.abs(excess) <= 1e-4), 1e-3, 1e-12) * width[active]
        last[active[small]] = move[small]
        active, step = active[~small], step[~small]
        if not len(active):
            break
        out[:, active] = _ratios(with_all, without, step, row[active])
    _add_masses(with_all, without, out, row)
    return _moved(out, last)


def _moved(ends: FloatArray, move: FloatArray) -> FloatArray:
    """The distributions a small step further on."""
    ends[MASS] += move * (ends[PDF] + 0.5 * move * ends[RISE])
    ends[MASS_WITHOUT] += move * (ends[PDF_WITHOUT] + 0.5 * move * ends[RISE_WITHOUT])
    ends[X] += move
    return ends


def _cubic_root(left: FloatArray, right: FloatArray, level: FloatArray) -> FloatArray:
    """Where the cubic through both ends crosses ``level``, as a first guess; the middle where an end is infinite."""
    width = right[X] - left[X]
    with np.errstate(invalid="ignore"):
        usable = np.isfinite(left[RATIO]) & np.isfinite(right[RATIO])
        start, stop, a, b = (
            np.where(usable, y, 0.0) for y in (left[RATIO], right[RATIO], left[SLOPE] * width, right[SLOPE] * width)
        )
    rising = stop > start
    low, high = np.zeros_like(width), np.ones_like(width)
    t = 0.5 * np.ones_like(width)
    for _ in range(14):
        s = 1.0 - t
        y = (start * (1.0 + 2.0 * t) + a * t) * s * s + (stop * (1.0 + 2.0 * s) - b * s) * t * t
        right_of = (y < level) == rising
        low, high = np.where(right_of, t, low), np.where(right_of, high, t)
        t = 0.5 * (low + high)
    return np.asarray(left[X] + width * np.where(usable, t, 0.5))
