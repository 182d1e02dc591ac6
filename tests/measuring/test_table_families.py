"""Laws of benchmarks/table_families.py: truths that are known by other means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from loading import benchmark

families = benchmark("table_families")
EPSILON = 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", families.LAWS)
def test_ratios_are_those_of_the_law_that_is_drawn_from(name: str) -> None:
    """The share of tables with the person in a set is the mean of the ratio over the others' tables in it."""
    law = families.made(name, 6)
    person = families.person_of("two cells", law.unit, whole=name in families.WHOLE)
    rng = np.random.default_rng(2)
    others, again = law.draw(rng, 6_000), law.draw(rng, 6_000)
    influence = person.influences[0]
    ratio = np.exp(law.log_ratio(others, influence))
    inside = (ratio > 1) & (ratio < 20)

    def share(times: float) -> tuple[float, float]:
        there = np.exp(law.log_ratio(again + times * influence, influence))
        counted = (there > 1) & (there < 20)
        return float(counted.mean()), float(counted.std())

    expected, error = float((ratio * inside).mean()), float((ratio * inside).std())
    seen, seen_error = share(1.0)
    limit = 4 * math.hypot(error, seen_error) / math.sqrt(len(others))
    assert abs(seen - expected) < limit
    false, _ = share(0.0)  # the tables without the person do not follow these ratios
    assert abs(false - expected) > limit


@pytest.mark.parametrize("who", ["one cell", "two cells"])
def test_truth_of_a_normal_table_is_that_of_its_distance(who: str) -> None:
    law = families.made("normal", 10)
    person = families.person_of(who, law.unit)
    influence = person.influences[0]
    there, random_day = families.truths(law, person, EPSILON)
    closed = families.normal_delta(math.sqrt(influence @ law.precision @ influence), EPSILON)
    assert there == pytest.approx(closed, abs=0.004)
    assert random_day == there
    assert abs(there - families.normal_delta(1.2 * math.sqrt(influence @ law.precision @ influence), EPSILON)) > 0.01


def test_truth_on_a_random_day_by_integration() -> None:
    """Present on one day of ten, one normal cell: the mixture's hockey stick on the line."""
    law = families.Factors("normal", 4)
    person = families.Person(np.array([[0, 0, 0, 1.5]]), np.array([0.1]))
    e = math.exp(EPSILON)

    def both(x: float) -> tuple[float, float]:
        p = stats.norm.pdf(x)
        return 0.9 * p + 0.1 * stats.norm.pdf(x - 1.5), p

    closed = max(
        integrate.quad(lambda x: max(both(x)[0] - e * both(x)[1], 0.0), -9, 11, limit=200)[0],
        integrate.quad(lambda x: max(both(x)[1] - e * both(x)[0], 0.0), -9, 11, limit=200)[0],
    )
    there, random_day = families.truths(law, person, EPSILON, 200_000)
    assert random_day == pytest.approx(closed, abs=0.001)
    assert there == pytest.approx(families.normal_delta(1.5, EPSILON), abs=0.003)
