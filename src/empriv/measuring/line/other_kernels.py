"""Cells of two densities of any kernel, any bandwidths, or of a model of one's own: roots first, then distributions.

Of two densities p and p_i, such as mixtures ``p(x) = sum_j w_j k((x - q_j)/h_j)/h_j``, the line is cut at nodes
(`Kernel.nodes`, and every kink; those of the model). The log ratio of both and its slope are taken there, and a cell in
which the slope changes sign is cut again at the turning point. What remains is monotone, as `hockeystick` wants it:
masses are differences of distribution functions, without quadrature, and where an epsilon crosses a cell, the root is
polished. An error x in a root costs x², since the integrand vanishes there (docs/method.md, "Any kernel, any
bandwidths"). A `Side` gives density, slope and distribution of mixtures, a `ModelSide` those of a model.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.density import Model
from empriv.measuring.densities.kernels import Kernel
from empriv.measuring.line.hockeystick import Cells, constant_cells, join
from empriv.results import FloatArray, IntArray

SLACK = 2e-12  # roundings, roots and tails beyond the kernels' reach, with a wide margin
NEAR = 0.5  # bandwidths: points that move less share the nodes of those with everyone
_CROWDED = 0.35  # canonical bandwidths: nodes closer than that are thinned
_CACHED = 80_000  # kernel values evaluated at once: pieces that stay in the processor's cache are three times faster
_INSET = 1e-7  # at a kink, slopes are taken this part of the cell's width inside it
_STEP = 1e-5  # of a cell's width: to either side of where a model's slope is taken

# What is known at the end of a cell, as rows of an array: the place, log(p/p_i), its slope, and of both sides the
# distribution, density and its slope
X, RATIO, SLOPE, MASS, MASS_WITHOUT, PDF, PDF_WITHOUT, RISE, RISE_WITHOUT = range(9)


@dataclass(frozen=True, eq=False)
class Side:
    """The mixtures of several individuals on one side: rows of points, or one row shared by all."""

    kernel: Kernel
    points: FloatArray  # (rows or 1, N)
    bandwidths: FloatArray  # (N,)
    weights: FloatArray  # (rows or 1, N), 1/N, and 0 for an atom

    @staticmethod
    def of(kernel: Kernel, points: FloatArray, bandwidths: FloatArray) -> Side:
        """From points with atoms at +inf."""
        finite = np.isfinite(points)
        n = points.shape[1]
        weights = np.full((1, n), 1.0 / n) if finite.all() else np.where(finite, 1.0 / n, 0.0)
        return Side(kernel, np.where(finite, points, 0.0), bandwidths, weights)

    def density(self, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
        """Density and its slope at x of shape (k,) or (k, m), each line belonging to a row."""
        z = self._z(x, row)
        pdf = self.kernel.pdf(z)
        scaled = self._lines(self.weights, row, x.ndim) / self.bandwidths
        return _weighted(pdf, scaled), _weighted(self.kernel.slope(z, pdf), scaled / self.bandwidths)

    def distribution(self, x: FloatArray, row: IntArray) -> FloatArray:
        """Mass up to x."""
        return _weighted(self.kernel.cdf(self._z(x, row)), self._lines(self.weights, row, x.ndim))

    def _z(self, x: FloatArray, row: IntArray) -> FloatArray:
        z = x[..., None] - self._lines(self.points, row, x.ndim)
        z *= 1.0 / self.bandwidths
        return np.asarray(z)

    @staticmethod
    def _lines(values: FloatArray, row: IntArray, ndim: int) -> FloatArray:
        """The values of each line's row, (N,) where all rows share them."""
        if len(values) == 1:
            return np.asarray(values[0])
        return np.asarray(values[row].reshape(len(row), *(1,) * (ndim - 1), values.shape[1]))

    def tails(self, first: FloatArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mass of each row before its first place and after its last."""
        every, mirrored = np.arange(len(first)), replace(self, points=-self.points)
        return self.distribution(first, every), mirrored.distribution(-last, every)

    def tail(self, direction: int) -> tuple[FloatArray, ...]:
        """What decides how a mixture falls far out, most important first; the last is a logarithm of its height.

        Larger means heavier. Earlier entries decide alone (the ratio tends to 0 or infinity), the last one adds up.
        """
        present = self.weights > 0
        points, h = np.where(present, direction * self.points, -np.inf), np.where(present, self.bandwidths, -np.inf)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.kernel.tail == "power":
                return (np.log((self.weights * self.bandwidths**4).sum(axis=1)),)
            if self.kernel.tail == "bounded":
                return np.where(present, points + h, -np.inf).max(axis=1), np.zeros(len(points))
            widest = h.max(axis=1)
            leading = np.where(h == widest[:, None], points, -np.inf)
            outermost = leading.max(axis=1)
            relative = np.where(np.isfinite(leading), leading - outermost[:, None], -np.inf)
            if self.kernel.tail == "gaussian":
                return widest, outermost, np.log((relative == 0).sum(axis=1))
            height = outermost / widest + np.log(np.exp(relative / widest[:, None]).sum(axis=1))
            return widest, np.where(np.isnan(height), -np.inf, height)


@dataclass(frozen=True, eq=False)
class ModelSide:
    """The points of one individual on one side, as a `Side`, by a model's own functions; slopes are differences.

    Beyond the first and the last of the ``nodes`` there is nothing.
    """

    model: Model
    points: FloatArray  # (1, N)
    nodes: FloatArray

    def density(self, x: FloatArray, _row: IntArray) -> tuple[FloatArray, FloatArray]:
        flat = x.ravel()
        cell = np.clip(np.searchsorted(self.nodes, flat), 1, len(self.nodes) - 1)
        low, high = self.nodes[cell - 1], self.nodes[cell]
        step = np.minimum(_STEP * (high - low), 0.5 * np.minimum(flat - low, high - flat))  # within the cell
        ends = flat - step, flat + step
        pdf, before, after = np.split(self.model.pdf(np.concatenate((flat, *ends)), self.points[0]), 3)
        width = ends[1] - ends[0]
        slope = np.divide(after - before, width, out=np.zeros_like(flat), where=width > 0)
        return pdf.reshape(x.shape), slope.reshape(x.shape)

    def distribution(self, x: FloatArray, _row: IntArray) -> FloatArray:
        return self.model.cdf(x, self.points[0])

    def tails(self, first: FloatArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.zeros_like(first), np.zeros_like(last)

    def tail(self, _direction: int) -> tuple[FloatArray, ...]:
        return (np.zeros(1),)


@dataclass(frozen=True, eq=False)
class MixtureBlock:
    """Cells of a block of individuals, flat: the row of each, and what is known at both ends (9, cells).

    Distributions, which take most of the time, are known only of the cells that `cells` gives.
    """

    with_all: Side | ModelSide
    without: Side | ModelSide
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
        top, bottom = (MASS, MASS_WITHOUT) if direction == 0 else (MASS_WITHOUT, MASS)
        cut = cut._take(np.flatnonzero(np.maximum(sign * cut.left[RATIO], sign * cut.right[RATIO]) > level))
        cut._take_masses()
        row, left, right = cut.row, cut.left, cut.right
        start, stop = sign * left[RATIO], sign * right[RATIO]
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
        size = len(self.row) // self.rows
        first, last = self.left[X].reshape(self.rows, size)[:, 0], self.right[X].reshape(self.rows, size)[:, -1]
        masses = []
        for side in (self.with_all, self.without):
            masses.append(np.stack(side.tails(first, last), axis=1))
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
        slopes = np.where(turns, (left[SLOPE], right[SLOPE]), 0.0)
        middle = _ratios(self.with_all, self.without, _between(left, right, *slopes), row)
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
        """Distributions at both ends of these cells: many ends are shared, by cells and by individuals."""
        x, row = np.concatenate((self.left[X], self.right[X])), np.concatenate((self.row, self.row))
        places, at = np.unique(x, return_inverse=True)
        ends, end = np.unique(row * len(places) + at, return_inverse=True)
        mass = _distribution(self.with_all, places, np.zeros(len(places), np.int64))[at]
        mass_without = _distribution(self.without, places[ends % len(places)], ends // len(places))[end]
        self.left[MASS], self.right[MASS] = np.split(mass, 2)
        self.left[MASS_WITHOUT], self.right[MASS_WITHOUT] = np.split(mass_without, 2)

    def _take(self, index: IntArray) -> MixtureBlock:
        return replace(self, row=self.row[index], left=self.left[:, index], right=self.right[:, index])


def mixture_block(kernel: Kernel, bandwidths: FloatArray, points: FloatArray, without: FloatArray) -> MixtureBlock:
    """The block of points with everyone (N,) and without each of some individuals (rows, N)."""
    with_all, side = Side.of(kernel, points[None, :], bandwidths), Side.of(kernel, without, bandwidths)
    return _block(with_all, side, _nodes(kernel, points, bandwidths, without), jumps=bool(kernel.kinks))


def model_block(model: Model, points: FloatArray, without: FloatArray) -> MixtureBlock:
    """The block of one individual's points, (N,) each, by a model's own functions."""
    nodes = np.union1d(model.nodes(points), model.nodes(without))
    with_all, side = (ModelSide(model, x[None, :], nodes) for x in (points, without))
    return _block(with_all, side, nodes[None, :], jumps=True)


def _block(with_all: Side | ModelSide, side: Side | ModelSide, nodes: FloatArray, *, jumps: bool) -> MixtureBlock:
    """Cells between the nodes (rows, nodes) of each individual."""
    rows, size = nodes.shape
    row = np.arange(rows)
    if jumps:  # what jumps at the nodes is taken just inside the cells
        inset = _INSET * (nodes[:, 1:] - nodes[:, :-1])
        left, right = (
            _ratios(with_all, side, nodes[:, :-1] + inset, row),
            _ratios(with_all, side, nodes[:, 1:] - inset, row),
        )
        left[X], right[X] = nodes[:, :-1], nodes[:, 1:]
    else:
        ends = _ratios(with_all, side, nodes, row, _once(with_all, nodes))
        left, right = ends[..., :-1], ends[..., 1:]
    left, right = (end.reshape(9, rows * (size - 1)) for end in (left, right))
    return MixtureBlock(with_all, side, np.repeat(row, size - 1), left, right)


def _nodes(kernel: Kernel, points: FloatArray, bandwidths: FloatArray, without: FloatArray) -> FloatArray:
    """(rows, nodes): nodes about the points with everyone and about each row's own that are far from them, and the
    kinks of all; rows are filled up to equal length."""
    finite = np.isfinite(without)
    with np.errstate(invalid="ignore"):
        far = finite & ~(np.abs(without - points) <= NEAR * bandwidths)
    shared = _thinned(kernel, points, bandwidths, np.isfinite(points))
    fill = shared[0] if len(shared) else float(without[finite][0])
    own = [
        _thinned(kernel, row, bandwidths, here) if here.any() else shared[:0]
        for row, here in zip(without, far, strict=True)
    ]
    added = np.full((len(without), max(map(len, own))), fill)
    for row, places in zip(added, own, strict=True):
        row[: len(places)] = places
    kinks = without[:, :, None] + bandwidths[:, None] * np.array(kernel.kinks)
    kinks = np.where(np.isfinite(kinks), kinks, fill).reshape(len(without), -1)
    about_all = np.broadcast_to(shared, (len(without), len(shared)))
    return np.sort(np.concatenate((about_all, added, kinks), axis=1), axis=1)


def _thinned(kernel: Kernel, points: FloatArray, bandwidths: FloatArray, here: npt.NDArray[np.bool_]) -> FloatArray:
    """Nodes of a mixture of some of these points, thinned where they crowd; kinks are kept."""
    x, h = points[here], bandwidths[here]
    if not len(x):
        return np.zeros(0)
    offsets = np.array(sorted({sign * z for z in (*kernel.nodes, kernel.reach) for sign in (-1.0, 1.0)}))
    places = (x[:, None] + h[:, None] * offsets).ravel()
    gaps = np.repeat(_CROWDED * h * kernel.canonical, len(offsets))
    order = np.argsort(places)
    places, gaps = places[order], gaps[order]
    kept = [float(places[0])]
    if h.min() == h.max():  # the next one to keep is looked up
        ordered, at = places.tolist(), 1
        while (at := bisect_left(ordered, kept[-1] + float(gaps[0]), at)) < len(ordered) - 1:
            kept.append(ordered[at])
            at += 1
    else:
        for place, gap in zip(places[1:-1].tolist(), gaps[1:-1].tolist(), strict=True):
            if place - kept[-1] >= gap:
                kept.append(place)
    kept.append(float(places[-1]))
    kinks = (x[:, None] + h[:, None] * np.array(kernel.kinks)).ravel()
    return np.unique(np.concatenate((kept, kinks)))


def _once(with_all: Side | ModelSide, nodes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Density and slope with everyone at the nodes of all rows, who share most of them."""
    places, back = np.unique(nodes, return_inverse=True)
    first = np.zeros(len(places), np.int64)
    parts = [with_all.density(places[part], first[part]) for part in _pieces(with_all, places)]
    pdf, slope = (np.concatenate(values)[back].reshape(nodes.shape) for values in zip(*parts, strict=True))
    return pdf, slope


def _ratios(
    with_all: Side | ModelSide,
    without: Side | ModelSide,
    x: FloatArray,
    row: IntArray,
    known: tuple[FloatArray, FloatArray] | None = None,
) -> FloatArray:
    """What is known at x, (9, ...) shaped like x, but for distributions: they take most of the time, and are not needed
    on the way to a root. ``known`` are density and slope with everyone."""

    def piece(part: slice) -> FloatArray:
        places, rows, nothing = x[part], row[part], np.zeros(x[part].shape)
        p = with_all.density(places, rows) if known is None else (known[0][part], known[1][part])
        return _assemble(places, p, without.density(places, rows), nothing, nothing)

    if not len(x):
        return np.zeros((9, *x.shape))
    return np.concatenate([piece(part) for part in _pieces(with_all, x)], axis=1)


def _distribution(side: Side | ModelSide, x: FloatArray, row: IntArray) -> FloatArray:
    """Mass up to each of many places."""
    return np.concatenate([side.distribution(x[part], row[part]) for part in _pieces(side, x)] or [np.zeros(0)])


def _pieces(side: Side | ModelSide, x: FloatArray) -> list[slice]:
    """Pieces that stay in the processor's cache."""
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
    side: Side | ModelSide, row: IntArray, left: FloatArray, right: FloatArray, quantity: int, epsilon: FloatArray
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


def _between(left: FloatArray, right: FloatArray, start: FloatArray, stop: FloatArray) -> FloatArray:
    """Where a straight line from ``start`` to ``stop`` is 0 in each cell, as a first guess; else the middle."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = start / (start - stop)
    return np.asarray(left[X] + (right[X] - left[X]) * np.where((share > 0) & (share < 1), share, 0.5))


def _root(
    with_all: Side | ModelSide,
    without: Side | ModelSide,
    row: IntArray,
    left: FloatArray,
    right: FloatArray,
    level: FloatArray,
) -> FloatArray:
    """What is known where the log ratio crosses ``level`` in each cell, by Newton's method within the cell."""
    low, high = left[X].copy(), right[X].copy()
    width = high - low
    falling = left[RATIO] > right[RATIO]
    with np.errstate(invalid="ignore"):
        guess = _between(left, right, left[RATIO] - level, right[RATIO] - level)
    out = _ratios(with_all, without, guess, row)
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
    out[MASS], out[MASS_WITHOUT] = _distribution(with_all, out[X], row), _distribution(without, out[X], row)
    return _moved(out, last)


def _moved(ends: FloatArray, move: FloatArray) -> FloatArray:
    """The distributions a small step further on."""
    ends[MASS] += move * (ends[PDF] + 0.5 * move * ends[RISE])
    ends[MASS_WITHOUT] += move * (ends[PDF_WITHOUT] + 0.5 * move * ends[RISE_WITHOUT])
    ends[X] += move
    return ends


def _weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum over the points."""
    return np.asarray(values @ weights if weights.ndim == 1 else (values * weights).sum(axis=-1))


def _tail_limit(with_all: Side | ModelSide, without: Side | ModelSide, direction: int) -> FloatArray:
    """Limit of log(p/p_i) far to the left (-1) or right (+1)."""
    kinds = [side.tail(direction) for side in (with_all, without)]
    rows = len(without.points)
    out, undecided = np.zeros(rows), np.ones(rows, bool)
    last = len(kinds[0]) - 1
    for place, (tail, tail_without) in enumerate(zip(*kinds, strict=True)):
        with np.errstate(invalid="ignore"):
            difference = np.broadcast_to(tail - tail_without, rows)
        difference = np.where(np.isnan(difference), 0.0, difference)  # nothing on either side
        if place < last:  # decides alone
            difference = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
        out = np.where(undecided, difference, out)
        undecided = undecided & (difference == 0)
    return out
