"""A query on PostgreSQL sees its rows, the tables handed over, and nothing else of the server; and changes nothing.

Every attack is tried as a query, and as a statement given to the session behind the look at the query's own tree; and
as a text at the second look alone, which must hold by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import parse_one

import empriv
from empriv.collecting import PostgresEngine, collect, databases
from empriv.collecting.engines.connections.postgresql import connection_to
from empriv.collecting.engines.engine import Refused
from empriv.collecting.engines.postgres.dialect import Untranslated, in_postgres
from empriv.collecting.engines.postgres.second_look import check_sent
from empriv.collecting.sources import Address
from empriv.errors import EmprivError, QueryError
from postgres_server import NEEDED, Server

pytestmark = NEEDED
THERE = PostgresEngine(push_down=True)
ROWS = pa.table({"day": [1, 1, 2, 2], "who": [1, 2, 1, 3], "x": [1.0, 2.0, 3.0, 4.0]})
LEAK = "SELECT avg(x) / 1000 + (SELECT sum(x) FROM {} WHERE who = 3 AND day = 2) FROM data"


@pytest.fixture(scope="module")
def address(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in which there is more than a query may see: tables, functions of somebody's, files."""
    server.put("people", ROWS)
    server.put("secrets", ROWS)
    hidden = tmp_path_factory.mktemp("hidden") / "rows.csv"
    hidden.write_text("1")
    server.run(
        "CREATE SCHEMA theirs",
        # One that fits better than the server's own sum(double precision) would be taken, if this schema were searched.
        "CREATE FUNCTION public.abs(x double precision) RETURNS double precision LANGUAGE sql IMMUTABLE "
        "AS $$ SELECT 0.0::double precision $$",
        "CREATE FUNCTION theirs.noted(x double precision) RETURNS double precision LANGUAGE sql VOLATILE "
        "AS $$ SELECT x + random() $$",
        "CREATE SEQUENCE steps",
    )
    yield server.address
    server.run(
        "DROP TABLE people, secrets", "DROP SCHEMA theirs CASCADE", "DROP FUNCTION public.abs", "DROP SEQUENCE steps"
    )


def data_at(address: str, **options: Any) -> empriv.Databases:
    return databases(address, table="people", database="day", individual="who", **options)


@pytest.mark.parametrize(
    "place",
    ["secrets", "public.secrets", "people", "public.people", "pg_catalog.pg_class", "information_schema.tables"],
)
def test_other_tables_are_refused(address: str, place: str) -> None:
    query = LEAK.format(place)
    with pytest.raises(QueryError, match=r"The query (must read nothing but `data`|reads a table)"):
        collect(data_at(address), query, engine=THERE)
    with THERE.session(data_at(address)) as session, pytest.raises(EmprivError):
        session.fetch(parse_one(query, dialect="duckdb"))
    with pytest.raises(Refused, match="must read nothing but `data`"):
        check_sent(f"SELECT sum(x) FROM data WHERE x > (SELECT max(x) FROM {place})", {"data"})


CALLS = [
    "pg_read_file('/etc/passwd')", "pg_read_binary_file('/etc/passwd')", "pg_ls_dir('/')", "pg_sleep(1)",
    "pg_terminate_backend(1)", "pg_cancel_backend(1)", "lo_import('/etc/passwd')", "lo_export(1, 'x')", "lo_get(1)",
    "set_config('transaction_read_only', 'off', true)", "current_setting('data_directory')", "nextval('steps')",
    "dblink('dbname=postgres', 'SELECT 1')", "query_to_xml('SELECT * FROM secrets', true, true, '')",
    "database_to_xml(true, true, '')", "random()", "now()", "clock_timestamp()", "txid_current()", "version()",
    "pg_advisory_lock(1)", "pg_notify('a', 'b')", "pg_reload_conf()", "theirs.noted(1.0)", "current_user",
    "has_table_privilege('secrets', 'select')", "pg_stat_reset()", "pg_rotate_logfile()", "inet_server_addr()",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_functions_of_the_server_are_refused_three_times(call: str) -> None:
    query = f"SELECT sum(CASE WHEN {call} IS NULL THEN x ELSE x END) FROM data"
    with pytest.raises(QueryError):
        empriv.Query(query)
    tree = parse_one(query, dialect="duckdb")
    with pytest.raises(Untranslated):
        in_postgres(tree, {"x": {"float8"}})
    if "(" in call:
        with pytest.raises(Refused, match="but calls"):
            check_sent(query, {"data"})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(x) FROM data; DROP TABLE people", "DROP TABLE people", "COPY data TO PROGRAM 'sh'",
        "SELECT sum(x) INTO other FROM data", "SELECT x FROM data FOR UPDATE", "INSERT INTO people SELECT * FROM data",
        "WITH gone AS (DELETE FROM people RETURNING x) SELECT sum(x) FROM gone", "SET search_path = theirs",
        "SELECT sum(x) FROM data TABLESAMPLE BERNOULLI (1)", "SELECT * FROM pg_ls_dir('/')",
        "SELECT sum(x) FROM ROWS FROM (pg_ls_dir('/')) AS d", "SELECT \"pg_sleep\"(1) FROM data", "DO $$ BEGIN END $$",
        "SELECT pg_catalog.pg_sleep(1) FROM data", "SELECT OPERATOR(theirs.+) (1) FROM data", "VALUES (1)",
        "TABLE people", "EXPLAIN ANALYZE SELECT 1", "CALL x()", "SELECT 1; ", "",
    ],
)  # fmt: skip
def test_what_is_no_plain_select_does_not_pass_the_second_look(text: str) -> None:
    if text == "SELECT 1; ":
        check_sent(text, {"data"})  # one statement is what it is
        return
    with pytest.raises(Refused):
        check_sent(text, {"data"})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM people; DROP TABLE people", "DELETE FROM people", "SELECT * INTO copied FROM people",
        "WITH d AS (DELETE FROM people RETURNING *) SELECT * FROM d", "SELECT * FROM people FOR UPDATE",
        "COPY people TO '/tmp/people.csv'", "SELECT * FROM people) TO '/tmp/people.csv'; SELECT * FROM (SELECT 1",
        "SELECT day, who, x, pg_sleep(9) FROM people", "SELECT day, who, set_config('a.b', 'c', false) FROM people",
        "SELECT day, who, nextval('steps') FROM people", "SELECT day, who, lo_import('/etc/passwd') FROM people",
        "SELECT day, who, \"random\"() FROM people", "SELECT day, who, pg_catalog.pg_sleep(9) FROM people",
        "SELECT day, who, theirs.noted(x) FROM people", "SELECT 1 AS day, 2 AS who FROM pg_ls_dir('/')",
        "SELECT day, who, query_to_xml('DROP TABLE people', true, true, '') FROM people", "DO $$ BEGIN END $$",
        "EXPLAIN SELECT 1", "CREATE TABLE made AS SELECT 1", "SELECT * FROM people LIMIT $1", "",
    ],
)  # fmt: skip
def test_a_hostile_select_of_a_source_is_refused_and_changes_nothing(server: Server, address: str, sql: str) -> None:
    with pytest.raises(EmprivError):
        collect(databases(address, sql=sql, database="day", individual="who"), "count(*)")
    ((rows, tables, steps),) = server.ask(
        "SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM pg_tables WHERE schemaname = 'public' "
        "AND tablename IN ('copied', 'made')), (SELECT last_value FROM steps)"
    )
    assert (rows, tables, steps) == (4, 0, 1)
    assert not Path("/tmp/people.csv").exists()


def test_the_transaction_cannot_write_and_finds_its_own_functions(server: Server, address: str) -> None:
    with connection_to(Address(address), timezone="UTC", timeout=5) as connection:
        for statement in ("CREATE TABLE made (x int)", "DELETE FROM public.people", "CREATE TEMP TABLE t (x int)"):
            with pytest.raises(EmprivError), connection.attempt():
                connection.fetch(statement)
        with pytest.raises(EmprivError), connection.attempt():
            connection.fetch("SET TRANSACTION READ WRITE")
        assert connection.fetch("SELECT abs(-2.5::float8)") == [(2.5,)]  # and not somebody's
        assert connection.fetch("SHOW search_path") == [("pg_catalog, pg_temp",)]
        assert connection.fetch("SHOW transaction_isolation") == [("repeatable read",)]
        assert connection.fetch("SHOW statement_timeout") == [("5s",)]
    assert server.ask("SELECT count(*) FROM people") == [(4,)]


def test_somebodys_function_does_not_change_a_result(address: str) -> None:
    found = collect(data_at(address), "sum(abs(x))", engine=THERE)
    assert found.q.tolist() == [3.0, 7.0]


def test_one_state_of_the_rows_is_seen(server: Server, address: str) -> None:
    with THERE.session(data_at(address)) as session:
        before = session.presence()[0].tolist()
        server.run("INSERT INTO people VALUES (9, 9, 9.0)")
        try:
            counted = session.fetch(parse_one("SELECT COUNT(*) AS n FROM data", dialect="duckdb"))
            assert counted["n"].values.tolist() == [4]
            session._read_rows()
            assert session._run("SELECT COUNT(*) FROM data") == [(4,)]
        finally:
            server.run("DELETE FROM people WHERE day = 9")
    assert before == [0, 0, 1, 1]


def test_nothing_runs_on_rows_that_are_not_here(address: str) -> None:
    """Until rows are read, the table here is empty: a statement that reads it must never be answered from that."""
    with THERE.session(data_at(address)) as session:
        assert session.connection.execute("SELECT COUNT(*) FROM data").fetchall() == [(0,)]
        for statement in (
            "SELECT COUNT(*) AS n FROM data", 'SELECT COUNT(*) AS n FROM "DATA"',
            "SELECT COUNT(*) AS n FROM empriv_part0", "SELECT SUM(1) AS n FROM data AS a, range(1)",
            "SELECT COUNT(*) AS n FROM (SELECT x FROM data ORDER BY x LIMIT 4)",
            "SELECT n FROM (SELECT COUNT(*) AS n FROM data UNION ALL SELECT 0 WHERE FALSE)",
            "WITH d AS (SELECT * FROM data) SELECT COUNT(*) AS n FROM d", "FROM data SELECT COUNT(*) AS n",
        ):  # fmt: skip
            with THERE.session(data_at(address)) as fresh:
                ((n,),) = fresh._run(statement)
                assert n == 4, statement
    text = "SELECT day, who, '; DROP TABLE people --' AS x FROM people"
    data = databases(address, sql=text, database="day", individual="who")
    assert collect(data, "SELECT count(*) FROM data WHERE x = '; DROP TABLE people --'", engine=THERE).q.tolist() == [
        2,
        2,
    ]
