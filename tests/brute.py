"""The slow and obvious way: delete each individual's rows for real, and run the query on what is left."""

from __future__ import annotations

from collections.abc import Sequence
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


def check_against_brute_force(
    results: Results,
    rows: pd.DataFrame,
    query: str,
    *,
    database: str = "day",
    individual: str = "who",
    columns: str = "*",
    rtol: float = 1e-9,
    atol: float = 0.0,
    tables: dict[str, pd.DataFrame] | None = None,
) -> None:
    """Every result with everyone, and without each individual, present or not.

    A query with GROUP BY must select its key first, and one item; its components are the keys.
    """
    size = 1 if results.components is None else len(results.components)
    q, codes = results.q.reshape(-1, size), results.outcomes.reshape(-1, size)
    entry_q, entry_codes = results.entry_q.reshape(-1, size), results.entry_outcomes.reshape(-1, size)
    with duckdb.connect(config={"threads": "1"}) as connection:
        for name, table in (tables or {}).items():
            connection.register(name, table)
        connection.register("frame", rows)
        connection.execute(f"CREATE TABLE master AS SELECT {columns} FROM frame")
        for j, label in enumerate(results.databases):
            for i, person in enumerate([None, *results.individuals.tolist()]):
                connection.execute(
                    f'CREATE OR REPLACE TEMP TABLE data AS SELECT * FROM master WHERE "{database}" = $label '
                    f'AND "{individual}" IS DISTINCT FROM $person',
                    {"label": label.item(), "person": person},
                )
                found = connection.execute(query).fetchall()
                at = j
                values, outcomes = q, codes
                if person is not None:
                    entries = slice(results.starts[i - 1], results.starts[i])
                    place = np.flatnonzero(results.entry_database[entries] == j)
                    if len(place):
                        at = int(results.starts[i - 1] + place[0])
                        values, outcomes = entry_q, entry_codes
                expected = _expected(
                    found, results.components, grouped=results.components is not None and "GROUP BY" in query
                )
                for k, value in enumerate(expected):
                    number, code = classify(value)
                    assert outcomes[at, k] == code, (query, k, outcomes[at, k], code)
                    if code == Outcome.NUMBER:
                        np.testing.assert_allclose(values[at, k], number, rtol=rtol, atol=atol, err_msg=str(k))


def _expected(found: list[tuple[Any, ...]], components: Sequence[str] | None, *, grouped: bool) -> Sequence[Any]:
    if not grouped:
        assert len(found) <= 1
        return found[0] if found else (None,)
    assert components is not None
    by_key = {str(key): value for key, value in found}
    return [by_key.get(component) for component in components]


def check_same(found: Results, expected: Results, *, rtol: float = 1e-9) -> None:
    """Entry for entry."""
    assert found.components == expected.components
    for name in ("databases", "individuals", "outcomes", "starts", "entry_database", "entry_outcomes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in ("q", "entry_q"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, err_msg=name)


def check_same_without_each(found: Results, expected: Results, *, rtol: float = 1e-9) -> None:
    """The same without each individual, who need no entry where they change nothing."""
    assert found.individuals.tolist() == expected.individuals.tolist()
    assert found.components == expected.components
    np.testing.assert_array_equal(found.outcomes, expected.outcomes)
    np.testing.assert_allclose(found.q, expected.q, rtol=rtol)
    for who in found.individuals:
        np.testing.assert_allclose(found.without(who), expected.without(who), rtol=rtol, err_msg=str(who))
