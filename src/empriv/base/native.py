"""Compiled code, where the package was built with a C compiler: how it is found, and what its functions take.

They are called through ctypes, without the interpreter's lock. Numpy does the same work everywhere else.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec

import numpy as np
from numpy.ctypeslib import ndpointer

# Whole numbers, doubles, and contiguous arrays of just these types.
LONG, DOUBLE = ctypes.c_long, ctypes.c_double
DOUBLES, LONGS, INTS, BYTES, FLAGS = (
    ndpointer(dtype, flags="C_CONTIGUOUS") for dtype in (np.float64, np.int64, np.int32, np.int8, np.bool_)
)


def library(module: str) -> ctypes.CDLL | None:
    """The compiled module of this full name, or None."""
    spec = find_spec(module)
    return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)
