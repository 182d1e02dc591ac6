"""Paired samples under noise: W of the sets where one law exceeds the other, and the bound B on their means.

    A_l = { p_a > exp(l epsilon) p_b },  p_a and p_b the mixtures of the noise at both samples
    psi = 1_A convolved with the noise;  W_k = psi(a_k) - e^epsilon psi(b_k),  averaged over the draws of a database
    B(W) = mean + z sd/sqrt(n - 1) + c m3/(sd^2 n)

For any set, the mean of W estimates P(a + noise in A) - e^epsilon P(b + noise in A) without bias. That of level 1 has
the largest mean on these databases, so that its B is above that of the best set of the true laws, which B covers; the
lower levels have less of a mean and more of a spread. Both directions count.

Laplace noise is that of `measuring.line.laplace`, exactly. Gaussian noise is computed here, on a lattice: that of the
noise, or one of a sixteenth of its scale, with cubic interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.line import laplace
from empriv.results import FloatArray, IntArray

START = 0.75  # likeliest bandwidths, over 1 + epsilon, from which W is extrapolated to 0
ENDS = 0.05  # half-lines hold up to this share of a sample
LEVELS = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)
_EXTRAPOLATED = np.array([2.0, -1.0])
_SLACK = 1e-10  # relative: rounding must not make a set of where both laws are the same
_NOTHING = 1e-14  # results: of a mixture, less is rounding
_REACH = 7.5  # standard deviations of Gaussian noise that count
_DIRECT = 300_000  # products in a convolution; beyond, cells without results are left out
_MOST_CELLS = 400_000  # of the lattice; results that are further apart are not bounded
_AT_ONCE = 1_000_000  # distances between results and ends of a set, in one step


def corrections(level: float) -> tuple[float, float]:
    """z and c = (1 + 2 z^2)/6 of B: the second order of a one-sided interval for a skewed mean (Johnson, 1978).

    z is that of a fifth less error: with that of .95, B of skewed laws under much noise covered 92 to 95% of 300 runs.
    """
    z = NormalDist().inv_cdf(1 - 0.8 * (1 - level))
    return z, (1 + 2 * z * z) / 6


def bound(w: FloatArray, level: float = 0.95) -> FloatArray:
    """B(W) along the last axis."""
    return laplace.bound(w, *corrections(level))


def bound_of_moments(powers: Sequence[FloatArray], n: int, level: float = 0.95) -> FloatArray:
    """B(W) of n values of at least 0, from the means of their powers 1, 2 and 3; a skewness below 0 counts as none."""
    first, second, third = powers
    z, c = corrections(level)
    variance = np.maximum(second - first**2, 0.0)
    skewness = np.maximum(third - 3 * first * second + 2 * first**3, 0.0)
    safe = np.where(variance > 1e-15, variance, 1.0)
    whole = first + z * np.sqrt(safe / max(n - 1, 1)) + c * skewness / (safe * n)
    return np.asarray(np.where(variance > 1e-15, whole, first))


def bounds(
    a: FloatArray,
    b: FloatArray,
    kernel: NoiseKernel,
    epsilons: FloatArray,
    *,
    draws: int = 1,
    level: float = 0.95,
) -> FloatArray:
    """(rows, epsilons) the largest B over levels and directions, at least 0.

    ``a`` is (N,) or (rows, N), ``b`` (rows, N): results with and without, database by database; N is databases times
    draws. What is not finite lies in no set. Answers on the lattice of the noise are rounded here.
    """
    a, b, e = kernel.rounded(a), kernel.rounded(b), np.exp(np.asarray(epsilons, float))
    if kernel.kind == "laplace":
        scales = np.full((len(b), 1), kernel.scale)
        return laplace.largest_bounds(
            a, b, scales, np.ones(1), e, LEVELS, *corrections(level), draws=draws, step=kernel.step
        )
    values = [
        _gaussian_values(*pair, kernel, e, LEVELS, draws) for pair in zip(np.broadcast_to(a, b.shape), b, strict=True)
    ]
    # results so far apart that they do not fit are not bounded
    return np.array(
        [np.ones(len(e)) if w is None else np.maximum(bound(w, level).max(axis=(1, 2)), 0.0) for w in values]
    ).reshape(len(b), len(e))


def extrapolated(
    a: FloatArray, b: FloatArray, h: FloatArray, epsilons: FloatArray, *, draws: int = 1, level: float = 0.95
) -> FloatArray:
    """(rows, epsilons) B(2 W_g - W_2g), ``g`` .75/(1 + epsilon) of ``h`` (rows,): the limit as g goes to 0, were W
    linear in it.

    The larger epsilon, the more of what tells is beside edges, gaps and narrow peaks, and the finer g must be: from .7
    of the one-SE bandwidth at each epsilon, covers at epsilon 1 were honest in 5 to 50% of runs of such laws.
    """
    out = np.empty((len(b), len(epsilons)))
    for k, epsilon in enumerate(np.asarray(epsilons, float).tolist()):
        scales = finest(epsilon) * np.stack((h, 2 * h), axis=1)
        e = np.exp(np.array([epsilon]))
        out[:, k] = laplace.largest_bounds(a, b, scales, _EXTRAPOLATED, e, (1.0,), *corrections(level), draws=draws)[
            :, 0
        ]
    return out


def finest(epsilon: npt.ArrayLike) -> FloatArray:
    """g in likeliest bandwidths: START/(1 + epsilon)."""
    return np.asarray(START / (1.0 + np.asarray(epsilon, float)))


def values(
    a: FloatArray,
    b: FloatArray,
    kernel: NoiseKernel,
    epsilons: FloatArray,
    *,
    draws: int = 1,
    weights: FloatArray | None = None,
) -> FloatArray:
    """(rows, epsilons, 2, databases) W in both directions, of sets that points with these ``weights`` (N,) choose."""
    a, b, e = kernel.rounded(a), kernel.rounded(b), np.exp(np.asarray(epsilons, float))
    if kernel.kind == "laplace":
        scales = np.full((len(b), 1), kernel.scale)
        return laplace.paired_values(a, b, scales, np.ones(1), e, draws=draws, step=kernel.step, weights=weights)
    out = np.zeros((len(b), len(e), 2, b.shape[1] // draws))
    for row, pair in enumerate(zip(np.broadcast_to(a, b.shape), b, strict=True)):
        w = _gaussian_values(*pair, kernel, e, (1.0,), draws, weights)
        out[row] = 0.0 if w is None else w[:, :, 0]
    return out


def ends(a: FloatArray, b: FloatArray, epsilons: FloatArray, *, draws: int = 1, level: float = 0.95) -> FloatArray:
    """(rows, epsilons) the largest B over half-lines that hold up to 5% of a sample, less 1/n, at least 0."""
    e = np.exp(np.asarray(epsilons, float))
    return laplace.end_bounds(a, b, e, int(ENDS * b.shape[1]), *corrections(level), draws=draws)


def _gaussian_values(
    a: FloatArray,
    b: FloatArray,
    kernel: NoiseKernel,
    e: FloatArray,
    levels: Sequence[float],
    draws: int,
    weights: FloatArray | None = None,
) -> FloatArray | None:
    """(len(e), 2, levels, databases) W of one pair (N,) under Gaussian noise; None if it needs too many cells.

    The mixtures, and psi of each set, are convolutions with the noise on a lattice, where results are spread over the
    four cells about them with the weights of cubic interpolation.
    """
    fine = kernel.step or kernel.scale / 16
    x = np.concatenate((a, b))
    finite = np.isfinite(x)
    reach = math.ceil(_REACH * kernel.scale / fine) + 1
    low, high = (x[finite].min(), x[finite].max()) if finite.any() else (0.0, 0.0)
    if not (high - low) / fine + 2 * reach + 8 <= _MOST_CELLS:
        return None
    cells = int((high - low) / fine + 2 * reach + 8)
    place = (np.where(finite, x, low) - low) / fine
    if kernel.step:  # results are on the lattice
        base, shares = np.rint(place), np.ones((1, len(x)))
    else:
        base = np.floor(place) - 1
        t = place - base - 1
        shares = np.array(  # Lagrange's, through cells -1, 0, 1, 2
            [
                -t * (t - 1) * (t - 2) / 6,
                (t + 1) * (t - 1) * (t - 2) / 2,
                -(t + 1) * t * (t - 2) / 2,
                (t + 1) * t * (t - 1) / 6,
            ]
        )
    at = base.astype(np.int64) + reach + 2 + np.arange(len(shares))[:, None]
    noise = np.exp(-0.5 * (np.arange(-reach, reach + 1) * fine / kernel.scale) ** 2)
    noise /= noise.sum()
    below = np.concatenate(([0.0], np.cumsum(noise)))
    weight = np.ones(len(a)) if weights is None else weights
    mass = np.where(finite, np.concatenate((weight, weight)), 0.0) * shares
    sides = slice(0, len(a)), slice(len(a), None)
    laws = [_mixture(np.bincount(at[:, k].ravel(), mass[:, k].ravel(), cells).astype(float), noise) for k in sides]
    out = np.empty((len(e), 2, len(levels), len(a) // draws))
    for k, factor in enumerate(e.tolist()):
        for direction in (0, 1):
            own, other = laws[direction], laws[1 - direction]
            some = own > _NOTHING
            for place_of_level, level in enumerate(levels):
                inside = (own > factor**level * (1 + _SLACK) * other) & some
                psi = np.where(finite, (shares * _smoothed(inside, below, at)).sum(axis=0), 0.0)
                both = psi.reshape(2, -1, draws).mean(axis=2)
                out[k, direction, place_of_level] = both[direction] - factor * both[1 - direction]
    return out


def _smoothed(inside: npt.NDArray[np.bool_], below: FloatArray, at: IntArray) -> FloatArray:
    """(shares, points) the set of cells convolved with the noise, at the cells ``at``: the sum over its ends of the
    noise's distribution function, ``below`` (2 reach + 2,), at their distance."""
    ends = np.flatnonzero(np.diff(inside, prepend=False, append=False))
    signs = np.where(np.arange(len(ends)) % 2, 1.0, -1.0)
    out = np.zeros(at.shape)
    many = max(1, _AT_ONCE // max(at.size, 1))
    for first in range(0, len(ends), many):
        distance = ends[first : first + many, None, None] - at + (len(below) - 2) // 2
        out += np.einsum("e,esp->sp", signs[first : first + many], below[np.clip(distance, 0, len(below) - 1)])
    return out


def _mixture(histogram: FloatArray, noise: FloatArray) -> FloatArray:
    """The histogram convolved with the noise, by sums: a transform leaves roundings where two laws are the same."""
    reach = len(noise) // 2
    if len(histogram) * len(noise) < _DIRECT:
        return np.convolve(histogram, noise)[reach:-reach]
    out = np.zeros(len(histogram) + 2 * reach)
    for cell in np.flatnonzero(histogram).tolist():
        out[cell : cell + len(noise)] += histogram[cell] * noise
    return out[reach:-reach]
