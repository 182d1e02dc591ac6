"""Half-lines at the ends of samples with several draws for each database, by what each adds to the one before.

`moments.edges`, the oracle, counts every half-line anew; this module visits only the few points near the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.moments import bound_from_raw


def edges_of_draws(a: FloatArray, b: FloatArray, e: FloatArray, draws: int, depth: int, level: float) -> FloatArray:
    """Largest bound over the half-lines {x < B_(m+1)}, m = 0..depth, (rows, len(e)); the same as `moments.edges`.

    With c_j points of a database in the half-line, sum c_j^2 grows by 2r - 1 and sum c_j^3 by 3r^2 - 3r + 1 where the
    database's r-th point comes in; products of both samples grow with the pairs that are both in.
    """
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    rows, n, lines = max(len(a), len(b)), a.shape[1] // draws, depth + 1
    near_b = _smallest(b, lines, draws)
    last = near_b[0][:, -1:]
    near_a = _smallest(a, max(1, int(np.count_nonzero(a < last, axis=1).max())), draws)
    owner = np.arange(rows)[:, None]
    sums, sides = [], []
    for values, database, rank in (near_a, near_b):
        line, row = (
            np.broadcast_to(part, (rows, values.shape[1])).ravel() for part in (_lines(values, near_b[0]), owner)
        )
        key = np.broadcast_to(database + n * owner, (rows, values.shape[1])).ravel()
        r = np.broadcast_to(rank, (rows, values.shape[1])).ravel()
        sums.append(_grown(line, row, (np.ones(len(r)), 2 * r - 1, 3 * r * r - 3 * r + 1), (rows, lines)))
        sides.append((line, key, r))
    (line_a, key_a, rank_a), (line_b, key_b, rank_b) = sides
    i, j = _alike(key_a, key_b)
    pair = np.maximum(line_a[i], line_b[j])
    ab, aab, abb = _grown(pair, key_a[i] // n, (np.ones(len(i)), 2 * rank_a[i] - 1, 2 * rank_b[j] - 1), (rows, lines))
    (a1, aa, aaa), (b1, bb, bbb) = sums
    raw = tuple(
        value / (n * draws**power)
        for value, power in (
            (a1, 1), (b1, 1), (aa, 2), (ab, 2), (bb, 2), (aaa, 3), (aab, 3), (abb, 3), (bbb, 3)
        )
    )  # fmt: skip
    return np.asarray(bound_from_raw(raw, e, n, level).reshape(rows, lines, len(e)).max(axis=1))


def _smallest(values: FloatArray, count: int, draws: int) -> tuple[FloatArray, IntArray, IntArray]:
    """(rows, count) the smallest values, rising; the database of each; and which of its database's points it is."""
    columns = np.argpartition(values, count - 1, axis=1)[:, :count]
    smallest = np.take_along_axis(values, columns, axis=1)
    order = np.argsort(smallest, axis=1, kind="stable")
    database = np.take_along_axis(columns, order, axis=1) // draws
    # among equals of a stable sort by database the values still rise
    sort = np.argsort(database, axis=1, kind="stable")
    ordered = np.take_along_axis(database, sort, axis=1)
    place = np.broadcast_to(np.arange(count), ordered.shape)
    new = np.ones(ordered.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    rank = np.empty(ordered.shape, np.int64)
    np.put_along_axis(rank, sort, place - np.maximum.accumulate(np.where(new, place, 0), axis=1) + 1, axis=1)
    return np.take_along_axis(smallest, order, axis=1), database, rank


def _lines(values: FloatArray, thresholds: FloatArray) -> IntArray:
    """(rows, values) the first half-line that each value lies in, ``x < threshold``; both rise along the rows."""
    rows, count = max(len(values), len(thresholds)), thresholds.shape[1]
    parts = [np.broadcast_to(part, (rows, part.shape[1])) for part in (thresholds, values)]
    order = np.argsort(np.concatenate(parts, axis=1), axis=1, kind="stable")  # a threshold before values that equal it
    passed = np.cumsum(order < count, axis=1)
    first_line = np.empty_like(passed)
    np.put_along_axis(first_line, order, passed, axis=1)
    return np.asarray(first_line[:, count:])


def _grown(line: IntArray, row: IntArray, weights: Sequence[Any], shape: tuple[int, int]) -> list[FloatArray]:
    """Sums over what lies in each half-line, row after row."""
    inside = line < shape[1]
    place = row[inside] * shape[1] + line[inside]
    added = (np.bincount(place, weight[inside], shape[0] * shape[1]).reshape(shape) for weight in weights)
    return [np.asarray(np.cumsum(growth, axis=1, dtype=float).ravel()) for growth in added]


def _alike(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray]:
    """Positions of all pairs that have the same number."""
    order = np.argsort(right, kind="stable")
    begins, ends = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    counts = ends - begins
    i = np.repeat(np.arange(len(left)), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    return i, order[np.repeat(begins, counts) + within]
