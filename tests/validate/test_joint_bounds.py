"""Bounds and checks of several numbers together; coverage is measured by benchmarks/joint.py."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import ndtr

import empriv
from empriv.measuring.joint.joint_risk import measure_joint
from empriv.results import Results
from empriv.validate.bounds.joint_bounds import paired_values

Array = npt.NDArray[np.float64]


def stacked(q: Array, without: Array) -> Results:
    return Results.stack({"abcde"[k]: Results.from_arrays(q[:, k], without[:, :, k]) for k in range(q.shape[1])})


def shifted(n: int, shift: Array, seed: int) -> Results:
    q = np.random.default_rng(seed).normal(size=(n, len(shift)))
    return stacked(q, (q - shift)[None])


def test_the_mean_of_paired_values_is_the_hockey_stick() -> None:
    risk = measure_joint(shifted(40, np.array([0.5, 0.3]), 1))
    values = paired_values(risk.pairs, risk.engines, 0, np.array([0.1, 0.4]))
    both = risk.both_directions(0, np.array([0.1, 0.4]))
    np.testing.assert_allclose(values.mean(axis=2).T, np.stack(both), atol=2e-3)
    assert not np.allclose(1.3 * values.mean(axis=2).T, np.stack(both), atol=2e-3)


@pytest.mark.slow
def test_bounds_hold_on_a_normal_law_and_are_not_empty() -> None:
    # Mahalanobis distance 1: the truth is 0.344 at epsilon 0.1; twelve runs at a level of 95% miss two with p < 0.12
    truth = float(ndtr(0.4) - math.exp(0.1) * ndtr(-0.6))
    held, under, uppers, lowers = 0, 0, [], []
    for seed in range(12):
        found = empriv.bounds(measure_joint(shifted(100, np.array([0.8, 0.6]), seed)), 0.1)
        held += found.upper >= truth
        under += found.lower <= truth
        uppers.append(found.upper)
        lowers.append(found.lower)
        assert found.lower <= found.estimate <= found.upper
    assert held >= 11
    assert under >= 11
    assert np.median(uppers) < 0.8
    assert np.median(lowers) > 0.02


def test_no_influence_is_bounded_by_the_floor() -> None:
    found = empriv.bounds(measure_joint(shifted(60, np.array([0.0, 0.0]), 2)), 0.1)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 60))
    assert found.lower == 0.0


def test_an_exact_leak_is_demonstrated() -> None:
    rng = np.random.default_rng(4)
    rest, x = rng.normal(100, 10, 60), rng.lognormal(0, 0.5, 60)
    q = np.stack((rest + x, rest), axis=1)
    risk = measure_joint(stacked(q, np.stack((rest, rest), axis=1)[None]))
    found = empriv.bounds(risk, [0.1, 1.0])
    assert np.all(found.upper == 1.0)
    assert np.all(found.lower > 0.5)
    assert any(check.code == "exact-leak" and "a less b" in check.sentence for check in empriv.checks(risk, 0.1))


def test_few_databases_have_no_upper_bound() -> None:
    found = empriv.bounds(measure_joint(shifted(20, np.array([0.5, 0.5]), 3)), 0.1)
    assert found.upper == 1.0
    assert "at least 30" in found.notes[0]


def test_dependence_in_one_component_is_found() -> None:
    rng = np.random.default_rng(6)
    q = rng.normal(size=(100, 2))
    calm = measure_joint(stacked(q, (q - 0.1)[None]))
    q[:, 1] += np.linspace(0, 4, 100)
    trend = measure_joint(stacked(q, (q - 0.1)[None]))

    def severity(risk: object) -> str:
        return next(check.severity for check in empriv.checks(risk, 0.1) if check.code == "iid")  # type: ignore[arg-type]

    assert severity(calm) == "info"
    assert severity(trend) == "error"


def test_some_databases_of_results() -> None:
    results = shifted(10, np.array([1.0, 2.0]), 7)
    some = results.on_databases(np.array([1, 4, 9]))
    np.testing.assert_array_equal(some.without(0), results.without(0)[[1, 4, 9]])
