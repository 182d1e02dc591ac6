"""Bounds: against slow obvious versions, invariants, coverage of the truth, and rejection of falsehoods.

Power of the statistical tests: with 120 runs, a bound that held in 85% of cases instead of 95% or more would be
accepted (at least 109 of 120 hold, see `LEAST`) in fewer than 5% of cases.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import empriv
from empriv.errors import InputError
from empriv.measuring.densities.density import Ecdf, Kde
from empriv.results import FloatArray, Outcome, Results
from empriv.validate.bounds import analytic, moments, structure
from empriv.validate.bounds.figures import bounds
from empriv.validate.bounds.lower import betting_bound
from empriv.validate.ground import ground_of

RUNS, LEAST = 120, 109


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Closed form for two normal laws a shift apart (Balle and Wang)."""
    cdf = stats.norm.cdf
    return float(cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * cdf(-shift / 2 - epsilon / shift))


def paired(rng: np.random.Generator, n: int, shift: float) -> tuple[FloatArray, FloatArray]:
    q = rng.normal(size=n)
    return q, q[None, :] - shift


def obvious_bound(w: FloatArray, z: float) -> float:
    n = len(w)
    if w.std() == 0:
        return float(w.mean())
    third = ((w - w.mean()) ** 3).mean()
    return float(w.mean() + z * w.std(ddof=1) / math.sqrt(n) + (1 + 2 * z * z) / 6 * third / (w.var() * n))


def obvious_upper(a: FloatArray, b: FloatArray, h: float, epsilon: float) -> float:
    """VALIDITY's four steps, one individual without ties, on a fine grid."""
    n, e, z = len(a), math.exp(epsilon), stats.norm.ppf(0.95)
    width = 0.7 * h * min(1.0, (1000 / n) ** (1 / 6))
    both = np.concatenate((a, b))
    x = np.linspace(both.min() - 20 * width, both.max() + 20 * width, 100_001)
    step = x[1] - x[0]
    found = [1 - 0.05 ** (1 / n)]
    kernel = {
        name: np.exp(-np.abs(x[:, None] - points[None, :]) / width) / (2 * width)
        for name, points in (("a", a), ("b", b))
    }
    for one, other in (("a", "b"), ("b", "a")):
        inside = kernel[one].sum(axis=1) > e * kernel[other].sum(axis=1)
        psi = {name: (k * inside[:, None]).sum(axis=0) * step for name, k in kernel.items()}
        found.append(obvious_bound(psi[one] - e * psi[other], z))
    for u, v in ((a, b), (b, a)):
        for sign in (1, -1):
            for m in range(math.floor(0.05 * n) + 1):
                t = np.sort(sign * v)[m]
                found.append(obvious_bound((sign * u < t) * 1.0 - e * (sign * v < t), z) - 1 / n)
    order = np.argsort(both)
    owner, place = (order >= n).astype(int), both[order]
    cuts = [0, *(np.flatnonzero(np.diff(place) > 5 * h) + 1), 2 * n]
    sums = {(s, end): 0 for s in (0, 1) for end in (0, 1)}
    for start, stop in itertools.pairwise(cuts):
        part = owner[start:stop]
        if min((part == 0).sum(), (part == 1).sum()) >= 5:
            for end, run in ((0, part), (1, part[::-1])):
                sums[run[0], end] += int(np.argmax(run != run[0]))
    ends = [int(np.argmax(run != run[0])) for run in (owner, owner[::-1])]
    p = max(max(*sums.values(), *ends) - 1, 0) / n
    found.append(p + z * math.sqrt(p * (1 - p) / (n - 1)) + (1 + 2 * z * z) / 6 * (1 - 2 * p) / n)
    return min(1.0, max(found))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_the_analytic_bound_is_the_obvious_one(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "PARTS", structure.BoundPart(0))  # test_structure.py is about the others
    rng = np.random.default_rng(1)
    q = np.concatenate((rng.normal(size=30), 60 + rng.normal(size=14)))
    without = q - np.stack([np.full(44, 0.4), rng.exponential(0.1, 44), rng.normal(0, 0.3, 44), np.full(44, 1e-4)])
    risk = empriv.measure(q, without)
    found = bounds(risk, epsilon)
    expected = [obvious_upper(q, one, risk.density.bandwidth, epsilon) for one in without]  # type: ignore[union-attr]
    np.testing.assert_allclose(found.upper_i, expected, atol=2e-3)


@pytest.mark.parametrize("reach", [300.0, 0.01])
def test_smooth_values_average_to_the_hockey_stick(reach: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By prefix sums, and root by root for points far apart."""
    monkeypatch.setattr(moments, "_REACH", reach)
    rng = np.random.default_rng(2)
    q = rng.normal(size=50)
    without = q - rng.exponential(0.3, (4, 50))
    risk = empriv.measure(q, without, density=Kde("laplace", 0.2))
    cut = moments.Smooth.of(moments.Merged.of(q, without, None), 0.2)
    means = [cut.values(direction, math.exp(0.1), 1).mean(axis=1) for direction in (0, 1)]
    np.testing.assert_allclose(np.maximum(*means), risk.delta_i(0.1), atol=1e-10)


@pytest.mark.parametrize("n", [41, 100, 365])
def test_screening_changes_nothing(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    q = rng.normal(size=n)
    without = q - rng.exponential(1, (60, n)) * 10 ** rng.uniform(-5, -0.5, (60, 1))
    ground = ground_of(empriv.measure(q, without))
    screened = analytic.upper_bounds(ground, [0.1, 0.5], 0.95).upper_i
    monkeypatch.setattr(analytic, "_calm", lambda *_: analytic._Calm(0.0, 0.0, 0.0, False))
    np.testing.assert_array_equal(screened, analytic.upper_bounds(ground, [0.1, 0.5], 0.95).upper_i)


def test_screening_changes_nothing_for_individuals_in_few_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    q = np.append(rng.normal(size=198), (40.0, -30.0))  # two days far from all others
    present = [np.sort(rng.choice(200, size, replace=False)) for size in rng.integers(0, 9, 300)]
    where = np.concatenate(present)
    risk = empriv.measure(
        Results(
            q=q,
            outcomes=np.zeros(200, np.int8),
            databases=np.arange(200),
            individuals=np.arange(300),
            starts=np.concatenate(([0], np.cumsum([len(one) for one in present]))),
            entry_database=where.astype(np.int32),
            entry_q=q[where] - rng.exponential(0.3, len(where)),
            entry_outcomes=np.zeros(len(where), np.int8),
        )
    )
    ground = ground_of(risk)
    assert 20 < np.count_nonzero(analytic._inner(ground)) < 280
    screened = analytic.upper_bounds(ground, [0.0, 0.5], 0.95)
    monkeypatch.setattr(analytic, "_calm", lambda *_: analytic._Calm(0.0, 0.0, 0.0, False))
    np.testing.assert_array_equal(screened.upper_i, analytic.upper_bounds(ground, [0.0, 0.5], 0.95).upper_i)


def test_permuting_individuals_and_reflecting_results() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(size=60)
    without = q - rng.exponential(0.2, (5, 60))
    found = bounds(empriv.measure(q, without), [0.05, 0.3])
    order = rng.permutation(5)
    np.testing.assert_allclose(bounds(empriv.measure(q, without[order]), [0.05, 0.3]).upper_i, found.upper_i[order])
    np.testing.assert_allclose(bounds(empriv.measure(-q, -without), [0.05, 0.3]).upper_i, found.upper_i, atol=1e-9)
    assert np.all(found.lower <= found.upper)
    assert np.all(found.estimate_i <= found.upper_i)
    assert np.all(np.diff(found.upper_i, axis=1) <= 0)
    assert np.all(found.upper <= found.total_risk_upper)
    assert np.all(found.upper >= found.floor)


@pytest.mark.slow
def test_upper_and_lower_bounds_hold_and_a_wrong_scale_is_found_out() -> None:
    """The truth for a shift of 0.5 sd is accepted; the bounds for data of a scale 30% off are rejected.

    Power: the bounds of shift 0.35 cover the delta of shift 0.5 in 15% of 60 runs at n = 365.
    """
    truth = gaussian_delta(0.5, 0.1)
    rng = np.random.default_rng(5)
    held = low = wrong = 0
    for run in range(RUNS):
        found = bounds(empriv.measure(*paired(rng, 100, 0.5)), 0.1, rng=run)
        held += found.upper >= truth
        low += found.lower <= truth
    for _ in range(20):
        wrong += bounds(empriv.measure(*paired(rng, 365, 0.35)), 0.1).upper >= truth
    assert held >= LEAST
    assert low >= LEAST
    assert wrong < 20 * 0.7


@pytest.mark.slow
def test_the_lower_bound_finds_a_loss() -> None:
    """Power: VALIDITY has it positive in 91% of runs at n = 100 for a truth of 0.197."""
    rng = np.random.default_rng(6)
    found = [bounds(empriv.measure(*paired(rng, 365, 0.6)), 0.1, rng=run).lower for run in range(15)]
    assert np.mean(np.array(found) > 0) > 0.9
    assert max(found) < gaussian_delta(0.6, 0.1) * 1.2


def test_the_bet_is_fair_and_grows() -> None:
    """At mean zero the capital reaches twenty in at most 5% of runs; at mean 0.3 in nearly all."""
    rng = np.random.default_rng(7)
    e = math.exp(0.1)
    fair = rng.choice([1.0, -e], p=[e / (1 + e), 1 / (1 + e)], size=(400, 60))
    assert np.mean([betting_bound(w, e, 0.95) > 0 for w in fair]) <= 0.05
    good = rng.choice([1.0, 0.0], p=[0.3, 0.7], size=(100, 60))
    found = np.array([betting_bound(w, e, 0.95) for w in good])
    assert np.mean(found > 0) > 0.95
    assert np.mean(found > 0.3) <= 0.05
    assert betting_bound(np.full(0, 1.0), e, 0.95) == 0.0


def test_an_exact_leak_is_in_both_bounds() -> None:
    """Constant without the individual, off the lattice without them, and NULL without them."""
    rng = np.random.default_rng(8)
    q = rng.normal(size=80)
    constant = bounds(empriv.measure(q, np.zeros((1, 80))), 0.1)
    assert constant.upper == 1.0
    assert constant.lower > 0.7
    counts = rng.poisson(50, 80).astype(float)
    off = bounds(empriv.measure(counts, counts[None, :] - 0.37), 0.1)
    assert off.upper == 1.0
    assert off.lower > 0.7
    nulls = Results(
        q=q,
        outcomes=np.zeros(80, np.int8),
        databases=np.arange(80),
        individuals=np.arange(1),
        starts=np.array([0, 40]),
        entry_database=np.arange(40, dtype=np.int32),
        entry_q=np.full(40, np.nan),
        entry_outcomes=np.full(40, Outcome.NULL, np.int8),
    )
    half = bounds(empriv.measure(nulls), 0.1)
    assert 0.1 < half.lower <= 0.5 <= half.upper < 0.75


def test_nobody_is_cleared_below_thirty_databases() -> None:
    rng = np.random.default_rng(9)
    q = rng.normal(size=29)
    found = bounds(empriv.measure(q, q[None, :]), 0.1)
    assert found.upper == 1.0
    assert found.total_risk_upper == 1.0
    assert "29 databases give no upper bound" in found.notes[0]
    q = rng.normal(size=41)
    found = bounds(empriv.measure(q, q[None, :]), 0.1)
    assert found.upper == found.floor == pytest.approx(1 - 0.05 ** (1 / 41))


def test_ties_are_compared_by_counts_as_well() -> None:
    """An atom of a fifth of the results that the individual moves: the guard finds what smoothing hides."""
    rng = np.random.default_rng(10)
    q = np.maximum(rng.normal(0.9, 1.0, 200), 0.0)
    moved = np.where(q == 0, 0.01, q)
    found = bounds(empriv.measure(q, moved[None, :]), 0.1)
    assert found.upper >= np.mean(q == 0)


def test_other_densities_and_draws() -> None:
    rng = np.random.default_rng(11)
    q, without = paired(rng, 60, 0.5)
    plain = bounds(empriv.measure(q, without), 0.1)
    other = bounds(empriv.measure(q, without, density=Ecdf()), 0.1)
    assert other.upper == max(plain.upper, other.estimate)
    assert any("Laplace" in note for note in other.notes)
    noisy = q[:, None] + rng.laplace(0, 0.1, (60, 3))
    drawn = bounds(empriv.measure(noisy, noisy[None] - 0.5), 0.1)
    assert drawn.n_databases == 60
    assert gaussian_delta(0.5, 0.1) < drawn.upper < 0.6
    left_out = "exact counts of rare results and gaps"
    assert any("3 draws" in note and left_out in note for note in drawn.notes)
    assert not any(left_out in note for note in plain.notes)
    scanned = empriv.scan(empriv.Results.from_arrays(noisy, noisy[None] - 0.5), epsilon=0.1)
    assert scanned.bounds(0.1).notes == drawn.notes
    few = bounds(empriv.measure(noisy[:20], noisy[None, :20] - 0.5), 0.1)  # no upper bound, of which nothing is missing
    assert any("3 draws" in note and left_out not in note for note in few.notes)


@pytest.mark.slow
def test_the_bootstrap_is_reproducible_and_agrees() -> None:
    rng = np.random.default_rng(12)
    q = rng.normal(size=100)
    without = np.stack((0.4 * q, q - 0.3, q))  # of a narrowed law no half-line holds more than half of the difference
    risk = empriv.measure(q, without)
    one, again, other = (bounds(risk, [0.1, 0.3], method="bootstrap", rng=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.upper_i, again.upper_i)
    assert np.any(one.upper_i != other.upper_i)
    analytic_bound = bounds(risk, [0.1, 0.3])
    assert np.all(np.abs(one.upper_i - analytic_bound.upper_i) < 1.3 * analytic_bound.upper_i)
    # alone or among others: the same resamples
    alone = bounds(empriv.measure(q, without[:1]), [0.1, 0.3], method="bootstrap", rng=0)
    np.testing.assert_allclose(alone.upper_i[0], one.upper_i[0], rtol=1e-12)


def test_what_cannot_be_asked() -> None:
    risk = empriv.measure(*paired(np.random.default_rng(13), 40, 0.1))
    with pytest.raises(InputError, match="`method` must be one of analytic, bootstrap"):
        bounds(risk, 0.1, method="jackknife")
    with pytest.raises(InputError, match=r"`level` must lie between 0\.5 and 1"):
        bounds(risk, 0.1, level=95)
    with pytest.raises(InputError, match="`epsilon` must be at least 0"):
        bounds(risk, -0.1)
    assert risk.bounds(0.1).upper == bounds(risk, 0.1).upper
