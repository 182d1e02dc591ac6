"""The two sides of a comparison as mixtures: what they are at any place, and which places to look at.

`Side` evaluates mixtures of several individuals at once. `Near` does so at common nodes for all individuals who move
points by less than half a bandwidth: what happens there is a polynomial in the shifts, hence one matrix product.
`mixtures` cuts the line into cells with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from empriv.measuring.kernels import Kernel
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
        here = np.isfinite(points)
        if here.all():
            return Side(kernel, points, bandwidths, np.full((1, points.shape[1]), 1.0 / points.shape[1]))
        weights = np.where(here, 1.0 / points.shape[1], 0.0)
        return Side(kernel, np.where(here, points, 0.0), bandwidths, weights)

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


def _weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Sum over the points."""
    return np.asarray(values @ weights if weights.ndim == 1 else (values * weights).sum(axis=-1))


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


def _offsets(kernel: Kernel) -> FloatArray:
    return np.array(sorted({sign * z for z in (*kernel.nodes, kernel.reach) for sign in (-1.0, 1.0)}))


def tail_limit(with_all: Side, without: Side, direction: int) -> FloatArray:
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
