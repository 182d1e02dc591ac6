"""The two sides of a comparison as mixtures: their values at any place, and which places to evaluate.

`Side` evaluates mixtures of several individuals at once. `ShiftMatrices` does so at common nodes for all individuals
who move points by less than half a bandwidth: the change there is a polynomial in the shifts, hence one matrix product.
`mixtures` cuts the line into cells with them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.density import Mixture
from empriv.measuring.densities.kernels import Kernel
from empriv.results import FloatArray, IntArray

NEAR = (0.02, 0.05, 0.1, 0.2, 0.5)  # largest shifts, in bandwidths, of groups that share nodes


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
        finite = np.isfinite(points)
        if finite.all():
            return Side(kernel, points, bandwidths, np.full((1, points.shape[1]), 1.0 / points.shape[1]))
        weights = np.where(finite, 1.0 / points.shape[1], 0.0)
        return Side(kernel, np.where(finite, points, 0.0), bandwidths, weights)

    def density(self, x: FloatArray, row: IntArray) -> tuple[FloatArray, FloatArray]:
        """Density and its slope at x of shape (k,) or (k, m), each line belonging to a row."""
        h = self._lines(self.bandwidths, row, x.ndim)
        z = self._z(x, row)
        pdf = self.kernel.pdf(z)
        scaled = self._lines(self.weights, row, x.ndim) / h
        return _weighted(pdf, scaled), _weighted(self.kernel.slope(z, pdf), scaled / h)

    def distribution(self, x: FloatArray, row: IntArray) -> FloatArray:
        """Mass up to x."""
        return _weighted(self.kernel.cdf(self._z(x, row)), self._lines(self.weights, row, x.ndim))

    def _z(self, x: FloatArray, row: IntArray) -> FloatArray:
        z = x[..., None] - self._lines(self.points, row, x.ndim)
        z *= 1.0 / self._lines(self.bandwidths, row, x.ndim)
        return np.asarray(z)

    @staticmethod
    def _lines(values: FloatArray, row: IntArray, ndim: int) -> FloatArray:
        """The values of each line's row, (N,) where all rows share them."""
        if len(values) == 1:
            return np.asarray(values[0])
        return np.asarray(values[row].reshape(len(row), *(1,) * (ndim - 1), values.shape[1]))

    def shifts_from(self, other: Side) -> FloatArray:
        """How far each point of the other side moved to get here, in bandwidths and to the left; 0 at atoms."""
        return np.where(self.weights > 0, (other.points - self.points) / self.bandwidths, 0.0)

    def mirrored(self) -> Side:
        return replace(self, points=-self.points)


@dataclass(frozen=True, eq=False)
class Moved:
    """A side that differs from the other one in few points: evaluated as that one and the difference.

    Where the difference takes nearly all away, and so would be rounding, the points are evaluated after all.
    """

    full: Side
    before: Side  # (rows, few): the points that moved, where they were and where they are
    after: Side

    @staticmethod
    def of(side: Side, points: FloatArray, changed: npt.NDArray[np.bool_]) -> Moved:
        """From the side itself, the other one's points (N,), and which points differ (rows, N)."""
        few = int(changed.sum(axis=1).max(initial=0))
        column = np.argsort(~changed, axis=1, kind="stable")[:, :few]
        moved = np.take_along_axis(changed, column, axis=1)
        h = np.broadcast_to(side.bandwidths, changed.shape)
        parts = []
        for values in (np.broadcast_to(points, changed.shape), np.where(side.weights > 0, side.points, np.inf)):
            moved_points = np.take_along_axis(values, column, axis=1)
            finite = moved & np.isfinite(moved_points)
            weights = np.where(finite, 1.0 / len(points), 0.0)
            parts.append(
                Side(side.kernel, np.where(finite, moved_points, 0.0), np.take_along_axis(h, column, axis=1), weights)
            )
        return Moved(side, *parts)

    def density(
        self, x: FloatArray, row: IntArray, other: tuple[FloatArray, FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Density and slope, given those of the other side at the same places."""
        after, before = self.after.density(x, row), self.before.density(x, row)
        pdf, slope = (np.asarray(o + (a - b)) for o, a, b in zip(other, after, before, strict=True))
        lost = np.nonzero(pdf < 1e-7 * other[0])
        if len(lost[0]):
            pdf[lost], slope[lost] = self.full.density(np.broadcast_to(x, pdf.shape)[lost], row[lost[0]])
        return pdf, slope

    def distribution(self, x: FloatArray, row: IntArray, other: FloatArray) -> FloatArray:
        """Mass up to x, given that of the other side."""
        return other + (self.after.distribution(x, row) - self.before.distribution(x, row))


@dataclass(frozen=True, eq=False)
class ShiftMatrices:
    """A matrix that takes shifts within ``reach`` bandwidths to density, slope and distribution at common nodes.

    ``k(z + s)`` is interpolated in s at Chebyshev points; the error is far below rounding for the kernels' nodes.
    """

    nodes: FloatArray
    reach: float
    matrix: FloatArray  # (N · degree, 3 · nodes), or of the density alone
    degree: int

    @staticmethod
    def degree_for(reach: float) -> int:
        """Of the polynomials; for fewer individuals, making the matrices takes longer than doing without.

        Kernels are analytic within 2 bandwidths of the line, so that errors fall by the factor below with each degree.
        """
        return int(np.ceil(2 + 37 / np.arcsinh(2 / reach)))

    @staticmethod
    def of(side: Side, nodes: FloatArray, reach: float) -> ShiftMatrices:
        degree = ShiftMatrices.degree_for(reach)
        angles = (np.arange(degree) + 0.5) * np.pi / degree
        shifts = reach * np.cos(angles)
        # values at Chebyshev points -> coefficients of Chebyshev polynomials
        transform = np.cos(np.arange(degree)[:, None] * angles) * (2.0 / degree)
        transform[0] *= 0.5
        points, h, weights = side.points[0], side.bandwidths[0], side.weights[0]
        z = ((nodes[None, :] - points[:, None]) / h[:, None])[:, None, :] + shifts[:, None]  # (N, degree, nodes)
        scale = (weights / h)[:, None, None]
        pdf = side.kernel.pdf(z)
        slope, cdf = side.kernel.slope(z, pdf), side.kernel.cdf(z)
        parts = [pdf * scale, slope * (scale / h[:, None, None]), cdf * weights[:, None, None]]
        matrix = np.matmul(transform, np.concatenate(parts, axis=2))
        return ShiftMatrices(nodes, reach, matrix.reshape(len(points) * degree, -1), degree)

    def evaluate(self, shifts: FloatArray) -> FloatArray:
        """(rows, 3 · nodes) density, slope and distribution, for shifts (rows, N) in bandwidths."""
        rows, n = shifts.shape
        row, point = np.nonzero(shifts)
        if 4 * len(row) > shifts.size:
            out = self._basis(shifts).reshape(rows, -1) @ self.matrix
        else:  # few points move: add what changes to what stays
            still = self._basis(np.zeros(1))
            out = np.repeat(np.tile(still, (1, n)) @ self.matrix, rows, axis=0)
            change = self._basis(shifts[row, point]) - still
            order = np.argsort(point, kind="stable")
            ends = np.searchsorted(point[order], np.arange(n + 1))
            matrices = self.matrix.reshape(n, self.degree, -1)
            for j in np.flatnonzero(np.diff(ends)):
                entries = order[ends[j] : ends[j + 1]]
                out[row[entries]] += change[entries] @ matrices[j]
        return out

    def _basis(self, shifts: FloatArray) -> FloatArray:
        """Chebyshev polynomials of the shifts, degree last."""
        s = shifts / self.reach
        basis = np.empty((*shifts.shape, self.degree))
        basis[..., 0] = 1.0
        basis[..., 1] = s
        for d in range(2, self.degree):
            np.multiply(2.0 * s, basis[..., d - 1], out=basis[..., d])
            basis[..., d] -= basis[..., d - 2]
        return basis


def _weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum over the points."""
    return np.asarray(values @ weights if weights.ndim == 1 else (values * weights).sum(axis=-1))


def common_nodes(kernel: Kernel, points: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """Nodes of the mixture with everyone, thinned where they crowd; kinks are kept."""
    finite = np.isfinite(points)
    x, h = points[finite], bandwidths[finite]
    offsets = _offsets(kernel)
    places = (x[:, None] + h[:, None] * offsets).ravel()
    if h.min() == h.max():  # the next one to keep is looked up
        ordered, gap = np.sort(places).tolist(), float(0.35 * h[0] * kernel.canonical)
        kept, at = ordered[:1], 1
        while (at := bisect_left(ordered, kept[-1] + gap, at)) < len(ordered) - 1:
            kept.append(ordered[at])
            at += 1
        kept.append(ordered[-1])
    else:
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


def kink_nodes(shared: FloatArray, side: Side | Moved) -> FloatArray:
    """(rows, nodes): the common nodes and the kinks of each row's own points, which moved little."""
    row_side = side.after if isinstance(side, Moved) else side
    places = row_side.points[:, :, None] + np.broadcast_to(row_side.bandwidths, row_side.points.shape)[
        :, :, None
    ] * np.array(row_side.kernel.kinks)
    present = np.broadcast_to(row_side.weights > 0, row_side.points.shape)[:, :, None]
    places = np.where(present, places, shared[0]).reshape(len(places), -1)  # an atom has no nodes
    return np.sort(np.concatenate((np.broadcast_to(shared, (len(places), len(shared))), places), axis=1), axis=1)


def far_nodes(
    kernel: Kernel, points: FloatArray, shared: FloatArray, without: FloatArray, bandwidths: FloatArray
) -> FloatArray:
    """(rows, nodes): nodes about the points with everyone and about each row's own, rows filled up to equal length."""
    row_bandwidths = np.broadcast_to(bandwidths, without.shape)
    changed = ((without != points) | (row_bandwidths != shared)) & np.isfinite(without)
    few = 4 * changed.sum(axis=1) <= len(points)
    about_all = common_nodes(kernel, points, shared) if few.any() and np.isfinite(points).any() else np.zeros(0)
    rows = []
    for row, h, moved, added in zip(without, row_bandwidths, changed, few, strict=True):
        if added and len(about_all):  # nodes about the few points that moved are added to those about all
            own = common_nodes(kernel, row[moved], h[moved]) if moved.any() else about_all
            rows.append(np.union1d(about_all, own))
        else:
            rows.append(common_nodes(kernel, np.concatenate((points, row)), np.concatenate((shared, h))))
    longest = max(map(len, rows))
    return np.array([np.concatenate((row, np.full(longest - len(row), row[-1]))) for row in rows])


def _offsets(kernel: Kernel) -> FloatArray:
    return np.array(sorted({sign * z for z in (*kernel.nodes, kernel.reach) for sign in (-1.0, 1.0)}))


@dataclass(frozen=True, eq=False)
class Near:
    """What people share who move no result by more than ``reach`` bandwidths; made when it is asked for."""

    model: Mixture
    side: Side  # with everyone
    reach: float

    @cached_property
    def nodes(self) -> FloatArray:
        present = self.side.weights[0] > 0
        return common_nodes(self.model.kernel, self.side.points[0][present], self.model.bandwidths[present])

    @cached_property
    def matrices(self) -> ShiftMatrices:
        return ShiftMatrices.of(self.side, self.nodes, self.reach)


def tail_limit(with_all: Side, without: Side, direction: int) -> FloatArray:
    """Limit of log(p/p_i) far to the left (-1) or right (+1)."""
    kinds = [_tail(side, direction) for side in (with_all, without)]
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


def _tail(side: Side, direction: int) -> tuple[FloatArray, ...]:
    """What decides how a mixture falls far out, most important first; the last is a logarithm of its height.

    Larger means heavier. Earlier entries decide alone (the ratio tends to 0 or infinity), the last one adds up.
    """
    present = side.weights > 0
    points, h = np.where(present, direction * side.points, -np.inf), np.where(present, side.bandwidths, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if side.kernel.tail == "power":
            return (np.log((side.weights * side.bandwidths**4).sum(axis=1)),)
        if side.kernel.tail == "bounded":
            return np.where(present, points + h, -np.inf).max(axis=1), np.zeros(len(points))
        widest = h.max(axis=1)
        leading = np.where(h == widest[:, None], points, -np.inf)
        outermost = leading.max(axis=1)
        relative = np.where(np.isfinite(leading), leading - outermost[:, None], -np.inf)
        if side.kernel.tail == "gaussian":
            return widest, outermost, np.log((relative == 0).sum(axis=1))
        height = outermost / widest + np.log(np.exp(relative / widest[:, None]).sum(axis=1))
        return widest, np.where(np.isnan(height), -np.inf, height)
