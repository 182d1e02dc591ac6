"""SQL collected on DuckDB: the main path, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from brute import check_against_brute_force
from empriv.collecting import collect, databases
from empriv.errors import InputError

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
        "SELECT avg(amount) FROM data WHERE quantity < 3",
        "SELECT sum(amount) / count(*), sum(quantity), max(amount) - min(amount), bool_and(amount > 0), "
        "sum(amount) FILTER (WHERE quantity = 1), coalesce(sum(CASE WHEN quantity > 1 THEN amount END), -1) "
        "FROM data AS d",
    ],
)
def test_result_without_each_individual_is_that_of_the_rows_left(query: str) -> None:
    results = collect(databases(SALES, database="day", individual="who"), query)
    assert results.databases.tolist() == [1, 2, 3]
    assert results.individuals.tolist() == ["a", "b", "c", "d"]
    check_against_brute_force(results, SALES, query)


def noisy(rows: dict[str, np.ndarray], rng: np.random.Generator) -> float:
    return float(rows["quantity"].sum() + rng.normal())


def test_seed_and_draws_may_be_of_numpy(tmp_path: Path) -> None:
    data, file = databases(SALES, database="day", individual="who"), tmp_path / "checkpoint"
    one = collect(data, noisy, draws=2, rng=3, jobs=1, checkpoint=file)
    two = collect(data, noisy, draws=np.int64(2), rng=np.uint8(3), jobs=1, checkpoint=file)
    np.testing.assert_array_equal(one.entry_q, two.entry_q)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "`draws` must be a whole number of 1 or more, or None, got 0"),
        ({"draws": True}, "`draws` must be"),
        ({"rng": -1}, "`rng` must be a whole number of 0 or more, got -1"),
        ({"rng": 0.5}, "`rng` must be"),
        ({"jobs": 0}, "`jobs` must be a whole number other than 0, or None, got 0"),
    ],
)
def test_options_of_functions_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        collect(databases(SALES, database="day", individual="who"), noisy, **options)
