"""Half-lines, end runs and ties of many individuals, compiled where the package was built with a C compiler.

`ends` is `_ends.c`, called through ctypes without the interpreter's lock, or None: then `moments.edges` and
`moments.end_runs`, which are its oracles, do the same work more slowly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from empriv.base.native import BYTES, DOUBLE, DOUBLES, FLAGS, INTS, LONG, LONGS
from empriv.measuring.line.atoms import Pairs
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.moments import quantile
from empriv.validate.ground import BoolArray


class Ends(NamedTuple):
    """What is seen at the ends, of each individual.

    Attributes
    ----------
    edges : (rows, epsilons) largest bound over half-lines on either side that hold up to ``depth`` points of a sample
    runs : (rows,) most points at an end that one sample holds alone, of all draws
    tied : (rows,) whether three values are the same
    """

    edges: FloatArray
    runs: IntArray
    tied: BoolArray


Find = Callable[..., Ends]


def _load() -> Find | None:
    spec = find_spec("empriv.validate.bounds._ends")
    if spec is None or spec.origin is None:
        return None
    function = ctypes.CDLL(spec.origin).empriv_ends_of_samples
    function.argtypes = [
        LONG, LONGS, FLAGS, LONG, LONG, DOUBLES, INTS, INTS, LONGS, INTS, DOUBLES, LONG, LONG, DOUBLES, *[DOUBLE] * 4,
        DOUBLES, LONGS, FLAGS, DOUBLES, INTS, BYTES,
    ]  # fmt: skip
    function.restype = None

    def ends(
        pairs: Pairs, rows: IntArray, e: FloatArray, inner: BoolArray, *, depth: int, level: float, gap: float,
        tolerance: float,
    ) -> Ends:  # fmt: skip
        """``pairs`` must have finite values.

        Who is ``inner`` changes nothing at the ends, and is looked at for ties alone: edges are -inf, runs 0.
        """
        size, count, z = len(pairs.points), len(rows), quantile(level)
        n = size // pairs.draws
        order = np.argsort(pairs.points, kind="stable")
        place = np.empty(size, np.int32)
        place[order] = np.arange(size)
        found = Ends(np.empty((count, len(e))), np.empty(count, np.int64), np.empty(count, bool))
        rows, starts, databases, grid, entries = map(
            np.ascontiguousarray, (rows, pairs.starts, pairs.entry_database, np.asarray(e, float), pairs.entries)
        )
        function(
            count, rows, inner, n, pairs.draws, pairs.points[order], (order // pairs.draws).astype(np.int32), place,
            starts, databases, entries, depth, len(e), grid, z, (1 + 2 * z * z) / 6, gap, tolerance, *found,
            np.empty(5 * size + 2 * n + 2 * len(e)), np.empty(size + n, np.int32), np.empty(2 * size, np.int8),
        )  # fmt: skip
        return found

    return ends


ends = _load()
