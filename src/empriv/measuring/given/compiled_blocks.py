"""The compiled part of `presence_block` and `series.effects`, where it was built: `_presence.c`, through ctypes.

It is optional. Where the package was installed without a C compiler the functions are None, and numpy does the same
work, more slowly: these two modules are their oracles.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from empriv.base.native import DOUBLE, DOUBLES, LONG, LONGS
from empriv.results import FloatArray, IntArray

_COLUMNS = 12  # doubles of scratch for each knot


class Compiled(NamedTuple):
    """The functions of `_presence.c`."""

    library: ctypes.CDLL

    def order(self, x: FloatArray, runs: IntArray, n: int) -> IntArray:
        """(rows, K) that sorts places (rows, K) of n others and of as many for each influence, of which the first
        ``runs`` times n are looked at; what it holds beyond these is not defined."""
        rows, knots = x.shape
        out = np.empty((rows, knots), np.int64)
        self.library.empriv_presence_order(rows, knots // n, n, runs, x, out, np.empty(4 * knots))
        return out

    def sticks(self, up: FloatArray, order: IntArray, weights: FloatArray, runs: IntArray, e: FloatArray) -> FloatArray:
        """(rows, len(e)) the larger hockey stick of both directions, of exponentials of places in bandwidths; the
        weights (rows, runs) are 1 for the others."""
        rows, most = weights.shape
        out, n = np.empty((rows, len(e))), up.shape[1] // most
        scratch = np.empty(_COLUMNS * up.shape[1])
        self.library.empriv_presence_sticks(rows, most, n, runs, order, up, weights, len(e), e, out, scratch)
        return np.asarray(out / n)

    def values(self, up: FloatArray, order: IntArray, weights: FloatArray, runs: IntArray, e: FloatArray) -> FloatArray:
        """(len(e), 2, rows, n) values of each database whose means are the hockey sticks of both directions."""
        rows, most = weights.shape
        n = up.shape[1] // most
        out, scratch = np.empty((len(e), 2, rows, n)), np.empty(_COLUMNS * up.shape[1])
        self.library.empriv_presence_values(rows, most, n, runs, order, up, weights, len(e), e, out, scratch)
        return out

    def placed(
        self, up: FloatArray, order: IntArray, weights: FloatArray, runs: IntArray, n: int, e: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sticks (rows, 2, len(e)) of exponentials of places (rows, K) that have weights of their own (rows, K): of the
        first n over all others, and the other way; and the least and largest ratio of their densities (rows,)."""
        rows, knots = up.shape
        out, low, high = np.empty((rows, 2, len(e))), np.empty(rows), np.empty(rows)
        self.library.empriv_placed_sticks(
            rows, knots // n, n, runs, order, up, weights, len(e), e, out, low, high, np.empty(_COLUMNS * knots)
        )
        return out, low, high

    def spreads(
        self, x: FloatArray, order: IntArray, weights: FloatArray, runs: IntArray, n: int, each: FloatArray
    ) -> FloatArray:
        """(rows, 2) spread of the first n places and of all others, of which one of weight w is w ``each`` points."""
        rows, knots = x.shape
        out = np.empty((rows, 2))
        self.library.empriv_placed_spreads(rows, knots // n, n, runs, order, x, weights, each, out)
        return out

    def groups(
        self, rising: FloatArray, starts: IntArray, bandwidths: FloatArray, tolerance: float, most: int
    ) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """Means and weights (rows, most), how many there are (rows,), and what grouping changes of delta (rows,)."""
        rows = len(bandwidths)
        means, weights = np.empty((2, rows, most))
        counts, changed = np.empty(rows, np.int64), np.empty(rows)
        scratch = np.empty(2 * (int(np.diff(starts).max(initial=0)) + 1) + 3 * most)
        self.library.empriv_presence_groups(
            rows, starts, rising, bandwidths, tolerance, most, means, weights, counts, changed, scratch
        )
        return means, weights, counts, changed

    def cumulated(self, points: FloatArray, shares: FloatArray, edges: FloatArray, cells: int) -> FloatArray:
        """(..., edges + 2) mass below edges that are 1/cells apart, of Laplace kernels of width 1 at points (..., k),
        each with its share (people, k)."""
        *rows, k = points.shape
        count, out = int(np.prod(rows)), np.empty((*rows, len(edges) + 2))
        decay = np.exp(-np.arange(len(edges)) / cells)
        self.library.empriv_cumulated(
            count, k, np.ascontiguousarray(points), count // max(1, len(shares)), np.ascontiguousarray(shares),
            len(edges), edges, decay, cells, out,
        )  # fmt: skip
        return out


def _load() -> Compiled | None:
    spec = find_spec("empriv.measuring.given._presence")
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)
    of_block = [LONG, LONG, LONG, LONGS, LONGS, DOUBLES, DOUBLES, LONG]
    arguments = {
        "presence_order": [LONG, LONG, LONG, LONGS, DOUBLES, LONGS, DOUBLES],
        "presence_sticks": [*of_block, *[DOUBLES] * 3],
        "presence_values": [*of_block, *[DOUBLES] * 3],
        "presence_groups": [LONG, LONGS, *[DOUBLES] * 2, DOUBLE, LONG, *[DOUBLES] * 2, LONGS, *[DOUBLES] * 2],
        "placed_sticks": [*of_block, *[DOUBLES] * 5],
        "placed_spreads": [LONG, LONG, LONG, LONGS, LONGS, *[DOUBLES] * 4],
        "cumulated": [LONG, LONG, DOUBLES, LONG, DOUBLES, LONG, *[DOUBLES] * 2, DOUBLE, DOUBLES],
    }
    if not all(hasattr(library, f"empriv_{name}") for name in arguments):
        return None  # built from an older file
    for name, types in arguments.items():
        function = getattr(library, f"empriv_{name}")
        function.argtypes, function.restype = types, None
    return Compiled(library)


compiled = _load()
