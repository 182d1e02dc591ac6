"""The law of noise in arbitrary precision, written as its definition says."""

from __future__ import annotations

from functools import cache

import mpmath as mp
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
mp.mp.dps = 40


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
