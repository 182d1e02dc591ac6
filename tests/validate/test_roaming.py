"""Upper bounds on a random day for people who are in another cell each time, against truths by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import empriv
from empriv.measuring.tables.innovations import RatioGrid, one_of_several
from empriv.measuring.tables.table_risk import measure_table
from loading import benchmark

families = benchmark("table_families")
EPSILON = 0.1
GRID = RatioGrid(np.linspace(0.0, 5.0, 80))


def curve(size: float) -> np.ndarray:
    """The curve of two normal laws on the grid."""
    return GRID.both_signs(np.array([families.normal_delta(size, epsilon) for epsilon in GRID.epsilons]))


def mixture(size: float, cells: int, share: float) -> float:
    """delta of somebody who moves one of so many independent normal cells, by simulation."""
    law = families.Factors("normal", cells + 2)
    person = families.Person(size * np.eye(cells + 2)[2:], np.full(cells, share / cells))
    return families.truths(law, person, EPSILON)[1]


@pytest.mark.parametrize(("cells", "share"), [(2, 1.0), (5, 1.0), (5, 0.3)])
def test_exact_curves_give_the_truth_from_above(cells: int, share: float) -> None:
    bound = one_of_several(GRID, np.stack([curve(0.8)] * cells), np.full(cells, share / cells), np.array([EPSILON]))[0]
    truth = mixture(0.8, cells, share)
    assert truth - 0.003 <= bound <= 1.06 * truth + 0.004
    assert bound < share * families.normal_delta(0.8, EPSILON)  # and less than to know the cell


def test_one_thing_with_a_share_is_the_mixture() -> None:
    bound = one_of_several(GRID, curve(1.5)[None], np.array([0.1]), np.array([EPSILON]))[0]
    assert bound == pytest.approx(
        0.1 * families.normal_delta(1.5, math.log1p((math.exp(EPSILON) - 1) / 0.1)), abs=0.002
    )


class Together:
    """Cells that move against each other: somebody who adds to any of them shows in all."""

    def __init__(self, cells: int) -> None:
        self.precision = np.eye(cells) + 0.5
        self.root = np.linalg.cholesky(np.linalg.inv(self.precision))
        self.unit = np.ones(cells)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.normal(size=(n, len(self.root))) @ self.root.T

    def log_ratio(self, y: np.ndarray, influence: np.ndarray) -> np.ndarray:
        loaded = self.precision @ influence
        return y @ loaded - 0.5 * influence @ loaded


@pytest.mark.slow
def test_bounds_hold_where_cells_move_together() -> None:
    cells, n = 6, 300
    law, person = Together(cells), families.Person(0.6 * np.eye(cells), np.full(cells, 1 / cells))
    there, truth = families.truths(law, person, EPSILON)
    uppers, presents = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        others = law.draw(rng, n)
        added, days = person.draw(rng, n)
        risk = measure_table(families.results_of(others, added, days))
        uppers.append(empriv.bounds(risk, EPSILON).upper)
        presents.append(empriv.bounds(risk.given_presence(), EPSILON).upper)
    assert min(uppers) >= truth
    assert min(presents) >= there
    # as if independent, it would be less than the truth
    alone = curve(0.6 * math.sqrt(1.5))
    assert one_of_several(GRID, np.stack([alone] * cells), np.full(cells, 1 / cells), np.array([EPSILON]))[0] < truth


@pytest.mark.slow
def test_roaming_costs_less_than_knowing_where() -> None:
    family = families.Family("normal", 12, "another cell each time")
    risk = measure_table(family.draw(np.random.default_rng(1), 300))
    upper, present = empriv.bounds(risk, EPSILON).upper, empriv.bounds(risk.given_presence(), EPSILON).upper
    assert family.truths(EPSILON)[1] <= upper < 0.6 * present
