"""The slow and obvious way: delete each individual's rows for real, and run the query on what is left."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd

from empriv.results import Outcome, Results


def classify(value: Any) -> tuple[float, int]:
    if value is None:
        return np.nan, Outcome.NULL
    number = float(value)
    if np.isnan(number):
        return np.nan, Outcome.NAN
    if np.isinf(number):
        return np.nan, Outcome.PLUS_INFINITY if number > 0 else Outcome.MINUS_INFINITY
    return number, Outcome.NUMBER


def answer(rows: pd.DataFrame, query: str, types: str | None = None) -> Any:
    with duckdb.connect() as connection:
        connection.register("frame", rows)
        connection.execute(f"CREATE TEMP VIEW data AS SELECT {types or '*'} FROM frame")
        found = connection.execute(query).fetchall()
    (row,) = found
    (value,) = row
    return value


def check_against_brute_force(
    results: Results,
    rows: pd.DataFrame,
    query: str,
    *,
    database: str = "day",
    individual: str = "who",
    types: str | None = None,
    rtol: float = 1e-9,
    atol: float = 0.0,
) -> None:
    """Every result with everyone, and without each individual, present or not."""
    for j, label in enumerate(results.databases):
        part = rows[rows[database] == label]
        _same(results.q[j], results.outcomes[j], answer(part, query, types), rtol, atol)
        for i, person in enumerate(results.individuals):
            entries = slice(results.starts[i], results.starts[i + 1])
            at = np.flatnonzero(results.entry_database[entries] == j)
            if len(at):
                value = results.entry_q[entries][at[0]]
                outcome = results.entry_outcomes[entries][at[0]]
            else:
                value, outcome = results.q[j], results.outcomes[j]
            left = part[part[individual] != person]
            _same(value, outcome, answer(left, query, types), rtol, atol)


def _same(value: float, outcome: int, expected: Any, rtol: float, atol: float) -> None:
    number, code = classify(expected)
    assert outcome == code
    if code == Outcome.NUMBER:
        np.testing.assert_allclose(value, number, rtol=rtol, atol=atol)
