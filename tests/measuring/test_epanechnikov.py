"""The Epanechnikov kernel says what exact arithmetic of its parabolas says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from gaps import with_gaps

import empriv
from empriv.measuring.line.other_kernels import SLACK
from empriv.results import FloatArray

EPSILONS = np.array([0.0, 0.05, 0.2, 1.0, 5.0])


def drawn(seed: int) -> tuple[FloatArray, FloatArray, float]:
    """Results, results without three individuals, NaN where there is none, and a bandwidth: of every size."""
    rng = np.random.default_rng(seed)
    n = 1 if seed == 0 else int(rng.integers(2, 14))
    q = rng.normal(0, 2, n) * 10.0 ** rng.integers(-3, 4)
    wide = max(float(np.std(q)), 1e-3)
    size, touched = 10.0 ** rng.uniform(-6, 1, (3, 1)), rng.random((3, n)) < rng.choice([0.1, 0.5, 1.0])
    without = q - rng.exponential(1, (3, n)) * wide * size * touched
    if seed % 3 == 0:  # ties
        q, without = np.round(q), np.round(without)
    if seed % 4 == 0 and n > 1:  # no number, and so a mass of its own
        q, without = q.copy(), without.copy()
        q[: n // 4], without[:, : n // 3] = np.nan, np.nan
    return q, without, wide * 10.0 ** rng.uniform(-4, 0.7)


def measured(q: FloatArray, without: FloatArray, bandwidth: float) -> FloatArray:
    return np.asarray(
        empriv.measure(with_gaps(q, without), density=empriv.Kde("epanechnikov", bandwidth)).delta_i(EPSILONS)
    )


def witness(q: FloatArray, without: FloatArray, bandwidth: float, epsilon: float) -> float:
    """delta_i from the same parabolas with 50 digits."""
    with mp.workdps(50):
        sides = [[mp.mpf(float(x)) for x in side if np.isfinite(x)] for side in (q, without)]
        h, e = mp.mpf(bandwidth), mp.exp(epsilon)
        ends = sorted({x + sign * h for side in sides for x in side for sign in (-1, 1)})
        totals = [mp.mpf(0), mp.mpf(0)]
        for left, right in pairwise(ends):
            active = [[left - x for x in side if x - h <= left and right <= x + h] for side in sides]
            a, b = ([sum(h * h - u * u for u in side), -2 * sum(side), -len(side)] for side in active)
            for k, (above, below) in enumerate(((a, b), (b, a))):
                totals[k] += positive_area([x - e * y for x, y in zip(above, below, strict=True)], right - left)
        atoms = [int(np.isnan(side).sum()) for side in (q, without)]
        scale = mp.mpf(3) / (4 * len(q) * h**3)
        return float(max(scale * totals[k] + max(0, atoms[k] - e * atoms[1 - k]) / len(q) for k in (0, 1)))


def positive_area(d: list[Any], width: Any) -> Any:
    def area(t: Any) -> Any:
        return t * (d[0] + t * (d[1] / 2 + t * d[2] / 3))

    inside = d[1] ** 2 - 4 * d[2] * d[0]
    roots = []
    if d[2] and inside > 0:
        roots = [(-d[1] + sign * mp.sqrt(inside)) / (2 * d[2]) for sign in (-1, 1)]
    elif not d[2] and d[1]:
        roots = [-d[0] / d[1]]
    cuts = [mp.mpf(0), *sorted(x for x in roots if 0 < x < width), width]
    middles = [(x + y) / 2 for x, y in pairwise(cuts)]
    return sum(
        area(y) - area(x) for (x, y), t in zip(pairwise(cuts), middles, strict=True) if d[0] + t * (d[1] + t * d[2]) > 0
    )


@pytest.mark.parametrize("seed", range(8))
def test_sticks_are_exact_and_never_too_small(seed: int) -> None:
    q, without, bandwidth = drawn(seed)
    delta = measured(q, without, bandwidth)
    for row in range(len(without)):
        exact = [witness(q, without[row], bandwidth, epsilon) for epsilon in EPSILONS]
        assert np.all(delta[row] >= np.minimum(exact, 1.0) - 1e-14)
        assert np.all(delta[row] <= np.array(exact) + 1e-11 + 2.5 * SLACK)
        assert np.all(delta[row][np.array(exact) == 0] <= 2.5 * SLACK)
