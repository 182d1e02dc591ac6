"""What holds for every input: bounds, shape of the curve, symmetries, independence of how the work is cut."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate

import empriv
from table_results import of_entries

FEW = settings(derandomize=True, max_examples=25, deadline=None, database=None)
EPSILONS = np.array([0.0, 0.05, 0.1, 0.4, 1.0, 3.0])
KERNELS = ["laplace", "gaussian", "logistic", "epanechnikov", "student"]

# Halves give ties and lattices, floats give the rest.
numbers = st.one_of(st.integers(-20, 20).map(lambda k: k / 2), st.floats(-50, 50).map(lambda x: round(x, 6)))


@st.composite
def inputs(draw: st.DrawFn, individuals: int | None = None) -> tuple[np.ndarray, np.ndarray, float]:
    n = draw(st.integers(1, 9))
    count = draw(st.integers(1, 4)) if individuals is None else individuals
    q = draw(arrays(np.float64, n, elements=numbers))
    shifts = draw(arrays(np.float64, (count, n), elements=st.one_of(st.just(0.0), numbers)))
    return q, q - shifts, draw(st.sampled_from([0.1, 0.5, 1.0, 3.7]))


densities = st.sampled_from(KERNELS)


def _deltas(q: np.ndarray, q_without: np.ndarray, kernel: str, h: float) -> np.ndarray:
    return np.asarray(empriv.measure(q, q_without, density=empriv.Kde(kernel, h)).delta_i(EPSILONS))


@pytest.mark.slow
@FEW
@given(
    inputs(),
    densities,
    st.integers(-40, 40),
    st.sampled_from([2.0**-40, 1e-3, 0.3, 7.0, 2.0**40]),
    st.randoms(use_true_random=False),
)
def test_what_holds_of_every_curve(
    case: tuple[np.ndarray, np.ndarray, float], kernel: str, steps: int, scale: float, random: Any
) -> None:
    q, q_without, h = case
    delta_i = _deltas(q, q_without, kernel, h)
    assert delta_i.shape == (len(q_without), EPSILONS.size)
    assert np.all(delta_i >= 0)
    assert np.all(delta_i <= 1)
    assert np.all(np.diff(delta_i, axis=1) <= 1e-12)
    # Convex in e^epsilon: each value lies below the chord of its neighbours.
    e = np.exp(EPSILONS)
    weight = (e[2:] - e[1:-1]) / (e[2:] - e[:-2])
    chord = weight * delta_i[:, :-2] + (1 - weight) * delta_i[:, 2:]
    assert np.all(delta_i[:, 1:-1] <= chord + 1e-10)
    # Neither reflection nor a shift, nor the unit, nor the order of people and databases matters.
    assert _deltas(-q, -q_without, kernel, h) == pytest.approx(delta_i, abs=1e-10)
    assert _deltas(q + steps / 4, q_without + steps / 4, kernel, h) == pytest.approx(delta_i, abs=1e-10)
    assert _deltas(scale * q, scale * q_without, kernel, scale * h) == pytest.approx(delta_i, abs=1e-10)
    people, databases = list(range(len(q_without))), list(range(len(q)))
    random.shuffle(people)
    random.shuffle(databases)
    assert _deltas(q, q_without[people], kernel, h) == pytest.approx(delta_i[people], abs=1e-14)
    assert _deltas(q[databases], q_without[:, databases], kernel, h) == pytest.approx(delta_i, abs=1e-12)
    # Each epsilon by itself, and entries only where somebody makes a difference.
    risk = empriv.measure(_sparse(q, q_without), density=empriv.Kde(kernel, h))
    assert risk.delta_i(EPSILONS) == pytest.approx(delta_i, abs=1e-13)
    delta, total = risk.delta(EPSILONS), risk.total_risk(EPSILONS)
    for k, epsilon in enumerate(EPSILONS.tolist()):
        assert risk.delta_i(epsilon) == pytest.approx(delta_i[:, k], abs=1e-12)
        assert risk.delta(epsilon) == pytest.approx(delta[k], abs=1e-12)
        assert risk.total_risk(epsilon) == pytest.approx(total[k], abs=1e-12)


@FEW
@given(inputs(), densities)
def test_nearer_than_the_bandwidth_allows_is_no_reveal(case: tuple[np.ndarray, np.ndarray, float], kernel: str) -> None:
    """Mediant inequality: max_j |d_j| Lip/h <= epsilon proves delta_i = 0, and bounds epsilon_i(0)."""
    q, q_without, h = case
    lipschitz = empriv.KERNELS[kernel].log_lipschitz
    risk = empriv.measure(q, q_without, density=empriv.Kde(kernel, h))
    furthest = np.abs(q - q_without).max(axis=1)
    if math.isfinite(lipschitz):
        assert np.all(risk.epsilon_i(0.0) <= furthest * lipschitz / h * (1 + 1e-9) + 1e-12)
        for i, reach in enumerate(furthest):
            assert risk.delta_i(float(reach * lipschitz / h * (1 + 1e-9)))[i] <= 1e-14


@FEW
@given(inputs(individuals=1), densities)
def test_the_two_sides_are_interchangeable(case: tuple[np.ndarray, np.ndarray, float], kernel: str) -> None:
    q, q_without, h = case
    assert _deltas(q_without[0], q[None], kernel, h) == pytest.approx(_deltas(q, q_without, kernel, h), abs=1e-12)


@FEW
@given(inputs(), densities)
def test_the_same_everywhere_is_no_reveal(case: tuple[np.ndarray, np.ndarray, float], kernel: str) -> None:
    q, _, h = case
    risk = empriv.measure(q, q[None], density=empriv.Kde(kernel, h))
    assert np.all(risk.delta_i(EPSILONS) == 0)
    assert risk.epsilon(0.0) == 0
    assert risk.total_risk(0.0) == 0


@FEW
@given(inputs(), densities)
def test_reordered_results_are_no_reveal(case: tuple[np.ndarray, np.ndarray, float], kernel: str) -> None:
    """The densities forget which database gave which result."""
    q, _, h = case
    # Not quite zero: what is added lest rounding understate may show.
    assert np.all(_deltas(q, q[None, ::-1], kernel, h) <= 1e-10)


@FEW
@given(inputs(), densities)
def test_worst_and_total(case: tuple[np.ndarray, np.ndarray, float], kernel: str) -> None:
    q, q_without, h = case
    risk = empriv.measure(q, q_without, density=empriv.Kde(kernel, h))
    delta_i, delta, total = risk.delta_i(EPSILONS), risk.delta(EPSILONS), risk.total_risk(EPSILONS)
    assert np.asarray(delta).shape == np.asarray(total).shape == EPSILONS.shape
    assert np.all(delta == delta_i.max(axis=0))
    assert np.all(total >= delta)
    assert np.all(total <= 1)
    assert total == pytest.approx(1 - np.prod(1 - delta_i, axis=0), abs=1e-12)


def test_total_risk_keeps_its_digits_when_tiny() -> None:
    risk = empriv.measure([0.0], np.full((1000, 1), 1e-9), density=empriv.Kde("laplace", 1.0))
    delta_i = risk.delta_i(0.0)
    one = -math.expm1(-0.5e-9)  # one Laplace kernel shifted by 1e-9
    assert delta_i == pytest.approx(np.full(1000, one), rel=0.01)
    assert risk.total_risk(0.0) == pytest.approx(-math.expm1(np.log1p(-delta_i).sum()), rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_order_and_number_of_epsilons_do_not_matter(kernel: str) -> None:
    rng = np.random.default_rng(2)
    q = rng.normal(0, 1, 20)
    risk = empriv.measure(q, q - rng.exponential(0.5, (3, 20)), density=empriv.Kde(kernel, 0.4))
    many = np.concatenate([np.linspace(0, 3, 201), [0.1, 0.1, 0.0]])
    shuffled = rng.permutation(many.size)
    delta_i = risk.delta_i(many)
    assert risk.delta_i(many[shuffled]) == pytest.approx(delta_i[:, shuffled], abs=1e-13)
    assert delta_i[:, -1] == pytest.approx(delta_i[:, 0], abs=1e-15)


def _sparse(q: np.ndarray, q_without: np.ndarray) -> empriv.Results:
    """The same results with an entry only where the individual makes a difference."""
    present = (q_without != q).reshape(*q_without.shape[:2], -1).any(axis=-1)
    person, database = np.nonzero(present)
    starts = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    draws = None if q.ndim == 1 else q.shape[1]
    return of_entries(q, database, q_without[person, database], starts, draws=draws)


@pytest.mark.parametrize("density", [empriv.Kde(), empriv.VariableKde("gaussian"), empriv.Ecdf()])
def test_dense_equals_sparse_with_draws_and_fitted_densities(density: Any) -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(0, 1, (12, 3))
    q_without = np.repeat(q[None], 3, axis=0)
    q_without[0, 2] -= 0.5
    q_without[1, 4:8] -= 1.0
    dense = empriv.measure(q, q_without, density=density)
    sparse = empriv.measure(_sparse(q, q_without), density=density)
    assert sparse.delta_i(EPSILONS) == pytest.approx(dense.delta_i(EPSILONS), abs=1e-13)
    assert dense.delta_i(EPSILONS)[2] == pytest.approx(np.zeros(EPSILONS.size), abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_how_the_individuals_are_cut_does_not_matter(kernel: str) -> None:
    rng = np.random.default_rng(7)
    count, n = (3000, 12) if kernel == "laplace" else (400, 12)
    q = rng.normal(0, 1, n)
    q_without = q - rng.exponential(0.3, (count, n)) * (rng.random((count, n)) < 0.4)
    together = _deltas(q, q_without, kernel, 0.5)
    for i in rng.choice(count, 25, replace=False):
        assert together[i] == pytest.approx(_deltas(q, q_without[i : i + 1], kernel, 0.5)[0], abs=1e-13)
    twice = _deltas(q, np.concatenate([q_without, q_without[:7]]), kernel, 0.5)
    assert twice[:count] == pytest.approx(together, abs=1e-13)
    assert twice[count:] == pytest.approx(together[:7], abs=1e-13)


@pytest.mark.slow
@FEW
@given(inputs(), st.sampled_from(["laplace", "gaussian"]))
def test_smoothing_flatters(case: tuple[np.ndarray, np.ndarray, float], kernel: str) -> None:
    """Twice the bandwidth of these two kernels is a further smoothing of both sides: it can only shrink delta_i."""
    q, q_without, h = case
    assert np.all(_deltas(q, q_without, kernel, 2 * h) <= _deltas(q, q_without, kernel, h) + 1e-10)


@pytest.mark.parametrize("span", [None, 3, 8])
def test_differenced_distribution_function_is_a_density(span: int | None) -> None:
    rng = np.random.default_rng(13)
    q = rng.normal(0, 1, 40)
    q_without = q - rng.exponential(0.3, (3, 40))
    risk = empriv.measure(q, q_without, density=empriv.Ecdf(span))
    knots = np.sort(q)
    edges = np.concatenate([[knots[0] - 1], knots, [knots[-1] + 1]])
    middles = (knots[1:] + knots[:-1]) / 2
    # Piecewise constant between results, and nothing but a density: not negative, of mass one.
    for share in (0.1, 0.9):
        assert risk.pdf(knots[:-1] + share * np.diff(knots)) == pytest.approx(risk.pdf(middles), rel=1e-9)
    assert np.all(risk.pdf(middles) >= 0)
    mass = sum(integrate.quad(lambda x: float(risk.pdf(x)), a, b)[0] for a, b in itertools.pairwise(edges))
    assert mass == pytest.approx(1, abs=1e-9)
    delta_i = risk.delta_i(EPSILONS)
    assert np.all((delta_i >= 0) & (delta_i <= 1))
    assert np.all(np.diff(delta_i, axis=1) <= 1e-12)
    assert delta_i[:, 0].max() > 0.05
    same = empriv.measure(q, q[None], density=empriv.Ecdf(span))
    assert np.all(same.delta_i(EPSILONS) == 0)
