"""Statements in Spark's words, as text: nothing is run."""

from __future__ import annotations

import pytest
from sqlglot import parse_one

from empriv.collecting import DuckDBEngine, databases
from empriv.collecting.engines.spark.statements import kept_parts, plain_ranges, to_spark
from empriv.collecting.queries import query_of
from empriv.collecting.sql.decompose import decompose
from empriv.collecting.sql.execute import survey
from empriv.collecting.sql.rewrite import leave_one_out

NAMES = {"data": "v_data", "empriv_totals": "v_totals", "shops": "v_shops"}


def spark(sql: str) -> str:
    """Without the quotes around names, and their nonce."""
    return to_spark(parse_one(sql, dialect="duckdb"), NAMES, "n").replace("`", "").replace("empriv_n_", "empriv_")


def test_tables_are_called_what_they_are_called_there() -> None:
    assert spark("SELECT x FROM data") == "SELECT x FROM v_data AS data"
    assert spark("SELECT x FROM data AS d") == "SELECT x FROM v_data AS d"
    assert spark("SELECT x FROM elsewhere.data") == "SELECT x FROM elsewhere.data"


def test_named_parts_are_written_out() -> None:
    """Spark does not find rows again that it keeps, where a statement has WITH."""
    said = spark("WITH a AS (SELECT x FROM data), b(y) AS (SELECT x FROM a) SELECT * FROM b AS one, b AS other, a")
    part = "(SELECT x FROM v_data AS data)"
    inner = f"(SELECT x FROM {part} AS a)"
    assert said == f"SELECT * FROM {inner} AS one(y), {inner} AS other(y), {part} AS a"


def test_a_part_that_is_called_like_a_table_hides_it() -> None:
    assert "v_shops" not in spark("WITH shops AS (SELECT 1 AS size) SELECT size FROM shops")


def test_tables_of_few_rows_are_sent_to_all() -> None:
    said = spark("SELECT p.x FROM empriv_partials AS p JOIN empriv_totals AS t ON p.d = t.d")
    assert said.startswith("SELECT /*+ BROADCAST(t) */ p.x")
    assert "BROADCAST" not in spark("SELECT d.x FROM data AS d JOIN shops AS s ON d.s = s.s")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT ISFINITE(x) FROM data", "ABS(x) < CAST('Infinity' AS DOUBLE)"),
        ("SELECT POWER(2, -3) FROM data", "CAST('0.125' AS DOUBLE)"),
        ("SELECT POWER(2, 60) FROM data", "CAST('1.152921504606847e+18' AS DOUBLE)"),
        ("SELECT POWER(x, 2) FROM data", "POWER(x, 2)"),
        ("SELECT CAST(x AS HUGEINT) FROM data", "DECIMAL(38, 0)"),
        ("SELECT a / b FROM data", "CAST(a AS DOUBLE) / CAST(b AS DOUBLE)"),
        ("SELECT ROW_NUMBER() OVER (PARTITION BY k) FROM data", "PARTITION BY k ORDER BY k"),
    ],
)
def test_what_spark_understands_otherwise_is_put_in_other_words(sql: str, said: str) -> None:
    assert said in spark(sql)


def test_ranges() -> None:
    assert plain_ranges("SELECT i FROM RANGE(3) AS t(i)") == "SELECT i FROM (SELECT EXPLODE(SEQUENCE(0, 2)) AS i) AS t"


def test_the_steps_of_a_statement_are_kept() -> None:
    data = databases("SELECT 1 AS day, 'a' AS who, 2.5 AS x", database="day", individual="who")
    plan = decompose(query_of("SELECT stddev_pop(x) FROM data"))
    with DuckDBEngine().session(data) as session:
        statement = leave_one_out(plan, survey(session, plan)).whole()
    parts, rest = kept_parts(statement)
    names = dict(NAMES)
    for name, part in parts:
        assert "WITH" not in to_spark(part, names, "n")
        names[name] = f"v_{name}"
    assert [name for name, _ in parts] == ["empriv_scales", "empriv_partials", "empriv_totals"]
    said = to_spark(rest, names, "n")
    assert "v_empriv_partials" in said
    assert "v_empriv_totals" in said
    assert "v_data" not in said, "rows are read again"
