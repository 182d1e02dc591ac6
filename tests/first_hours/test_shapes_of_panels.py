"""Panels of odd shapes are judged without an error, and no lower bound is above the upper bound."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import empriv

RNG = np.random.default_rng(11)


def one_time_people() -> pd.DataFrame:
    return pd.DataFrame({"day": np.repeat(np.arange(70), 4), "who": np.arange(280), "x": RNG.gamma(2, 10, 280)})


def one_person_each() -> pd.DataFrame:
    return pd.DataFrame({"day": np.arange(80), "who": RNG.integers(0, 9, 80), "x": RNG.gamma(2, 10, 80).round(2)})


def one_person_days() -> pd.DataFrame:
    days = np.concatenate((np.arange(12), RNG.integers(12, 60, 400)))
    return pd.DataFrame({"day": days, "who": RNG.integers(0, 90, 412), "x": RNG.choice([0.0, 1.0], 412)})


def returned_goods() -> pd.DataFrame:
    x = RNG.gamma(2, 10, 500).round(2) * RNG.choice([1, 1, 1, -1], 500)
    return pd.DataFrame({"day": RNG.integers(0, 50, 500), "who": RNG.integers(0, 30, 500), "x": x})


def with_gaps_and_twins() -> pd.DataFrame:
    frame = returned_goods()
    frame.loc[::9, "x"] = np.nan
    return pd.concat([frame, frame[::3]])


def a_part_of_a_week() -> pd.DataFrame:
    return returned_goods().assign(day=lambda frame: np.minimum(frame.day, 49 + (frame.index % 40 == 0)))


def many_databases() -> pd.DataFrame:
    return pd.DataFrame({"day": np.arange(2500) % 1000, "who": RNG.integers(0, 20, 2500), "x": RNG.gamma(2, 10, 2500)})


SHAPES = [
    one_time_people, one_person_each, one_person_days, returned_goods, with_gaps_and_twins, a_part_of_a_week,
    many_databases,
]  # fmt: skip
QUERIES = ("sum(x)", "avg(CASE WHEN x > 0 THEN 1.0 ELSE 0 END)", "count(DISTINCT who)")


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.__name__))
def test_plain_queries_are_judged_and_bounds_do_not_cross(shape: object) -> None:
    assert callable(shape)
    data = empriv.databases(shape(), database="day", individual="who")
    for query in QUERIES:
        audit = empriv.audit(data, query)
        bounds = audit.bounds(1.0)
        assert 0 <= bounds.lower <= bounds.upper <= 1, query
        assert bounds.estimate <= bounds.upper, query
        assert bounds.lower <= np.max(bounds.upper_i), query
        assert audit.verdict(epsilon=1.0, delta=0.05) in ("pass", "fail", "unresolved")


def priced(odd: float) -> empriv.Databases:
    """Totals in cents, but for what one customer buys every day."""
    n, generator = 1500, np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "day": generator.integers(0, 120, n),
            "who": generator.integers(1, 60, n),
            "x": generator.gamma(2, 1000, n).round() / 100,
        }
    )
    own = pd.DataFrame({"day": np.arange(120), "who": 0, "x": odd})
    return empriv.databases(pd.concat([rows, own]), database="day", individual="who")


@pytest.mark.slow
def test_a_tenth_of_a_penny_tells_and_rounding_to_the_penny_mends_it() -> None:
    assert empriv.audit(priced(4.681), "sum(x)").bounds(1.0).lower > 0.9
    assert empriv.audit(priced(4.68), "sum(x)").bounds(1.0).upper < 0.2
    assert empriv.audit(priced(4.681), "round(sum(x), 2)").bounds(1.0).upper < 0.2
