"""Random tables and random queries: leaving each individual out, against really deleting their rows.

A hundred and twenty pairs of table and query with DuckDB, where every fifth table is read from a SQLite file, and fewer
with PostgreSQL and Spark. ``EMPRIV_FUZZ=2000`` tries as many with each, from the same seed on.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.collecting.deletion import verify
from empriv.collecting.queries import query_of
from empriv.collecting.sql.execute import answered
from empriv.errors import QueryError
from postgres_server import NEEDED, Server
from spark_sessions import JAVA, QUIET

QUERIES_PER_TABLE = 10
NUMBERS = ("x", "k", "dec", "rate")


def random_rows(rng: np.random.Generator) -> pd.DataFrame:
    """A few databases of a few individuals, with NULLs, ties, numbers of very different size, and empty corners."""
    n = int(rng.integers(6, 40))
    size = 10.0 ** rng.integers(-3, 9)
    rows = pd.DataFrame(
        {
            "day": rng.integers(0, 3, n),
            "who": rng.integers(0, 6, n),
            "x": np.where(rng.random(n) < 0.15, np.nan, np.round(rng.normal(0, size, n), 3)),
            "k": rng.integers(-4, 5, n),
            "rate": rng.choice([0.0, 0.5, 1.0, 2.0, -1.0], n),
            "flag": rng.choice([True, False, None], n),  # type: ignore[arg-type]
            "kind": rng.choice(["a", "b", "c", None], n),  # type: ignore[arg-type]
        }
    )
    if rng.random() < 0.1:
        rows.loc[0, "x"] = np.inf * rng.choice([-1, 1])
    return rows


class Queries:
    """Random SQL over ``data`` and the table ``kinds``."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def pick(self, *choices: str) -> str:
        return str(self.rng.choice(choices))

    def number(self, depth: int = 0) -> str:
        if depth > 1 or self.rng.random() < 0.5:
            return self.pick(*NUMBERS, "x", "k", "1", "2.5")
        one, other = self.number(depth + 1), self.number(depth + 1)
        return self.pick(
            f"({one} + {other})", f"({one} * k)", f"abs({one})", f"({one} - {other})", f"coalesce({one}, 0)",
            f"CASE WHEN {self.condition()} THEN {one} ELSE {other} END", f"({one} / nullif({other}, 0))",
            f"least({one}, {other})",
        )  # fmt: skip

    def condition(self) -> str:
        return self.pick(
            "x > 0", "k >= 0", "kind = 'a'", "flag", "kind IS NULL", "x IS NOT NULL AND k < 3", "kind IN ('a', 'b')",
            "NOT flag", "k BETWEEN -2 AND 2", "rate = 0.5 OR k = 1",
        )  # fmt: skip

    def aggregate(self) -> str:
        x = self.number()
        call = self.pick(
            f"sum({x})", f"avg({x})", f"min({x})", f"max({x})", "count(*)", f"count({x})", "count(DISTINCT k)",
            f"median({x})", "quantile_disc(k, 0.3)", f"quantile_cont({x}, 0.75)", "var_pop(k)", "stddev_samp(rate)",
            f"count_if({self.condition()})", "bool_or(flag)", "bool_and(k > -3)", "count(DISTINCT kind)",
            "covar_pop(k, rate)", "quantile_disc(1, 0.5)", f"sum({x}) FILTER (WHERE {self.condition()})",
            f"count(*) FILTER (WHERE {self.condition()})", "sum(DISTINCT k)", "product(rate)",
        )  # fmt: skip
        call = f"CAST({call} AS DOUBLE)"
        if self.rng.random() < 0.2:
            call = self.pick(
                f"{call} + 1", f"{call} / nullif(count(*), 0)", f"coalesce({call}, -1)", f"abs({call})", f"-({call})"
            )
        return call

    def source(self) -> str:
        return self.pick(
            *["data"] * 6, "data JOIN kinds USING (kind)", "data LEFT JOIN kinds USING (kind)",
            "(SELECT * FROM data WHERE k > -2) AS data", "data, range(2) AS r(i)",
            "(SELECT day, who, x, k, dec, rate, flag, kind FROM data QUALIFY k = max(k) OVER (PARTITION BY kind)) AS d",
        )  # fmt: skip

    def person_table(self) -> str:
        """A table derived from ``data``, mostly person by person, in one of the ways that people write it."""
        x, where = self.number(), f" WHERE {self.condition()}" if self.rng.random() < 0.4 else ""
        made = self.pick("sum", "max", "count", "avg", "median")
        having = self.pick("", "", " HAVING count(*) > 1")
        ordered = "ORDER BY k, x, rate, kind, flag"
        return self.pick(
            f"SELECT who, CAST({made}({x}) AS DOUBLE) AS k, who AS rate FROM data{where} GROUP BY who{having}",
            f"SELECT who AS w, CAST({made}({x}) AS DOUBLE) AS k, min(rate) AS rate FROM data{where} GROUP BY w{having}",
            f"SELECT who, kind AS g, CAST({made}({x}) AS DOUBLE) AS k, 1 AS rate FROM data{where} GROUP BY ALL{having}",
            f"SELECT kind, CAST({made}({x}) AS DOUBLE) AS k, 1 AS rate FROM data{where} GROUP BY kind{having}",
            f"SELECT DISTINCT who, k, rate FROM data{where}",
            f"SELECT DISTINCT k, rate FROM data{where}",
            f"SELECT DISTINCT ON (who) who, k, rate FROM data{where} {ordered}",
            f"SELECT * FROM data{where} QUALIFY row_number() OVER (PARTITION BY who {ordered}) = 1",
            f"SELECT k, rate FROM (SELECT *, count(*) OVER w AS n FROM data{where} WINDOW w AS (PARTITION BY who)) "
            "WHERE n > 1",
            f"SELECT who, max(k) AS k, sum(rate) AS rate FROM (SELECT who, kind, max(k) AS k, max(rate) AS rate FROM "
            f"data{where} GROUP BY 1, 2) GROUP BY who",
            f"SELECT who, max(k * size) AS k, min(rate) AS rate FROM data JOIN kinds USING (kind){where} GROUP BY who",
            f"SELECT who, max(k) AS k, min(rate) AS rate FROM data{where} GROUP BY ROLLUP (who)",
        )

    def of_people(self) -> str:
        """A query of such a table: beside FROM, by WITH, or with its columns named."""
        table = self.person_table()
        asked = self.pick(
            "avg(k)", "sum(k)", "count(*)", "max(k) - min(k)", "median(k)", "avg(least(k, 2))", "count(DISTINCT k)",
            "sum(k) FILTER (WHERE rate > 0)", "stddev_samp(k)",
        )  # fmt: skip
        result = f"CAST({asked} AS DOUBLE) AS q"
        where = self.pick("", "", " WHERE k > 0")
        return self.pick(
            f"SELECT {result} FROM ({table}){where}",
            f"SELECT {result} FROM ({table}) AS p{where}",
            f"SELECT {result} FROM ((SELECT * FROM ({table}))){where}",
            f"FROM ({table}) SELECT {result}{where}",
            f"WITH p AS ({table}) SELECT {result} FROM p{where}",
            f"SELECT {result} FROM (WITH p AS ({table}) SELECT * FROM p) AS o{where}",
            f"WITH p(k, rate) AS (SELECT k, rate FROM ({table})) SELECT {result} FROM p{where}",
            f'SELECT {result} FROM (SELECT "k", "RATE" FROM ({table}) AS "p q") AS "data"{where}',
        )

    def by_the_person(self) -> str:
        """Rows of people on a list, rows joined by the person, and HAVING."""
        where = f" WHERE {self.condition()}" if self.rng.random() < 0.6 else ""
        listed = self.pick("", " GROUP BY who", " GROUP BY who HAVING count(*) > 1", " GROUP BY who HAVING max(k) > 0")
        other = self.pick("AND a.k < b.k", "AND a.kind = b.kind", "OR a.k = b.k", "")
        left, made = self.pick("", "LEFT "), self.pick("max", "sum", "count")
        return self.pick(
            f"SELECT {self.aggregate()} AS q FROM data WHERE who IN (SELECT who FROM data{where}{listed})",
            f"SELECT {self.aggregate()} AS q FROM data WHERE {self.condition()} AND who {self.pick('', 'NOT ')}IN "
            f"(SELECT o.who FROM data AS o{where})",
            f"SELECT {self.aggregate()} AS q FROM data WHERE kind IN (SELECT kind FROM data{where})",
            f"SELECT CAST(sum(a.k * b.rate) AS DOUBLE) AS q FROM data AS a {left}JOIN data AS b "
            f"ON a.who = b.who {other}",
            f"SELECT CAST(sum(d.k - p.m) AS DOUBLE) AS q FROM data AS d {left}JOIN "
            f"(SELECT who, {made}(k) AS m FROM data{where} GROUP BY who) AS p USING (who)",
            f"SELECT CAST(sum(p.m) AS DOUBLE) AS q FROM "
            f"(SELECT who, {made}(k) AS m FROM data{where} GROUP BY who) AS p {left}JOIN data AS d "
            "ON p.who = d.who AND d.k = p.m",
            f"SELECT {self.aggregate()} AS q FROM data{where} HAVING {self.pick('count(*) > 3', 'min(k) < 0')}",
            f"SELECT kind, {self.aggregate()} AS q FROM data GROUP BY kind HAVING "
            f"{self.pick('count(*) > 2', 'count(DISTINCT who) > 1', 'sum(k) > 0', 'max(x) > 0 OR count(k) < 3')}",
        )

    def put_together(self) -> str:
        """Rows by UNION and the like."""
        one, other = (f"data WHERE {self.condition()}" for _ in range(2))
        how = self.pick("UNION ALL", "UNION", "INTERSECT", "EXCEPT ALL")
        asked = self.pick("sum(k)", "count(*)", "count(DISTINCT k)")
        rows = f"SELECT who, k FROM {one} {how} SELECT who, rate FROM {other}"
        return f"SELECT CAST({asked} AS DOUBLE) AS q FROM ({rows})"

    def around(self) -> str:
        """What people write around a query: names of results, a SELECT of one row, SELECTs in the place of numbers."""
        one, other = self.aggregate(), self.aggregate()
        where = f" WHERE {self.condition()}" if self.rng.random() < 0.5 else ""
        return self.pick(
            f"SELECT {one} AS q FROM data{where} LIMIT 1",
            f"SELECT DISTINCT {one} AS q FROM data{where} ORDER BY q",
            f"SELECT a - b AS q FROM (SELECT {one} AS a, {other} AS b FROM {self.source()}{where})",
            f"WITH p AS (SELECT {one} AS a, {other} AS b FROM data{where}) SELECT p.a / nullif(p.b, 0) AS q FROM p",
            f"SELECT a + 1 AS q FROM (SELECT avg(k) AS a FROM (SELECT who, sum(k) AS k FROM data{where} GROUP BY who))",
            f"SELECT (SELECT {one} FROM data{where}) - (SELECT {other} FROM data) AS q",
            f"SELECT {one} / nullif((SELECT {other} FROM data AS d{where}), 0) AS q FROM data WHERE {self.condition()}",
            f"WITH a AS (SELECT {one} AS v FROM data{where}), b AS (SELECT {other} AS v FROM data) SELECT a.v - b.v "
            "AS q FROM a, b",
            f"SELECT {one} AS q FROM data{where} HAVING q > {self.pick('0', '3')}",
            f"SELECT kind, count(*) AS q FROM data{where} GROUP BY kind HAVING q > 1",
            f"SELECT {one} AS q FROM data AS a WHERE EXISTS (SELECT 1 FROM data AS b WHERE b.who = a.who AND b.k > 0)",
            "SELECT CAST(sum(a.k * b.rate) AS DOUBLE) AS q FROM data AS a, data AS b WHERE a.who = b.who AND a.k < b.k",
        )

    def query(self) -> str:
        kind = self.rng.random()
        if kind < 0.02:
            return self.put_together()
        if kind < 0.17:
            return self.around()
        if self.rng.random() < 0.3:
            return self.by_the_person()
        if self.rng.random() < 0.4:
            return self.of_people()
        where = f" WHERE {self.condition()}" if self.rng.random() < 0.4 else ""
        kind = self.rng.random()
        if kind < 0.2:
            having = " HAVING count(*) > 1" if self.rng.random() < 0.3 else ""
            return f"SELECT kind, {self.aggregate()} AS q FROM {self.source()}{where} GROUP BY kind{having}"
        if kind < 0.3:
            low = f"(SELECT {self.pick('min', 'avg', 'max')}(k) FROM data)"
            return f"SELECT {self.aggregate()} AS q FROM data WHERE k {self.pick('>', '<=')} {low}"
        if kind < 0.4:
            return f"WITH part AS (SELECT * FROM data{where}) SELECT {self.aggregate()} AS q FROM part"
        if kind < 0.45:
            steps = "WITH RECURSIVE steps AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM steps WHERE i < 2)"
            return f"{steps} SELECT {self.aggregate()} AS q FROM data, steps{where}"
        return f"SELECT {self.aggregate()} AS q FROM {self.source()}{where}"


def in_sqlite(connection: duckdb.DuckDBPyConnection, path: Path) -> str:
    """The rows in a SQLite file, which has no decimals: they become doubles."""
    connection.execute("ALTER TABLE master ALTER dec TYPE DOUBLE")
    rows = connection.sql("FROM master").fetchall()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(
            "CREATE TABLE rows (day BIGINT, who BIGINT, x DOUBLE, k BIGINT, rate DOUBLE, flag BOOLEAN, kind TEXT, "
            "dec DOUBLE)"
        )
        file.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return str(path)


def delete(connection: duckdb.DuckDBPyConnection, days: range, people: range) -> None:
    """A schema for each day and person, in which ``data`` are the rows of that day without theirs; -1 is nobody."""
    for day in days:
        for person in (-1, *people):
            connection.execute(f"CREATE SCHEMA left_{day}_{person + 1}")
            connection.execute(
                f"CREATE TABLE left_{day}_{person + 1}.data AS FROM main.master WHERE day = {day} AND who <> {person}"
            )


def asked(connection: duckdb.DuckDBPyConnection, query: str, day: int, person: int) -> dict[str, Any] | None:
    """The answer for each group on the rows that are left, or None if the query fails on them."""
    connection.execute(f"SET search_path = 'left_{day}_{person + 1},main'")
    try:
        told = connection.execute(query).fetchall()
    except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException):
        return None
    return {("NULL" if row[0] is None else str(row[0])) if len(row) > 1 else "": row[-1] for row in told}


def differs(found: float, expected: Any, scale: float) -> bool:
    if expected is None:
        return not np.isnan(found)
    number = float(expected) if isinstance(expected, Decimal) else expected
    if not np.isfinite(number):
        return not np.isnan(found)  # outcomes tell which; numbers are NaN there
    return bool(np.isnan(found)) or abs(found - number) > 1e-9 * max(abs(number), scale * 1e-3)


# What says that there is no group, that groups are individuals or databases, or that the query fails everywhere.
SAID = r"got none|identifies individuals|database a row is in|in one database only|fails on every"
# What Spark has no words for, or does not plan.
NOT_ON_SPARK = r"The query cannot be run: Spark reports|on Spark\."


def tables(pairs: int) -> range:
    """Seeds of as many tables as give so many pairs of table and query."""
    return range(-(-int(os.environ.get("EMPRIV_FUZZ", pairs)) // QUERIES_PER_TABLE))


def compare(
    seed: int, source_of: Callable[[duckdb.DuckDBPyConnection], Any], said: str = SAID, engine: Any = None
) -> int:
    """Ten queries of a random table, and how many of them are answered; an answer that deleting does not give raises.

    ``source_of`` gives the source of the rows that are in the table ``master`` of a connection. A query may be refused
    by a sentence in which ``said`` is found. The last query is verified by deletion too, as an audit is.
    """
    engine = engine or empriv.DuckDBEngine(threads=1)
    rng = np.random.default_rng([20240, seed])
    frame, queries = random_rows(rng), Queries(rng)
    kinds = pd.DataFrame({"kind": ["a", "b"], "size": [1, 2]})
    scale = float(np.nanmax(np.abs(frame.x.replace([np.inf, -np.inf], np.nan)), initial=1.0)) ** 2 * len(frame)
    rows = "SELECT * REPLACE (nullif(x, CAST('NaN' AS DOUBLE)) AS x), CAST(k * 1.25 AS DECIMAL(9, 2)) AS dec FROM frame"
    count = 0
    with duckdb.connect(config={"threads": "1"}) as connection, ExitStack() as stack:
        connection.register("frame", frame)
        connection.register("kinds", kinds)
        connection.execute(f"CREATE TABLE master AS {rows}")
        source = source_of(connection)
        data = empriv.databases(source, database="day", individual="who", tables={"kinds": kinds})
        delete(connection, range(3), range(6))
        session = stack.enter_context(engine.session(data))
        for k in range(QUERIES_PER_TABLE):
            query = queries.query()
            try:
                results, rewritten = answered(session, query_of(query), show=False, notice=lambda _: None)
                if k == QUERIES_PER_TABLE - 1:
                    verify(engine, session, data, query_of(query), results, rewritten=rewritten)
            except QueryError as error:
                if re.search(said, str(error)):
                    continue
                raise AssertionError((query, str(error))) from error
            count += 1
            names = results.components or ("",)
            for person in (-1, *results.individuals.tolist()):
                q = results.q if person < 0 else results.without(person)
                for j, day in enumerate(results.databases.tolist()):
                    expected = asked(connection, query, day, person)
                    for name, value in zip(names, np.atleast_1d(q[j]), strict=True):
                        wanted = None if expected is None else expected.get(name)
                        assert not differs(float(value), wanted, scale), (query, day, person, name, value, wanted)
    return count


@pytest.mark.parametrize("seed", tables(120))
def test_leaving_out_is_deleting(seed: int, tmp_path: Path) -> None:
    def source(connection: duckdb.DuckDBPyConnection) -> Any:
        if seed % 5 == 4:
            return in_sqlite(connection, tmp_path / "rows.sqlite") + "::rows"
        return connection.sql("FROM master").to_arrow_table()

    assert compare(seed, source) > 0


@NEEDED
@pytest.mark.parametrize("seed", tables(10))
def test_leaving_out_is_deleting_with_postgresql(seed: int, server: Server) -> None:
    def source(connection: duckdb.DuckDBPyConnection) -> str:
        server.put("fuzz", connection.sql("FROM master").to_arrow_table())
        server.run("ALTER TABLE fuzz ALTER dec TYPE numeric(9, 2)")  # between two, the quantile depends on the digits
        return f"{server.address}::fuzz"

    assert compare(seed, source) > 0


@JAVA
@QUIET
@pytest.mark.parametrize("seed", tables(10))
def test_leaving_out_is_deleting_on_spark(seed: int, spark: Any) -> None:
    def source(connection: duckdb.DuckDBPyConnection) -> Any:
        return connection.sql("FROM master").to_arrow_table()

    said = f"{SAID}|{NOT_ON_SPARK}"
    assert compare(seed, source, said, engine=empriv.SparkEngine(spark)) > 0


def test_the_fuzzer_sees_a_wrong_answer() -> None:
    assert differs(1.0, 1.1, 1.0)
    assert differs(1.0, None, 1.0)
    assert differs(np.nan, 1.0, 1.0)
    assert not differs(1.0, 1.0, 1.0)
    assert not differs(np.nan, None, 1.0)
