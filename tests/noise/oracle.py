"""The slow, obvious certificate: dense masses on a huge window, each from mpmath, summed directly.

Written from the mathematics, not from the library. An answer is a mixture of kernels and point masses; its cell k holds
the mass between (k - 1/2)g and (k + 1/2)g; noise is added term by term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
mp.mp.dps = 40


def _student(z: Any) -> Any:
    # 1/2 + y (3 - y²)/4, y = z/sqrt(4 + z²); the left tail in the form that does not cancel
    root = mp.sqrt(4 + z * z)
    y = abs(z) / root
    tail = (4 / (4 + z * z) / (1 + y)) ** 2 * (2 + y) / 4
    return tail if z < 0 else 1 - tail


def _epanechnikov(z: Any) -> Any:
    z = max(min(z, mp.mpf(1)), mp.mpf(-1))
    return (2 + 3 * z - z**3) / 4


CDF: dict[str, Callable[[Any], Any]] = {
    "laplace": lambda z: mp.exp(z) / 2 if z < 0 else 1 - mp.exp(-z) / 2,
    "gaussian": lambda z: mp.erfc(-z / mp.sqrt(2)) / 2,
    "logistic": lambda z: 1 / (1 + mp.exp(-z)),
    "epanechnikov": _epanechnikov,
    "student": _student,
}


@cache
def cells_of(kernel: str, centre: float, bandwidth: float, granularity: float, first: int, count: int) -> Array:
    """Mass of one kernel in each cell, to all digits in the tails: both sides are taken from the left."""
    cdf, out = CDF[kernel], []
    q, h, g = mp.mpf(centre), mp.mpf(bandwidth), mp.mpf(granularity)
    for k in range(first, first + count):
        low, high = ((k - mp.mpf(1) / 2) * g - q) / h, ((k + mp.mpf(1) / 2) * g - q) / h
        out.append(cdf(high) - cdf(low) if low < 0 else cdf(-low) - cdf(-high))
    return np.array([float(one) for one in out])


def nearest(value: float, granularity: float) -> int:
    """The cell of a value: Python rounds fractions half to even."""
    return round(Fraction(value) / Fraction(granularity))


@cache
def noise_pmf(parts: tuple[tuple[str, int, float], ...], granularity: float, reach: int) -> Array:
    """Masses of -reach..reach of a law of (kind, weight of 2^64, scale)."""
    out = [mp.mpf(0)] * (2 * reach + 1)
    for kind, weight, scale in parts:
        share = mp.mpf(weight) / mp.mpf(2) ** 64
        if kind == "point":
            out[reach] += share
            continue
        s = mp.mpf(scale) / mp.mpf(granularity)
        if kind == "laplace":
            a = mp.exp(-1 / s)
            shape = [(1 - a) / (1 + a) * a ** abs(k) for k in range(-reach, reach + 1)]
        else:
            total = sum(mp.exp(-mp.mpf(k * k) / (2 * s * s)) for k in range(-2000, 2001))
            shape = [mp.exp(-mp.mpf(k * k) / (2 * s * s)) / total for k in range(-reach, reach + 1)]
        out = [one + share * more for one, more in zip(out, shape, strict=True)]
    return np.array([float(one) for one in out])


def convolved(answer: Sequence[Any], noise: Sequence[Any]) -> Array:
    """Noisy masses on the window of the answer: sums of positive terms, each right to 16 digits."""
    a, b = np.array([float(one) for one in answer]), np.array([float(one) for one in noise])
    reach = len(b) // 2
    return np.convolve(a, b, "full")[reach : reach + len(a)]


def hockey_stick(above: Array, below: Array, epsilon: float) -> float:
    return math.fsum(np.maximum(above - math.exp(epsilon) * below, 0.0))


def delta(with_all: Array, without: Array, epsilon: float) -> float:
    return max(hockey_stick(with_all, without, epsilon), hockey_stick(without, with_all, epsilon))


def largest_log_ratio(with_all: Array, without: Array) -> float:
    some = (with_all > 0) & (without > 0)
    return float(np.abs(np.log(with_all[some]) - np.log(without[some])).max())
