"""Entropy and mode without each individual, against the query run on what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from brute import check_against_brute_force

import empriv
from empriv.collecting import collect, databases, explain
from empriv.errors import InputError, QueryError


def rows(seed: int, count: int, values: int) -> pd.DataFrame:
    """Few values, so that many are as frequent as others; NULL, NaN, and rows of nobody."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "day": rng.integers(1, 4, count),
            "who": rng.integers(-3, 5, count),
            "k": pd.array(rng.integers(0, values, count), "Int64"),
            "x": rng.choice([0.0, -0.0, 1.5, np.inf, -2.0], count),
            "shop": rng.choice(["s", "t"], count),
        }
    ).assign(k=lambda t: t["k"].mask(rng.random(count) < 0.1))


@pytest.mark.parametrize(("seed", "count", "values"), [(1, 12, 3), (2, 40, 5), (3, 60, 2), (4, 5, 9)])
@pytest.mark.parametrize("call", ["mode(k)", "mode(x)", "entropy(k)", "entropy(x)", "mode(k) FILTER (WHERE x > 0)"])
def test_value_counts_equal_brute_force(call: str, seed: int, count: int, values: int) -> None:
    frame = rows(seed, count, values)
    query = f"SELECT {call} FROM data"
    assert "once per individual" not in explain(databases(frame, database="day", individual="who"), query)
    results = collect(databases(frame, database="day", individual="who"), query)
    check_against_brute_force(results, frame, query, atol=1e-12)


@pytest.mark.parametrize("call", ["mode(k)", "entropy(k)"])
def test_value_counts_of_groups_equal_brute_force(call: str) -> None:
    frame = rows(5, 80, 4)
    query = f"SELECT shop, {call} FROM data GROUP BY shop"
    check_against_brute_force(collect(databases(frame, database="day", individual="who"), query), frame, query)


def test_only_ties_are_run() -> None:
    """On the first day 1 is ahead by one, and tied without anybody who has it; on the second nobody matters."""
    frame = pd.DataFrame(
        {
            "day": [1] * 5 + [2] * 6,
            "who": ["a", "b", "c", "d", "d", "a", "b", "c", "d", "e", "f"],
            "k": [1, 1, 1, 2, 2, 7, 7, 7, 7, 8, 9],
        }
    )
    said: list[str] = []
    results = collect(databases(frame, database="day", individual="who"), "mode(k)", notice=said.append)
    assert said[0].startswith("The query runs once per individual, since several values are the most frequent: 3 runs")
    check_against_brute_force(results, frame, "SELECT mode(k) FROM data")
    said.clear()
    collect(databases(frame[frame["day"] == 2], database="day", individual="who"), "mode(k)", notice=said.append)
    assert said == []


def test_entropy_of_one_value_is_exactly_none() -> None:
    """Whatever the logarithms of the counts are rounded to: a result of its own."""
    frame = pd.DataFrame({"day": 1, "who": [0] * 3 + [1] * 7 + [2], "k": [5] * 10 + [6]})
    results = collect(databases(frame, database="day", individual="who"), "entropy(k)")
    assert results.without(2).tolist() == [0.0]
    assert results.without(0)[0] > 0.5


def test_an_entropy_in_chunks_equals_its_audit_and_modes_that_tie_are_refused_there() -> None:
    frame = rows(7, 300, 3)
    data = databases(frame.assign(day=np.arange(300) % 30), database="day", individual="who")
    asked: dict[str, Any] = {"epsilon": 0.1, "known": "nothing", "in_chunks": True}
    found = empriv.audit(data, "entropy(k)", **asked)
    assert found.delta(0.1) == empriv.audit(collect(data, "entropy(k)"), **asked).delta(0.1)
    with pytest.raises(InputError, match=r"several values are the most frequent\. Hint"):
        empriv.audit(data, "mode(k)", **asked)


def test_a_geometric_mean_with_a_filter_is_refused_as_duckdb_refuses_it() -> None:
    data = databases(rows(1, 12, 3), database="day", individual="who")
    with pytest.raises(QueryError):
        collect(data, "geomean(k) FILTER (WHERE x > 0)")
