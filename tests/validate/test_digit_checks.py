"""Checks for last digits, for steps that nobody looks for, and for people who change the spread."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.measuring.line.residues import unlisted_step, visible_share
from empriv.measuring.line.risk import pairs_of
from empriv.results import FloatArray, Results
from empriv.validate.checks import patterns
from empriv.validate.checks.check import Check


def pattern_checks(q: FloatArray, without: FloatArray) -> dict[str, Check]:
    """The checks of these results, without the others, which take time."""
    pairs = pairs_of(Results.from_arrays(q, np.atleast_2d(without)), look=True)
    rows = np.arange(pairs.n_individuals)
    return {check.code: check for check in (*patterns.digit_checks(pairs, rows), patterns.spread_check(pairs, rows))}


def test_somebody_who_breaks_a_pattern_is_told_of() -> None:
    rng = np.random.default_rng(0)
    others = np.round(rng.normal(0, 20, 100)) + rng.normal(0, 0.05, 100)
    found = pattern_checks(others + 0.3, others)["residues"]
    assert found.severity == "warning"
    assert found.numbers["step"] == pytest.approx(1.0)
    assert found.numbers["share"] > 0.9
    assert "steps of 1," in found.sentence
    assert "Hint: round the answer much coarser" in found.sentence
    kept = pattern_checks(others + 2.0, others)["residues"]
    assert kept.severity == "info"
    assert "No pattern" in kept.sentence


def test_what_is_too_weak_to_be_seen_is_said() -> None:
    rng = np.random.default_rng(1)
    for n, severity, share in ((41, "warning", 0.5), (100, "info", 0.32), (365, "info", 0.17)):
        q = rng.normal(size=n)
        found = pattern_checks(q, q - 0.1)["residues"]
        assert (found.severity, found.numbers["step"]) == (severity, None)
        assert found.numbers["visible"] == pytest.approx(share, abs=0.01)
        assert f"cannot be seen with {n} databases" in found.sentence


@pytest.mark.parametrize("n", [41, 365])
def test_patterns_of_the_visible_share_are_seen_in_most_cases_and_of_half_of_it_hardly(n: int) -> None:
    rng, seen = np.random.default_rng(2), {1.0: 0, 0.5: 0}
    runs = 60
    for _ in range(runs):
        smooth = rng.normal(0, 20, n)
        share = visible_share(pairs_of(Results.from_arrays(smooth, [smooth]), look=True))
        for part in seen:
            q = np.where(rng.random(n) < part * share, np.round(smooth), smooth)
            seen[part] += any(row == 0 for row, _ in pairs_of(Results.from_arrays(q, [q - 0.5]), look=True).residues)
    assert seen[1.0] >= 0.6 * runs
    assert seen[0.5] <= 0.5 * runs


@pytest.mark.parametrize("n", [41, 365])
def test_steps_off_the_list_are_seen_and_those_on_it_are_not_told_again(n: int) -> None:
    rng = np.random.default_rng(3)
    for step, said in ((0.37, True), (1.0, False), (2.5, False)):
        q = step * np.round(rng.normal(0, 20, n) / step) + step * rng.uniform(-0.03, 0.03, n)
        found = pattern_checks(q, q - 0.1)["steps"]
        assert found.severity == ("error" if said else "info")
        if said:
            assert found.numbers["step"] == pytest.approx(step, rel=0.01)
            assert "Hint" in found.sentence


def test_smooth_laws_have_no_steps() -> None:
    rng = np.random.default_rng(4)
    laws = [rng.normal, rng.random, lambda size: rng.gamma(0.5, 1.0, size), lambda size: rng.standard_t(2, size)]
    seen = [unlisted_step(law(size=200)) is not None for law in laws for _ in range(20)]  # type: ignore[operator]
    assert np.mean(seen) <= 0.1
    assert unlisted_step(np.full(100, 3.0)) is None
    assert unlisted_step(rng.normal(size=20)) is None


def test_somebody_who_widens_the_results_is_told_of() -> None:
    rng = np.random.default_rng(5)
    others = rng.normal(size=100)
    found = pattern_checks(others + rng.normal(0, 5, 100), others)["spread"]
    assert found.severity == "warning"
    assert found.numbers["ratio"] < 0.4
    assert "Hint: limit what one person can add" in found.sentence
    assert pattern_checks(others + 5.0, others)["spread"].severity == "info"


def structure(q: FloatArray, without: FloatArray) -> dict[str, str]:
    risk = empriv.measure(q, np.atleast_2d(without))
    return {check.code: check.severity for check in patterns.structure_checks(risk, np.array([0]), 0.1)}


def test_a_peak_narrower_than_the_bandwidth_is_told_from_a_bell() -> None:
    """exp(-|x|)/sqrt(|x|), and a spike that three results of ten are in; a normal law is not suspected."""
    rng = np.random.default_rng(7)
    bell = [structure(x + 0.2, x)["spike"] for x in rng.normal(size=(6, 100))]
    assert bell.count("warning") <= 2
    peaks = []
    for _ in range(6):
        spike = np.where(rng.random(100) < 0.3, rng.normal(0, 0.02, 100), rng.normal(size=100))
        peaks.append(structure(spike + 0.05, spike)["spike"])
    assert peaks.count("warning") >= 4


def test_influence_that_jumps_is_told_from_influence_that_does_not() -> None:
    rng = np.random.default_rng(8)
    smooth, jumps = [], []
    for x in rng.normal(size=(6, 100)):
        smooth.append(structure(x + 0.2, x)["gap"])
        jumps.append(structure(np.where(np.abs(x) > 1, x + 0.5 * np.sign(x), x), x)["gap"])
    assert smooth.count("warning") <= 1
    assert jumps.count("warning") >= 4


def test_every_kind_has_them() -> None:
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"day": np.repeat(np.arange(40), 6), "who": np.tile(np.arange(6), 40)})
    frame = frame.assign(x=rng.exponential(2.0, 240), y=rng.exponential(1.0, 240))
    data = empriv.databases(frame, database="day", individual="who")
    given = empriv.Given("avg(y)")
    for audit in (
        empriv.audit(data, "sum(x)", epsilon=0.1),
        empriv.audit(data, "SELECT sum(x), sum(y) FROM data", epsilon=0.1),
        empriv.audit(data, "sum(x)", epsilon=0.1, adversary=given),
        empriv.scan(data, "sum(x)", epsilon=0.1),
    ):
        codes = [check.code for check in audit.checks]
        assert [codes.count(code) for code in ("gap", "spike", "residues", "steps", "spread")] == [1] * 5
