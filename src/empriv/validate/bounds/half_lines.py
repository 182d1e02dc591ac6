"""Half-lines at the ends of samples with several draws for each database, by the few points near an end.

`moments.edges`, the oracle, looks at all points for every half-line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.moments import bound_from_raw, raw_moments


def edges_of_draws(
    a: FloatArray, b: FloatArray, e: FloatArray, draws: int, together: Sequence[tuple[int, int]], level: float
) -> FloatArray:
    """Largest bound over groups of half-lines {x < B_(m+1)}, (rows, len(e)); the same as `moments.edges`."""
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    rows, n, lines = max(len(a), len(b)), a.shape[1] // draws, together[-1][1]
    near_b = _smallest(b, lines, draws)
    last = near_b[0][:, -1:]
    near_a = _smallest(a, max(1, int(np.count_nonzero(a < last, axis=1).max())), draws)
    sides = []
    for values, database in (near_a, near_b):
        line = np.broadcast_to(_lines(values, near_b[0]), (rows, values.shape[1]))
        sides.append((line, np.broadcast_to(database, line.shape) + n * np.arange(rows)[:, None]))
    best = np.full((rows, len(e)), -np.inf)
    for first, after in together:
        # the half-lines of the group, of all of them, that a point lies in
        x, y = (
            np.bincount(key.ravel(), np.maximum(after - np.maximum(line, first), 0).ravel(), rows * n).reshape(rows, n)
            / ((after - first) * draws)
            for line, key in sides
        )
        np.maximum(best, bound_from_raw(raw_moments(x, y), e, n, level), out=best)
    return best


def _smallest(values: FloatArray, count: int, draws: int) -> tuple[FloatArray, IntArray]:
    """(rows, count) the smallest values, rising, and the database of each."""
    columns = np.argpartition(values, count - 1, axis=1)[:, :count]
    smallest = np.take_along_axis(values, columns, axis=1)
    order = np.argsort(smallest, axis=1, kind="stable")
    return np.take_along_axis(smallest, order, axis=1), np.take_along_axis(columns, order, axis=1) // draws


def _lines(values: FloatArray, thresholds: FloatArray) -> IntArray:
    """(rows, values) the first half-line that each value lies in, ``x < threshold``; both rise along the rows."""
    rows, count = max(len(values), len(thresholds)), thresholds.shape[1]
    parts = [np.broadcast_to(part, (rows, part.shape[1])) for part in (thresholds, values)]
    order = np.argsort(np.concatenate(parts, axis=1), axis=1, kind="stable")  # a threshold before values that equal it
    passed = np.cumsum(order < count, axis=1)
    first_line = np.empty_like(passed)
    np.put_along_axis(first_line, order, passed, axis=1)
    return np.asarray(first_line[:, count:])
