"""What every engine must do alike: groups, joins, queries that cannot be rewritten, outcomes, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from brute import check_against_brute_force, check_same
from empriv.collecting import DuckDBEngine, Engine, SparkEngine, collect, databases
from empriv.collecting.queries import query_of
from empriv.collecting.sql.execute import answered
from empriv.errors import InputError, QueryError
from empriv.results import Cell, Outcome
from spark_sessions import JAVA, QUIET, SPARK

pytestmark = QUIET
ENGINES = [
    "duckdb",
    pytest.param("spark", marks=[JAVA, SPARK]),
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine must pass every test of this file."""
    return DuckDBEngine(threads=2) if request.param == "duckdb" else SparkEngine(request.getfixturevalue("spark"))


def each_on(duckdb: list[Any], spark: list[Any]) -> pytest.MarkDecorator:
    """Queries for each engine: a statement takes Spark seconds, so that it gets those which it may get wrong."""
    cases = [pytest.param("duckdb", query) for query in duckdb]
    cases += [pytest.param("spark", query, marks=[JAVA, SPARK]) for query in spark]
    return pytest.mark.parametrize(("engine", "query"), cases, indirect=["engine"])


ROWS = pd.DataFrame(
    {
        "day": [1, 1, 1, 1, 1, 2, 2, 2, 3],
        "who": ["amy", "amy", "bob", "cyd", "cyd", "amy", "bob", "bob", "dan"],
        "x": [1.5, 2.0, 4.0, -3.0, 4.0, 0.1, 0.2, 0.3, 7.0],
        "k": [1, 2, 2, 1, 3, 1, 1, 1, 5],
        "shop": ["s", "t", "t", "s", "u", "t", "t", "s", "s"],
    }
)
SHOPS = pd.DataFrame({"name": ["s", "t"], "size": [10, 20]})
DATA = databases(ROWS, database="day", individual="who", tables={"shops": SHOPS})

REWRITTEN = [
    "SELECT shop, sum(x) FROM data GROUP BY shop",
    "SELECT upper(shop) AS s, stddev_pop(x) FROM data GROUP BY s",
    "SELECT shop, median(x) FROM data GROUP BY 1",
    "SELECT shop, max(x) FROM data WHERE k < 3 GROUP BY ALL",
    "SELECT shop, count(DISTINCT k) FROM data GROUP BY shop",
    "SELECT sum(x * size) FROM data JOIN shops ON shop = name",
    "SELECT count(*), sum(size), min(size) FROM data AS d LEFT JOIN shops AS s ON d.shop = s.name",
    "SELECT avg(x) FROM shops, data WHERE name = shop AND size > 15",
    "SELECT size, avg(x) FROM data JOIN shops ON shop = name GROUP BY size",
    "SELECT count(*) FROM data WHERE shop IN (SELECT name FROM shops)",
    "SELECT sum(x) / 20 FROM data WHERE x < (SELECT max(size) FROM shops)",
    "WITH large AS (SELECT name FROM shops WHERE size > 15) SELECT count(*) FROM data JOIN large ON name = shop",
    "SELECT round(sum(x) / count(*), 1) + CASE WHEN count(*) > 2 THEN 1 ELSE 0 END FROM data",
    "SELECT sum(x) FROM data WHERE x > 100",
    "SELECT coalesce(sum(x), 0) FROM data WHERE k = 2",
    "SELECT ln(count(*)) FROM data WHERE k > 1",
    "SELECT sum(x) FROM data ORDER BY 1",
    "WITH t AS (SELECT x FROM data) SELECT sum(x) FROM t",
    "SELECT shop, sum(k) FROM data GROUP BY shop HAVING count(*) > 1",
]
# Several of them in one statement each: expressions as keys, filters, joins, WITH, subqueries, quantiles, outcomes.
REWRITTEN_ON_SPARK = [
    "SELECT upper(shop) AS s, median(x) FROM data WHERE k < 5 GROUP BY s",
    "SELECT stddev_samp(x), var_pop(k), geomean(k), geomean(x), ln(count(*)), quantile_cont(x, 0.3), max(x), min(k), "
    "avg(k), count(DISTINCT k), sum(x) / 20, round(sum(x) / count(*), 1) + "
    "CASE WHEN count(*) > 2 THEN 1 ELSE 0 END FROM data WHERE k > 1 AND shop IN (SELECT name FROM shops)",
    "WITH large AS (SELECT name FROM shops WHERE size > 15) SELECT count(*), sum(size) "
    "FROM data AS d LEFT JOIN shops AS s ON d.shop = s.name JOIN large AS l ON d.shop = l.name",
]
RERUN = [
    "SELECT shop, sum(k) FROM data GROUP BY shop HAVING avg(k) < 100",
    "SELECT sum(DISTINCT x), corr(x, k), covar_pop(x, k) FROM data",
    "SELECT approx_count_distinct(k) FROM data",
    "SELECT sum(y) FROM (SELECT max(x) AS y FROM data GROUP BY who LIMIT 9)",
    "SELECT x FROM data ORDER BY x LIMIT 1",
    "SELECT count(*) FROM data AS a JOIN data AS b ON a.k = b.k",
    "SELECT sum(size) FROM shops LEFT JOIN data ON shop = name WHERE x IS NULL",
    "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY x) AS r FROM data)",
    "SELECT sum(x) FROM data WHERE x > (SELECT avg(x) FROM data)",
    "SELECT count(*) FROM data UNION SELECT count(*) FROM data",
]


@pytest.mark.slow
@each_on(REWRITTEN, REWRITTEN_ON_SPARK)
def test_rewritten_query_equals_brute_force(query: str, engine: Engine) -> None:
    said: list[str] = []
    results = collect(DATA, query, engine=engine, notice=said.append)
    assert said == []
    check_against_brute_force(results, ROWS, query, tables={"shops": SHOPS}, atol=1e-14)


RERUN_ON_SPARK = [RERUN[6]]


@pytest.mark.slow
@each_on(RERUN, RERUN_ON_SPARK)
def test_query_that_runs_once_per_individual_equals_brute_force(query: str, engine: Engine) -> None:
    said: list[str] = []
    results = collect(DATA, query, engine=engine, notice=said.append, progress=False)
    assert len(said) == 1
    assert said[0].startswith("The query runs once per individual, since ")
    assert "9 runs" in said[0]
    check_against_brute_force(results, ROWS, query, tables={"shops": SHOPS}, atol=1e-14)


def test_items_and_groups_have_names_and_who_is_excluded_has_no_entry(engine: Engine) -> None:
    query = "SELECT shop, sum(x) AS total, count(*) FROM data WHERE who <> 'amy' GROUP BY shop"
    results = collect(DATA, query, engine=engine)
    assert results.components == tuple(f"{shop} / {name}" for shop in "stu" for name in ("total", "COUNT(*)"))
    assert results.cells is not None
    assert results.cells[0] == Cell("total", (("shop", "s"),))
    assert results.outcomes[1].tolist() == [0, 0, 0, 0, Outcome.NULL, Outcome.NULL]
    assert results.presence.tolist() == [0, 2, 1, 1]


@pytest.mark.slow
def test_what_is_no_number_is_an_outcome_and_division_by_zero_is_null(engine: Engine) -> None:
    rows = pd.DataFrame({"day": 1, "who": ["a", "b", "c", "d"], "x": ["inf", "-inf", "1", "nan"]})
    data = databases(
        "SELECT day, who, CAST(x AS DOUBLE) AS x FROM t", database="day", individual="who", tables={"t": rows}
    )
    query = "SELECT sum(x) FILTER (WHERE who <> 'd'), max(x), count(*) // 0, 5 % (count(*) - 4) FROM data"
    results = collect(data, query, engine=engine)
    assert results.outcomes.tolist() == [[Outcome.NAN, Outcome.NAN, Outcome.NULL, Outcome.NULL]]
    sums = [Outcome.MINUS_INFINITY, Outcome.PLUS_INFINITY, Outcome.NAN, Outcome.NAN]
    largest = [Outcome.NAN, Outcome.NAN, Outcome.NAN, Outcome.PLUS_INFINITY]
    rest = [[Outcome.NULL] * 4, [Outcome.NUMBER] * 4]
    assert results.entry_outcomes.T.tolist() == [sums, largest, *rest]


@pytest.mark.slow
def test_integers_and_decimals_are_right_or_refused(engine: Engine) -> None:
    """Up to 2^53, of which 90071992547409.92 is one of cents."""
    source = " UNION ALL ".join(
        f"SELECT 1 AS day, '{who}' AS who, CAST({k} AS BIGINT) AS k, CAST({m} AS DECIMAL(20, 2)) AS m, "
        f"CAST({n} AS DECIMAL(20, 2)) AS n"
        for who, k, m, n in (("a", 2**53, "90000000000000.07", "100000000000000.07"), ("b", 2**53 + 1, "0.01", "0.01"))
    )
    data = databases(source, database="day", individual="who")
    for query in ("sum(k)", "sum(n)"):
        with pytest.raises(QueryError, match=r"beyond 2\^53"):
            collect(data, query, engine=engine)
    results = collect(data, "SELECT sum(k) - 18014398509481980, sum(m) FROM data", engine=engine)
    assert results.q.tolist() == [[5.0, 90000000000000.08]]
    assert results.entry_q[:, 1].tolist() == [0.01, 90000000000000.07]


def test_error_without_an_individual_is_an_outcome(engine: Engine) -> None:
    rows = pd.DataFrame({"day": [1, 1, 1, 2], "who": ["a", "b", "c", "a"], "x": ["1", "2", "word", "4"]})
    data = databases(rows, database="day", individual="who")
    said: list[str] = []
    results = collect(data, "sum(CAST(x AS INTEGER))", engine=engine, progress=False, notice=said.append)
    assert "since it fails on some rows" in said[0]
    assert results.outcomes.tolist() == [Outcome.ERROR, Outcome.NUMBER]
    assert results.entry_outcomes.tolist() == [Outcome.ERROR, Outcome.NULL, Outcome.ERROR, Outcome.NUMBER]


REFUSED = [
    "SELECT max(shop) FROM data", "SELECT sum(nothing) FROM data", "SELECT sum(x) FROM elsewhere",
    "SELECT sum(shop) FROM data", "SELECT x FROM data",
]  # fmt: skip


def test_what_is_no_query_is_refused_without_quoting_rows(engine: Engine) -> None:
    with engine.session(DATA) as session:
        for query in REFUSED:
            with pytest.raises(QueryError) as caught:
                answered(session, query_of(query), show=False)
            assert not any(person in str(caught.value) for person in ROWS["who"])
            assert caught.value.__cause__ is None


@pytest.mark.slow
def test_post_is_applied_to_every_number() -> None:
    engine = DuckDBEngine(threads=2)  # numbers that are there already: no engine sees it
    plain = collect(DATA, "sum(x)", engine=engine)
    for post in (np.round, round):
        posted = collect(DATA, "sum(x)", engine=engine, post=post)
        np.testing.assert_array_equal(posted.q, np.round(plain.q))
        np.testing.assert_array_equal(posted.entry_q, np.round(plain.entry_q))
    logs = collect(DATA, "sum(x)", engine=engine, post=lambda q: np.where(q > 7, np.inf, q))
    assert logs.outcomes.tolist() == [Outcome.PLUS_INFINITY, Outcome.NUMBER, Outcome.NUMBER]
    assert logs.entry_outcomes[-1] == Outcome.NULL


@pytest.mark.slow
def test_function_of_the_rows_equals_sql() -> None:
    engine = DuckDBEngine(threads=2)  # test_spark.py has functions that run in executors
    by_sql = collect(DATA, "SELECT sum(x * k) FROM data")
    called = collect(DATA, lambda rows: float(np.sum(rows["x"] * rows["k"])) if len(rows["x"]) else None, engine=engine)
    np.testing.assert_allclose(called.q, by_sql.q)
    np.testing.assert_array_equal(called.starts, by_sql.starts)
    np.testing.assert_array_equal(called.entry_outcomes, by_sql.entry_outcomes)
    np.testing.assert_allclose(called.entry_q, by_sql.entry_q)


@pytest.mark.slow
def test_memory_limit_is_passed_on() -> None:
    engine = DuckDBEngine(threads=2)
    assert collect(DATA, "sum(x)", memory_limit="500MB").q.tolist() == collect(DATA, "sum(x)", engine=engine).q.tolist()
    with pytest.raises(InputError, match="memory_limit"):
        collect(DATA, "sum(x)", memory_limit="plenty")
    with pytest.raises(InputError, match="beside `engine`"):
        collect(DATA, "sum(x)", memory_limit="1GB", engine=DuckDBEngine())


@pytest.mark.slow
def test_individuals_that_are_integers_give_the_same() -> None:
    query = "SELECT avg(x), stddev_samp(x), median(x) FROM data WHERE k < 3"
    numbers = ROWS.assign(who=ROWS["who"].map({"amy": -3, "bob": 0, "cyd": 1, "dan": 9}))
    by_number = databases(numbers, database="day", individual="who", tables={"shops": SHOPS})
    one, other = collect(DATA, query), collect(by_number, query)
    assert other.individuals.tolist() == [-3, 0, 1, 9]
    check_same(replace(other, individuals=one.individuals), one, rtol=0)
