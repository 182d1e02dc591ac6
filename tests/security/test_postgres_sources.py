"""A source on PostgreSQL is one SELECT in a transaction that only reads, whatever its text tries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import empriv
from empriv.collecting import collect, databases
from empriv.collecting.engines.connections import connection_to
from empriv.collecting.sources import Address
from empriv.errors import EmprivError
from postgres_server import NEEDED, Server

pytestmark = NEEDED
ROWS = pa.table({"day": [1, 1, 2, 2], "who": [1, 2, 1, 3], "x": [1.0, 2.0, 3.0, 4.0]})


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
    for statement in (
        "CREATE TABLE made (x int)", "DELETE FROM public.people", "CREATE TEMP TABLE t (x int)",
        "SET TRANSACTION READ WRITE",
    ):  # fmt: skip
        with connection_to(Address(address), timezone="UTC", timeout=5) as connection:
            connection.fetch("SELECT 1")
            with pytest.raises(EmprivError):
                connection.fetch(statement)
    with connection_to(Address(address), timezone="UTC", timeout=5) as connection:
        assert connection.fetch("SELECT abs(-2.5::float8)") == [(2.5,)]  # and not somebody's
        assert connection.fetch("SHOW search_path") == [("pg_catalog, pg_temp",)]
        assert connection.fetch("SHOW transaction_isolation") == [("repeatable read",)]
        assert connection.fetch("SHOW statement_timeout") == [("5s",)]
    assert server.ask("SELECT count(*) FROM people") == [(4,)]


def test_somebodys_function_does_not_change_a_result(address: str) -> None:
    found = collect(data_at(address), "sum(abs(x))")
    assert found.q.tolist() == [3.0, 7.0]


def test_one_state_of_the_rows_is_seen(server: Server, address: str) -> None:
    with connection_to(Address(address), timezone="UTC", timeout=5) as connection:
        before = connection.fetch("SELECT count(*) FROM public.people")
        server.run("INSERT INTO people VALUES (9, 9, 9.0)")
        try:
            assert connection.fetch("SELECT count(*) FROM public.people") == before == [(4,)]
        finally:
            server.run("DELETE FROM people WHERE day = 9")
