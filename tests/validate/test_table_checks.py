"""Tests of what is left of a cell: the truth is accepted, and what would make bounds wrong is seen."""

from __future__ import annotations

import numpy as np
import pytest

from empriv.validate.table_checks import dependence, edge_gain, flatness, given_rest, p_values, skewness
from loading import benchmark

families = benchmark("table_families")
N, D = 200, 8


def p_of(cell, rest):
    return float(p_values(dependence(given_rest(cell, rest))[None])[0])


def shares(name: str, runs: int = 30) -> float:
    """In which share of runs the last cell is seen to depend on the rest."""
    law = families.made(name, D)
    tables = [law.draw(np.random.default_rng([1, run]), N) for run in range(runs)]
    return float(np.mean([p_of(y[:, -1], y[:, :-1]) <= 0.05 for y in tables]))


@pytest.mark.parametrize("name", ["normal", "gamma 2 factors", "Student 3 factors"])
def test_independent_cells_cause_no_alarms(name: str) -> None:
    assert shares(name) <= 0.17  # at 5%, more happens once in a hundred


def test_a_cell_that_is_mixed_with_the_rest_is_seen() -> None:
    assert shares("mixed gamma 2 (must object)") >= 0.8


def test_a_spread_that_depends_on_the_rest_is_seen() -> None:
    rng = np.random.default_rng(3)
    rest = rng.normal(size=(N, 5))
    calm = rng.normal(size=N)
    assert p_of(calm * np.exp(0.6 * rest[:, 0]), rest) == 0.005  # the least that so many permutations can say
    assert p_of(calm, rest) > 0.05


def test_nothing_can_be_seen_where_nothing_is_left() -> None:
    rng = np.random.default_rng(4)
    assert p_of(rng.normal(size=20), rng.normal(size=(20, 18))) == 1.0
    assert p_of(np.ones(50), rng.normal(size=(50, 3))) == 1.0
    assert p_of(rng.normal(size=50), np.zeros((50, 0))) == 1.0
    assert edge_gain(given_rest(np.ones(50), rng.normal(size=(50, 3)))) == -np.inf


def test_an_edge_is_seen_and_a_slope_is_not() -> None:
    for name, low, high in (
        ("normal factors", -np.inf, 0.0),
        ("gamma 2 factors", 0.0, 0.27),
        ("exponential factors (hard edge)", 0.27, 0.7),
    ):
        y = families.made(name, D).draw(np.random.default_rng(5), N)
        for sign in (1.0, -1.0):
            assert low <= edge_gain(given_rest(sign * 7.0 * y[:, -1], y[:, :-1])) < high


@pytest.mark.parametrize(("name", "seen"), [("normal", False), ("gamma 2 factors", False), ("two peaks factors", True)])
def test_two_peaks_leave_something_flat(name: str, seen: bool) -> None:
    law = families.made(name, D)
    tables = [law.draw(np.random.default_rng([2, run]), 365) for run in range(20)]
    alarms = float(np.mean([flatness(given_rest(y[:, -1], y[:, :-1])) > 1.8 for y in tables]))
    assert alarms >= 0.9 if seen else alarms <= 0.1


def test_cells_that_are_tested_together_cause_no_more_alarms_than_one() -> None:
    law = families.made("Student 3 factors", D)
    alarms, p = 0, np.ones(0)
    for run in range(20):
        y = law.draw(np.random.default_rng([3, run]), N)
        parts = [dependence(given_rest(y[:, k], np.delete(y, k, axis=1))) for k in range(2, D)]
        p = p_values(np.array(parts))
        assert p.shape == (D - 2,)
        alarms += bool(p.min() <= 0.05)
    assert alarms <= 4  # at 5%, more happens once in four hundred
    dependent = np.random.default_rng(1).normal(size=N) * np.exp(0.8 * y[:, 0])
    parts[0] = dependence(given_rest(dependent, y[:, :2]))
    assert p_values(np.array(parts)).argmin() == 0
    assert p_values(np.array(parts)).min() <= 0.05


def test_only_what_leans_is_asked_for_an_edge() -> None:
    leaning = []
    for run in range(10):
        for name in ("normal factors", "exponential factors (hard edge)"):
            y = families.made(name, 60).draw(np.random.default_rng([4, run]), N)
            leaning.append((name, skewness(given_rest(y[:, -1], y[:, :-1])) > 0))
    assert sum(found for name, found in leaning if name.startswith("exponential")) == 10
    assert sum(found for name, found in leaning if name.startswith("normal")) <= 1
