"""Bounds of one number by the one judge: invariants, coverage of the truth, exact leaks, and inputs that are odd.

Power of the statistical tests: with 60 runs, a bound that held in 80% of cases would be accepted (at least 54 of 60
hold, `LEAST`) in fewer than 4% of cases.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import empriv
from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseKernel, kernel_of
from empriv.measuring.densities.density import Ecdf
from empriv.results import FloatArray, Outcome, Results
from empriv.validate.bounds import bounds, upper_total_risk
from table_results import gaussian_delta, of_entries

RUNS, LEAST = 60, 54


def paired(rng: np.random.Generator, n: int, shift: float) -> tuple[FloatArray, FloatArray]:
    q = rng.normal(size=n)
    return q, q[None, :] - shift


def results_with_nulls(n: int = 80, there: int = 40) -> Results:
    """Somebody without whom there is no answer on the first databases."""
    q = np.random.default_rng(8).normal(size=n)
    codes = np.full(there, Outcome.NULL, np.int8)
    return of_entries(q, range(there), np.full(there, np.nan), entry_outcomes=codes)


def test_bounds_have_seven_fields_and_no_more() -> None:
    names = [field.name for field in dataclasses.fields(empriv.Bounds)]
    assert names == ["epsilon", "level", "lower", "estimate", "upper", "upper_i", "assumes"]


def test_permuting_individuals_and_reflecting_results() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(size=60)
    without = q - rng.exponential(0.2, (5, 60))
    found = bounds(empriv.measure(q, without), [0.05, 0.3])
    order = rng.permutation(5)
    np.testing.assert_allclose(bounds(empriv.measure(q, without[order]), [0.05, 0.3]).upper_i, found.upper_i[order])
    np.testing.assert_allclose(bounds(empriv.measure(-q, -without), [0.05, 0.3]).upper_i, found.upper_i, atol=1e-9)
    assert np.all(found.lower <= found.upper)
    assert np.all(found.estimate <= found.upper)
    assert np.all(np.diff(found.upper_i, axis=1) <= 0)
    assert np.all(found.upper <= upper_total_risk(found))
    assert np.all(found.upper >= 1 - 0.05 ** (1 / 60))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_bounds_hold_and_those_of_another_truth_do_not(noise: float) -> None:
    """The truth for a shift of 0.5 sd is accepted; of data that move by 0.2 sd alone, their bounds seldom cover it."""
    epsilon, rng = 0.1, np.random.default_rng(5)
    x = np.linspace(-12, 12, 20_001)
    law = stats.norm.pdf(x)
    if noise:
        step = x[1] - x[0]
        law = np.convolve(law, np.exp(-np.abs(x) / noise) / (2 * noise), "same") * step
    moved = np.interp(x - 0.5, x, law)
    truth = float(np.maximum(law - math.exp(epsilon) * moved, 0).sum() * (x[1] - x[0]))
    held = low = wrong = 0
    for _ in range(RUNS):
        found = bounds(empriv.measure(*paired(rng, 100, 0.5)), epsilon, noise=noise)
        held += found.upper >= truth
        low += found.lower <= truth
        assert found.lower <= found.upper
    for _ in range(20):
        wrong += bounds(empriv.measure(*paired(rng, 365, 0.2)), epsilon, noise=noise).upper >= truth
    assert held >= LEAST
    assert low >= LEAST
    assert wrong <= 6


def test_the_bound_falls_in_noise_and_noise_assumes_nothing() -> None:
    risk = empriv.measure(*paired(np.random.default_rng(1), 120, 0.4))
    found = [bounds(risk, 0.1, noise=scale) for scale in (0.0, 0.5, 2.0, 8.0)]
    uppers = [one.upper for one in found]
    assert uppers == sorted(uppers, reverse=True)
    assert [finding.code for finding in found[0].assumes] == ["smooth"]
    assert [finding.code for finding in found[1].assumes] == ["nothing-assumed"]
    assert "nothing is assumed" in found[1].notes[0]
    gaussian = bounds(risk, 0.1, noise=NoiseLike("gaussian", 2.0))
    assert gaussian.upper != found[2].upper


@dataclasses.dataclass(frozen=True)
class NoiseLike:
    kernel: str
    scale: float


def test_noise_is_a_scale_or_something_with_a_kernel() -> None:
    assert kernel_of(0) == (None, None)
    assert kernel_of(2.5) == (NoiseKernel("laplace", 2.5), None)
    assert kernel_of(NoiseLike("gaussian", 1.0)) == (NoiseKernel("gaussian", 1.0), None)
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="`noise` must have a scale that is finite and not negative"):
            kernel_of(wrong)
    with pytest.raises(InputError, match="`noise` must be a scale"):
        kernel_of("much")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`noise` must have one of the kernels"):
        kernel_of(NoiseLike("cauchy", 1.0))


def test_a_comb_has_no_bound_as_it_is_and_one_with_dither() -> None:
    """Multiples of 13 that somebody breaks on every database: smoothing would hide it, the gate does not."""
    rng = np.random.default_rng(2)
    q = 13.0 * np.rint(rng.normal(100, 20, 200))
    without = q[None, :] - rng.integers(1, 13, (1, 200))
    risk = empriv.measure(q, without)
    assert bounds(risk, 0.1).upper > 0.9
    assert bounds(risk, 0.1, noise=200.0).upper < 0.3


def test_an_exact_leak_is_in_both_bounds() -> None:
    """Constant without the individual, off the lattice without them, and NULL without them."""
    rng = np.random.default_rng(8)
    q = rng.normal(size=80)
    constant = bounds(empriv.measure(q, np.zeros((1, 80))), 0.1)
    assert constant.upper == 1.0
    assert constant.lower > 0.6
    counts = rng.poisson(50, 80).astype(float)
    off = bounds(empriv.measure(counts, counts[None, :] - 0.37), 0.1)
    assert off.upper == 1.0
    assert off.lower > 0.6
    half = bounds(empriv.measure(results_with_nulls()), 0.1)
    assert 0.1 < half.lower <= 0.5 <= half.upper < 0.75
    noisy = bounds(empriv.measure(results_with_nulls()), 0.1, noise=100.0)  # whether there is an answer is not hidden
    assert 0.5 <= noisy.upper < 0.75


def test_nobody_is_cleared_below_thirty_databases() -> None:
    rng = np.random.default_rng(9)
    q = rng.normal(size=29)
    found = bounds(empriv.measure(q, q[None, :] - 0.01), 0.1)
    assert found.upper == 1.0
    assert "29 databases give no upper bound" in found.notes[0]
    q = rng.normal(size=41)
    found = bounds(empriv.measure(q, q[None, :]), 0.1)
    assert found.upper == pytest.approx(1 - 0.05 ** (1 / 41))


def test_other_densities_and_draws() -> None:
    rng = np.random.default_rng(11)
    q, without = paired(rng, 60, 0.5)
    plain = bounds(empriv.measure(q, without), 0.1)
    other = bounds(empriv.measure(q, without, density=Ecdf()), 0.1)
    assert other.upper == max(plain.upper, other.estimate)
    assert any("the same for any" in note for note in other.notes)
    noisy = q[:, None] + rng.laplace(0, 0.1, (60, 3))
    drawn = bounds(empriv.measure(noisy, noisy[None] - 0.5), 0.1)
    assert gaussian_delta(0.5, 0.1) < drawn.upper < 0.6
    assert any("3 draws" in note for note in drawn.notes)
    scanned = empriv.audit(empriv.Results.from_arrays(noisy, noisy[None] - 0.5), epsilon=0.1, in_chunks=True)
    assert scanned.bounds(0.1).notes == drawn.notes


def odd_results() -> dict[str, Results]:
    rng = np.random.default_rng(12)
    q = rng.normal(size=50)
    ties = np.rint(q)
    once = np.tile(q, (50, 1))
    once[np.arange(50), np.arange(50)] -= 1.0
    return {
        "one database": Results.from_arrays(q[:1], q[None, :1] - 1),
        "one person": Results.from_arrays(q, q[None, :] - 0.1),
        "constants": Results.from_arrays(np.ones(50), np.ones((2, 50))),
        "constant and moved": Results.from_arrays(np.ones(50), np.full((2, 50), 0.5)),
        "ties": Results.from_arrays(ties, ties[None, :] - 1),
        "two values": Results.from_arrays((q > 0) * 1.0, np.stack([(q > 0.1) * 1.0, (q > 0) * 1.0])),
        "people seen once": Results.from_arrays(q, once),
        "nulls": results_with_nulls(),
        "no answer without them": results_with_nulls(40, 40),
        "thousands": Results.from_arrays(rng.normal(size=1000), rng.normal(size=1000)[None, :]),
        "huge": Results.from_arrays(1e12 + q, 1e12 + q[None, :] - 0.5),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", odd_results())
def test_nothing_crashes_and_no_lower_bound_is_above_an_upper_one(name: str) -> None:
    risk = empriv.measure(odd_results()[name])
    for noise in (0.0, 0.3, 50.0):
        for epsilon in (0.0, 0.1, 2.0):
            found = bounds(risk, epsilon, noise=noise)
            assert 0.0 <= found.lower <= found.upper <= 1.0
            assert found.estimate <= found.upper
            assert np.all((found.upper_i >= 0) & (found.upper_i <= 1))
    audit = empriv.audit(odd_results()[name], epsilon=0.1)
    for noise in (0.0, 0.3):
        judged = audit.verdict(epsilon=0.1, delta=0.05, noise=noise)
        assert judged in ("pass", "fail", "unresolved")
        for target in judged.judged:
            assert target.lower <= target.upper
    assert audit.cover(0.1, 0.05) >= 0
    assert audit.moved(top=3).most >= 0


def test_what_cannot_be_asked() -> None:
    risk = empriv.measure(*paired(np.random.default_rng(13), 40, 0.1))
    with pytest.raises(InputError, match=r"`level` must lie between 0\.5 and 1"):
        bounds(risk, 0.1, level=95)
    with pytest.raises(InputError, match="`epsilon` must be at least 0"):
        bounds(risk, -0.1)
    assert risk.bounds(0.1).upper == bounds(risk, 0.1).upper
    with pytest.raises(InputError, match="`noise` must be 0 for anything but one number"):
        bounds(risk.repeated(3), 0.1, noise=1.0)
