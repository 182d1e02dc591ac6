"""Checks of tables: the truth is accepted, and what would make bounds wrong is seen, also where somebody hostile chose
the table."""

from __future__ import annotations

import numpy as np
import pytest

from empriv.measuring.tables import TableRisk, measure_table
from empriv.results import FloatArray, Results
from empriv.validate.covers import cover_by_cell, covered
from empriv.validate.table_checks import (
    dependence,
    edge_gain,
    flatness,
    given_rest,
    objected_places,
    p_values,
    residuals_check,
    skewness,
)
from empriv.validate.table_cover import table_cover_of
from empriv.validate.verdict import verdict
from loading import benchmark

families = benchmark("table_families")
N, D = 200, 8


# The tests of residuals


def p_of(cell, rest):
    return float(p_values(dependence(given_rest(cell, rest))[None])[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        # at 5%, more than 17% happens once in a hundred
        ("normal", 0.0, 0.17), ("gamma 2 factors", 0.0, 0.17), ("Student 3 factors", 0.0, 0.17),
        ("mixed gamma 2 (must object)", 0.8, 1.0),
    ],
)  # fmt: skip
def test_a_cell_that_depends_on_the_rest_is_seen_and_others_cause_no_alarms(name, low, high):
    law = families.made(name, D)
    tables = [law.draw(np.random.default_rng([1, run]), N) for run in range(30)]
    assert low <= np.mean([p_of(y[:, -1], y[:, :-1]) <= 0.05 for y in tables]) <= high


def test_a_spread_that_depends_on_the_rest_is_seen():
    rng = np.random.default_rng(3)
    rest = rng.normal(size=(N, 5))
    calm = rng.normal(size=N)
    assert p_of(calm * np.exp(0.6 * rest[:, 0]), rest) == 0.005  # the least that so many permutations can say
    assert p_of(calm, rest) > 0.05


def test_nothing_can_be_seen_where_nothing_is_left():
    rng = np.random.default_rng(4)
    assert p_of(rng.normal(size=20), rng.normal(size=(20, 18))) == 1.0
    assert p_of(np.ones(50), rng.normal(size=(50, 3))) == 1.0
    assert p_of(rng.normal(size=50), np.zeros((50, 0))) == 1.0
    assert edge_gain(given_rest(np.ones(50), rng.normal(size=(50, 3)))) == -np.inf


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("normal factors", -np.inf, 0.0), ("gamma 2 factors", 0.0, 0.27),
        ("exponential factors (hard edge)", 0.27, 0.7),
    ],
)  # fmt: skip
def test_an_edge_is_seen_and_a_slope_is_not(name, low, high):
    y = families.made(name, D).draw(np.random.default_rng(5), N)
    for sign in (1.0, -1.0):
        assert low <= edge_gain(given_rest(sign * 7.0 * y[:, -1], y[:, :-1])) < high


@pytest.mark.parametrize(("name", "seen"), [("normal", False), ("gamma 2 factors", False), ("two peaks factors", True)])
def test_two_peaks_leave_something_flat(name, seen):
    law = families.made(name, D)
    tables = [law.draw(np.random.default_rng([2, run]), 365) for run in range(20)]
    alarms = float(np.mean([flatness(given_rest(y[:, -1], y[:, :-1])) > 1.8 for y in tables]))
    assert alarms >= 0.9 if seen else alarms <= 0.1


@pytest.mark.slow
def test_cells_that_are_tested_together_cause_no_more_alarms_than_one():
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


@pytest.mark.parametrize(
    ("name", "least", "most"), [("normal factors", 0, 1), ("exponential factors (hard edge)", 10, 10)]
)
def test_only_what_is_skewed_is_asked_for_an_edge(name, least, most):
    tables = [families.made(name, 60).draw(np.random.default_rng([4, run]), N) for run in range(10)]
    assert least <= sum(skewness(given_rest(y[:, -1], y[:, :-1])) > 0 for y in tables) <= most


# Tables


def moved_by_one(without: FloatArray, move: FloatArray) -> Results:
    """Results of a table to which one person always adds ``move``."""
    q = without + move
    return Results.stack({f"c{k}": Results.from_arrays(q[:, k], without[None, :, k]) for k in range(q.shape[1])})


@pytest.fixture(scope="module")
def cells() -> dict[str, FloatArray]:
    """Sums and numbers of about 40 people a day, and cells that have nothing to do with them."""
    rng = np.random.default_rng(0)
    number = rng.poisson(40, N) + 5.0
    total = np.array([rng.lognormal(3, 0.8, int(k)).sum() for k in number])
    return {"number": number, "total": total, "other": rng.normal(500, 50, (N, 4)), "own": rng.lognormal(1, 1, N)}


def bends(risk: TableRisk) -> bool:
    return bool(residuals_check(risk)[0].numbers["p"] <= 0.05)


@pytest.mark.parametrize("how", ["average", "percentage", "product"])
def test_a_function_of_cells_that_leaves_somebody_out(cells, how):
    """The sum with them, beside what gives the sum without them, but not as a difference: delta is 1."""
    total, number, other = cells["total"], cells["number"], cells["other"]
    first = 3.0 * np.eye(7)[0]
    match how:
        case "average":
            results = moved_by_one(np.column_stack((total, number, total / number, other)), first)
        case "percentage":
            whole = total + other.sum(axis=1)
            without = np.column_stack((total, whole, 100 * total / whole, other[:, :2]))
            results = moved_by_one(without, np.array([3.0, 3.0, 0, 0, 0]))
        case _:
            results = moved_by_one(np.column_stack((total * number / 40, total, number, other)), first)
    risk = measure_table(results)
    assert risk.bounds(0.1).upper < 0.5  # what the bound says
    assert bends(risk)  # and why it is not to be believed


def test_differences_and_cells_of_their_own_are_leaks_and_cells_apart_do_not_bend(cells):
    total, other = cells["total"], cells["other"]
    pair = measure_table(moved_by_one(np.column_stack((total, total, other)), np.outer(cells["own"], np.eye(6)[0])))
    assert pair.delta(0.1) == 1.0
    assert pair.leaks
    alone = np.arange(N) % 5 == 0
    own = measure_table(moved_by_one(np.column_stack((np.zeros(N), other)), np.outer(alone, np.eye(5)[0])))
    assert own.delta(0.1) == pytest.approx(0.2)
    assert own.bounds(0.1).upper >= 0.2
    assert not bends(measure_table(moved_by_one(other, np.array([3.0, 0, 0, 0]))))


@pytest.mark.slow
def test_a_law_that_is_smeared_is_seen_in_a_cell_that_others_outshine():
    """Sixteen normal cells are moved more, in units of their residuals; two exponential ones give more away."""
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(365, 2))
    own = np.concatenate((rng.normal(size=(365, 16)), rng.exponential(size=(365, 2))), axis=1)
    without = np.concatenate((factors, factors @ rng.normal(size=(2, 18)) + own), axis=1)
    moves = np.zeros((17, 20))
    moves[np.arange(16), 2 + np.arange(16)] = 0.25
    moves[16, 18:] = 0.2, 0.13
    q = without + moves.sum(axis=0)
    parts = {f"c{k}": Results.from_arrays(q[:, k], q[None, :, k] - moves[:, k, None]) for k in range(20)}
    risk = measure_table(Results.stack(parts))
    truth = 0.283  # of the two cells together, at epsilon 0.1
    assert covered(risk, 0.1, truth).upper < truth  # what the bound says
    assert verdict(risk, epsilon=0.1, delta=truth - 0.003) != "pass"
    assert set(objected_places(risk)) >= {18, 19}
    assert not table_cover_of(risk, 0.05).trusted[18:].any()  # nor is their law believed beside noise


def test_cells_that_are_too_many_to_test_do_not_pass():
    q = np.random.default_rng(2).normal(size=(60, 50))
    risk = measure_table(moved_by_one(q, 0.01 * np.eye(50)[0]))
    (check,) = residuals_check(risk)
    assert check.severity == "error"
    assert "one of them was not tested" in check.sentence
    assert objected_places(risk).tolist() == [0]


@pytest.mark.slow
def test_what_bends_is_seen_and_then_only_noise_counts():
    def risk_of(q: FloatArray) -> TableRisk:
        return measure_table(moved_by_one(q, 0.05 * np.eye(q.shape[1])[0]))

    seen, false = 0, 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(365, 5))
        bent = risk_of(np.column_stack((x[:, 0] ** 2 + 0.3 * rng.normal(size=365), x)))
        seen += bends(bent)
        false += bends(risk_of(x @ rng.normal(size=(5, 6)) + rng.standard_t(3, size=(365, 6))))
    assert seen >= 5
    assert false <= 1
    assert verdict(bent, epsilon=0.1, delta=0.5) != "pass"
    assert not table_cover_of(bent, 0.01).trusted[0]
    assert cover_by_cell(bent, 0.1, 0.05, noise=0.01).cover[0] < 0.01
