"""The compiled Laplace path, where it was built: `_laplace.c`, called through ctypes without the interpreter's lock.

It is optional. Where the package was installed without a C compiler, `sticks` is None, and numpy does the same work
(`laplace.ScanBlock`, which is its oracle) more slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from empriv.results import FloatArray

Sticks = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]


def _load() -> Sticks | None:
    spec = find_spec("empriv.measuring._laplace")
    if spec is None or spec.origin is None:
        return None
    function = ctypes.CDLL(spec.origin).empriv_laplace_sticks
    function.restype = None

    def sticks(points: FloatArray, without: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Hockey sticks (rows, len(e)), the larger of both directions, and the least and largest ratio p/p_i.

        ``points`` (N,) and ``without`` (rows, N) are in bandwidths, about zero, and sorted along the last axis.
        """
        rows, n = without.shape
        out, low, high, scratch = np.empty((rows, len(e))), np.empty(rows), np.empty(rows), np.empty(14 * n)
        arrays = points, np.exp(points), without, np.exp(without), e, out, low, high, scratch
        if not all(array.flags.c_contiguous and array.dtype == np.float64 for array in arrays):
            raise TypeError("the compiled path needs contiguous arrays of doubles")
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        size, long = ctypes.c_long(len(e)), ctypes.c_long
        function(long(rows), long(n), *pointers[:4], size, *pointers[4:])
        out /= n
        return out, low, high

    return sticks


sticks = _load()
