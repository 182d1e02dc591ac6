"""Choosing bandwidths by out-of-sample likelihood.

Pure functions from points to scores. A point is never scored by itself, by other draws of its own database, or by
its exact ties: with ties in the sum, cross-validation collapses to bandwidth zero on data that repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.kernels import Kernel
from empriv.results import FloatArray, IntArray

GRID = 24
WIDE_GRID = 34
FOLDS = 10

_BLOCK = 100_000  # kernel values held at once: they stay in the processor's cache


@dataclass(frozen=True)
class Score:
    """One candidate of a model search: its mean out-of-sample log likelihood per database.

    ``bandwidth`` is the candidate's, if it is known by one bandwidth.
    """

    candidate: str
    log_likelihood: float
    standard_error: float
    chosen: bool = False
    bandwidth: float | None = None


def spread(points: FloatArray) -> float:
    """min(sd, IQR/1.349); the sd alone where half of the points coincide."""
    if len(points) < 2:
        return 0.0
    deviation = float(np.std(points, ddof=1))
    low, high = np.quantile(points, [0.25, 0.75])
    quartiles = float(high - low) / 1.349
    return min(deviation, quartiles) if quartiles > 0 else deviation


def bandwidth_cap(points: FloatArray, kernel: Kernel) -> float:
    """1.06 · spread · n^(-1/5) in the kernel's canonical unit: the widest bandwidth of the one-SE rule."""
    return float(kernel.canonical * 1.06 * spread(points) * len(points) ** -0.2)


def bandwidth_grid(points: FloatArray, kernel: Kernel, *, wide: bool = False) -> FloatArray:
    """24 bandwidths, log-spaced from 0.02 to 1 times the cap; ``wide``: 34, to 5 times the cap."""
    multiples = np.geomspace(0.02, 5.0, WIDE_GRID) if wide else np.geomspace(0.02, 1.0, GRID)
    return bandwidth_cap(points, kernel) * multiples


def partners(points: FloatArray, groups: IntArray, rows: slice) -> npt.NDArray[np.bool_]:
    """Which points may score which: not of the same group (database, or fold), and not tied."""
    tolerance = 4 * np.spacing(np.abs(points).max())
    apart: npt.NDArray[np.bool_] = np.abs(points[rows, None] - points[None, :]) > tolerance
    apart &= groups[rows, None] != groups[None, :]
    return apart


def log_densities(
    points: FloatArray,
    groups: IntArray,
    kernel: Kernel,
    bandwidths: Callable[[slice], FloatArray] | FloatArray,
) -> FloatArray:
    """Log density at each point of the mixture of its partners' kernels, one row for each candidate.

    ``bandwidths`` is (candidates,) or (candidates, n): the bandwidth at each centre; or a function of a slice of
    points giving (candidates, points, n), where the centres' bandwidths depend on which point is left out.
    """
    n = len(points)
    counts = np.array([n - np.count_nonzero(groups == g) for g in np.unique(groups)])
    size = counts[np.searchsorted(np.unique(groups), groups)]
    if not callable(bandwidths):
        fixed = bandwidths[:, None, None] if bandwidths.ndim == 1 else bandwidths[:, None, :]
        n_candidates = len(bandwidths)
    else:
        n_candidates = len(bandwidths(slice(0, 1)))
    out = np.empty((n_candidates, n))
    step = max(1, _BLOCK // max(1, n * n_candidates))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        h = bandwidths(rows) if callable(bandwidths) else fixed
        mask = partners(points, groups, rows)
        values = kernel.pdf((points[rows, None] - points[None, :])[None] / h)
        values /= h
        total = np.einsum("krn,rn->kr", values, mask.astype(float))
        with np.errstate(divide="ignore", invalid="ignore"):
            out[:, rows] = np.log(total / size[rows])
    return out


def laplace_log_densities(points: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """`log_densities` for the Laplace kernel, every point a group of its own, in O(n) for each bandwidth."""
    order = np.argsort(points, kind="stable")
    x = points[order]
    tolerance = 4 * np.spacing(np.abs(points).max())
    first = np.concatenate(([True], np.diff(x) > tolerance))  # starts of runs of tied points
    run = np.cumsum(first) - 1
    values, counts = x[first], np.bincount(run).astype(float)
    out = np.empty((len(bandwidths), len(points)))
    decay = np.exp(-np.diff(values)[None, :] / bandwidths[:, None])
    left = np.zeros((len(values), len(bandwidths)))
    right = np.zeros_like(left)
    for k in range(1, len(values)):
        left[k] = (left[k - 1] + counts[k - 1]) * decay[:, k - 1]
    for k in range(len(values) - 2, -1, -1):
        right[k] = (right[k + 1] + counts[k + 1]) * decay[:, k]
    with np.errstate(divide="ignore"):
        log = np.log((left + right).T / (2 * bandwidths[:, None] * (len(points) - 1)))
    out[:, order] = log[:, run]
    return out


def laplace_by_groups(points: FloatArray, groups: IntArray, bandwidths: FloatArray) -> FloatArray:
    """`log_densities` for the Laplace kernel: who may not score a point is as far from it as can be."""
    distance = np.where(partners(points, groups, slice(None)), np.abs(points[:, None] - points[None, :]), np.inf)
    _, own, counts = np.unique(groups, return_inverse=True, return_counts=True)
    out, kernels = np.empty((len(bandwidths), len(points))), np.empty_like(distance)
    for place, h in enumerate(bandwidths.tolist()):
        np.exp(np.multiply(distance, -1.0 / h, out=kernels), out=kernels)
        kernels.sum(axis=1, out=out[place])
    with np.errstate(divide="ignore"):
        return np.log(out / (2 * bandwidths[:, None] * (len(points) - counts)[own]))


def per_database(log_density: FloatArray, databases: IntArray) -> FloatArray:
    """Mean over the draws of each database, leaving out points that nothing can score (all partners tied)."""
    scored = np.any(np.isfinite(log_density), axis=0)
    index = np.unique(databases[scored], return_inverse=True)[1]
    if not len(index):
        return np.zeros((len(log_density), 0))
    counts = np.bincount(index)
    # A bounded kernel scores -inf where no partner is near; so does the whole database then.
    rows = [np.bincount(index, weights=row) / counts for row in log_density[:, scored]]
    return np.array(rows)


def means_and_errors(per_unit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean score of each candidate, and the standard error of its paired difference from the best."""
    n = per_unit.shape[1]
    if n == 0:
        return np.full(len(per_unit), -np.inf), np.zeros(len(per_unit))
    means = per_unit.mean(axis=1)
    best = per_unit[int(np.argmax(means))]
    if n < 2 or not np.isfinite(best).all():
        return means, np.zeros(len(per_unit))
    with np.errstate(invalid="ignore"):
        errors = np.std(best - per_unit, axis=1, ddof=1) / np.sqrt(n)
    return means, np.where(np.isfinite(errors), errors, np.inf)


def one_standard_error(means: FloatArray, errors: FloatArray) -> int:
    """Index of the last candidate (bandwidths ascend) whose mean is within one standard error of the best."""
    within = np.isfinite(means) & (means >= means.max() - np.where(np.isfinite(errors), errors, 0.0))
    return int(np.flatnonzero(within)[-1])


def folds(databases: IntArray) -> IntArray:
    """Fold of each point: databases dealt out in turn, all draws of one together."""
    return np.asarray(databases % FOLDS)


def neighbour_distances(points: FloatArray) -> FloatArray:
    """(n, m) sorted distances from each point to the others that are not tied with it; inf where there are fewer."""
    tolerance = 4 * np.spacing(np.abs(points).max())
    distance = np.abs(points[:, None] - points[None, :])
    distance[distance <= tolerance] = np.inf
    return np.sort(distance, axis=1)
