"""Individuals without whom the results spread less: one bandwidth, fitted with everyone, smears their narrower law.

They are measured with h·r, r being how much less the results spread without them. For people who only move the results,
r is 1, and nothing changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.selection import spread
from empriv.measuring.line.atoms import Pairs
from empriv.results import FloatArray

NARROW = 0.9  # ratios from here on are called 1
_VALUES = 2_000_000  # held at once


def spread_ratios(pairs: Pairs) -> FloatArray | None:
    """(individuals,) spread of the results without each over that with everyone, 1 unless below `NARROW`; None: ones.

    Spread is min(sd, IQR/1.349), as bandwidths have it. Somebody who changes no result by more than D moves an sd by D
    at most, and the distance of the quartiles by 2D.
    """
    with_all = spread(pairs.points[np.isfinite(pairs.points)])
    if not with_all > 0:
        return None
    least = 0.5 * 1.349 * (1 - NARROW) * with_all
    with np.errstate(invalid="ignore"):
        change = np.abs(pairs.entries - np.take(pairs.points.reshape(-1, pairs.draws), pairs.entry_database, axis=0))
    far = np.concatenate(([0], np.cumsum(np.any(change > least, axis=1))))
    rows = np.flatnonzero(far[pairs.starts[1:]] > far[pairs.starts[:-1]])
    if not len(rows):
        return None
    out = np.ones(pairs.n_individuals)
    step = max(1, _VALUES // len(pairs.points))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        out[some] = spreads(pairs.dense(some)) / with_all
    # nothing is left to be narrow where all results without somebody are the same: these are atoms
    narrow = (out > 0) & (out < NARROW)
    return np.where(narrow, out, 1.0) if narrow.any() else None


def spreads(values: FloatArray) -> FloatArray:
    """`spread` of each row; atoms, at +inf, are left out."""
    finite = np.isfinite(values)
    if finite.all():
        deviation = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.zeros(len(values))
        low, high = np.quantile(values, (0.25, 0.75), axis=1)
    else:
        deviation, low, high = _without_atoms(values, finite)
    quartiles = (high - low) / 1.349
    return np.where(quartiles > 0, np.minimum(deviation, quartiles), deviation)


def _without_atoms(values: FloatArray, finite: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Standard deviation and quartiles of what is finite in each row; 0 where that is less than two values."""
    counts = finite.sum(axis=1)
    numbers = np.where(finite, values, 0.0)
    mean = numbers.sum(axis=1) / np.maximum(counts, 1)
    squares = np.where(finite, numbers - mean[:, None], 0.0) ** 2
    enough = counts > 1
    deviation = np.where(enough, np.sqrt(squares.sum(axis=1) / np.maximum(counts - 1, 1)), 0.0)
    rising = np.sort(np.where(finite, values, np.inf), axis=1)
    last = np.maximum(counts - 1, 0)
    quartiles = []
    for share in (0.25, 0.75):
        place = share * last
        below = np.floor(place).astype(np.int64)
        ends = (np.take_along_axis(rising, at[:, None], axis=1)[:, 0] for at in (below, np.minimum(below + 1, last)))
        one, next_one = (np.where(enough, end, 0.0) for end in ends)
        quartiles.append(one + (place - below) * (next_one - one))
    return deviation, quartiles[0], quartiles[1]
