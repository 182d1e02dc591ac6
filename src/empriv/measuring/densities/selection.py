"""Choosing bandwidths by out-of-sample likelihood.

Pure functions from points to scores: of bandwidth h, the mean of ``log sum_{k != j} k((q_j - q_k)/h)/(h (n - 1))``.
The rule of one standard error is that of Breiman, Friedman, Olshen and Stone (1984). A point is never scored by
itself, by other draws of its own database, or by its exact ties: with ties in the sum, cross-validation collapses to
bandwidth zero on data that repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.kernels import KERNELS, Kernel
from empriv.results import FloatArray, IntArray

GRID = 24
WIDE_GRID = 34
FOLDS = 10

_BLOCK = 100_000  # kernel values held at once: they stay in the processor's cache
_ROWS = 8  # whose likelihoods are held at once


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


def spreads(values: FloatArray) -> FloatArray:
    """`spread` of each row; atoms, at +inf, are left out."""
    if values.shape[1] < 2 or not np.isfinite(values).all():
        return np.array([spread(row[np.isfinite(row)]) for row in values])
    deviation = values.std(axis=1, ddof=1)
    low, high = np.quantile(values, (0.25, 0.75), axis=1)
    quartiles = (high - low) / 1.349
    return np.asarray(np.where(quartiles > 0, np.minimum(deviation, quartiles), deviation))


def bandwidth_cap(points: FloatArray, kernel: Kernel) -> float:
    """1.06 · spread · n^(-1/5) (Silverman, 1986) in the kernel's canonical unit: the widest bandwidth of the one-SE
    rule."""
    return float(kernel.canonical * 1.06 * spread(points) * len(points) ** -0.2)


def bandwidth_grid(points: FloatArray, kernel: Kernel, *, wide: bool = False) -> FloatArray:
    """24 bandwidths, log-spaced from 0.02 to 1 times the cap; ``wide``: 34, to 5 times the cap."""
    multiples = np.geomspace(0.02, 5.0, WIDE_GRID) if wide else np.geomspace(0.02, 1.0, GRID)
    return bandwidth_cap(points, kernel) * multiples


def tie_width(points: FloatArray) -> float:
    """Points this close are tied."""
    return float(4 * np.spacing(np.abs(points).max()))


def partners(points: FloatArray, groups: IntArray, rows: slice) -> npt.NDArray[np.bool_]:
    """Which points may score which: not of the same group (database, or fold), and not tied."""
    apart: npt.NDArray[np.bool_] = np.abs(points[rows, None] - points[None, :]) > tie_width(points)
    apart &= groups[rows, None] != groups[None, :]
    return apart


def log_densities(
    points: FloatArray,
    groups: IntArray,
    kernel: Kernel,
    scales: FloatArray,
    widths: FloatArray | None = None,
    next_widths: FloatArray | None = None,
) -> FloatArray:
    """Log density at each point of the mixture of its partners' kernels, one row for each candidate.

    A candidate is a row of ``widths`` (k, n), by default of ones, and one of the scales: they multiply to the bandwidth
    at each centre. ``next_widths`` (k, n) stand instead where the point scored is within the centre's width itself.
    """
    n = len(points)
    _, own, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    widths = np.ones((1, n)) if widths is None else np.ascontiguousarray(widths)
    next_widths = widths if next_widths is None else np.ascontiguousarray(next_widths)
    step = max(1, _BLOCK // max(1, n * len(widths) * len(scales)))
    out = np.empty((len(widths) * len(scales), n))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        out[:, rows] = _kernel_sums(points, groups, kernel, rows, scales, widths, next_widths)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(out / (n - sizes)[own])


def _kernel_sums(
    points: FloatArray,
    groups: IntArray,
    kernel: Kernel,
    rows: slice,
    scales: FloatArray,
    widths: FloatArray,
    next_widths: FloatArray,
) -> FloatArray:
    """(candidates, rows) sums of the partners' kernels at these points."""
    distance = points[rows, None] - points[None, :]
    # (k, rows, n): a centre that counts the point among its neighbours takes the next
    at_centre = np.where(np.abs(distance) <= widths[:, None, :], next_widths[:, None, :], widths[:, None, :])
    h = (at_centre[:, None] * scales[:, None, None]).reshape(-1, *distance.shape)
    values = kernel.pdf(distance[None] / h)
    values /= h
    return np.asarray(np.einsum("krn,rn->kr", values, partners(points, groups, rows).astype(float)))


def laplace_log_densities(points: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """`log_densities` for the Laplace kernel, every point a group of its own, in O(n) for each bandwidth."""
    order = np.argsort(points, kind="stable")
    values, counts, run = _distinct(points[None, order])
    with np.errstate(divide="ignore"):
        log = np.log(_others(values, counts, bandwidths[None])[:, 0] / (2 * bandwidths * (len(points) - 1)))
    out = np.empty((len(bandwidths), len(points)))
    out[:, order] = log[run[0]].T
    return out


def laplace_bandwidths(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(rows,) bandwidths of rows (rows, n) of results, Laplace kernel: that of the one-standard-error rule, and the
    likeliest; 0 where all are equal. As `Kde("laplace")` and its `Mixture.likeliest`, all rows at once."""
    chunks = [_laplace_bandwidths(np.sort(x[k : k + _ROWS], axis=1)) for k in range(0, len(x), _ROWS)]
    if not chunks:
        return np.zeros(0), np.zeros(0)
    chosen, likeliest = zip(*chunks, strict=True)
    return np.concatenate(chosen), np.concatenate(likeliest)


def _laplace_bandwidths(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of sorted rows."""
    rows, n = x.shape
    widest = KERNELS["laplace"].canonical * 1.06 * n**-0.2 * spreads(x)
    h = np.where(widest > 0, widest, 1.0)[:, None] * np.geomspace(0.02, 1.0, GRID)
    values, counts, run = _distinct(x)
    score = np.log(np.maximum(_others(values, counts, h), 1e-300) / h)  # (n, rows, bandwidths)
    weight = counts[:, :, None]
    best = np.argmax((weight * score).sum(axis=0), axis=1)
    lost = np.take_along_axis(score, best[None, :, None], axis=2) - score
    means = (weight * lost).sum(axis=0) / n
    errors = np.sqrt((weight * (lost - means) ** 2).sum(axis=0) / max(n - 1, 1) / n)
    chosen = GRID - 1 - np.argmax((means <= errors)[:, ::-1], axis=1)
    varied = (widest > 0) & (run[:, -1] > 0)
    return tuple(np.where(varied, h[np.arange(rows), index], 0.0) for index in (chosen, best))  # type: ignore[return-value]


def _distinct(x: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Values and counts (n, rows) of sorted rows (rows, n), where tied results are one value, and which value each is
    of (rows, n); the last one, counted 0 times, fills what is left."""
    rows, n = x.shape
    apart = np.diff(x, axis=1) > 4 * np.spacing(np.abs(x).max(axis=1))[:, None]
    run = np.pad(np.cumsum(apart, axis=1), ((0, 0), (1, 0)))
    first = np.pad(apart, ((0, 0), (1, 0)), constant_values=True)
    values = np.repeat(x[:, -1:], n, axis=1)
    values[np.nonzero(first)[0], run[first]] = x[first]
    counts = np.bincount((np.arange(rows)[:, None] * n + run).ravel(), minlength=rows * n).reshape(rows, n)
    return np.ascontiguousarray(values.T), np.ascontiguousarray(counts.T, float), run


def _others(values: FloatArray, counts: FloatArray, bandwidths: FloatArray) -> FloatArray:
    """(n, rows, bandwidths) sums of exp(-distance/h) of the other values, by their counts; bandwidths (rows, any)."""
    decay = np.exp(-np.diff(values, axis=0)[:, :, None] / bandwidths)
    decays, masses = np.stack((decay, decay[::-1]), axis=1), np.stack((counts, counts[::-1]), axis=1)[..., None]
    sums = np.zeros((len(values), 2, *bandwidths.shape))  # from the left, and from the right
    for before, after, mass, step in zip(sums, sums[1:], masses, decays, strict=False):
        np.add(before, mass, out=after)
        np.multiply(after, step, out=after)
    return np.asarray(sums[:, 0] + sums[::-1, 1])


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
    tolerance = tie_width(points)
    distance = np.abs(points[:, None] - points[None, :])
    distance[distance <= tolerance] = np.inf
    return np.sort(distance, axis=1)
