"""The shape of a rewritten statement, and why others are not rewritten."""

from __future__ import annotations

import pytest

from empriv.collecting import databases, explain
from empriv.collecting.queries import query_of
from empriv.collecting.sql.aggregates import Facts, NotDecomposable
from empriv.collecting.sql.decompose import decompose
from empriv.collecting.sql.printing import readable
from empriv.collecting.sql.rewrite import leave_one_out

GOLDEN = (
    "WITH empriv_rows AS NOT MATERIALIZED (SELECT data.empriv_database, data.empriv_individual, x AS a0 FROM data "
    "WHERE k > 1), "
    "empriv_partials AS MATERIALIZED (SELECT r.empriv_database, r.empriv_individual, COUNT(a0) AS s0, SUM(a0) AS s1 "
    "FROM empriv_rows AS r GROUP BY r.empriv_database, r.empriv_individual), "
    "empriv_totals AS MATERIALIZED (SELECT empriv_database, CAST(SUM(s0) AS BIGINT) AS s0, SUM(s1) AS s1 "
    "FROM empriv_partials GROUP BY empriv_database), "
    "empriv_without AS (SELECT d.code AS empriv_database, -1 AS empriv_individual, COALESCE(t.s0, 0) AS s0, "
    "COALESCE(t.s1, 0) AS s1 FROM empriv_databases AS d LEFT JOIN empriv_totals AS t ON t.empriv_database = d.label "
    "UNION ALL SELECT d.code AS empriv_database, i.code AS empriv_individual, t.s0 - p.s0 AS s0, "
    "COALESCE(t.s1, 0) - COALESCE(p.s1, 0) AS s1 FROM empriv_partials AS p JOIN empriv_totals AS t "
    "ON p.empriv_database = t.empriv_database JOIN empriv_databases AS d ON d.label = t.empriv_database "
    "JOIN empriv_individuals AS i ON i.label = p.empriv_individual) "
    "SELECT empriv_database, empriv_individual, (CASE WHEN s0 > 0 THEN s1 END) AS q0 FROM empriv_without"
)


def statement(query: str, *, by_label: bool = False) -> str:
    rewritten = leave_one_out(decompose(query_of(query)), Facts(), by_label=by_label)
    return str(readable(rewritten.whole()).sql(dialect="duckdb"))


def test_golden_shape_of_a_sum() -> None:
    assert statement("SELECT sum(x) FROM data WHERE k > 1") == GOLDEN


def test_labels_need_no_table_of_them() -> None:
    sql = statement("sum(x)", by_label=True)
    assert "empriv_individuals" not in sql
    assert "NOT p.empriv_individual IS NULL" in sql


def test_states_are_shared_between_aggregates() -> None:
    sql = statement("SELECT sum(x), avg(x), count(x) FROM data")
    assert sql.count("SUM(a0) AS") == 1
    assert sql.count("COUNT(a0) AS") == 1


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT x FROM data LIMIT 1", "it has LIMIT"),
        ("SELECT sum(x) FROM data HAVING avg(x) > 1", "its HAVING asks for more than counts, sums and extremes"),
        ("SELECT arg_max(x, k) FROM data", "arg_max is not an aggregate that can be rewritten"),
        ("SELECT approx_count_distinct(x) FROM data", r"rewritten, as count\(DISTINCT ...\) is"),
        (
            "SELECT sum(x) FROM data WHERE EXISTS (SELECT 1 FROM data AS d WHERE d.k = 1)",
            r"as x IN \(SELECT x ...\) is",
        ),
        ("SELECT sum(x) OVER () FROM data", "it has a window function"),
        ("SELECT sum(x) FROM (SELECT * FROM data LIMIT 9)", "it reads `data` inside a subquery"),
        ("SELECT count(*) FROM data AS a JOIN data AS b ON a.k = b.k", "it reads `data` more than once"),
        ("SELECT count(*) FROM t RIGHT JOIN data ON a = b", "it has a RIGHT JOIN"),
        ("SELECT count(*) FROM data UNION SELECT 1 FROM data", "it combines several SELECTs"),
    ],
)
def test_reason_why_a_query_is_not_rewritten(query: str, reason: str) -> None:
    with pytest.raises(NotDecomposable, match=reason):
        decompose(query_of(query))
    assert explain(None, query).startswith("The query runs once per individual, since ")


def test_explain_prints_the_statement_that_runs() -> None:
    rows = "SELECT 1 AS day, i AS who, i / 7 AS x FROM range(30) AS t(i)"
    said = explain(databases(rows, database="day", individual="who"), "sum(x)")
    assert said.startswith("WITH empriv_rows AS NOT MATERIALIZED (\n")
    assert "AS INT128)" in said
    assert "empriv_individuals" in said
    assert explain(None, len) == "The query is a Python function, which is called once per individual."
