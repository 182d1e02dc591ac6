"""Tests of what is left of a cell: the truth is accepted, and what would make bounds wrong is seen."""

from __future__ import annotations

import numpy as np
import pytest

from empriv.measuring.tables.residual_tests import depends_on_rest, edge_gain, flatness
from loading import benchmark

families = benchmark("table_families")
N, D = 200, 8


def shares(name: str, runs: int = 30) -> float:
    """In which share of runs the last cell is seen to depend on the rest."""
    law = families.made(name, D)
    tables = [law.draw(np.random.default_rng([1, run]), N) for run in range(runs)]
    return float(np.mean([depends_on_rest(y[:, -1], y[:, :-1]) <= 0.05 for y in tables]))


@pytest.mark.parametrize("name", ["normal", "gamma 2 factors", "Student 3 factors"])
def test_independent_cells_cause_no_alarms(name: str) -> None:
    assert shares(name) <= 0.17  # at 5%, more happens once in a hundred


def test_a_cell_that_is_mixed_with_the_rest_is_seen() -> None:
    assert shares("mixed gamma 2 (must object)") >= 0.8


def test_a_spread_that_depends_on_the_rest_is_seen() -> None:
    rng = np.random.default_rng(3)
    rest = rng.normal(size=(N, 5))
    calm = rng.normal(size=N)
    assert depends_on_rest(calm * np.exp(0.6 * rest[:, 0]), rest) == 0.005
    assert depends_on_rest(calm, rest) > 0.05


def test_nothing_can_be_seen_where_nothing_is_left() -> None:
    rng = np.random.default_rng(4)
    assert depends_on_rest(rng.normal(size=20), rng.normal(size=(20, 18))) == 1.0
    assert depends_on_rest(np.ones(50), rng.normal(size=(50, 3))) == 1.0
    assert depends_on_rest(rng.normal(size=50), np.zeros((50, 0))) == 1.0
    assert edge_gain(np.ones(50), rng.normal(size=(50, 3))) == -np.inf


def test_an_edge_is_seen_and_a_slope_is_not() -> None:
    for name, low, high in (
        ("normal factors", -1.0, 0.0),
        ("gamma 2 factors", 0.0, 0.27),
        ("exponential factors (hard edge)", 0.27, 0.7),
    ):
        y = families.made(name, D).draw(np.random.default_rng(5), N)
        for sign in (1.0, -1.0):
            assert low < edge_gain(sign * 7.0 * y[:, -1], y[:, :-1]) < high


@pytest.mark.parametrize(("name", "seen"), [("normal", False), ("gamma 2 factors", False), ("two peaks factors", True)])
def test_two_peaks_leave_something_flat(name: str, seen: bool) -> None:
    law = families.made(name, D)
    tables = [law.draw(np.random.default_rng([2, run]), 365) for run in range(20)]
    alarms = float(np.mean([flatness(y[:, -1], y[:, :-1]) > 1.8 for y in tables]))
    assert alarms >= 0.9 if seen else alarms <= 0.1
