"""The cross-fitted lower limits: they hold for the truth, refute half of it, and decide verdicts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

import empriv
from empriv.validate.bounds import structure
from empriv.validate.bounds.analytic import merged_of
from empriv.validate.bounds.cross_fitted import CrossFitted, cross_fit, folds_of, limits_of, mean_limits
from empriv.validate.bounds.moments import Smooth
from empriv.validate.ground import Ground, ground_of
from empriv.validate.verdict import verdict

EPSILON = np.array([0.1])


def shift_delta(shift: float, epsilon: float) -> float:
    """Of two normal laws with standard deviation 1, this far apart."""
    return float(norm.cdf(shift / 2 - epsilon / shift) - np.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift))


def shifted(seed: int, n: int, shift: float, people: int = 1) -> Ground:
    """Results without an individual are independent of each other: every one of them has the same law."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    noise = rng.normal(size=(people, n))
    return ground_of(empriv.measure(q, 0.6 * q + 0.8 * noise + shift))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "shift"), [(41, 1.2), (100, 0.6)])
def test_the_limit_is_below_the_truth_and_often_above_half_of_it(n: int, shift: float) -> None:
    truth = shift_delta(shift, 0.1)
    limits = np.array([limits_of(shifted(seed, n, shift), EPSILON, 0.95).delta[0] for seed in range(60)])
    assert np.count_nonzero(limits > truth) <= 7  # of 60 at 5%: more in one case of seventy
    assert np.count_nonzero(limits > truth / 2) >= 24


def in_sample(ground: Ground) -> float:
    """The limit if the databases that judge had also chosen."""
    cut = Smooth.of(merged_of(ground, np.arange(ground.n_individuals)), ground.bandwidth)
    w = np.concatenate([cut.values(direction, float(np.exp(0.1)), 1) for direction in (0, 1)])
    return float(mean_limits(w, 0.95).max())


@pytest.mark.slow
def test_what_chose_may_not_judge() -> None:
    """Nobody changes the law: the databases that chose the individual and the set would find a loss all the same."""
    grounds = [shifted(seed, 60, 0.0, people=20) for seed in range(30)]
    assert sum(limits_of(ground, EPSILON, 0.95).delta[0] > 0.0 for ground in grounds) <= 5
    assert sum(in_sample(ground) > 0.0 for ground in grounds) >= 25


def test_an_exact_leak_is_demonstrated_as_far_as_so_many_databases_can() -> None:
    rng = np.random.default_rng(0)
    most = 0.05 ** (1 / 60)
    constant = empriv.measure(rng.normal(size=60), np.zeros((1, 60)))
    whole = rng.poisson(50.0, 60).astype(float)
    off_lattice = empriv.measure(whole, (whole - rng.uniform(0.1, 0.9, 60))[None, :])
    for risk in (constant, off_lattice):
        assert risk.bounds(0.1).limit == pytest.approx(most)
        assert verdict(risk, epsilon=0.1, delta=0.9) == "fail"
        assert verdict(risk, epsilon=0.1, total_risk=0.9) == "fail"
    assert verdict(empriv.measure(whole, whole[None, :] - 0.0), epsilon=0.1, delta=0.1) != "fail"


def test_people_may_be_looked_at_in_parts() -> None:
    rng = np.random.default_rng(1)
    q = rng.normal(size=50)
    without = q + rng.exponential(0.5, (9, 50))
    grid = np.array([0.0, 0.1, 0.5])
    fold = folds_of(50)
    parts = [cross_fit(ground_of(empriv.measure(q, without[rows])), grid) for rows in (slice(0, 4), slice(4, 9))]
    whole = cross_fit(ground_of(empriv.measure(q, without)), grid)
    for joined in (parts[0].joined(parts[1], fold), parts[1].joined(parts[0], fold)):
        for mine, all_at_once in zip(joined, whole, strict=True):
            np.testing.assert_allclose(mine, all_at_once, rtol=1e-9, atol=1e-12)
    assert np.all(np.diff(whole.limits(grid, 0.95).delta) <= 0)


@pytest.mark.skipif(
    structure.compiled_cross_fit is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("draws", [1, 3])
def test_compiled_code_chooses_and_judges_as_numpy_does(
    draws: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some near, some so far apart that they are sorted another way and exp underflows."""
    rng = np.random.default_rng(11)
    q = rng.standard_t(2.0, (50, draws)) + np.where(rng.random((50, 1)) < 0.1, 3000.0, 0.0)
    size = 10.0 ** rng.uniform(-2, 2, (30, 1, 1))
    change = size * rng.normal(1, 1, (30, 50, draws)) * (rng.random((30, 50, 1)) < share)
    ground = ground_of(empriv.measure(q, q - change))
    grid = np.array([0.02, 0.1, 0.5])  # at epsilon 0 sets of equal merit may be chosen by rounding
    quick = cross_fit(ground, grid)
    monkeypatch.setattr(structure, "compiled_cross_fit", None)
    slow, other = cross_fit(ground, grid), cross_fit(ground, grid + 1e-3)
    for mine, theirs in zip(quick, slow, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-9)
    assert not np.allclose(quick.sums, other.sums, rtol=1e-8, atol=1e-9)


def test_nothing_is_said_below_thirty_databases_or_of_who_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    q = rng.normal(size=29)
    assert empriv.measure(q, q[None, :] - 5.0).bounds(0.1).limit == 0.0
    q = rng.normal(size=40)
    assert empriv.measure(q, q[None, :]).bounds(0.1).limit == 0.0
    assert np.array_equal(CrossFitted.nothing(1, 40).limits(EPSILON, 0.95).total, [0.0])


def test_an_estimate_above_the_target_alone_does_not_fail() -> None:
    rng = np.random.default_rng(3)
    q = rng.normal(size=41)
    risk = empriv.measure(q, q[None, :] + 0.35)
    there = risk.bounds(0.1)
    target = 0.9 * there.estimate
    assert max(there.lower, there.limit) < target < there.upper
    judged = verdict(risk, epsilon=0.1, delta=target, bounds_there=there, checks_made=())
    assert (judged, judged.by_estimate) == ("unresolved", "fail")
    assert judged.reasons[0].endswith("but the bounds cannot tell.")
    assert "would need" not in judged.sentence
    below = verdict(risk, epsilon=0.1, delta=0.9 * there.limit, bounds_there=there, checks_made=())
    assert below == "fail"
    assert below.reasons[0].startswith("The cross-fitted lower limit on delta (95%, approximate)")


def test_databases_are_asked_for_only_if_more_of_them_would_do() -> None:
    rng = np.random.default_rng(4)
    q = rng.normal(size=365)
    # no upper bound is known against such an adversary, however many databases there are
    risk = empriv.measure(q, q[None, :] + 0.01)
    without_bound = risk.bounds(0.1)
    object.__setattr__(without_bound, "upper", 1.0)
    judged = verdict(risk, epsilon=0.1, delta=0.05, bounds_there=without_bound, checks_made=())
    assert (judged, judged.databases_needed) == ("unresolved", None)
    assert judged.sentence.endswith("at 95% confidence: unresolved.")


@pytest.mark.slow
def test_total_risk_lies_between_its_ends() -> None:
    """Fifty people who matter, and fifty who do not: their noise adds up in the plain estimate alone."""
    rng = np.random.default_rng(5)
    low, plain = np.zeros((2, 2, 12))
    shifts = (0.2, 0.035)
    truths = [1 - (1 - shift_delta(shift, 0.1)) ** 50 for shift in shifts]
    for k, shift in enumerate(shifts):
        for run in range(12):
            q = rng.normal(size=250)
            risk = empriv.measure(q, 0.98 * q + np.sqrt(1 - 0.98**2) * rng.normal(size=(50, 250)) + shift)
            there = risk.bounds(0.1)
            low[k, run], plain[k, run] = there.total_risk_lower, there.total_risk
            assert there.total_risk_lower <= there.total_risk_upper
    for k, truth in enumerate(truths):
        assert np.count_nonzero(low[k] > truth) <= 3
    assert np.median(low[0]) > 0.3
    assert truths[1] < 0.002
    assert plain[1].min() > 0.05  # a target of 0.05, which the truth meets, would be failed


def test_a_scan_has_the_limits_of_its_audit() -> None:
    rng = np.random.default_rng(6)
    rows = pa.table(
        {"day": np.repeat(np.arange(40), 12), "who": np.tile(np.arange(12), 40), "x": rng.exponential(1.0, 480)}
    )
    data = empriv.databases(rows, database="day", individual="who")
    audit, scan = empriv.audit(data, "sum(x)", epsilon=0.1), empriv.scan(data, "sum(x)", epsilon=0.1)
    ours, theirs = audit.bounds(0.1), scan.bounds(0.1)
    assert theirs.limit == pytest.approx(ours.limit)
    assert theirs.total_risk_lower == pytest.approx(ours.total_risk_lower)
    assert ours.total_risk_lower > 0
