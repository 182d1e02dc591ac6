"""Rows of a source, and tables beside it, hold what one person did: else leaving them out does not take it out."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.errors import QueryError, SourceError

ROWS = pd.DataFrame({"day": [1, 1, 1, 2, 2, 2], "who": [6, 7, 8] * 2, "x": [1.0, 50.0, 3.0, 4.0, 60.0, 6.0]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "rows.parquet"
    ROWS.to_parquet(file)
    return str(file)


ACROSS = {
    "a total beside each row": "SELECT *, sum(x) FILTER (WHERE who = 7) OVER (PARTITION BY day) AS y FROM '{}'",
    "a value of the row before": "SELECT *, lag(x) OVER (ORDER BY day, who) AS y FROM '{}'",
    "a value of one person": "SELECT *, (SELECT max(x) FROM '{}' WHERE who = 7) AS y FROM '{}'",
    "a self-join": "SELECT a.*, b.x AS y FROM '{}' a JOIN '{}' b ON a.day = b.day AND b.who = 7",
    "a mean of everyone": "WITH m AS (SELECT day, avg(x) AS y FROM '{}' GROUP BY day) SELECT * FROM m",
    "an order of all rows": "SELECT * FROM '{}' ORDER BY x LIMIT 4",
    "a self-join by WITH": "WITH m AS (SELECT * FROM '{}') SELECT a.*, b.x AS y FROM m a, m b WHERE b.who = 7",
}
OWN = {
    "some rows": "SELECT * FROM '{}' WHERE x < 100",
    "each person's total": "SELECT day, who, sum(x) AS x FROM '{}' GROUP BY day, who",
    "by an expression": "SELECT day, who % 10 AS who, sum(x) AS x FROM '{}' GROUP BY day, who % 10",
    "by place": "SELECT day, who, sum(x) AS x FROM '{}' GROUP BY 1, 2",
    "each person's last row": "SELECT * FROM '{}' QUALIFY row_number() OVER (PARTITION BY who, day ORDER BY x) = 1",
    "two files under each other": "SELECT * FROM '{}' UNION ALL SELECT * FROM '{}'",
    "derived": "SELECT day, who, 2 * x AS x FROM (SELECT day, who, x FROM '{}')",
}


@pytest.mark.parametrize("sql", ACROSS.values(), ids=ACROSS)
def test_a_source_that_computes_across_people_is_refused(sql: str, path: str) -> None:
    data = empriv.databases(sql.replace("{}", path), database="day", individual="who")
    with pytest.raises(SourceError, match="each row of one person's rows"):
        empriv.collect(data, "avg(x)")


@pytest.mark.parametrize("sql", OWN.values(), ids=OWN)
def test_a_source_of_everybodys_own_rows_is_read(sql: str, path: str) -> None:
    data = empriv.databases(sql.replace("{}", path), database="day", individual="who")
    assert empriv.collect(data, "max(x)").q[0] >= 50.0


def test_the_same_in_the_language_of_a_connection(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        ROWS.to_sql("t", connection, index=False)
    for sql, refused in (
        ("SELECT day, who, x, (SELECT sum(x) FROM t b WHERE b.who = 7 AND b.day = a.day) y FROM t a", True),
        ("SELECT day, who, sum(x) AS x FROM t GROUP BY day, who", False),
    ):
        data = empriv.databases(tmp_path / "rows.sqlite", sql=sql, database="day", individual="who")
        if refused:
            with pytest.raises(SourceError, match="one person"):
                empriv.collect(data, "avg(x)")
        else:
            assert empriv.collect(data, "sum(x)").q.tolist() == [54.0, 70.0]


PEOPLE = pd.DataFrame({"who": [6, 7, 8], "age": [30.0, 40.0, 50.0]})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT avg(x) + (SELECT sum(age) FROM people WHERE who = 7) FROM data",
        "SELECT avg(x + age) FROM data, people",
        "SELECT avg(x + age) FROM data JOIN people ON people.who = 7",
        "SELECT avg(age) FROM data RIGHT JOIN people USING (who)",
        "SELECT avg(age) FROM people",
    ],
)
def test_a_table_of_people_is_read_beside_their_own_rows_alone(query: str) -> None:
    data = empriv.databases(ROWS, database="day", individual="who", tables={"people": PEOPLE})
    with pytest.raises(QueryError, match="must join people to data by who"):
        empriv.collect(data, query)


@pytest.mark.parametrize(
    "join",
    ["JOIN people USING (who)", "LEFT JOIN people p ON p.who = data.who", "JOIN people AS p ON data.who = p.who"],
)
def test_joined_by_the_individual_it_leaves_them_out_too(join: str) -> None:
    data = empriv.databases(ROWS, database="day", individual="who", tables={"people": PEOPLE})
    results = empriv.collect(data, f"SELECT sum(x + age) FROM data {join}")
    np.testing.assert_allclose(results.q, [174.0, 190.0])
    np.testing.assert_allclose(results.without(7), [84.0, 90.0])


def test_tables_that_know_nobody_are_read_as_before() -> None:
    rates = pd.DataFrame({"day": [1, 2], "rate": [2.0, 3.0]})
    data = empriv.databases(ROWS, database="day", individual="who", tables={"rates": rates})
    assert empriv.collect(data, "SELECT sum(x) * (SELECT max(rate) FROM rates) FROM data").q.tolist() == [162.0, 210.0]
