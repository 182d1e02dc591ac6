"""What is understood as a query, and what is refused, with the place of the mistake."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from brute import check_against_brute_force
from empriv.collecting import collect, databases
from empriv.collecting.queries import query_of
from empriv.collecting.sql.printing import text
from empriv.errors import QueryError

ROWS = pd.DataFrame(
    {
        "day": [1, 1, 1, 2],
        "who": ["amy", "bob", "cyd", "amy"],
        "amount": [1.0, None, -2.0, 4.0],
        "ok": [True, False, None, True],
    }
)
DATA = databases(ROWS, database="day", individual="who")


@pytest.mark.parametrize(
    ("query", "understood"),
    [
        ("sum(amount)", "SELECT SUM(amount) FROM data"),
        ("SELECT sum(amount)", "SELECT SUM(amount) FROM data"),
        ("(SELECT sum(amount) FROM data);", "SELECT SUM(amount) FROM data"),
        ("sum(amount) / count(*)", "SELECT SUM(amount) / NULLIF(COUNT(*), 0) FROM data"),
        ("sum(amount) / 2", "SELECT SUM(amount) / 2 FROM data"),
        ("count_if(ok)", "SELECT SUM(CASE WHEN ok THEN 1 WHEN NOT ok THEN 0 END) FROM data"),
    ],
)
def test_query_is_understood(query: str, understood: str) -> None:
    select = query_of(query).select
    assert select is not None
    assert text(select) == understood


def test_names_of_items_and_keys() -> None:
    query = query_of("SELECT upper(shop) AS s, sum(x) AS total, count(*) FROM data GROUP BY s")
    assert (query.keys, query.items, query.names) == ((0,), (1, 2), ("total", "COUNT(*)"))
    assert query.is_vector
    assert not query_of("sum(x)").is_vector


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT sum(x\nFROM data", r"parsed, which fails at line 2, column \d+"),
        ("SELECT 1; SELECT 2", "one statement, got 2"),
        ("DELETE FROM data", "a SELECT or an expression"),
        ("COPY data TO 'x'", "a SELECT or an expression"),
        ("SELECT sum(x) + random() FROM data", r"calls rand(om)?\(\)"),
        ("SELECT shop FROM data GROUP BY shop", "at least one aggregate"),
        ("SELECT sum(x) FROM data GROUP BY 3", "position must be from 1 to 1, got 3"),
        ("INSERT INTO data VALUES (1)", "a SELECT or an expression"),
        ("  ", "SQL text or a function"),
        (3, "SQL text or a function"),
    ],
)
def test_what_is_no_query_is_refused(query: object, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        query_of(query)


def test_unknown_column_is_placed_and_the_nearest_named() -> None:
    with pytest.raises(QueryError, match=r"column 'amuont' at line 2, column 5 .* did you mean 'amount'\?"):
        collect(DATA, "SELECT\nsum(amuont) FROM data")


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT count_if(ok), count_if(amount > 0), count_if(amount > 100) FROM data",
        "SELECT count_if(ok) FROM (SELECT * FROM data LIMIT 99)",  # run once per individual
        "SELECT count_if(ok) FILTER (WHERE amount > 0) FROM data",
        "SELECT countif(amount < 0) + 1 FROM data",
    ],
)
def test_count_if_counts_what_is_true_and_is_null_over_nothing(query: str) -> None:
    results = collect(DATA, query, notice=lambda _: None, progress=False)
    # Nobody is left on the second day.
    assert np.isnan(results.without("amy")[1]).all()
    check_against_brute_force(results, ROWS, query)
