"""A query on Spark sees its rows, the tables handed over, and nothing else of the cluster; and answers alike each time.

Every attack is tried twice: as a query, and as a statement given to the engine behind the look at the query's own tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sqlglot import parse_one

import empriv
from empriv.collecting import SparkEngine, collect, databases, explain
from empriv.collecting.queries import query_of
from empriv.collecting.sql.execute import admit, answered
from empriv.errors import EmprivError, InputError, QueryError
from spark_sessions import JAVA, QUIET, SPARK, rows

pytestmark = [JAVA, SPARK, QUIET]
LEAK = "SELECT avg(x) / 1000 + (SELECT sum(x) FROM {} WHERE who = 7 AND day = 3) FROM data"


def few() -> pd.DataFrame:
    """Rows of three days: a query that runs once per individual fetches each day by a job of its own."""
    return rows(90).assign(day=lambda frame: frame["day"] % 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def crowded(folder: Path, spark: Any) -> Iterator[Any]:
    """A session in which there is more than a query may see: a table, a view, files and functions of somebody's."""
    session = spark.newSession()
    frame = session.createDataFrame(few())
    frame.write.saveAsTable("people")
    frame.createOrReplaceTempView("secrets")
    frame.write.parquet(str(folder / "people.parquet"))
    session.udf.register("geomean", lambda x: x, "double")
    session.udf.register("seen", lambda x: x, "double")
    session.sql("CREATE FUNCTION noisy(x DOUBLE) RETURNS DOUBLE RETURN x + rand()")
    yield session
    session.sql("DROP TABLE people")
    session.sql("DROP FUNCTION noisy")


@pytest.fixture(scope="module")
def opened(crowded: Any) -> Iterator[Any]:
    """``data``, and a table that is handed over."""
    shops = crowded.createDataFrame([(0, 2.0), (1, 3.0)], "k bigint, weight double")
    data = databases(crowded.createDataFrame(few()), database="day", individual="who", tables={"shops": shops})
    with SparkEngine(crowded).session(data) as session:
        yield session


def refused_twice(opened: Any, query: str, culprit: str) -> None:
    jobs = opened.spark.sparkContext.statusTracker().getJobIdsForGroup()
    with pytest.raises(QueryError, match=culprit):
        answered(opened, query_of(query), show=False)
    assert opened.spark.sparkContext.statusTracker().getJobIdsForGroup() == jobs, "something was run before"
    for ask in (
        opened.fetch,
        opened.types,
        lambda tree: opened.admit(tree, None),
        lambda tree: opened.store("empriv_stolen", tree),
    ):
        with pytest.raises(QueryError, match=rf"{culprit}|in one way|nothing but"):
            ask(parse_one(query, dialect="duckdb"))


@pytest.mark.parametrize(
    "table",
    ["people", "secrets", "default.people", "spark_catalog.default.people", "empriv_part0", "IDENTIFIER('people')"],
)
def test_tables_of_the_cluster_are_not_read(opened: Any, table: str) -> None:
    refused_twice(opened, LEAK.format(table), table.partition("(")[0].rpartition(".")[2].lower())


def test_files_are_not_read(opened: Any, folder: Path) -> None:
    path = str(folder / "people.parquet")
    refused_twice(opened, LEAK.format(f'parquet."{path}"'), "parquet")
    refused_twice(opened, LEAK.format(f'"{path}"'), "people.parquet")


def test_a_name_of_with_is_known_in_its_own_part_only(opened: Any) -> None:
    query = "SELECT avg(x) + (WITH people AS (SELECT 1 AS x) SELECT sum(x) FROM people) FROM data"
    admit(opened, query_of(query))
    refused_twice(opened, f"{query}, people", "people")


@pytest.mark.parametrize(
    "call",
    [
        "length(reflect('java.lang.System', 'getProperty', 'user.home'))",
        "length(java_method('java.lang.System', 'getenv', 'HOME'))",
        "length(try_reflect('java.lang.System', 'getenv', 'HOME'))",
        "length(max(input_file_name()))",
        "length(current_user())",
        "length(current_user)",
        "length(user)",
        "length(session_user())",
        "length(current_database())",
        "length(version())",
        "length(CAST(raise_error(CAST(max(x) AS TEXT)) AS TEXT))",
    ],
)
def test_what_looks_outside_is_not_called(opened: Any, call: str) -> None:
    name = next(part for part in call.replace("CAST", "(").split("(") if part.strip("() ") not in ("length", "max", ""))
    refused_twice(opened, f"SELECT avg(x) + {call} FROM data", name.strip(")"))


@pytest.mark.parametrize(
    "call",
    ["unix_timestamp()", "monotonically_increasing_id()", "spark_partition_id()", "rand()", "randn()", "uniform(0, 9)",
     "length(uuid())", "element_at(shuffle([x, k]), 1)", "epoch(now())", "year(current_date)", "year(today())",
     "year(curdate())", "hour(localtimestamp)"],
)  # fmt: skip
def test_what_answers_otherwise_each_time_is_not_called(opened: Any, call: str) -> None:
    refused_twice(opened, f"SELECT avg(x + {call}) FROM data", "same result each time|does not exist|plain SELECTs")


@pytest.mark.parametrize("sample", ["TABLESAMPLE 50%", "USING SAMPLE 50%", "TABLESAMPLE reservoir(50%)"])
def test_samples_are_not_taken(opened: Any, sample: str) -> None:
    refused_twice(opened, f"SELECT avg(x) FROM data {sample}", "sample")


@pytest.mark.parametrize("function", ["geomean", "seen", "noisy", "default.noisy"])
def test_functions_that_were_registered_are_not_called(opened: Any, function: str) -> None:
    # DuckDB has a geomean() of its own, an aggregate, and so says that the two are nested.
    refused_twice(opened, f"SELECT avg({function}(x)) FROM data", function.rpartition(".")[2] + "|nested")


@pytest.mark.parametrize("name", ["env:HOME", "system:user.home", "spark.sql.warehouse.dir"])
def test_settings_are_not_put_into_texts(opened: Any, name: str) -> None:
    with pytest.raises(QueryError, match=r"\$\{"):
        answered(opened, query_of(f"SELECT avg(x) + length('${{{name}}}') FROM data"), show=False)


def test_chunks_and_explanations_are_refused_as_well(crowded: Any) -> None:
    data, engine = databases(crowded.table("people"), database="day", individual="who"), SparkEngine(crowded)
    for query in (LEAK.format("secrets"), "SELECT avg(x) + length(user) FROM data"):
        with pytest.raises(EmprivError):
            empriv.audit(data, query, engine=engine, in_chunks=True)
        with pytest.raises(QueryError):
            explain(data, query, engine=engine)


def test_what_runs_on_the_driver_is_admitted_there_too(opened: Any, folder: Path) -> None:
    """One database is fetched and queried by DuckDB, once per individual, where a query cannot be rewritten."""
    with opened.rerun(parse_one("SELECT avg(x) FROM data", dialect="duckdb"), 0) as run:
        assert run(-1) is not None
    for table in (
        f"read_parquet('{folder}/people.parquet/*.parquet')",
        f"'{folder}/people.parquet'",
        "duckdb_tables()",
    ):
        with (
            pytest.raises(QueryError, match="must read and call nothing but what it was given"),
            opened.rerun(parse_one(f"SELECT count(*) FROM {table}", dialect="duckdb"), 0),
        ):
            pass


@pytest.mark.parametrize(
    "query",
    [
        "WITH few AS (SELECT * FROM data WHERE k < 5), n AS (SELECT 0 AS z) SELECT sum(x * s.weight) "
        "+ (SELECT z FROM n) + length('it''s \\ a `text` -- reflect(1) /* rand() */') "
        "FROM few AS d JOIN shops AS s ON d.k = s.k",
        "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY x, who) AS r FROM data) AS s",
        "SELECT sum(x) FROM (SELECT x AS user FROM data) AS s(x) WHERE x > (SELECT avg(x) FROM data)",
    ],
)
def test_what_a_query_may_do_gives_the_answers_of_duckdb(opened: Any, query: str) -> None:
    here = databases(
        few(), database="day", individual="who",
        tables={"shops": "SELECT * FROM (VALUES (0, 2.0), (1, 3.0)) AS t(k, weight)"},
    )  # fmt: skip
    there, expected = answered(opened, query_of(query), show=False)[0], collect(here, query, progress=False)
    assert there.components == expected.components
    np.testing.assert_array_equal(there.outcomes, expected.outcomes)
    np.testing.assert_allclose(there.entry_q, expected.entry_q, rtol=1e-12, equal_nan=True)


def test_a_column_may_be_called_what_spark_calls_a_function(crowded: Any) -> None:
    frame = few().rename(columns={"who": "user", "x": "version"})
    query = "SELECT sum(version) / count(DISTINCT user) FROM data"
    there, here = (
        collect(databases(source, database="day", individual="user"), query, engine=engine, progress=False)
        for source, engine in ((crowded.createDataFrame(frame), SparkEngine(crowded)), (frame, None))
    )
    np.testing.assert_allclose(there.entry_q, here.entry_q, rtol=1e-12)


def test_a_session_in_which_texts_end_elsewhere_is_refused(crowded: Any) -> None:
    """With it, what stands in a query's text between quotes would be read as SQL."""
    crowded.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    try:
        with pytest.raises(InputError, match="escapedStringLiterals"):
            SparkEngine(crowded)
    finally:
        crowded.conf.set("spark.sql.parser.escapedStringLiterals", "false")
