"""PostgreSQL: rows that are read from a server give what the same rows give here, and a failure is one sentence."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import empriv
from brute import check_same
from empriv.cli.main import main
from empriv.collecting import DuckDBEngine, collect, databases
from empriv.errors import QueryError, SourceError
from postgres_server import NEEDED, Server

pytestmark = [NEEDED, pytest.mark.slow]


def awkward(seed: int = 0, n: int = 400) -> pa.Table:
    """Rows with all that may be understood in two ways."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-03-28", tz="UTC") + pd.to_timedelta(rng.integers(0, 7 * 24 * 60, n), unit="min")

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[k] for k in rng.integers(0, len(values), n)], kind)

    doubles = rng.normal(size=n) * 10.0 ** rng.integers(-12, 12, n)
    return pa.table(
        {
            "Day": pa.array(days.date, pa.date32()),
            "who": some([f"p{k}" for k in range(12)] + ["P1", "é", "z z", 'q"q'], pa.string()),
            "number": pa.array(rng.integers(-3, 9, n), pa.int64()),
            "x": pa.array(doubles, pa.float64()),
            "Gap": pa.array([None if k % 5 == 0 else float(v) for k, v in enumerate(rng.normal(size=n))], pa.float64()),
            "wild": some([1e300, -1e-300, 0.0, -0.0, float("inf"), 1.5, None], pa.float64()),
            "strange": some([float("nan"), float("inf"), float("-inf"), 1.0, None], pa.float64()),
            "price": some([Decimal("1.25"), Decimal("-99999.99"), Decimal("0.10"), None], pa.decimal128(12, 2)),
            "k": some([0, 1, 2, 7, None, -2_000_000_000], pa.int32()),
            "big": some([2**50, -(2**50), 3, None], pa.int64()),
            "shop": some(["a", "B", "b", "Ä", "", None], pa.string()),
            "ok": some([True, False, None], pa.bool_()),
            "sold": pa.array(days, pa.timestamp("us", "UTC")),
            "local": pa.array(days.tz_localize(None), pa.timestamp("us")),
        }
    )


ROWS = awkward()


@pytest.fixture(scope="module")
def there(server: Server) -> Iterator[str]:
    server.put("awkward", ROWS)
    server.run("ALTER TABLE awkward ALTER price TYPE numeric(12, 2)")
    yield server.address
    server.run("DROP TABLE awkward")


# The rows are read, and asked here: every type and every text must arrive as it is.
QUERIES = [
    "SELECT sum(Gap), avg(gap), max(wild), min(strange), max(strange), sum(strange), count(strange) FROM data",
    "SELECT sum(price), avg(price), sum(k), max(big) - min(big), count(ok), bool_or(ok) FROM data WHERE k > -100",
    "SELECT count(*) FROM data WHERE \"Day\" >= '2024-03-30' AND sold < '2024-04-02 12:00:00+02' AND k BETWEEN 0 AND 2",
    "SELECT count(DISTINCT date_trunc('day', sold)), count(DISTINCT date_trunc('hour', local)) FROM data",
    "SELECT shop, sum(x), count(*) FROM data GROUP BY shop",
]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_of_a_server_give_what_the_same_rows_give_here(there: str, query: str) -> None:
    options: dict[str, Any] = {"database": "Day", "individual": "who", "timezone": "Europe/Paris"}
    found = collect(databases(there, table="public.awkward", **options), query, progress=False)
    check_same(found, collect(databases(ROWS, **options), query, progress=False))
    if "GROUP BY" in query:
        with pytest.raises(AssertionError):
            check_same(found, collect(databases(ROWS.slice(1), **options), query, progress=False))


def test_a_select_functions_and_draws_are_the_same(there: str) -> None:
    options: dict[str, Any] = {"database": "Day", "individual": "who"}
    select = databases(there, sql="SELECT * FROM awkward WHERE x IS NOT NULL;", **options)
    check_same(collect(select, QUERIES[0]), collect(databases(ROWS, **options), QUERIES[0]))
    check_same(*(collect(databases(at, **options), added, jobs=1) for at in (f"{there}::awkward", ROWS)))
    check_same(*(collect(empriv.subsamples(at, individual="who", count=5, fraction=0.5), "sum(k)")
            for at in (f"{there}::awkward", ROWS)))  # fmt: skip
    twice = databases(there, sql='SELECT "Day", who, x AS y, x AS y FROM awkward', **options)
    with pytest.raises(SourceError, match="different names"):
        collect(twice, "count(*)")


def added(rows: dict[str, Any]) -> float:
    return float(np.nansum(rows["Gap"]))


@pytest.mark.parametrize(
    "options",
    [
        {"database": "date_trunc('day', sold)", "individual": "number", "timezone": "America/New_York"},
        {"database": "number", "individual": "k", "unidentified": "drop"},
        {"database": "coalesce(shop, 'none')", "individual": "k", "unidentified": "keep"},
        {"database": "strftime(sold, '%Y-%m-%d')", "individual": "who"},
        {"database": "day", "individual": ["who", "number"]},
    ],
)
def test_rows_are_cut_alike(there: str, options: dict[str, Any]) -> None:
    query = "SELECT sum(gap), count(*), stddev_pop(gap) FROM data"
    found = collect(databases(there, table="awkward", **options), query)
    check_same(found, collect(databases(ROWS, **options), query))


@pytest.mark.parametrize(
    ("numeric", "values", "kind"),
    [
        ("numeric(10, 2)", ["1.25", "3.10", "-7.05"], "DECIMAL(10,2)"),
        ("numeric", ["1.25", "3.1", "-70000000000000000.05"], "DECIMAL(38,2)"),
        ("numeric(10, 2)", ["1.25", "NaN", "3"], "DOUBLE"),
        ("numeric", ["1e300", "Infinity", "3"], "DOUBLE"),
    ],
)
def test_numerics_are_decimals_where_that_holds_them(
    server: Server, numeric: str, values: list[str], kind: str
) -> None:
    listed = ", ".join(f"(1, {place}, '{value}'::numeric)" for place, value in enumerate(values))
    server.run("DROP TABLE IF EXISTS amounts", f"CREATE TABLE amounts (day int, who int, x {numeric})")
    server.run(f"INSERT INTO amounts VALUES {listed}")
    data = databases(server.address, table="amounts", database="day", individual="who")
    with empriv.DuckDBEngine().session(data) as session:
        assert session.columns_of("empriv_data")["x"] == kind
    found = collect(data, "max(x)")
    expected = pa.table({"day": [1] * 3, "who": range(3), "x": [float(value) for value in values]})
    check_same(found, collect(databases(expected, database="day", individual="who"), "max(x)"))


def test_other_types_come_as_text_and_times_as_times(server: Server) -> None:
    server.run(
        "DROP TABLE IF EXISTS kinds",
        "CREATE TABLE kinds AS SELECT '7b0e52c8-32a2-4b6b-8b1f-1a1d5a2d9f11'::uuid AS who, 'ab'::char(5) AS fixed, "
        "'{\"a\": 1}'::jsonb AS j, DATE '2024-02-29' AS day, true AS b, 2::smallint AS s, '1 day'::interval AS i, "
        "TIME '10:30' AS c, TIMESTAMP '2024-02-29 10:00' AS t, TIMESTAMPTZ '2024-02-29 23:30+00' AS m",
    )
    data = databases(server.address, table="kinds", database="day", individual="who")
    with empriv.DuckDBEngine().session(data) as session:
        kinds = session.columns_of("empriv_data")
        assert [kinds[name] for name in ("who", "fixed", "j", "day", "b", "s", "t", "m")] == [
            "VARCHAR", "VARCHAR", "VARCHAR", "DATE", "BOOLEAN", "SMALLINT", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE",
        ]  # fmt: skip
        assert session.run("SELECT fixed, j FROM empriv_data") == [("ab", '{"a": 1}')]
        assert session.individuals.tolist() == ["7b0e52c8-32a2-4b6b-8b1f-1a1d5a2d9f11"]


def test_rows_without_individual_and_moments_are_refused_alike(there: str) -> None:
    for options, message in (
        ({"database": "shop", "individual": "who"}, "`database` must not be NULL, but is in"),
        ({"database": "number", "individual": "k"}, "`individual` must not be NULL, but is in"),
        ({"database": "sold", "individual": "who"}, "put many rows in one database, but it is a time"),
        ({"database": "dya", "individual": "who"}, "`database` must name a column of the source, got 'dya'"),
        ({"database": "number", "individual": "whom"}, "did you mean 'who'"),
    ):
        for source in ({"source": there, "table": "awkward"}, {"source": ROWS}):
            with pytest.raises(SourceError, match=message):
                collect(databases(**source, **options), "count(*)")  # type: ignore[arg-type]


def test_tables_of_the_server_and_others_are_joined(server: Server, there: str) -> None:
    sizes = pa.table({"Name": ["a", "b", "B"], "size": [1.5, 2.5, None]})
    server.run("CREATE SCHEMA shop")
    server.put("sizes", sizes)
    server.run("ALTER TABLE sizes SET SCHEMA shop")
    query = "SELECT sum(gap * size), count(*) FROM data AS d LEFT JOIN sizes AS s ON d.shop = s.name"
    own = "WITH l AS (SELECT name FROM sizes WHERE size > 2) SELECT count(*) FROM data JOIN l ON name = shop"
    options: dict[str, Any] = {"database": "Day", "individual": "who"}
    here = databases(ROWS, tables={"sizes": sizes}, **options)
    for joined, asked in ((f"{there}::shop.sizes", query), (f"{there}::shop.sizes", own), (sizes, query)):
        on_server = databases(there, table="awkward", tables={"sizes": joined}, **options)
        check_same(collect(on_server, asked), collect(here, asked))
    server.run("DROP SCHEMA shop CASCADE")


@pytest.fixture(scope="module")
def many(server: Server) -> Iterator[str]:
    """Few pairs in one column, and nearly as many as rows in the other."""
    server.run(
        "CREATE TABLE many AS SELECT i % 20 AS day, i % 50 AS few, i AS each, sin(i) AS x "
        "FROM generate_series(1, 40000) AS g(i)",
        "CREATE TABLE less AS SELECT * FROM many WHERE each < 1000",
        "ANALYZE many, less",
    )
    yield server.address
    server.run("DROP TABLE many, less")


def test_an_audit_and_a_scan_of_a_server_equal_those_of_a_file(many: str, tmp_path: Path) -> None:
    data = databases(many, table="many", database="day", individual="few")
    with DuckDBEngine().session(data) as session:
        session.run(f"COPY (SELECT day, few, x FROM empriv_data) TO '{tmp_path}/many.parquet' (FORMAT PARQUET)")
    file = databases(tmp_path / "many.parquet", database="day", individual="few")
    there, here = empriv.audit(data, "avg(x)"), empriv.audit(file, "avg(x)")
    np.testing.assert_allclose(there.delta(0.1), here.delta(0.1), rtol=1e-9)
    scanned = empriv.audit(data, "avg(x)", epsilon=0.1, in_chunks=True)
    np.testing.assert_allclose(scanned.delta(0.1), here.delta(0.1), rtol=1e-9)


def test_the_command_line_reads_a_server(many: str) -> None:
    command = ["audit", many, "--table", "many", "--database", "day", "--individual", "few", "--query", "avg(x)"]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    assert "20 databases" in ran.output
    ran = CliRunner().invoke(main, [*command[:2], "--sql", "SELECT * FROM less", *command[4:]])
    assert ran.exit_code == 0, ran.output


def test_progress_is_shown_while_rows_travel(many: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = databases(many, table="many", database="day", individual="each")
    collect(data, "avg(x)", engine=DuckDBEngine(progress=True))
    assert "Reading rows" in capfd.readouterr().err
    collect(data, "avg(x)", engine=DuckDBEngine(progress=False))
    assert capfd.readouterr().err == ""


def test_a_slow_query_ends_with_a_sentence(server: Server) -> None:
    server.run(
        "CREATE FUNCTION slow(x int) RETURNS int LANGUAGE sql STABLE AS $$ SELECT x + pg_sleep(0.05)::text::int $$",
        "CREATE VIEW lazy AS SELECT i AS day, i AS who, pg_sleep(0.1)::text AS x FROM generate_series(1, 999) AS g(i)",
    )
    started = time.monotonic()
    data = databases(server.address, table="lazy", database="day", individual="who")
    with pytest.raises(QueryError, match=r"`timeout`"):
        collect(data, "count(x)", engine=DuckDBEngine(timeout=0.5))
    assert time.monotonic() - started < 60  # all of it takes 100
    server.run("DROP VIEW lazy", "DROP FUNCTION slow")


def test_a_server_that_goes_away_is_one_sentence(server: Server, many: str, tmp_path: Path) -> None:
    def end_others() -> None:
        reads = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%lazy%AS empriv_source%'"
        until = time.monotonic() + 60
        while server.ask(f"{reads} AND pid <> pg_backend_pid()") == [(0,)] and time.monotonic() < until:
            time.sleep(0.05)
        server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                   "AND backend_type = 'client backend'")  # fmt: skip

    server.run("CREATE VIEW lazy AS SELECT i % 9 AS day, i AS who, 1.0 AS x, pg_sleep(0.001)::text AS t "
               "FROM generate_series(1, 60000) AS g(i)")  # fmt: skip
    ending = threading.Thread(target=end_others)
    ending.start()
    command = ["audit", many, "--table", "lazy", "--database", "day", "--individual", "who", "--query", "avg(x)"]
    ran = CliRunner().invoke(main, [*command, "--save", str(tmp_path / "a.empriv")])
    ending.join()
    assert ran.exit_code == 1
    assert ran.output.startswith("Error: The PostgreSQL server went away before all rows were read.")
    assert list(tmp_path.iterdir()) == []
    server.run("DROP VIEW lazy")
