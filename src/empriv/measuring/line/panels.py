"""Smooth kernels for people who move results little, compiled: densities as polynomials on panels.

The line is cut into panels on which every kernel is a polynomial of degree `_DEGREE`, up to rounding. A density is
known there by its values at Chebyshev points, which one matrix product gives for all individuals
(`sides.ShiftMatrices`). Roots, turning points and masses come from the polynomials (`_panels.c`), and no kernel is
evaluated for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from empriv.measuring.densities.density import Mixture
from empriv.measuring.densities.kernels import Kernel
from empriv.measuring.line import compiled
from empriv.measuring.line.hockeystick import curve
from empriv.measuring.line.quick import QuickBlock
from empriv.measuring.line.sides import ShiftMatrices, Side, common_nodes, tail_limit
from empriv.results import FloatArray

_DEGREE = 20
_MOST = 200  # panels
_FARTHEST = 300.0  # bandwidths from zero, so that places, which are rounded, are exact enough
_ROUNDING = 1e-15  # last coefficients of a panel, as a share of what there is on it, at zero and for each bandwidth
_WIDEST = 16.0  # bandwidths of a panel with a point inside, which stands between two nodes of a wider one unseen
_LARGEST = 8.0  # e^epsilon up to which the rounding of a density, e^epsilon times, is below that of the sticks

_ANGLES = np.pi * (1.0 - np.arange(_DEGREE + 1) / _DEGREE)
_HALVED = np.where(np.arange(_DEGREE + 1) % _DEGREE == 0, 0.5, 1.0)
# (points, coefficients): values at Chebyshev points -> coefficients of Chebyshev polynomials
_TRANSFORM = np.cos(np.outer(_ANGLES, np.arange(_DEGREE + 1))) * np.outer(_HALVED, _HALVED) * (2.0 / _DEGREE)
_EVEN = np.arange(0, _DEGREE + 1, 2)
_WEIGHTS = _TRANSFORM[:, _EVEN] @ (2.0 / (1.0 - _EVEN**2.0))  # of Clenshaw and Curtis


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

    @cached_property
    def panels(self) -> Panels | None:
        """None where they are not compiled, or there would be too many."""
        h = self.model.bandwidth
        if compiled.panels is None or not np.isfinite(h):
            return None
        edges = panel_edges(self.model.kernel, self.side.points[0][self.side.weights[0] > 0], h)
        return None if edges is None else Panels.of(self.side, edges, self.reach)


@dataclass(frozen=True, eq=False)
class Panels:
    """Ends of the panels, their nodes, the density with everyone there, and the matrix that gives others."""

    edges: FloatArray
    density: FloatArray
    matrices: ShiftMatrices

    @staticmethod
    def of(side: Side, edges: FloatArray, reach: float) -> Panels:
        places = np.append(_points_of(edges[:-1], edges[1:])[:, :-1].ravel(), edges[-1])
        matrices = ShiftMatrices.of(side, places, reach, density_only=True)
        return Panels(edges, side.density(places[None, :], np.zeros(1, np.int64))[0][0], matrices)


@dataclass(frozen=True, eq=False)
class PanelBlock(QuickBlock):
    """Both sides, and the panels that they share."""

    with_all: Side
    without: Side
    panels: Panels

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """From panels as long as e is moderate, and beyond it from cells."""
        few = int(np.searchsorted(e, _LARGEST, side="right"))
        if not few:
            return None
        assert compiled.panels is not None, "there are panels only if they are compiled"
        density = self.panels.matrices.evaluate(self.without.shifts_from(self.with_all))
        edges, places = self.panels.edges, self.panels.matrices.nodes
        both, low, high = compiled.panels(
            places, edges, _TRANSFORM, _WEIGHTS, self.panels.density, np.ascontiguousarray(density), e[:few].copy()
        )
        with np.errstate(over="ignore"):
            limits = [np.exp(tail_limit(self.with_all, self.without, side)) for side in (-1, 1)]
        low, high = np.minimum(low, np.minimum(*limits)), np.maximum(high, np.maximum(*limits))
        if few < len(e):
            rest = np.zeros((len(both), 2, len(e) - few))
            with np.errstate(divide="ignore"):
                beyond = max(high.max(), 1.0 / low.min()) > e[few]
            if beyond:
                for direction in (0, 1):
                    rest[:, direction] = curve(self.cells(direction, e[few]), e[few:], len(both))
            both = np.concatenate((both, rest), axis=2)
        return both, low, high


def panel_edges(kernel: Kernel, points: FloatArray, bandwidth: float) -> FloatArray | None:
    """Ends of panels that hold all mass, each halved until every kernel is a polynomial on it.

    ``points`` are about zero. None: they are too far apart, or next to nothing lies between them.
    """
    reach = kernel.reach * bandwidth
    if np.abs(points).max() > _FARTHEST * bandwidth or np.diff(np.sort(points)).max(initial=0.0) > 2.0 * reach:
        return None
    # where a kernel stands to a quarter of its bandwidth does not change how smooth it is
    places = np.unique(np.round((points - points[0]) * (4.0 / bandwidth))) * (bandwidth / 4.0) + points[0]
    left, right = np.array([points.min() - reach]), np.array([points.max() + reach])
    done = [np.zeros(0)]
    while len(left):
        if len(left) + sum(map(len, done)) > _MOST:
            return None
        values = kernel.pdf((_points_of(left, right)[:, :, None] - places) / bandwidth)  # (panels, points, kernels)
        last = np.abs(np.einsum("pk,npj->nkj", _TRANSFORM[:, -3:], values)).max(axis=1).sum(axis=1)
        there = values.max(axis=1).sum(axis=1)
        rounding = _ROUNDING * (1.0 + np.maximum(np.abs(left), np.abs(right)) / bandwidth)
        inside = np.searchsorted(places, right, side="left") > np.searchsorted(places, left, side="right")
        smooth = (last <= rounding * there) & (~inside | (right - left <= _WIDEST * bandwidth))
        done.append(left[smooth])
        left, right = left[~smooth], right[~smooth]
        middle = 0.5 * (left + right)
        left, right = np.concatenate((left, middle)), np.concatenate((middle, right))
    return np.append(np.sort(np.concatenate(done)), points.max() + reach)


def _points_of(left: FloatArray, right: FloatArray) -> FloatArray:
    """(panels, points) Chebyshev points of panels, ends included."""
    return np.asarray(left[:, None] + (right - left)[:, None] * (0.5 * (1.0 + np.cos(_ANGLES))))
