"""Measures of whole tables against a slow version, written from the mathematics and not from the library.

Only the engine for one number is the library's (`empriv.measure`, which has oracles of its own). y (n, d) is the table
of the others, scaled and centred, r its rank, p = 1 + r; K = (n - p)(y'y)^+ is the precision of the cells. A direction
a carries ``t = y K a/(a'K a)``, on which an influence D weighs ``D'K a/(a'K a)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

import empriv
from empriv.measuring.tables.directions import residuals_along
from empriv.measuring.tables.table_risk import measure_table
from empriv.results import FloatArray
from loading import benchmark

families = benchmark("table_families")
EPSILON = 0.1


@dataclass(frozen=True, eq=False)
class Oracle:
    """The table of the others, in cells scaled to spread 1; every cell varies."""

    y: FloatArray
    scale: FloatArray
    precision: FloatArray
    parameters: int

    def direction(self, influence: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n,) the number that tells most of an influence (all, if cells are normal), and (d,) its weights."""
        a = influence / self.scale
        weights = self.precision @ a / (a @ self.precision @ a)
        return self.y @ weights, weights / self.scale

    def distance(self, influence: FloatArray) -> float:
        """sqrt(D'K D): how many standard deviations apart the tables are."""
        a = influence / self.scale
        return math.sqrt(a @ self.precision @ a)


def oracle_of(others: FloatArray) -> Oracle:
    scale = others.std(axis=0)
    y = (others - others.mean(axis=0)) / scale
    parameters = 1 + int(np.linalg.matrix_rank(y, tol=1e-9 * np.linalg.norm(y, 2)))
    return Oracle(y, scale, (len(y) - parameters) * np.linalg.pinv(y.T @ y, rcond=1e-12, hermitian=True), parameters)


def drawn(law: str, who: str, d: int, n: int, published: str = "cells"):
    """Results of a person, and what the slow version needs: the others, and what is added."""
    family = families.Family(law, d, who, published)
    rng = np.random.default_rng(0)
    others = family.law.draw(rng, n)
    added, there = family.person.draw(rng, n)
    publish = families.PUBLISHED[published](d)
    return families.results_of(others @ publish, added @ publish, there), others @ publish, added @ publish


@pytest.mark.parametrize("published", families.PUBLISHED)
def test_distances_and_directions_are_those_of_the_slow_version(published: str) -> None:
    results, others, added = drawn("normal", "two cells", 8, 120, published)
    risk, slow = measure_table(results), oracle_of(others)
    assert risk.fit.rank == slow.parameters
    # constant influence: with everyone is without but for the mean
    assert np.sqrt(risk.influences.sizes) == pytest.approx(slow.distance(added[0]))
    points = residuals_along(risk.groups[0], risk.influences, risk.fit).q
    assert abs(np.corrcoef(points, slow.direction(added[0])[0])[0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("law", ["normal", "Student 3 factors", "gamma 2 factors"])
@pytest.mark.parametrize("who", ["one cell", "two cells"])
def test_estimates_of_constant_influence_are_those_of_the_slow_version(law: str, who: str) -> None:
    results, others, added = drawn(law, who, 8, 150)
    without, weights = oracle_of(others).direction(added.sum(axis=0))
    slow = empriv.measure(without + added @ weights, without[None]).delta(EPSILON)
    risk = measure_table(results)
    assert risk.delta(EPSILON) == pytest.approx(slow, rel=0.25)
    assert risk.delta(EPSILON) > 0.9 * slow
