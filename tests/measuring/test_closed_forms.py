"""delta_i where the answer is known: single kernels are mechanisms, large samples tend to the smoothed law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_mechanism
from scipy import special

import empriv
from oracles import counterexample, gaussian_shift, laplace_shift, smoothed_laplace_shift

EPSILONS = [0.0, 0.01, 0.1, 0.5, 1.0, 2.0]
RATIOS = [1e-3, 0.1, 0.5, 1.0, 3.0, 8.0]  # shift over bandwidth


def _laplace_quantiles(n: int, scale: float) -> np.ndarray:
    u = (np.arange(n) + 0.5) / n - 0.5
    return -scale * np.sign(u) * np.log1p(-2 * np.abs(u))


# ------------------------------------------------------------------------------- one database: a mechanism itself


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize(
    ("kernel", "closed", "loss"),
    [
        ("laplace", laplace_shift, privacy_loss_mechanism.LaplacePrivacyLoss),
        ("gaussian", gaussian_shift, privacy_loss_mechanism.GaussianPrivacyLoss),
    ],
)
def test_two_single_kernels_are_the_mechanism_of_their_name(ratio: float, kernel: str, closed: Any, loss: Any) -> None:
    h = 0.7
    found = empriv.measure([5.0], [[5.0 - ratio * h]], density=empriv.Kde(kernel, h)).delta_i(EPSILONS)[0]
    witness = loss(h, sensitivity=ratio * h)
    assert found == pytest.approx([closed(ratio * h, h, epsilon) for epsilon in EPSILONS], abs=1e-9)
    assert found == pytest.approx([witness.get_delta_for_epsilon(epsilon) for epsilon in EPSILONS], abs=1e-9)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01, 0.3])
def test_epsilon_of_the_mechanisms(delta: float) -> None:
    laplace = empriv.measure([0.0], [[1.0]], density=empriv.Kde("laplace", 0.5)).epsilon(delta)
    # 1 - exp((ε - 2)/2) = δ
    assert laplace == pytest.approx(2 + 2 * math.log1p(-delta), abs=1e-9)
    gaussian = empriv.measure([0.0], [[1.0]], density=empriv.Kde("gaussian", 0.5)).epsilon(delta)
    if delta == 0:
        assert gaussian == math.inf
    else:
        assert gaussian_shift(1.0, 0.5, gaussian) == pytest.approx(delta, abs=1e-9)
        assert gaussian == pytest.approx(get_epsilon_gaussian(0.5, delta), abs=1e-6)


def test_other_single_kernels_have_monotone_or_symmetric_likelihood_ratios() -> None:
    shift, h = 0.9, 0.6
    z = shift / h / 2
    # At epsilon 0 the better set is a half line from the midpoint: total variation = F(z) - F(-z).
    total_variation = {
        "logistic": float(np.tanh(z / 2)),
        "epanechnikov": (3 * z - z**3) / 2,
        "student": float(2 * special.stdtr(4, z) - 1),
    }
    for kernel, expected in total_variation.items():
        risk = empriv.measure([0.0], [[shift]], density=empriv.Kde(kernel, h))
        assert risk.delta(0.0) == pytest.approx(expected, abs=1e-9)


def test_disjoint_epanechnikov_kernels_tell_all() -> None:
    risk = empriv.measure([0.0, 10.0], [[5.0, 15.0]], density=empriv.Kde("epanechnikov", 1.0))
    assert risk.delta(0.0) == 1
    assert risk.delta(3.0) == 1
    assert risk.epsilon(0.5) == math.inf


# -------------------------------------------------------------------------------- many databases: the smoothed law


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "sd", "h"), [(0.3, 1.0, 0.2), (1.0, 2.0, 0.5), (0.05, 1.0, 0.3)])
def test_shifted_gaussians_tend_to_the_closed_form(shift: float, sd: float, h: float) -> None:
    # N(0, sd²) data under a Gaussian kernel is N(0, sd² + h²).
    expected = np.array([gaussian_shift(shift, math.hypot(sd, h), epsilon) for epsilon in EPSILONS])
    errors = []
    for n in (50, 200, 800):
        q = sd * special.ndtri((np.arange(n) + 0.5) / n)
        found = empriv.measure(q, (q + shift)[None], density=empriv.Kde("gaussian", h)).delta_i(EPSILONS)[0]
        errors.append(np.abs(found - expected).max())
    assert errors[2] < 8e-4
    assert errors[2] < errors[0] / 4
    # The test can tell: leaving the smoothing out of account is further off than that.
    unsmoothed = gaussian_shift(shift, sd, 0.0)
    assert abs(unsmoothed - expected[0]) > 1e-4 + errors[2]


@pytest.mark.parametrize(("shift", "scale", "h"), [(0.3, 1.0, 0.2), (1.0, 2.0, 0.5), (0.5, 0.3, 1.0)])
def test_shifted_laplaces_tend_to_the_closed_form(shift: float, scale: float, h: float) -> None:
    expected = np.array([smoothed_laplace_shift(shift, scale, h, epsilon) for epsilon in EPSILONS])
    errors = []
    for n in (100, 400, 1600):
        q = _laplace_quantiles(n, scale)
        found = empriv.measure(q, (q + shift)[None], density=empriv.Kde("laplace", h)).delta_i(EPSILONS)[0]
        errors.append(np.abs(found - expected).max())
    assert errors[2] < 1e-3
    assert errors[2] < errors[0] / 4


def test_laplace_data_with_a_narrow_kernel_is_nearly_the_laplace_mechanism() -> None:
    n, shift = 4000, 0.8
    q = _laplace_quantiles(n, 1.0)
    found = empriv.measure(q, (q + shift)[None], density=empriv.Kde("laplace", 0.02)).delta_i([0.0, 0.1, 0.5])[0]
    assert found == pytest.approx([laplace_shift(shift, 1.0, epsilon) for epsilon in (0.0, 0.1, 0.5)], abs=5e-3)


# ---------------------------------------------------------------------------------- the paper's Proposition 1 fails


@pytest.mark.parametrize("h", [0.5, 1.0, 4.0, 20.0])
def test_multiplicity_counts_though_the_hausdorff_distance_is_zero(h: float) -> None:
    a, b = np.array([0.0] * 9 + [10.0]), np.array([0.0] + [10.0] * 9)
    risk = empriv.measure(a, b[None], density=empriv.Kde("laplace", h))
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 2.5):
        expected, largest = counterexample(h, epsilon)
        assert risk.delta(epsilon) == pytest.approx(expected, abs=1e-10)
    assert risk.epsilon(0.0) == pytest.approx(largest, rel=1e-9)
    # With lambda >= W_inf/epsilon (sorted, the samples are 10 apart) the promise does hold.
    assert risk.epsilon(0.0) <= 10 / h


def test_the_densities_of_the_counterexample_differ_by_a_factor_of_nine() -> None:
    a, b = np.array([0.0] * 9 + [10.0]), np.array([0.0] + [10.0] * 9)
    risk = empriv.measure(a, b[None], density=empriv.Kde("laplace", 0.1))
    assert math.exp(risk.epsilon(0.0)) == pytest.approx(9, rel=1e-9)


def test_the_worst_epsilon_is_that_of_everybody_asked_alone() -> None:
    """People who change much in few databases, and little in many: neither the largest change nor the reach decides."""
    rng = np.random.default_rng(2)
    q = rng.normal(0.0, 1.0, 60)
    change = np.where(
        rng.random((400, 60)) < rng.choice([0.02, 0.2, 0.9], (400, 1)), rng.exponential(1.0, (400, 60)), 0
    )
    risk = empriv.measure(q, q - change * rng.lognormal(-1.0, 1.0, (400, 1)))
    for delta in (0.0, 0.01):
        assert risk.epsilon(delta) == risk.epsilon_i(delta).max() > 0
