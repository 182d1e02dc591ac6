"""Measures of whole tables against a slow version that was written from the mathematics (`table_oracle`)."""

from __future__ import annotations

import numpy as np
import pytest
import table_oracle as oracle

from empriv.measuring.tables.directions import residuals_along
from empriv.measuring.tables.table_risk import measure_table
from loading import benchmark

families = benchmark("table_families")
EPSILON = 0.1


def drawn(law: str, who: str, d: int, n: int, published: str = "cells", seed: int = 0):
    """Results of a person, and what the slow version needs: the others, what is added, and where."""
    family = families.Family(law, d, who, published)
    rng = np.random.default_rng(seed)
    others = family.law.draw(rng, n)
    added, there = family.person.draw(rng, n)
    publish = families.PUBLISHED[published](d)
    return families.results_of(others @ publish, added @ publish, there), others @ publish, added @ publish, there


@pytest.mark.parametrize("published", families.PUBLISHED)
def test_distances_and_directions_are_those_of_the_slow_version(published: str) -> None:
    results, others, added, _ = drawn("normal", "two cells", 8, 120, published)
    risk = measure_table(results)
    fitted = oracle.fit(others)
    assert risk.fit.rank == fitted.parameters
    distance = oracle.distance(fitted, added[0])
    # constant influence: with everyone is without but for the mean
    assert np.sqrt(risk.influences.sizes) == pytest.approx(distance)
    slow = oracle.direction(fitted, added[0])
    points = residuals_along(risk.groups[0], risk.influences, risk.fit).q
    assert abs(np.corrcoef(points, slow)[0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("law", ["normal", "Student 3 factors", "gamma 2 factors"])
@pytest.mark.parametrize("who", ["one cell", "two cells"])
def test_estimates_of_constant_influence_are_those_of_the_slow_version(law: str, who: str) -> None:
    results, others, added, _ = drawn(law, who, 8, 150)
    slow = oracle.random_day_estimate(others, added, EPSILON)
    risk = measure_table(results)
    assert risk.delta(EPSILON) == pytest.approx(slow, rel=0.25)
    assert risk.delta(EPSILON) > 0.9 * slow
