"""Mechanisms of known privacy, audited as randomised queries on fixed rows; benchmarks/calibration.py has them all.

The truth is a closed form, and dp-accounting its witness. How often bounds hold in many runs is printed by the
benchmark (docs/judge.md); here a few seeded runs of each must hold, and broken mechanisms be caught.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dp_accounting.pld import privacy_loss_distribution as witness

import empriv
from loading import benchmark

pytestmark = pytest.mark.slow

calibration = benchmark("calibration")

SOUND = {mechanism.name: mechanism for mechanism in calibration.sound()}
BROKEN = {mechanism.name: mechanism for mechanism in calibration.broken()}
EPSILONS = (0.0, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5)

WITNESSES: dict[str, Callable[[], Any]] = {
    "Laplace, epsilon 1": lambda: witness.from_laplace_mechanism(1.0),
    "Laplace, epsilon 0.5": lambda: witness.from_laplace_mechanism(2.0),
    "Gaussian, sigma 1": lambda: witness.from_gaussian_mechanism(1.0),
    "Gaussian, sigma 2": lambda: witness.from_gaussian_mechanism(2.0),
    "geometric, epsilon 1": lambda: witness.from_discrete_laplace_mechanism(1.0),
    "geometric, epsilon 0.5": lambda: witness.from_discrete_laplace_mechanism(0.5),
    # dp-accounting says how often the answer is drawn at random, the truth among the draws.
    "randomised response, epsilon 1": lambda: witness.from_randomized_response(2 / (np.e + 1), 2),
    "randomised response, 5 categories, epsilon 1": lambda: witness.from_randomized_response(5 / (np.e + 4), 5),
    "two answers, Laplace, epsilon 0.5 each": lambda: witness.from_laplace_mechanism(2.0).self_compose(2),
}


@pytest.mark.parametrize("name", WITNESSES)
def test_the_closed_form_of_the_most_exposed_is_what_dp_accounting_says(name: str) -> None:
    law = WITNESSES[name]()
    for epsilon in EPSILONS:
        # The witness rounds losses up to multiples of 1e-4: it lies above, by e^epsilon times as much at most.
        above = law.get_delta_for_epsilon(epsilon) - SOUND[name].delta(epsilon)
        assert -1e-9 <= above <= 3e-4 * np.exp(epsilon)


def test_dp_accounting_tells_one_mechanism_from_another() -> None:
    assert WITNESSES["Laplace, epsilon 1"]().get_delta_for_epsilon(0.5) > SOUND["Laplace, epsilon 0.5"].delta(0.5) + 0.2


def test_rounding_afterwards_loses_no_privacy() -> None:
    rounded, plain = SOUND["Laplace, epsilon 0.5, then rounded"], SOUND["Laplace, epsilon 0.5"]
    for epsilon in EPSILONS:
        assert np.all(np.array(rounded.truth(epsilon)) <= np.array(plain.truth(epsilon)) + 1e-12)


@pytest.mark.parametrize("name", SOUND)
def test_the_bounds_contain_the_truth_and_no_sound_mechanism_is_accused(name: str) -> None:
    mechanism = SOUND[name]
    epsilons = calibration.epsilons_of(mechanism)
    truth_i = np.array([mechanism.truth(epsilon) for epsilon in epsilons]).T
    for seed in (1, 2):
        found = mechanism.audit(seed, databases=150).bounds(epsilons, level=0.999)
        assert np.all(found.lower <= truth_i.max(axis=0) + 1e-12)
        assert np.all(found.upper_i >= truth_i - 1e-12)
        assert found.lower[epsilons.index(mechanism.promise[0])] <= mechanism.promise[1] + 1e-12


def test_the_bounds_of_another_mechanism_do_not() -> None:
    """Twice the noise is seen: the upper bound at epsilon 0 lies below what the smaller noise would give."""
    found = SOUND["Laplace, epsilon 0.5"].audit(1, databases=400).bounds(0.0)
    assert found.upper < SOUND["Laplace, epsilon 1"].delta(0.0)


@pytest.mark.parametrize(
    "name",
    [
        "mean that forgets to clip",
        "noise reused between two answers",
        "noise from a constant seed",
        "noise seeded by the data",
    ],
)
def test_a_gross_fault_is_caught_by_sixty_runs(name: str) -> None:
    mechanism = BROKEN[name]
    epsilon, delta = mechanism.promise
    audit = mechanism.audit(1, databases=60)
    assert audit.bounds(epsilon).lower > delta + 0.3
    assert audit.verdict(epsilon=epsilon, delta=0.3) == "fail"


@pytest.mark.parametrize(
    "name", ["Laplace noise too small by 2", "Gaussian noise too small by 2", "geometric noise too small by 2"]
)
def test_noise_too_small_by_two_is_caught(name: str) -> None:
    mechanism = BROKEN[name]
    epsilon, delta = mechanism.promise
    assert mechanism.audit(1, databases=600).bounds(epsilon).lower > delta


def opendp_laplace() -> tuple[Callable[[float], float], float, Callable[[float], float]]:
    import opendp.prelude as dp

    made = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)
    return made, made.map(1.0), lambda epsilon: calibration.laplace_delta(1.0, 1.0, epsilon)


def opendp_gaussian() -> tuple[Callable[[float], float], float, Callable[[float], float]]:
    import opendp.prelude as dp

    made = dp.m.make_gaussian(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)
    return made, 1.0, lambda epsilon: calibration.gaussian_delta(1.0, 1.0, epsilon)


def opendp_integers() -> tuple[Callable[[float], float], float, Callable[[float], float]]:
    import opendp.prelude as dp

    made = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=1.0)
    return lambda x: made(int(x)), made.map(1), lambda epsilon: calibration.geometric_delta(1, 1.0, epsilon)


def opendp_response() -> tuple[Callable[[float], float], float, Callable[[float], float]]:
    import opendp.prelude as dp

    made = dp.m.make_randomized_response_bool(prob=0.75)

    def truth(epsilon: float) -> float:
        return calibration.masses_delta([0.75, 0.25], [0.25, 0.75], epsilon)

    return lambda x: float(made(x > 0.5)), made.map(1), truth


@pytest.mark.parametrize("make", [opendp_laplace, opendp_gaussian, opendp_integers, opendp_response])
def test_the_bounds_contain_the_truth_of_opendps_mechanisms(make: Callable[[], Any]) -> None:
    """OpenDP draws from the operating system, so that no seed repeats a run: hence the level of one in 10,000."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    mechanism, promised, truth = make()
    rows = pa.table({"who": ["a", "b"], "value": [1.0, 0.0]})
    data = empriv.repeats(rows, individual="who", count=150)
    audit = empriv.audit(data, lambda rows, _rng: mechanism(float(rows["value"].sum())), draws=1, jobs=1)
    found = audit.bounds([0.0, promised / 2, promised], level=0.9999)
    expected = np.array([truth(epsilon) for epsilon in found.epsilon])
    assert np.all(found.lower <= expected + 1e-12)
    assert np.all(found.upper >= expected - 1e-12)
    assert found.estimate[0] > 0.1  # without noise a gate may refuse an upper bound, once in a hundred


def test_the_benchmark_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    calibration.tables(runs=1, databases=40, processes=1, names="constant seed")
    said = capsys.readouterr().out
    assert "40 databases" in said
    assert "| broken: noise from a constant seed | 0.5, 0.0000 | 1.0000 |" in said
