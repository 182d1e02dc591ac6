"""delta_i and epsilon_i against slow witnesses that share nothing with them but the definition."""

from __future__ import annotations

import functools
import math

import mpmath as mp
import numpy as np
import pytest

import empriv
from oracles import (
    CDF,
    MESH,
    PDF,
    LaplacePair,
    delta_of,
    epsilon_of,
    hockey_stick_by_quadrature,
    largest_log_ratio,
    mixture_curve,
    mixture_pdf,
    neighbour_distances,
)

EPSILONS = [0.0, 0.01, 0.1, 0.5, 2.0]
OTHER_KERNELS = ["gaussian", "logistic", "epanechnikov", "student"]
Case = tuple[np.ndarray, np.ndarray, float]
CASES = (
    "random", "tied", "clustered", "one", "two", "offset", "far offset", "range", "far clusters", "small shifts",
    "large shifts", "sparse",
)  # fmt: skip


@functools.cache
def made(name: str) -> Case:
    """Results with everyone, without each of two or three, and a bandwidth."""
    rng = np.random.default_rng(20)
    match name:
        case "random":
            q = rng.normal(0, 2, 23)
            return q, q - np.stack([rng.normal(0, 0.5, 23), np.abs(rng.normal(0, 2, 23))]), 0.7
        case "tied":
            q = rng.integers(0, 6, 20).astype(float)
            return q, q - np.stack([rng.integers(0, 2, 20), rng.integers(0, 4, 20)]), 0.4
        case "clustered":
            q = rng.choice([-8.0, 0.0, 1.5, 30.0], 24) + rng.normal(0, 0.05, 24)
            return q, q - np.stack([rng.normal(0, 0.1, 24), rng.choice([0.0, 0.0, 8.0], 24)]), 0.3
        case "one":
            q = rng.normal(0, 1, 1)
            return q, q - np.array([[0.3], [4.0], [0.0]]), 0.5
        case "two":
            q = np.array([0.0, 1.0])
            return q, np.array([[1.0, 0.0], [0.2, 1.1], [0.0, 9.0]]), float(rng.uniform(0.4, 0.6))
        case "offset":
            q = 1e12 + rng.normal(0, 3, 17)  # doubles here are 2^-13 apart
            return q, q - np.stack([rng.normal(0, 0.5, 17), rng.normal(2, 0.5, 17)]), 0.9
        case "far offset":
            # both at once: digits are few, and the exponentials between the clusters underflow
            q = 1e12 + rng.choice([0.0, 2000.0], 15) + rng.normal(0, 1, 15)
            return q, q - np.stack([rng.normal(0, 0.3, 15), rng.choice([0.0, 2000.0], 15)]), 0.9
        case "range":
            q = 10.0 ** rng.uniform(-6, 9, 24)
            return q, np.stack([q - rng.normal(0, 1, 24), q * (1 - rng.choice([0, 1e-3], 24))]), 1.0
        case "far clusters":
            h = 0.25
            q = rng.choice([-1e6, 0.0, 1e6], 21) * h + rng.normal(0, 1, 21)
            return q, q - np.stack([rng.normal(0, 0.2, 21), rng.choice([0.0, 1e6 * h], 21)]), h
        case "small shifts":
            q = rng.normal(0, 1, 25)
            return q, q - np.stack([1e-6 * rng.normal(0, 1, 25), np.full(25, 1e-3), 1e-2 * rng.exponential(1, 25)]), 1.0
        case "large shifts":
            q = rng.normal(0, 1, 19)
            return q, q - np.stack([np.full(19, 50.0), rng.normal(0, 40, 19)]), 0.5
        case _:  # sparse
            q = rng.lognormal(0, 1, 30)
            without = np.stack([q, q])
            without[0, 7] -= 0.8
            without[1, [3, 11]] -= [2.5, 0.01]
            return q, without, 0.3


@functools.cache
def exact(name: str) -> tuple[list[LaplacePair], list[list[float]]]:
    """The witnesses for the Laplace kernel, and their delta at each epsilon."""
    q, q_without, h = made(name)
    pairs = [LaplacePair(q, q_i, h) for q_i in q_without]
    return pairs, [[float(pair.delta(epsilon)) for epsilon in EPSILONS] for pair in pairs]


# ------------------------------------------------------------------------------------ the witnesses agree first


@pytest.mark.parametrize("kernel", PDF)
def test_the_witnesses_kernels_are_densities(kernel: str) -> None:
    z = MESH[kernel]
    slope = (CDF[kernel](z + 1e-6) - CDF[kernel](z - 1e-6)) / 2e-6
    assert np.allclose(slope, PDF[kernel](z), atol=1e-6)
    assert CDF[kernel](z[-1:])[0] > 1 - 1e-14
    assert CDF[kernel](z[:1])[0] < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PDF)
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_witnesses_agree_with_adaptive_quadrature(kernel: str, epsilon: float) -> None:
    rng = np.random.default_rng(3)
    q, h = rng.normal(0, 2, 4), rng.uniform(0.3, 1.5, 4)
    q_i = q - rng.normal(0, 1, 4)
    there, back = mixture_curve(kernel, q, q_i, h)(epsilon)
    assert there == pytest.approx(hockey_stick_by_quadrature(kernel, q, q_i, h, epsilon), abs=1e-11)
    assert back == pytest.approx(hockey_stick_by_quadrature(kernel, q_i, q, h, epsilon), abs=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_two_witnesses_for_the_laplace_kernel_agree(name: str) -> None:
    q, q_without, h = made(name)
    assert delta_of("laplace", q, q_without[0], h, EPSILONS) == pytest.approx(exact(name)[1][0], abs=1e-12)


# ------------------------------------------------------------------------------------------------------- densities


@pytest.mark.parametrize("kernel", PDF)
def test_kernels_are_the_stated_ones(kernel: str) -> None:
    z = MESH[kernel]
    assert empriv.KERNELS[kernel].pdf(z) == pytest.approx(PDF[kernel](z), rel=1e-12, abs=1e-300)
    assert empriv.KERNELS[kernel].cdf(z) == pytest.approx(CDF[kernel](z), abs=1e-15)


@pytest.mark.parametrize("kernel", PDF)
def test_log_lipschitz_constant_is_the_steepest_slope(kernel: str) -> None:
    steepest = {"laplace": 1.0, "gaussian": math.inf, "logistic": 1.0, "epanechnikov": math.inf, "student": 1.25}
    # Student: |d log f| = 5z/(4 + z²), largest at z = 2. Gaussian and Epanechnikov have no bound.
    assert empriv.KERNELS[kernel].log_lipschitz == pytest.approx(steepest[kernel], rel=1e-12)


def test_the_kernels_tested_are_all_the_kernels() -> None:
    assert set(empriv.KERNELS) == set(PDF)


@pytest.mark.parametrize("kernel", PDF)
def test_pdf_is_the_stated_mixture(kernel: str) -> None:
    q, q_without, h = made("tied")
    risk = empriv.measure(q, q_without, density=empriv.Kde(kernel, h), individuals=["ann", "bob"])
    x = np.linspace(-6, 8, 57)
    assert risk.pdf(x) == pytest.approx(mixture_pdf(kernel, q, h, x), rel=1e-12, abs=1e-300)
    assert risk.pdf_without("bob", x) == pytest.approx(mixture_pdf(kernel, q_without[1], h, x), rel=1e-12, abs=1e-300)
    assert np.all(risk.density.bandwidths == h)


# --------------------------------------------------------------------------------------------------------- delta_i


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_laplace_with_one_bandwidth(name: str) -> None:
    q, q_without, h = made(name)
    found = empriv.measure(q, q_without, density=empriv.Kde("laplace", h)).delta_i(EPSILONS)
    for row, expected in zip(found, exact(name)[1], strict=True):
        assert row == pytest.approx(expected, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_epsilon_at_delta_zero_is_the_largest_log_ratio_for_laplace(name: str) -> None:
    q, q_without, h = made(name)
    found = empriv.measure(q, q_without, density=empriv.Kde("laplace", h)).epsilon_i(0.0)
    for epsilon, pair in zip(found, exact(name)[0], strict=True):
        assert epsilon == pytest.approx(float(pair.largest_log_ratio()), rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kernel", OTHER_KERNELS)
def test_other_kernels_with_one_bandwidth(name: str, kernel: str) -> None:
    q, q_without, h = made(name)
    found = empriv.measure(q, q_without, density=empriv.Kde(kernel, h)).delta_i(EPSILONS)
    for row, q_i in zip(found, q_without, strict=True):
        assert row == pytest.approx(delta_of(kernel, q, q_i, h, EPSILONS), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PDF)
@pytest.mark.parametrize("name", ["random", "clustered", "offset", "sparse", "small shifts", "large shifts"])
def test_variable_bandwidths(kernel: str, name: str) -> None:
    q, q_without, h = made(name)
    density = empriv.VariableKde(kernel, neighbours=4, scale=h)
    risk = empriv.measure(q, q_without, density=density)
    bandwidths = risk.density.bandwidths
    assert bandwidths == pytest.approx(h * neighbour_distances(q, 4), rel=1e-12)
    found = risk.delta_i(EPSILONS)
    for row, q_i in zip(found, q_without, strict=True):
        assert row == pytest.approx(delta_of(kernel, q, q_i, bandwidths, EPSILONS), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PDF)
def test_draws_of_a_randomised_query_are_paired_samples(kernel: str) -> None:
    rng = np.random.default_rng(5)
    q = rng.normal(0, 2, (6, 4))
    q_without = q - rng.normal(0, 1, (2, 6, 1))
    risk = empriv.measure(q, q_without, density=empriv.Kde(kernel, 0.8))
    assert risk.density.bandwidths.shape == (24,)
    for row, q_i in zip(risk.delta_i(EPSILONS), q_without, strict=True):
        assert row == pytest.approx(delta_of(kernel, q, q_i, 0.8, EPSILONS), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PDF)
@pytest.mark.parametrize("width", [1e-3, 1e3])
def test_bandwidths_far_from_the_spread_of_the_data(kernel: str, width: float) -> None:
    rng = np.random.default_rng(6)
    q = rng.normal(0, 1, 12)
    q_i = q - rng.choice([0.0, 1e-3, 0.5], 12)
    found = empriv.measure(q, q_i[None], density=empriv.Kde(kernel, width)).delta_i(EPSILONS)[0]
    assert found == pytest.approx(delta_of(kernel, q, q_i, width, EPSILONS), abs=1e-9)


# ------------------------------------------------------------------------------------------------ never understated


def _small_pairs() -> list[tuple[np.ndarray, np.ndarray, float]]:
    rng = np.random.default_rng(11)
    pairs = []
    for trial in range(36):
        n = int(rng.integers(1, 9))
        q = rng.integers(-4, 5, n) / 2 if trial % 3 == 0 else rng.normal(0, 10.0 ** rng.integers(-2, 3), n)
        d = rng.choice([0.0, 0.5, -1.0], n) if trial % 3 == 0 else rng.normal(0, 10.0 ** rng.integers(-6, 2), n)
        if trial % 4 == 3:
            q = q + 1e9
        if trial % 5 == 4:
            d[1:] = 0
        pairs.append((q, q - d, float(10.0 ** rng.uniform(-1, 1))))
    return pairs


@pytest.mark.slow
def test_never_understated_by_rounding() -> None:
    short = []
    for k, (q, q_i, h) in enumerate(_small_pairs()):
        pair = LaplacePair(q, q_i, h)
        top = float(pair.largest_log_ratio())
        # Near the threshold, where delta_i leaves zero, all of it is a difference of nearly equal numbers.
        near = [top * (1 - 10.0**-power) for power in (1, 3, 6, 9, 12)] if top > 0 else []
        epsilons = [*EPSILONS, *near]
        risk = empriv.measure(q, q_i[None], density=empriv.Kde("laplace", h))
        for epsilon, found in zip(epsilons, risk.delta_i(epsilons)[0], strict=True):
            exact = pair.delta(epsilon) - mp.mpf(10) ** -50  # the witness's own rounding
            assert 0 <= found <= 1
            assert float(found - exact) <= 1e-10
            if mp.mpf(float(found)) < exact:
                short.append((k, epsilon, float(found), float(exact - found)))
    assert short == []


# -------------------------------------------------------------------------------------------------------- epsilon_i


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PDF)
def test_epsilon_is_the_inverse(kernel: str) -> None:
    rng = np.random.default_rng(8)
    q = rng.normal(0, 2, 15)
    q_without = q - np.stack([rng.normal(0, 0.5, 15), rng.exponential(2, 15), np.zeros(15), np.eye(15)[4]])
    risk = empriv.measure(q, q_without, density=empriv.Kde(kernel, 0.8))
    curves = [mixture_curve(kernel, q, q_i, 0.8) for q_i in q_without]
    for delta in (1e-4, 0.01, 0.2):
        found = risk.epsilon_i(delta)
        assert found.shape == (4,)
        for epsilon, curve in zip(found, curves, strict=True):
            assert epsilon == pytest.approx(epsilon_of(curve, delta), abs=1e-6)
            if 0 < epsilon < math.inf:
                assert max(curve(epsilon)) == pytest.approx(delta, abs=1e-9)
        assert risk.epsilon(delta) == pytest.approx(found.max(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", PDF)
def test_round_trips(kernel: str) -> None:
    rng = np.random.default_rng(9)
    q = rng.normal(0, 2, 15)
    q_without = q - np.stack([rng.normal(0, 0.5, 15), rng.exponential(2, 15), np.eye(15)[4]])
    risk = empriv.measure(q, q_without, density=empriv.Kde(kernel, 0.8))
    for delta in (0.3, 0.05, 1e-3):
        epsilons = risk.epsilon_i(delta)
        for i, epsilon in enumerate(epsilons):
            if math.isinf(epsilon):
                assert risk.delta_i(50.0)[i] > delta
                continue
            # The promise holds at the epsilon given, and fails just below it.
            assert risk.delta_i(float(epsilon))[i] <= delta + 1e-12
            if epsilon > 0:
                assert risk.delta_i(float(epsilon) * (1 - 1e-6))[i] > delta - 1e-12
    for epsilon in (0.02, 0.2, 0.7):
        for i, delta in enumerate(risk.delta_i(epsilon)):
            if delta > 1e-6:
                assert risk.epsilon_i(float(delta))[i] == pytest.approx(epsilon, abs=1e-7)


@pytest.mark.parametrize("kernel", ["logistic", "student"])
def test_epsilon_at_delta_zero_is_the_largest_log_ratio_where_tails_bound_it(kernel: str) -> None:
    rng = np.random.default_rng(10)
    q = rng.normal(0, 2, 12)
    q_without = q - np.stack([rng.normal(0, 0.5, 12), rng.exponential(1, 12), np.eye(12)[3]])
    found = empriv.measure(q, q_without, density=empriv.Kde(kernel, 0.8)).epsilon_i(0.0)
    for epsilon, q_i in zip(found, q_without, strict=True):
        assert epsilon == pytest.approx(largest_log_ratio(kernel, q, q_i, 0.8), rel=1e-6)


def test_epsilon_of_gaussian_at_delta_zero_is_infinite_unless_the_extremes_agree() -> None:
    q = np.array([0.0, 1.0, 2.0, 3.0])
    q_without = np.array([[0.0, 1.0, 2.0, 2.9], [0.1, 1.0, 2.0, 3.0], [0.0, 1.4, 2.0, 3.0], q])
    risk = empriv.measure(q, q_without, density=empriv.Kde("gaussian", 0.5))
    found = risk.epsilon_i(0.0)
    assert found[0] == math.inf
    assert found[1] == math.inf
    assert found[2] == pytest.approx(largest_log_ratio("gaussian", q, q_without[2], 0.5), rel=1e-6)
    assert found[3] == 0
    assert risk.epsilon(0.0) == math.inf
    assert np.all(np.isfinite(risk.epsilon_i(1e-6)))


def test_epsilon_of_epanechnikov_is_infinite_below_the_mass_outside_the_other_support() -> None:
    q, q_i = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0, 3.4])
    risk = empriv.measure(q, q_i[None], density=empriv.Kde("epanechnikov", 0.5))
    # Beyond 3.5 only p_i has mass, that of one kernel of four above z = 0.2; below 2.9 only p, that below z = -0.2.
    outside = 0.25 * (1 - float(CDF["epanechnikov"](np.float64(0.2))))
    assert risk.epsilon(0.0) == math.inf
    assert risk.epsilon(outside * 0.999) == math.inf
    assert math.isfinite(risk.epsilon(outside * 1.001))
    assert risk.delta(60.0) == pytest.approx(outside, abs=1e-9)


@pytest.mark.parametrize("epsilon", [20.0, 40.0, 60.0, 300.0])
def test_mass_outside_the_other_support_is_not_lost_at_great_epsilons(epsilon: float) -> None:
    """e^epsilon times a rounding error is not small: what is exactly zero must be summed as exactly zero."""
    rng = np.random.default_rng(8)
    q, h = rng.normal(0, 2, 15), 0.8
    q_without = q - np.stack([rng.normal(0, 0.5, 15), rng.exponential(2, 15), np.eye(15)[4]])
    risk = empriv.measure(q, q_without, density=empriv.Kde("epanechnikov", h))
    for found, q_i in zip(risk.delta_i(epsilon), q_without, strict=True):
        exact = max(_mass_outside(q, q_i, h), _mass_outside(q_i, q, h))
        assert found == pytest.approx(exact, abs=1e-6 if epsilon == 20 else 1e-9)
        assert found >= exact - 1e-14


def _mass_outside(a: np.ndarray, b: np.ndarray, h: float) -> float:
    """Mass of the Epanechnikov mixture at `a` outside the support of that at `b`."""
    edges = np.sort(np.concatenate([a - h, a + h, b - h, b + h]))
    below = CDF["epanechnikov"]((edges[:, None] - a) / h).mean(axis=1)
    middles = (edges[1:] + edges[:-1]) / 2
    return float(np.diff(below)[~(np.abs(middles[:, None] - b) < h).any(axis=1)].sum())


def test_epsilon_is_zero_where_delta_allows_all() -> None:
    q, q_without, h = made("random")
    risk = empriv.measure(q, q_without, density=empriv.Kde("laplace", h))
    assert np.all(risk.epsilon_i(1.0) == 0)
    assert risk.epsilon(float(risk.delta(0.0))) == pytest.approx(0, abs=1e-9)
