"""Statements of the paper that no other test is about; docs/method.md says where each of them is realised."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp

import empriv
from empriv.noise.paper import hausdorff, laplace_share

seeds = st.integers(0, 2**32 - 1)


def _laplace_delta(shift: float, epsilon: float) -> float:
    """delta of the classical Laplace mechanism: a shift in units of its scale."""
    return max(0.0, 1.0 - math.exp((epsilon - shift) / 2))


def _mechanism(influence: np.ndarray, seed: int, scale: float) -> empriv.Risk:
    """The law of a result plus Laplace(scale), over random databases: a kernel of that width, taken as the noise."""
    q = np.random.default_rng(seed).normal(0.0, 2.0, len(influence))
    return empriv.measure(q, (q - influence)[None], density=empriv.Kde("laplace", scale))


@given(seeds, st.floats(0.1, 3.0), st.floats(0.0, 1.0))
def test_lemma_1_classical_privacy_implies_inherent(seed: int, scale: float, epsilon: float) -> None:
    influence = np.random.default_rng(seed).uniform(0.0, 1.0, 12)
    classical = _laplace_delta(influence.max() / scale, epsilon)
    assert _mechanism(influence, seed, scale).delta(epsilon) <= classical + 1e-9


def test_lemma_1_the_converse_is_false() -> None:
    """The data's own randomness hides more than the noise alone does."""
    influence = np.full(400, 0.5)
    assert _mechanism(influence, 0, 0.2).delta(0.1) < 0.25 * _laplace_delta(2.5, 0.1)
    # On one database, where nothing is random but the noise, the two are the same.
    assert _mechanism(influence[:1], 0, 0.2).delta(0.1) == pytest.approx(_laplace_delta(2.5, 0.1), abs=1e-9)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=20))
def test_lemma_3_log_sum_exp(x: list[float]) -> None:
    assert logsumexp(x) <= max(x) + math.log(len(x)) + 1e-9


@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_lemma_4_hausdorff(seed: int, first: int, second: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = np.sort(rng.normal(size=first)), np.sort(rng.normal(size=second))
    # The difference of distances is linear between points and the midpoints of points, and constant far out.
    points = np.concatenate([a, b, [-9.0, 9.0]])
    x = np.concatenate([points, ((points[:, None] + points) / 2).ravel()])
    gap = np.abs(x[:, None] - a).min(axis=1) - np.abs(x[:, None] - b).min(axis=1)
    assert np.abs(gap).max() == pytest.approx(hausdorff(a, b), abs=1e-12)


@given(seeds, st.integers(1, 30), st.floats(0.05, 2.0))
def test_proposition_1_holds_with_the_bottleneck_distance(seed: int, n: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(size=n)
    scale = np.abs(np.sort(a) - np.sort(b)).max() / epsilon
    assert empriv.measure(a, b[None], density=empriv.Kde("laplace", scale)).epsilon(0.0) <= epsilon * (1 + 1e-9)


def _discrete_laplace(scale: float, k: np.ndarray) -> np.ndarray:
    return math.tanh(0.5 / scale) * np.exp(-np.abs(k) / scale)


@pytest.mark.parametrize(("bandwidth", "scale"), [(3.0, 10.0), (8.0, 10.0), (0.5, 40.0)])
def test_theorem_2_laplace_kernel_is_deconvolved_exactly(bandwidth: float, scale: float) -> None:
    """A point mass and Laplace(lambda), convolved with the kernel, is Laplace(lambda); another share is not."""
    k = np.arange(-2000, 2001)
    kernel, wanted = _discrete_laplace(bandwidth, k), _discrete_laplace(scale, k)

    def far_from(share: float) -> float:
        noise = (1.0 - share) * wanted
        noise[2000] += share
        return float(np.abs(np.convolve(noise, kernel, mode="same") - wanted).max())

    share = laplace_share(bandwidth, scale, 1.0)
    assert far_from(share) < 1e-12
    assert far_from(0.9 * share) > 1e-6
    assert laplace_share(bandwidth, scale, 1e-4) == pytest.approx((bandwidth / scale) ** 2, rel=1e-6)


def test_algorithm_1_and_2_written_out() -> None:
    """The paper's loops over individuals and databases, on rows, with an integral by quadrature."""
    rng = np.random.default_rng(5)
    rows = [
        (database, individual, float(rng.gamma(2.0, 3.0)))
        for database in range(15)
        for individual in range(6)
        if rng.random() < 0.7
    ]
    h, epsilon = 2.5, 0.2

    def f(database: int, left_out: int | None) -> float:
        return sum(x for j, i, x in rows if j == database and i != left_out)

    def density(x: float, q: list[float]) -> float:
        return sum(math.exp(-abs(x - one) / h) for one in q) / (2 * h * len(q))

    def above(q: list[float], other: list[float]) -> float:
        pieces = pairwise(sorted({-50.0, *q, *other, 150.0}))
        return sum(
            quad(lambda x: max(density(x, q) - math.exp(epsilon) * density(x, other), 0.0), *p)[0] for p in pieces
        )

    delta, survive = 0.0, 1.0
    for i in range(6):
        q, q_i = ([f(j, left_out) for j in range(15)] for left_out in (None, i))
        delta_i = max(above(q, q_i), above(q_i, q))
        delta, survive = max(delta, delta_i), survive * (1 - delta_i)

    table = pandas.DataFrame(rows, columns=["day", "who", "x"])
    data = empriv.databases(table, database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=epsilon, density=empriv.Kde("laplace", h))
    assert audit.delta(epsilon) == pytest.approx(delta, abs=1e-6)
    assert audit.total_risk(epsilon) == pytest.approx(1 - survive, abs=1e-6)
    assert audit.delta(epsilon) > 0.01
