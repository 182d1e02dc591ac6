"""SQL collected on DuckDB: the main path, end to end."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from brute import check_against_brute_force

from empriv.collecting import collect, databases

SALES = pd.DataFrame(
    {
        "day": [1, 1, 1, 1, 2, 2, 2, 3],
        "who": ["a", "a", "b", "c", "a", "b", "b", "d"],
        "amount": [1.5, 2.0, 1e15, -3.0, 0.1, 0.2, 0.3, 7.0],
        "quantity": [1, 2, 2, 1, 1, 1, 1, 5],
    }
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(amount) / count(*) FROM data",
        "SELECT avg(amount) FROM data WHERE quantity < 3",
        "SELECT sum(quantity) FROM data",
        "SELECT max(amount) - min(amount) FROM data",
        "SELECT sum(amount) FILTER (WHERE quantity = 1) FROM data",
        "SELECT coalesce(sum(CASE WHEN quantity > 1 THEN amount END), -1) FROM data AS d",
        "SELECT bool_and(amount > 0) FROM data",
    ],
)
def test_result_without_each_individual_is_that_of_the_rows_left(query: str) -> None:
    results = collect(databases(SALES, database="day", individual="who"), query)
    assert results.databases.tolist() == [1, 2, 3]
    assert results.individuals.tolist() == ["a", "b", "c", "d"]
    check_against_brute_force(results, SALES, query)


def test_expression_alone_is_a_query() -> None:
    data = databases(SALES, database="day", individual="who")
    np.testing.assert_array_equal(
        collect(data, "sum(quantity)").entry_q, collect(data, "SELECT sum(quantity) FROM data").entry_q
    )
