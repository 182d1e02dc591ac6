"""Cells for any kernel and any bandwidths: roots isolated, then distribution functions, no quadrature.

The line is cut at nodes (kernels' own, `Kernel.nodes`, and every kink), the log ratio of the two densities and its
slope are taken there, and a cell in which the slope changes sign is cut again at the turning point. What is left is
monotone, as `hockeystick` wants it: masses are differences of distribution functions, and where an epsilon crosses
a cell, the root is polished. An error x in a root costs x^2, since the integrand vanishes there.

Where every point moves by less than half a bandwidth and the kernel is smooth, what happens at the nodes is a
polynomial in the shifts (`Near`), so that all individuals are done by one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.hockeystick import Cells, constant_cells, join
from empriv.measuring.kernels import Kernel
from empriv.results import FloatArray, IntArray

NEAR = (0.02, 0.05, 0.1, 0.2, 0.5)  # largest shifts, in bandwidths, of groups that share nodes
SLACK = 2e-12  # roundings, roots and tails beyond the kernels' reach, with a wide margin
_INSET = 1e-7  # at a kink, slopes are taken this part of the cell's width inside it

# What is known at the end of a cell, as rows of an array: the place, log(p/p_i), its slope, and of both sides the
# distribution, density and its slope
X, RATIO, SLOPE, MASS, MASS_WITHOUT, PDF, PDF_WITHOUT, RISE, RISE_WITHOUT = range(9)


@dataclass(frozen=True, eq=False)
class Side:
    """The mixtures of several individuals on one side: rows of points, or one row shared by all.

    Bandwidths and weights, 1/N or 0 for a point at +inf (an atom), are shared by all rows where they can be.
    """

    kernel: Kernel
    points: FloatArray  # (rows or 1, N)
    bandwidths: FloatArray  # (rows or 1, N)
    weights: FloatArray  # (rows or 1, N)

    @staticmethod
    def of(kernel: Kernel, points: FloatArray, bandwidths: FloatArray) -> Side:
        here = np.isfinite(points)
        if here.all():
            return Side(kernel, points, bandwidths, np.full((1, points.shape[1]), 1.0 / points.shape[1]))
        weights = np.where(here, 1.0 / points.shape[1], 0.0)
        return Side(kernel, np.where(here, points, 0.0), bandwidths, weights)

    def evaluate(self, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Density, slope and distribution at x of shape (k,) or (k, m), each line belonging to a row."""

        def lines(values: FloatArray) -> FloatArray:
            """(k or 1, [1,] N): the values of each line's row."""
            if len(values) == 1:
                return np.asarray(values[0])
            return np.asarray(values[row].reshape(len(row), *(1,) * (x.ndim - 1), values.shape[1]))

        h, weights = lines(self.bandwidths), lines(self.weights)
        z = x[..., None] - lines(self.points)
        z *= 1.0 / h
        pdf, cdf = self.kernel.pdf(z), self.kernel.cdf(z)
        slope = self.kernel.slope(z, pdf)
        scaled = weights / h
        if scaled.ndim == 1:
            return pdf @ scaled, slope @ (scaled / h), cdf @ weights
        return (pdf * scaled).sum(-1), (slope * (scaled / h)).sum(-1), (cdf * weights).sum(-1)

    def mirrored(self) -> Side:
        return replace(self, points=-self.points)


@dataclass(frozen=True, eq=False)
class Near:
    """Matrices that take shifts within ``reach`` bandwidths to density, slope and distribution at common nodes.

    ``k(z + s)`` is interpolated in s at Chebyshev points; the error is far below rounding for the kernels' nodes.
    """

    nodes: FloatArray
    reach: float
    matrix: FloatArray  # (N · degree, 3 · nodes)
    degree: int

    @staticmethod
    def of(side: Side, nodes: FloatArray, reach: float) -> Near:
        degree = int(np.ceil(11 + 24 * reach))
        angles = (np.arange(degree) + 0.5) * np.pi / degree
        shifts = reach * np.cos(angles)
        # values at Chebyshev points -> coefficients of Chebyshev polynomials
        transform = np.cos(np.arange(degree)[:, None] * angles) * (2.0 / degree)
        transform[0] *= 0.5
        points, h, weights = side.points[0], side.bandwidths[0], side.weights[0]
        z = ((nodes[None, :] - points[:, None]) / h[:, None])[:, None, :] + shifts[:, None]  # (N, degree, nodes)
        scale = (weights / h)[:, None, None]
        pdf, cdf = side.kernel.pdf(z), side.kernel.cdf(z)
        slope = side.kernel.slope(z, pdf)
        parts = (pdf * scale, slope * (scale / h[:, None, None]), cdf * weights[:, None, None])
        values = np.concatenate(parts, axis=2)
        matrix = np.einsum("dk,nkg->ndg", transform, values)
        return Near(nodes, reach, matrix.reshape(len(points) * degree, -1), degree)

    def evaluate(self, shifts: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Density, slope and distribution, (rows, nodes) each, for shifts (rows, N) in bandwidths."""
        rows, n = shifts.shape
        basis = np.empty((rows, n, self.degree))
        s = shifts / self.reach
        basis[:, :, 0] = 1.0
        basis[:, :, 1] = s
        s = 2.0 * s
        for d in range(2, self.degree):
            np.multiply(s, basis[:, :, d - 1], out=basis[:, :, d])
            basis[:, :, d] -= basis[:, :, d - 2]
        out = basis.reshape(rows, -1) @ self.matrix
        return tuple(np.split(out, 3, axis=1))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class MixtureBlock:
    """Cells of a block of individuals, flat: whose, and what is known at both ends (9, cells)."""

    with_all: Side
    without: Side
    row: IntArray
    left: FloatArray
    right: FloatArray

    @property
    def rows(self) -> int:
        return len(self.without.points)

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of the log ratio of each row, its limits far out among them."""
        ends = []
        limits = [_tail_limit(self.with_all, self.without, side) for side in (-1, 1)]
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
        cut = cut._take(np.flatnonzero(np.maximum(sign * cut.left[RATIO], sign * cut.right[RATIO]) > level))
        row, left, right = cut.row, cut.left, cut.right
        start, stop = sign * left[RATIO], sign * right[RATIO]
        top, bottom = (MASS, MASS_WITHOUT) if direction == 0 else (MASS_WITHOUT, MASS)
        denominator = self.without if direction == 0 else self.with_all
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
        for side in (self.with_all, self.without):
            both = side.evaluate(first, every)[2], side.mirrored().evaluate(-last, every)[2]
            masses.append(np.stack(np.broadcast_arrays(*both), axis=1))
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
            wanted = np.flatnonzero(bound > level)
            cut = finite[wanted] & (turns[wanted] | doubtful[wanted])
            block = block._take(wanted)
            if not cut.any():
                break
            block = block._cut(np.flatnonzero(cut), turns[wanted][cut])
        return block

    def _cut(self, index: IntArray, turns: npt.NDArray[np.bool_]) -> MixtureBlock:
        """Cut these cells at the turning point of the log ratio, or in the middle where it is only doubtful."""
        row, left, right = self.row[index], self.left[:, index], self.right[:, index]
        middle = _evaluate(
            self.with_all, self.without, np.where(turns, _turn(left, right), _midpoint(left, right)), row
        )
        low, high = left[[X, SLOPE]], right[[X, SLOPE]]
        active = np.flatnonzero(turns)
        for _ in range(12):  # regula falsi with halving (Illinois)
            here, low_a, high_a = middle[:, active], low[:, active], high[:, active]
            same = here[SLOPE] * low_a[SLOPE - 1] > 0
            halved = np.array([[1.0], [0.5]])
            low[:, active] = np.where(same, here[[X, SLOPE]], low_a * halved)
            high[:, active] = np.where(same, high_a * halved, here[[X, SLOPE]])
            (a, slope_a), (b, slope_b) = low[:, active], high[:, active]
            with np.errstate(divide="ignore", invalid="ignore"):
                step = a - slope_a * (b - a) / (slope_b - slope_a)
            step = np.where((step > a) & (step < b), step, 0.5 * (a + b))
            # an error of t widths in the turning point leaves a part of t^3 out of order
            far = np.abs(step - here[X]) > 1e-3 * (right[X] - left[X])[active]
            active, step = active[far], step[far]
            if not len(active):
                break
            middle[:, active] = _evaluate(self.with_all, self.without, step, row[active])
        middle[SLOPE] = np.where(turns, 0.0, middle[SLOPE])
        keep = np.ones(len(self.row), bool)
        keep[index] = False
        return replace(
            self,
            row=np.concatenate((self.row[keep], row, row)),
            left=np.concatenate((self.left[:, keep], left, middle), axis=1),
            right=np.concatenate((self.right[:, keep], middle, right), axis=1),
        )

    def _take(self, index: IntArray) -> MixtureBlock:
        return replace(self, row=self.row[index], left=self.left[:, index], right=self.right[:, index])


def common_nodes(kernel: Kernel, points: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """Nodes of the mixture with everyone, thinned where they crowd; kinks are kept."""
    here = np.isfinite(points)
    x, h = points[here], bandwidths[here]
    offsets = _offsets(kernel)
    places = (x[:, None] + h[:, None] * offsets).ravel()
    gaps = np.repeat(0.35 * h * kernel.canonical, len(offsets))
    order = np.argsort(places)
    places, gaps = places[order], gaps[order]
    kept = [float(places[0])]
    for place, gap in zip(places[1:-1].tolist(), gaps[1:-1].tolist(), strict=True):
        if place - kept[-1] >= gap:
            kept.append(place)
    kept.append(float(places[-1]))
    kinks = (x[:, None] + h[:, None] * np.array(kernel.kinks)).ravel()
    return np.unique(np.concatenate((kept, kinks)))


def kink_nodes(kernel: Kernel, shared: FloatArray, without: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """(rows, nodes): the common nodes and each row's own kinks, for points that moved little."""
    own = without[:, :, None] + np.broadcast_to(bandwidths, without.shape)[:, :, None] * np.array(kernel.kinks)
    own = np.where(np.isfinite(own), own, shared[0]).reshape(len(without), -1)  # an atom has no nodes
    return np.sort(np.concatenate((np.broadcast_to(shared, (len(without), len(shared))), own), axis=1), axis=1)


def far_nodes(
    kernel: Kernel, points: FloatArray, shared: FloatArray, without: FloatArray, bandwidths: FloatArray
) -> FloatArray:
    """(rows, nodes): nodes about the points with everyone and about each row's own, rows filled up to equal length."""
    own = np.broadcast_to(bandwidths, without.shape)
    rows = [
        common_nodes(kernel, np.concatenate((points, row)), np.concatenate((shared, h)))
        for row, h in zip(without, own, strict=True)
    ]
    longest = max(map(len, rows))
    return np.array([np.concatenate((row, np.full(longest - len(row), row[-1]))) for row in rows])


def far_block(with_all: Side, without: Side, nodes: FloatArray) -> MixtureBlock:
    """The block over each row's own nodes, (rows, nodes)."""
    rows, size = nodes.shape
    row = np.arange(rows)
    if with_all.kernel.kinks:
        inset = _INSET * (nodes[:, 1:] - nodes[:, :-1])
        left = _evaluate(with_all, without, nodes[:, :-1] + inset, row)
        right = _evaluate(with_all, without, nodes[:, 1:] - inset, row)
        masses = [side.evaluate(nodes, row)[2] for side in (with_all, without)]
        left[[X, MASS, MASS_WITHOUT]] = [part[:, :-1] for part in (nodes, *masses)]
        right[[X, MASS, MASS_WITHOUT]] = [part[:, 1:] for part in (nodes, *masses)]
    else:
        ends = _evaluate(with_all, without, nodes, row)
        left, right = ends[..., :-1], ends[..., 1:]
    flat = [end.reshape(9, rows * (size - 1)) for end in (left, right)]
    return MixtureBlock(with_all, without, np.repeat(row, size - 1), *flat)


def near_block(with_all: Side, without: Side, near: Near) -> MixtureBlock:
    """The block over common nodes, all rows at once."""
    rows, size = len(without.points), len(near.nodes)
    shifts = np.where(without.weights > 0, (with_all.points - without.points) / without.bandwidths, 0.0)
    shared = with_all.evaluate(near.nodes[None, :], np.zeros(1, np.int64))
    ends = _assemble(near.nodes, shared, near.evaluate(shifts))
    left, right = ends[..., :-1], ends[..., 1:]
    flat = [end.reshape(9, rows * (size - 1)) for end in (left, right)]
    return MixtureBlock(with_all, without, np.repeat(np.arange(rows), size - 1), *flat)


def _offsets(kernel: Kernel) -> FloatArray:
    return np.array(sorted({sign * z for z in (*kernel.nodes, kernel.reach) for sign in (-1.0, 1.0)}))


def _evaluate(with_all: Side, without: Side, x: FloatArray, row: IntArray) -> FloatArray:
    """What is known at x: (9, ...) shaped like x."""
    return _assemble(x, with_all.evaluate(x, row), without.evaluate(x, row))


def _assemble(
    x: FloatArray,
    with_all: tuple[FloatArray, FloatArray, FloatArray],
    without: tuple[FloatArray, FloatArray, FloatArray],
) -> FloatArray:
    (p, dp, mass), (p_i, dp_i, mass_i) = with_all, without
    out = np.empty((9, *np.broadcast_shapes(p.shape, p_i.shape)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        out[RATIO] = np.log(p / p_i)
        out[SLOPE] = dp / p - dp_i / p_i
    nothing = (p <= 0) & (p_i <= 0)  # neither side has any mass here
    out[RATIO][np.broadcast_to(nothing, out.shape[1:])] = 0.0
    out[SLOPE][~np.isfinite(out[SLOPE])] = 0.0
    out[X], out[MASS], out[MASS_WITHOUT] = x, mass, mass_i
    out[PDF], out[PDF_WITHOUT], out[RISE], out[RISE_WITHOUT] = p, p_i, dp, dp_i
    return out


def _mass(
    side: Side, row: IntArray, left: FloatArray, right: FloatArray, which: int, epsilon: FloatArray
) -> FloatArray:
    """Mass of the denominator between two ends: a difference of distributions, or, where e^epsilon would make its
    rounding large, quadrature of the density, whose error is relative to it."""
    mass = np.asarray(right[which] - left[which])
    few = np.flatnonzero((mass < 1e-7) & (epsilon > 7.0) & np.isfinite(epsilon))
    if len(few):
        places, weights = np.polynomial.legendre.leggauss(16)
        half = 0.5 * (right[X] - left[X])[few]
        x = (0.5 * (right[X] + left[X])[few])[:, None] + half[:, None] * places
        mass[few] = half * (side.evaluate(x, row[few])[0] @ weights)
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
    with_all: Side, without: Side, row: IntArray, left: FloatArray, right: FloatArray, level: FloatArray
) -> FloatArray:
    """What is known where the log ratio crosses ``level`` in each cell, by Newton's method within the cell."""
    low, high = left[X].copy(), right[X].copy()
    width = high - low
    falling = left[RATIO] > right[RATIO]
    out = _evaluate(with_all, without, _cubic_root(left, right, level), row)
    active = np.arange(len(row))
    for _ in range(80):
        here = out[:, active]
        excess = here[RATIO] - level[active]
        beyond = (excess > 0) == falling[active]  # the root lies to the right
        low[active] = np.where(beyond, here[X], low[active])
        high[active] = np.where(beyond, high[active], here[X])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = here[X] - excess / here[SLOPE]
        inside = (step > low[active]) & (step < high[active])
        step = np.where(inside, step, 0.5 * (low[active] + high[active]))
        move = step - here[X]
        # A last step this small needs no new look: what it leaves out is of the third order in it.
        small = np.abs(move) <= np.where(inside & (np.abs(excess) <= 1e-4), 1e-3, 1e-12) * width[active]
        done = active[small]
        out[:, done] = _moved(here[:, small], move[small])
        active, step = active[~small], step[~small]
        if not len(active):
            break
        out[:, active] = _evaluate(with_all, without, step, row[active])
    return out


def _moved(ends: FloatArray, move: FloatArray) -> FloatArray:
    """The distributions a small step further on."""
    ends = ends.copy()
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


def _tail_limit(with_all: Side, without: Side, direction: int) -> FloatArray:
    """Limit of log(p/p_i) far to the left (-1) or right (+1)."""
    kinds = [_tail(side, direction) for side in (with_all, without)]
    rows = len(without.points)
    out, undecided = np.zeros(rows), np.ones(rows, bool)
    last = len(kinds[0]) - 1
    for place, (one, other) in enumerate(zip(*kinds, strict=True)):
        with np.errstate(invalid="ignore"):
            difference = np.broadcast_to(one - other, rows)
        difference = np.where(np.isnan(difference), 0.0, difference)  # nothing on either side
        if place < last:  # decides alone
            difference = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
        out = np.where(undecided, difference, out)
        undecided = undecided & (difference == 0)
    return out


def _tail(side: Side, direction: int) -> tuple[FloatArray, ...]:
    """What decides how a mixture falls far out, most important first; the last is a logarithm of its height.

    Larger means heavier. Earlier entries decide alone (the ratio tends to 0 or infinity), the last one adds up.
    """
    here = side.weights > 0
    points, h = np.where(here, direction * side.points, -np.inf), np.where(here, side.bandwidths, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if side.kernel.tail == "power":
            return (np.log((side.weights * side.bandwidths**4).sum(axis=1)),)
        if side.kernel.tail == "bounded":
            return np.where(here, points + h, -np.inf).max(axis=1), np.zeros(len(points))
        widest = h.max(axis=1)
        leading = np.where(h == widest[:, None], points, -np.inf)
        outermost = leading.max(axis=1)
        relative = np.where(np.isfinite(leading), leading - outermost[:, None], -np.inf)
        if side.kernel.tail == "gaussian":
            return widest, outermost, np.log((relative == 0).sum(axis=1))
        height = outermost / widest + np.log(np.exp(relative / widest[:, None]).sum(axis=1))
        return widest, np.where(np.isnan(height), -np.inf, height)
