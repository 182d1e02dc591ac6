"""The gate before a bound without noise: what refutes that results have a smooth law.

A bound "as it is" trusts that the law has no structure finer than a bandwidth h. Results that keep to a comb (whole
euros, last digits, every second value) refute it: a frequency above 1/4h stands out. So do coincidences, results that
are much closer to each other than a law that is smooth over h would put them. Then there is no bound without noise.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from empriv.measuring.line import laplace
from empriv.measuring.line.atoms import lattice
from empriv.results import FloatArray

BoolArray = npt.NDArray[np.bool_]

ALPHA = 0.01  # of each test
LOWEST, HIGHEST = 0.25, 40.0  # turns in a bandwidth: frequencies that are tried
RADII = 5  # sizes of closeness, each a quarter of the one before
_MOST = 16_384  # frequencies


def lattice_step(x: FloatArray) -> float:
    """Step of the lattice that all of these values keep to, 0 if there is none."""
    found = lattice(x[np.isfinite(x)])
    return 0.0 if found is None else found[1]


def comb(x: FloatArray, h: float, alpha: float = ALPHA) -> bool:
    """Whether a frequency from 1/4h to 40/h stands out; on a lattice of step L, up to 1/(2L).

    Rayleigh's statistic: n |mean exp(2 pi i f x)|^2 is about exponential where the law is smooth over 1/f. The largest
    of F frequencies, half a turn of the whole spread apart, is compared with log(F / 2 alpha).
    """
    x = x[np.isfinite(x)]
    n = len(x)
    if n < 2 or not h > 0:
        return False
    spread, step = float(np.subtract(*np.percentile(x, [99, 1]))), lattice_step(x)
    low, high = LOWEST / h, HIGHEST / h
    if step:
        high = min(high, 0.5 / step)
    by = 1 / (2 * max(spread, 4 * h))
    count = min(_MOST, math.ceil((high - low) / by)) if high >= low else 0
    extra = [0.5 / step] if step and 0.5 / step >= low else []  # every second point of the lattice
    if not count and not extra:
        return False
    largest = max([rayleigh(x, low, by, count)] * (count > 0) + [rayleigh(x, f, by, 1) for f in extra])
    return bool(n * largest**2 > math.log((count + len(extra)) / (2 * alpha)))


def rayleigh(x: FloatArray, low: float, by: float, count: int) -> float:
    """The largest |mean of exp(2 pi i f x)| over the frequencies low, low + by, ..., so many of them.

    Without a compiler: exp(2 pi i (low + (m k + j) by) x) is a product of two tables, and so are the sums.
    """
    if laplace.COMPILED is not None:
        out = np.empty(1)
        if laplace.COMPILED.empriv_rayleigh(len(x), np.ascontiguousarray(x, float), low, by, count, out):
            raise MemoryError
        return float(out[0]) / len(x)
    turns, block = 2j * np.pi * (x - x[0]), 1 << (max(1, count).bit_length() // 2)
    first = np.exp(turns[None, :] * (by * np.arange(block))[:, None])
    then = np.exp(turns[:, None] * (low + by * block * np.arange(-(-count // block)))[None, :])
    return float(np.abs(first @ then).T.ravel()[:count].max()) / len(x)


def coincidences(x: FloatArray, h: float, alpha: float = ALPHA) -> bool:
    """Whether there are more close pairs than a law that is smooth over h has: spikes, poles, values that come again.

    The differences of pairs have a density that hardly changes over h, so that pairs within r number r/h of those
    within h, and a quarter more at most. At r = h/4, h/16, ... they are compared with Poisson's law. On a lattice whole
    numbers of steps are counted.
    """
    from scipy.special import pdtrc  # heavy, and seldom needed

    x = np.sort(x[np.isfinite(x)])
    n, step = len(x), lattice_step(x)
    if n < 2 or not h > 0:
        return False
    radii = h * 4.0 ** -np.arange(RADII + 1)
    if step:  # pairs up to k steps apart are those within k + 1/2 steps
        radii = np.unique((np.floor(radii / step) + 0.5) * step)[::-1]
    counts = np.searchsorted(x, x[:, None] + radii, side="right").sum(axis=0) - n * (n + 1) / 2
    expected = 1.25 * counts[0] * radii / radii[0]
    near = (radii <= 0.5 * radii[0]) & (counts > 0)
    return bool(np.any(pdtrc(counts[near] - 1, expected[near]) < alpha / RADII))


def refuted(x: FloatArray, h: FloatArray, tests: int | None = None) -> BoolArray:
    """(rows,) whether the results (rows, n) refute a law that is smooth over their bandwidth h (rows,).

    One false alarm in a hundred for all ``tests`` together, by default all rows: one alarm decides.
    """
    alpha = ALPHA / max(1, len(x) if tests is None else tests)
    return np.array(
        [comb(row, width, alpha) or coincidences(row, width, alpha) for row, width in zip(x, h.tolist(), strict=True)],
        bool,
    )
