"""The compiled Laplace path, where it was built: `_laplace.c`, called through ctypes without the interpreter's lock.

It is optional. Where the package was installed without a C compiler, `sticks` and `reach` are None, and numpy does the
same work (`laplace.ScanBlock` and `screening.reach_in_numpy`, which are their oracles) more slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.results import FloatArray, IntArray

Sticks = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
Int32Array = npt.NDArray[np.int32]
Reach = Callable[..., FloatArray]


def _load() -> ctypes.CDLL | None:
    spec = find_spec("empriv.measuring.line._laplace")
    return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)


def _sticks(library: ctypes.CDLL) -> Sticks:
    function = library.empriv_laplace_sticks
    function.restype = None

    def sticks(points: FloatArray, without: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks (rows, len(e)), the larger of both directions, and the least and largest ratio p/p_i.

        ``points`` (N,) and ``without`` (rows, N) are in bandwidths, about zero, and sorted along the last axis.
        """
        rows, n = without.shape
        out, low, high, scratch = np.empty((rows, len(e))), np.empty(rows), np.empty(rows), np.empty(14 * n)
        arrays = points, np.exp(points), without, np.exp(without), e, out, low, high, scratch
        pointers = [pointer(array, np.float64) for array in arrays]
        size, long = ctypes.c_long(len(e)), ctypes.c_long
        function(long(rows), long(n), *pointers[:4], size, *pointers[4:])
        out /= n
        return out, low, high

    return sticks


def _reach(library: ctypes.CDLL) -> Reach:
    function = library.empriv_laplace_reach
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
            ctypes.c_long(len(out)), pointer(rows, np.int64), ctypes.c_long(n), pointer(points, np.float64),
            pointer(place, np.int32), pointer(decay, np.float64), pointer(weight, np.float64), ctypes.c_double(scale),
            pointer(starts, np.int64), pointer(entry_point, np.int32), pointer(entries, np.float64),
            pointer(out, np.float64), pointer(np.empty(2 * n), np.float64),
        )  # fmt: skip
        return out

    return reach


def pointer(array: npt.NDArray[Any], dtype: type) -> ctypes.c_void_p:
    """Where an array's numbers are, for a function that takes them as they are."""
    if not (array.flags.c_contiguous and array.dtype == dtype):
        raise TypeError("the compiled path needs contiguous arrays of its own types")
    found = ctypes.c_void_p(array.ctypes.data)
    found.array = array  # type: ignore[attr-defined] # kept until the call is over
    return found


_library = _load()
sticks = None if _library is None else _sticks(_library)
reach = None if _library is None or not hasattr(_library, "empriv_laplace_reach") else _reach(_library)
