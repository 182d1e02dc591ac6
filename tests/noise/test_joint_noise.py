"""Noise for several numbers together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from empriv.errors import CertificateError, InputError
from empriv.measuring.joint.joint_risk import JointRisk, measure_joint
from empriv.noise.joint_noise import design_joint_noise, lattice_influence
from empriv.results import Outcome, Results


def risk_of(n: int = 40, people: int = 5, *, seed: int = 1) -> JointRisk:
    rng = np.random.default_rng(seed)
    q = rng.normal(100, 10, (n, 2))
    influence = rng.lognormal(0, 0.5, (people, n, 2)) * np.array([1.0, 3.0])
    return measure_joint(
        Results.stack({name: Results.from_arrays(q[:, k], (q - influence)[:, :, k]) for k, name in enumerate("ab")})
    )


def test_every_observed_pair_keeps_epsilon_on_the_lattice() -> None:
    risk = risk_of()
    noise = design_joint_noise(risk, epsilon=0.5, granularity=0.25)
    scales = np.array([law.parts[0].scale for law in noise.laws.values()])
    influence = lattice_influence(risk.results, [0.25, 0.25])
    # by hand: rounded answers, differences in steps
    q, entries = np.rint(risk.results.q / 0.25), np.rint(risk.results.entry_q / 0.25)
    steps = np.abs(q[risk.results.entry_database] - entries)
    np.testing.assert_array_equal(influence, 0.25 * steps)
    assert (influence / scales).sum(axis=1).max() <= 0.5
    assert noise.achieved_epsilon == pytest.approx(0.5, rel=1e-6)  # no more noise than needed
    assert noise.holds


@pytest.mark.slow
def test_the_scales_are_the_best_of_all_mixes() -> None:
    risk = risk_of(seed=2)
    noise = design_joint_noise(risk, epsilon=0.5, granularity=0.25)
    influence = lattice_influence(risk.results, [0.25, 0.25])
    spreads = [np.std(risk.results.q[:, c], ddof=1) for c in range(2)]
    quartiles = [np.subtract(*np.quantile(risk.results.q[:, c], [0.75, 0.25])) / 1.349 for c in range(2)]
    weights = 1.0 / np.minimum(spreads, quartiles)

    def cost(rates: np.ndarray) -> float:
        return float((weights / rates).sum())

    best = np.inf
    for share in np.linspace(0.01, 0.99, 300):  # along each ray of rates, the largest that is allowed
        found = linprog([-1.0], A_ub=(influence @ [share, 1 - share])[:, None], b_ub=np.full(len(influence), 0.5))
        best = min(best, cost(found.x[0] * np.array([share, 1 - share])))
    achieved = cost(1.0 / np.array([law.parts[0].scale for law in noise.laws.values()]))
    assert achieved <= best * (1 + 1e-6)
    assert achieved > 0.98 * best


def test_noise_hides_the_differencing_attack_when_measured_again() -> None:
    rng = np.random.default_rng(3)
    rest, x = rng.normal(100, 10, 41), rng.lognormal(0, 0.5, 41)
    q, without = np.stack((rest + x, rest), axis=1), np.stack((rest, rest), axis=1)[None]
    results = Results.stack({name: Results.from_arrays(q[:, k], without[:, :, k]) for k, name in enumerate("ab")})
    risk = measure_joint(results)
    assert risk.delta(0.5) == 1.0
    noise = design_joint_noise(risk, epsilon=0.5, granularity=0.125)
    again = noise.remeasure(draws=16, rng=0)
    # 656 noisy results on each side, drawn independently: what is left is the error of two such densities
    assert again.delta(0.5) < 0.15
    assert not again.leaks


def test_a_number_that_nobody_changes_gets_no_noise() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(size=(30, 2))
    without = q.copy()
    without[:, 0] -= 0.5
    risk = measure_joint(
        Results.stack({name: Results.from_arrays(q[:, k], without[None, :, k]) for k, name in enumerate("ab")})
    )
    noise = design_joint_noise(risk, epsilon=1.0, granularity={"a": 0.25, "b": 0.5})
    assert noise.expected_error["b"] == 0.0
    assert noise.expected_error["a"] > 0.4


def test_what_noise_cannot_hide_is_refused() -> None:
    from dataclasses import replace

    results = risk_of().results
    codes, values = results.entry_outcomes.copy(), results.entry_q.copy()
    codes[0, 1], values[0, 1] = Outcome.NULL, np.nan
    risk = measure_joint(replace(results, entry_outcomes=codes, entry_q=values))
    with pytest.raises(CertificateError, match="changes whether a result is a number"):
        design_joint_noise(risk, epsilon=0.5, granularity=0.25)
    assert 1 / 40 <= design_joint_noise(risk, epsilon=0.5, delta=0.05, granularity=0.25).achieved_delta <= 0.05


def test_all_numbers_are_released_at_once_and_on_the_lattice() -> None:
    noise = design_joint_noise(risk_of(), epsilon=0.5, granularity={"a": 0.25, "b": 0.5})
    released = noise.release({"a": 100.1, "b": 90.3})
    assert released["a"] % 0.25 == 0.0
    assert released["b"] % 0.5 == 0.0
    with pytest.raises(InputError, match="each of the 2 numbers"):
        noise.release({"a": 100.1})


def test_wrong_input_is_refused() -> None:
    risk = risk_of()
    with pytest.raises(InputError, match="`epsilon` must be positive"):
        design_joint_noise(risk, epsilon=0.0)
    with pytest.raises(InputError, match="power of two"):
        design_joint_noise(risk, epsilon=1.0, granularity=1 / 3)
    with pytest.raises(InputError, match="by name"):
        design_joint_noise(risk, epsilon=1.0, granularity={"a": 0.25})
    with pytest.raises(InputError, match="`granularity` must be declared"):
        design_joint_noise(risk, epsilon=1.0).release({"a": 1.0, "b": 2.0})
    with pytest.raises(InputError, match="must be that of several numbers"):
        design_joint_noise(risk.components["a"], epsilon=1.0)  # type: ignore[arg-type]
