"""The compiled Laplace kernel, where it was built: `_laplace.c`, called through ctypes without the interpreter's lock.

It is optional. Where the package was installed without a C compiler, `sticks` and `reach` are None, and numpy does the
same work (`laplace.ScanBlock` and `screening.reach_in_numpy`, which are their oracles) more slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from empriv.base.native import DOUBLE, DOUBLES, INTS, LONG, LONGS, library
from empriv.results import FloatArray, IntArray

Sticks = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
Int32Array = npt.NDArray[np.int32]
Reach = Callable[..., FloatArray]


def _sticks(laplace: ctypes.CDLL) -> Sticks:
    function = laplace.empriv_laplace_sticks
    function.argtypes = [LONG, LONG, *[DOUBLES] * 4, LONG, *[DOUBLES] * 5]
    function.restype = None

    def sticks(points: FloatArray, without: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks (rows, len(e)), the larger of both directions, and the least and largest ratio p/p_i.

        ``points`` (N,) and ``without`` (rows, N) are in bandwidths, about zero, and sorted along the last axis.
        """
        rows, n = without.shape
        out, low, high, scratch = np.empty((rows, len(e))), np.empty(rows), np.empty(rows), np.empty(14 * n)
        function(rows, n, points, np.exp(points), without, np.exp(without), len(e), e, out, low, high, scratch)
        out /= n
        return out, low, high

    return sticks


def _sticks_apart(laplace: ctypes.CDLL) -> Sticks:
    function = laplace.empriv_laplace_sticks_apart
    function.argtypes = [LONG, LONG, LONG, *[DOUBLES] * 2, LONGS, *[DOUBLES] * 2, LONG, *[DOUBLES] * 5]
    function.restype = None

    def sticks(points: FloatArray, without: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks (rows, 2, len(e)) of p over p_i and of p_i over p; as `sticks`, with atoms at +inf last."""
        rows, n = without.shape
        out, low, high, scratch = np.empty((rows, 2, len(e))), np.empty(rows), np.empty(rows), np.empty(14 * n)
        counts = np.isfinite(without).sum(axis=1, dtype=np.int64)
        up, up_without = np.exp(points), np.exp(without)
        many = int(np.isfinite(points).sum())
        function(rows, n, many, points, up, counts, without, up_without, len(e), e, out, low, high, scratch)
        out /= n
        return out, low, high

    return sticks


def _reach(laplace: ctypes.CDLL) -> Reach:
    function = laplace.empriv_laplace_reach
    function.argtypes = [
        LONG, LONGS, LONG, DOUBLES, INTS, DOUBLES, DOUBLES, DOUBLE, LONGS, INTS, DOUBLES, DOUBLES, DOUBLES,
    ]  # fmt: skip
    function.restype = None

    def reach(
        rows: IntArray,
        points: FloatArray,
        place: Int32Array,
        decay: FloatArray,
        weight: FloatArray,
        scale: float,
        starts: IntArray,
        entry_point: Int32Array,
        entries: FloatArray,
    ) -> FloatArray:
        """Largest weighted average of e^|shift| - 1, for each of these individuals: see `screening`."""
        n, out = len(points), np.empty(len(rows))
        function(
            len(out), rows, n, points, place, decay, weight, scale, starts, entry_point, entries, out, np.empty(2 * n)
        )
        return out

    return reach


_library = library("empriv.measuring.line._laplace")
sticks = None if _library is None else _sticks(_library)
sticks_apart = (
    None if _library is None or not hasattr(_library, "empriv_laplace_sticks_apart") else _sticks_apart(_library)
)
reach = None if _library is None or not hasattr(_library, "empriv_laplace_reach") else _reach(_library)
