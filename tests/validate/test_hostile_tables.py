"""Tables that somebody hostile chose: where one person's delta is 1 and the bound is small, a check stops the pass."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.tables.table_risk import measure_table
from empriv.validate.covers import covered
from empriv.validate.table_checks import objected_places, residuals_check
from empriv.validate.table_cover import table_cover_of
from empriv.validate.verdict import verdict

N = 200


class World:
    """Sums, numbers and averages of about 40 people a day, and cells that have nothing to do with them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.number = rng.poisson(40, N) + 5.0
        self.total = np.array([rng.lognormal(3, 0.8, int(k)).sum() for k in self.number])
        self.other = rng.normal(500, 50, (N, 4))
        self.amounts = np.round(rng.lognormal(1, 1, N), 2)

    def results(self, *cells, first):
        """Results of somebody who adds ``first`` to the first cell, and nothing to the others."""
        without = np.column_stack((*cells, self.other))
        with_person = without.copy()
        with_person[:, 0] += first
        return results_of(with_person, without)


def results_of(q, without):
    return empriv.Results.stack(
        {f"c{k}": empriv.Results.from_arrays(q[:, k], without[None, :, k]) for k in range(q.shape[1])}
    )


@pytest.fixture(scope="module")
def world():
    return World()


def bends(risk):
    return bool(residuals_check(risk)[0].numbers["p"] <= 0.05)


@pytest.mark.parametrize("how", ["average", "percentage", "product"])
def test_a_function_of_cells_that_leaves_somebody_out(world, how):
    """The sum with them, beside what gives the sum without them, but not as a difference: delta is 1."""
    match how:
        case "average":
            risk = measure_table(world.results(world.total, world.number, world.total / world.number, first=3.0))
        case "percentage":
            whole = world.total + world.other.sum(axis=1)
            without = np.column_stack((world.total, whole, 100 * world.total / whole, world.other[:, :2]))
            risk = measure_table(results_of(without + np.array([3.0, 3.0, 0, 0, 0]), without))
        case _:
            made = world.total * world.number / 40
            risk = measure_table(world.results(made, world.total, world.number, first=3.0))
    assert risk.bounds(0.1).upper < 0.5  # what the bound says
    assert bends(risk)  # and why it is not to be believed


def test_cells_that_have_nothing_to_do_with_each_other_do_not_bend(world):
    assert not bends(measure_table(results_of(world.other + np.array([3.0, 0, 0, 0]), world.other)))


def test_differences_and_cells_of_their_own_are_leaks(world):
    pair = measure_table(world.results(world.total, world.total, first=world.amounts))
    assert pair.delta(0.1) == 1.0
    assert pair.leaks
    alone = np.arange(N) % 5 == 0
    without = np.column_stack((np.zeros(N), world.other))
    own = measure_table(results_of(without + np.outer(alone, np.eye(5)[0]), without))
    assert own.delta(0.1) == pytest.approx(0.2)
    assert own.bounds(0.1).upper >= 0.2


def test_a_law_that_is_smeared_is_seen_in_a_cell_that_others_outshine():
    """Sixteen normal cells are moved more, in units of what is left of them; two exponential ones give more away."""
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(365, 2))
    own = np.concatenate((rng.normal(size=(365, 16)), rng.exponential(size=(365, 2))), axis=1)
    without = np.concatenate((factors, factors @ rng.normal(size=(2, 18)) + own), axis=1)
    moves = np.zeros((17, 20))
    moves[np.arange(16), 2 + np.arange(16)] = 0.25
    moves[16, 18:] = 0.2, 0.13
    q = without + moves.sum(axis=0)
    risk = measure_table(
        empriv.Results.stack(
            {f"c{k}": empriv.Results.from_arrays(q[:, k], q[None, :, k] - moves[:, k, None]) for k in range(20)}
        )
    )
    truth = 0.283  # of the two cells together, at epsilon 0.1
    assert covered(risk, 0.1, truth).upper < truth  # what the bound says
    assert verdict(risk, epsilon=0.1, delta=truth - 0.003) != "pass"
    assert set(objected_places(risk)) >= {18, 19}
    assert not table_cover_of(risk, 0.05).trusted[18:].any()  # nor is their law believed beside noise


def test_cells_that_are_too_many_to_look_at_do_not_pass():
    rng = np.random.default_rng(2)
    q = rng.normal(size=(60, 50))
    risk = measure_table(results_of(q + 0.01 * np.eye(50)[0], q))
    (check,) = residuals_check(risk)
    assert check.severity == "error"
    assert "one of them was not tested" in check.sentence
    assert objected_places(risk).tolist() == [0]
