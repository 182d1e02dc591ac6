"""Paired samples under noise: W of the sets where one law exceeds the other, and the bound B on their means.

    A_l = { p_a > exp(l epsilon) p_b },  p_a and p_b the mixtures of the noise at both samples
    psi = 1_A convolved with the noise;  W_k = psi(a_k) - e^epsilon psi(b_k),  averaged over the draws of a database
    B(W) = mean + z sd/sqrt(n - 1) + c m3/(sd^2 n)

For any set, the mean of W estimates P(a + noise in A) - e^epsilon P(b + noise in A) without bias. That of level 1 has
the largest mean on these databases, so that its B is above that of the best set of the true laws, which B covers; the
lower levels have less of a mean and more of a spread. Both directions count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from empriv.base.machine import DOUBLE, DOUBLES, LONG, LONGS, library
from empriv.errors import InputError
from empriv.judge import noisy_laws_in_numpy
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.densities.density import Kde
from empriv.measuring.densities.kernels import kernel_named
from empriv.measuring.line.atoms import spreads
from empriv.results import FloatArray

Compiled = Callable[..., int] | None

START = 0.75  # likeliest bandwidths, over 1 + epsilon, from which W is extrapolated to 0
ENDS = 0.05  # half-lines hold up to this share of a sample
LEVELS = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)
_CHUNK = 256  # rows in one call: what numpy holds at once, and how soon an interruption is heard
_GRID = np.geomspace(0.02, 1.0, 24)
_EXTRAPOLATED = np.array([2.0, -1.0])
_ROWS = 8  # whose likelihoods are held at once


def corrections(level: float) -> tuple[float, float]:
    """z and c = (1 + 2 z^2)/6 of B: the second order of a one-sided interval for a skewed mean (Johnson, 1978).

    z is that of a fifth less error: with that of .95, B of skewed laws under much noise covered 92 to 95% of 300 runs.
    """
    z = NormalDist().inv_cdf(1 - 0.8 * (1 - level))
    return z, (1 + 2 * z * z) / 6


def bound(w: FloatArray, level: float = 0.95) -> FloatArray:
    """B(W) along the last axis."""
    return noisy_laws_in_numpy.bound(w, *corrections(level))


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
    a, b = kernel.rounded(a), kernel.rounded(b)
    scales = np.full((len(b), 1), kernel.scale)
    return _run(a, b, kernel.kind, kernel.step, scales, np.ones(1), epsilons, draws, level, LEVELS, None, False)


def extrapolated(
    a: FloatArray, b: FloatArray, h: FloatArray, epsilons: FloatArray, *, draws: int = 1, level: float = 0.95
) -> FloatArray:
    """(rows, epsilons) B(2 W_g - W_2g), ``g`` .75/(1 + epsilon) of ``h`` (rows,): the limit as g goes to 0, were W
    linear in it.

    The larger epsilon, the more of what tells is beside edges, gaps and narrow peaks, and the finer g must be: from .7
    of the one-SE bandwidth at each epsilon, covers at epsilon 1 were honest in 5 to 50% of runs of such laws.
    """
    out = np.empty((len(b), len(epsilons)))
    grid = np.asarray(epsilons, float)
    for k in range(len(grid)):
        own = grid[k : k + 1]
        scales = finest(own) * np.stack((h, 2 * h), axis=1)
        out[:, k] = _run(a, b, "laplace", 0.0, scales, _EXTRAPOLATED, own, draws, level, (1.0,), None, False)[:, 0]
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
    a, b = kernel.rounded(a), kernel.rounded(b)
    scales = np.full((len(b), 1), kernel.scale)
    return _run(a, b, kernel.kind, kernel.step, scales, np.ones(1), epsilons, draws, 0.95, (1.0,), weights, True)


def ends(a: FloatArray, b: FloatArray, epsilons: FloatArray, *, draws: int = 1, level: float = 0.95) -> FloatArray:
    """(rows, epsilons) the largest B over half-lines that hold up to 5% of a sample, less 1/n, at least 0.

    Half-lines end at the lowest and highest results of either side, and are averaged in groups of 1, 1, 2, 4, ...
    """
    a, b = np.ascontiguousarray(a, float), np.ascontiguousarray(b, float)
    e, (z, c) = np.exp(np.asarray(epsilons, float)), corrections(level)
    depth, n = int(ENDS * b.shape[1]), b.shape[1] // draws
    if compiled_ends is None:
        return noisy_laws_in_numpy.ends(np.broadcast_to(a, b.shape), b, draws, depth, e, z, c)
    out = np.empty((len(b), len(e)))
    for start in range(0, len(b), _CHUNK):
        some = slice(start, min(start + _CHUNK, len(b)))
        part = np.empty(out[some].shape)
        own = a if a.ndim == 1 else a[some]
        if compiled_ends(some.stop - some.start, n, draws, a.ndim == 1, own, b[some], depth, len(e), e, z, c, part):
            raise MemoryError
        out[some] = part
    return out


def bandwidths(x: FloatArray) -> FloatArray:
    """(rows,) one-standard-error bandwidths of rows (rows, n) of results, Laplace kernel; 0 where all are equal."""
    x = np.ascontiguousarray(x, float)
    if compiled_bandwidths is not None:
        out = np.zeros(len(x))
        if x.shape[1] > 1:
            compiled_bandwidths(len(x), x.shape[1], x, len(_GRID), _GRID, _widest(x.shape[1]), out)
        return out
    return bandwidths_in_numpy(x)


def likeliest_bandwidths(x: FloatArray) -> FloatArray:
    """(rows,) of rows (rows, n) of results: that of `bandwidths` with the largest likelihood, each result left out of
    its own; 0 where all are equal."""
    x = np.sort(np.asarray(x, float), axis=1)
    return np.concatenate([np.zeros(0), *(_likeliest(x[k : k + _ROWS]) for k in range(0, len(x), _ROWS))])


def _likeliest(x: FloatArray) -> FloatArray:
    """Of sorted rows; equal results are one value (rows, n) with its count, and the last one fills what is left."""
    rows, n = x.shape
    widest = _widest(n) * spreads(x)
    h = np.where(widest > 0, widest, 1.0)[:, None] * _GRID  # (rows, bandwidths)
    apart = np.diff(x, axis=1) > 4 * np.spacing(np.abs(x).max(axis=1))[:, None]
    row, place = np.arange(rows)[:, None], np.pad(np.cumsum(apart, axis=1), ((0, 0), (1, 0)))
    first = np.pad(apart, ((0, 0), (1, 0)), constant_values=True)
    value = np.repeat(x[:, -1:], n, axis=1)
    value[np.nonzero(first)[0], place[first]] = x[first]
    count = np.bincount((row * n + place).ravel(), minlength=rows * n).reshape(rows, 1, n).astype(float)
    fade = np.exp(-np.diff(value, axis=1)[:, None, :] / h[:, :, None])
    beside = np.zeros((rows, len(_GRID), n))
    beside[..., 1:] += _faded(fade, count[..., :-1])
    beside[..., :-1] += _faded(fade[..., ::-1], count[..., :0:-1])[..., ::-1]
    score = (count * np.log(np.maximum(beside, 1e-300))).sum(axis=2) - n * np.log(h)
    best = h[np.arange(rows), np.argmax(score, axis=1)]
    return np.where((widest > 0) & apart.any(axis=1), best, 0.0)


def _faded(fade: FloatArray, count: FloatArray) -> FloatArray:
    """s_k = fade_k (s_(k-1) + count_k) along the last axis, in log2 n steps: each makes the sums twice as long."""
    sums, product, step = fade * count, fade.copy(), 1
    while step < sums.shape[-1]:
        sums[..., step:] += product[..., step:] * sums[..., :-step]
        product[..., step:] *= product[..., :-step].copy()
        step *= 2
    return sums


def bandwidths_in_numpy(x: FloatArray) -> FloatArray:
    """`bandwidths` by the rule of `measuring.densities`."""
    out = np.zeros(len(x))
    for k, row in enumerate(x):
        try:
            out[k] = Kde("laplace").fit(row, np.arange(len(row))).bandwidth
        except InputError:
            out[k] = 0.0
    return out


def _widest(n: int) -> float:
    """The widest bandwidth of the rule, of results with a spread of 1: see `measuring.densities.selection`."""
    return float(kernel_named("laplace").canonical * 1.06 * n**-0.2)


def _run(
    a: FloatArray,
    b: FloatArray,
    kind: str,
    step: float,
    scales: FloatArray,
    coefficients: FloatArray,
    epsilons: FloatArray,
    draws: int,
    level: float,
    levels: tuple[float, ...],
    weights: FloatArray | None,
    want_values: bool,
) -> FloatArray:
    a, b = np.ascontiguousarray(a, float), np.ascontiguousarray(b, float)
    e, (z, c) = np.exp(np.asarray(epsilons, float)), corrections(level)
    rows, size = b.shape
    n = size // draws
    weights = np.ones(size) if weights is None else np.ascontiguousarray(weights, float)
    shape = (rows, len(e), 2, n) if want_values else (rows, len(e))
    out, shares = np.empty(shape), np.array(levels, float)
    for start in range(0, rows, _CHUNK):
        some = slice(start, min(start + _CHUNK, rows))
        own = a if a.ndim == 1 else a[some]
        widths = np.ascontiguousarray(scales[some])
        if compiled is None:
            out[some] = noisy_laws_in_numpy.mixtures(
                own,
                b[some],
                draws,
                weights,
                kind == "gaussian",
                step,
                widths,
                coefficients,
                e,
                shares,
                z,
                c,
                want_values,
            )
            continue
        part = np.empty(out[some].shape)
        status = compiled(
            some.stop - some.start, n, draws, a.ndim == 1, own, b[some], weights, kind == "gaussian", step,
            len(coefficients), widths, coefficients, len(e), e, len(shares), shares, z, c, want_values, part,
        )  # fmt: skip
        if status < 0:
            raise MemoryError
        out[some] = part
    return out


def rayleigh(x: FloatArray, low: float, by: float, count: int) -> float:
    """The largest |mean of exp(2 pi i f x)| over the frequencies low, low + by, ..., so many of them."""
    x = np.ascontiguousarray(x, float)
    if compiled_rayleigh is None:
        return noisy_laws_in_numpy.rayleigh(x, low, by, count)
    out = np.empty(1)
    if compiled_rayleigh(1, len(x), x, np.array([low]), np.array([by]), np.array([count], np.int64), out):
        raise MemoryError
    return float(out[0]) / len(x)


def _load() -> tuple[Compiled, Compiled, Compiled, Compiled]:
    """The functions, with their argument types set once."""
    found = library("empriv.judge._noisy_laws")
    if found is None:
        return None, None, None, None
    mixtures, widths, lines = found.empriv_mixtures, found.empriv_bandwidths, found.empriv_ends
    waves = found.empriv_rayleigh
    waves.argtypes = [LONG, LONG, *[DOUBLES] * 3, LONGS, DOUBLES]
    lines.argtypes = [*[LONG] * 4, *[DOUBLES] * 2, LONG, LONG, DOUBLES, DOUBLE, DOUBLE, DOUBLES]
    mixtures.argtypes = [
        *[LONG] * 4, *[DOUBLES] * 3, LONG, DOUBLE, LONG, *[DOUBLES] * 2, LONG, DOUBLES, LONG, DOUBLES, DOUBLE, DOUBLE,
        LONG, DOUBLES,
    ]  # fmt: skip
    widths.argtypes = [LONG, LONG, DOUBLES, LONG, DOUBLES, DOUBLE, DOUBLES]
    mixtures.restype = widths.restype = lines.restype = waves.restype = LONG
    return mixtures, widths, lines, waves


compiled, compiled_bandwidths, compiled_ends, compiled_rayleigh = _load()
