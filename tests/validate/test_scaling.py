"""What checks do at many databases: the same figures as the plain way, in less time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.measuring import measure
from empriv.measuring.given.battery import concordance, concordance_in_numpy
from empriv.measuring.line.risk import measure_line
from empriv.validate.checks.robustness import (
    FAMILIES,
    highest_deltas,
    largest_delta,
    other_densities,
    risk_of_rows,
    sensitivity,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_concordance_counts_pairs(values: list[int], seed: int) -> None:
    x = np.asarray(values, float)
    n = len(x)
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(n), (5, 1)), axis=1)
    counted = [
        sum(np.sign(one[j] - one[i]) for i in range(n) for j in range(i + 1, n)) for one in (x[row] for row in order)
    ]
    assert concordance(x, order).tolist() == counted
    assert concordance_in_numpy(x, order).tolist() == counted


def test_concordance_of_a_trend() -> None:
    forth = np.arange(101)[None, :]
    for count in (concordance, concordance_in_numpy):
        assert count(np.arange(101.0), np.concatenate((forth, forth[:, ::-1]))).tolist() == [5050.0, -5050.0]


def test_some_individuals_have_the_same_risk() -> None:
    rng = np.random.default_rng(3)
    q = rng.normal(size=50)
    without = q - rng.exponential(0.1, size=(7, 50)) * (rng.random((7, 50)) < 0.5)
    risk = measure(q, without)
    rows = np.array([5, 0, 3])
    assert np.array_equal(risk_of_rows(risk, rows).delta_i([0.0, 0.1]), risk.delta_i([0.0, 0.1])[rows])


def test_other_densities_are_those_fitted_one_by_one() -> None:
    rng = np.random.default_rng(6)
    q = np.round(rng.normal(100.0, 20.0, 60))  # on a lattice, which somebody leaves
    without = q - rng.exponential(3.0, size=(4, 60)).round()
    without[2] -= 0.5
    risk = measure(q, without, density=empriv.Kde("student"))
    rows = np.array([2, 0])
    others = other_densities(risk, rows)
    assert list(others) == list(FAMILIES)
    for name, density in FAMILIES.items():
        alone = measure_line(risk.results.of_individuals(rows), density, people=4)
        assert np.array_equal(others[name].delta_i([0.0, 0.3]), alone.delta_i([0.0, 0.3])), name


@pytest.mark.parametrize("density", FAMILIES.values())
@pytest.mark.parametrize("leak", [False, True])
def test_the_largest_delta_needs_few_people(density: empriv.Density, leak: bool) -> None:
    """Also where somebody leaves the lattice, and where results spread less without somebody."""
    rng = np.random.default_rng(7)
    q = rng.normal(100.0, 20.0, 60)
    without = q - rng.exponential(4.0, size=(90, 60)) * (rng.random((90, 60)) < rng.random((90, 1)))
    if leak:
        q, without = np.round(q), np.round(without)
        without[5] += 0.25 * (np.arange(60) < 4)
        without[6] = np.round(100.0 + 0.2 * (q - 100.0))
    risk = measure(q, without, density=density)
    for epsilon in (0.0, 0.1, 1.0):
        assert np.all(risk.delta_i(epsilon) <= highest_deltas(risk, epsilon))
        assert largest_delta(risk, epsilon) == pytest.approx(risk.delta(epsilon), rel=1e-9, abs=1e-11)
    assert np.mean(highest_deltas(risk, 0.1) < risk.delta(0.1)) > 0.4
    logistic = measure(q, without, density=empriv.Kde("logistic"))
    assert np.isinf(highest_deltas(logistic, 0.1)).all()  # which measures everyone


@pytest.mark.slow
def test_many_databases_are_smoothed_otherwise_too() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(size=2_100)
    risk = measure(empriv.Results.from_arrays(q, q - rng.exponential(0.05, size=(2, 2_100))))
    others = other_densities(risk, np.array([0]))
    assert list(others) == ["laplace kernel", "gaussian kernel"]
    gaussian = others["gaussian kernel"].density
    assert gaussian.kernel.name == "gaussian"
    assert gaussian.bandwidth == pytest.approx(risk.density.bandwidth / 0.74)
    found = sensitivity(risk, 0.05)
    assert {"half the bandwidth", "double the bandwidth", "laplace kernel", "gaussian kernel"} == set(found)
    assert found["double the bandwidth"] < found["half the bandwidth"]
    assert found["gaussian kernel"] == pytest.approx(found["laplace kernel"], rel=0.5)
