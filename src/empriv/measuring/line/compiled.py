"""The compiled Laplace path, where it was built: `_laplace.c`, called through ctypes without the interpreter's lock.

It is optional. Where the package was installed without a C compiler, `sticks` and `reach` are None, and numpy does the
same work (`laplace.ScanBlock` and `screening.reach_in_numpy`, which are their oracles) more slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from numpy.ctypeslib import ndpointer

from empriv.results import FloatArray, IntArray

# What the C functions take: whole numbers, doubles, and contiguous arrays of just these types.
LONG, DOUBLE = ctypes.c_long, ctypes.c_double
DOUBLES, LONGS, INTS, BYTES, FLAGS = (
    ndpointer(dtype, flags="C_CONTIGUOUS") for dtype in (np.float64, np.int64, np.int32, np.int8, np.bool_)
)
Sticks = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
Int32Array = npt.NDArray[np.int32]
Reach = Callable[..., FloatArray]


def _load() -> ctypes.CDLL | None:
    spec = find_spec("empriv.measuring.line._laplace")
    return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)


def _sticks(library: ctypes.CDLL) -> Sticks:
    function = library.empriv_laplace_sticks
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


def _reach(library: ctypes.CDLL) -> Reach:
    function = library.empriv_laplace_reach
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


_library = _load()
sticks = None if _library is None else _sticks(_library)
reach = None if _library is None or not hasattr(_library, "empriv_laplace_reach") else _reach(_library)
