"""A query sees its rows and nothing else: what worked once against it, and what must go on working."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sqlglot import exp, parse_one

import empriv
from brute import check_against_brute_force
from empriv.collecting import explain
from empriv.collecting.engines.duckdb.recheck import check_allowed, parsed
from empriv.collecting.engines.engine import Session
from empriv.collecting.queries import query_of
from empriv.collecting.sql import allowlist
from empriv.collecting.sql.allowlist import check, check_tables
from empriv.collecting.sql.execute import answered
from empriv.errors import EmprivError, QueryError, SourceError

ROWS = pd.DataFrame(
    {
        "day": np.repeat(np.arange(20), 6),
        "who": np.tile(np.arange(6), 20),
        "x": np.round(np.random.default_rng(0).normal(20, 3, 120), 3),
        "kind": np.tile(["a", "b", "b"], 40),
    }
)
SHOPS = pd.DataFrame({"kind": ["a", "b"], "size": [1.0, 2.0]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rows")
    ROWS.to_csv(made / "data.csv", index=False)
    ROWS.to_parquet(made / "data.parquet")
    return made


@pytest.fixture
def data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> empriv.Databases:
    """The rows in files of the working directory, as somebody would have them who knows their names."""
    monkeypatch.chdir(folder)
    return empriv.databases("data.parquet", database="day", individual="who", tables={"shops": SHOPS})


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    data = empriv.databases(folder / "data.parquet", database="day", individual="who", tables={"shops": SHOPS})
    with empriv.DuckDBEngine().session(data) as opened:
        yield opened


STOLEN = "SELECT avg(x) / 1000 + (SELECT sum(x) FROM {} WHERE who = 3 AND day = 2) FROM data"
# Where rows can be had from which nobody is left out.
ELSEWHERE = [
    "temp.data", "temp.main.data", "main.data", "empriv_part0", "empriv_databases", "empriv_one", "empriv_rows",
    "read_csv('data.csv')", "read_parquet('data.parquet')", "'data.csv'", '"data.csv"', "'data.parquet'",
    "query('FROM data')", "query_table('data')", "data.csv", "empriv_part0_frame", "empriv_shops_frame", "shops_frame",
    "(FROM 'data.csv')", "(SELECT * FROM temp.data)", "LATERAL read_csv('data.csv')", "parquet_scan('data.parquet')",
    "(WITH t AS (FROM 'data.csv') FROM t)", "glob('*')", "read_text('data.csv')", "sniff_csv('data.csv')",
    "duckdb_tables()", "information_schema.tables", "sqlite_master", "(SUMMARIZE data)", "(SHOW ALL TABLES)",
    "seq_scan('data')", "json_execute_serialized_sql(json_serialize_sql('FROM data'))", "no_such_table", "ROWS",
]  # fmt: skip


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("place", ELSEWHERE)
def test_rows_that_nobody_is_left_out_of_cannot_be_read(place: str, session: Session) -> None:
    with pytest.raises(QueryError) as refused:
        answered(session, query_of(STOLEN.format(place)), show=False)
    assert "\n" not in str(refused.value).split("\n  ")[0]


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("place", ["empriv_part0", "temp.empriv_part0", "(FROM empriv_part0)"])
def test_rows_that_were_loaded_cannot_be_read_beside_data(place: str) -> None:
    for source in ("data.csv", "SELECT * FROM 'data.csv'"):
        made = empriv.databases(source, database="day", individual="who")
        with pytest.raises(QueryError, match="empriv_part0"):
            empriv.collect(made, STOLEN.format(place))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("temp.main.data", "reads temp.main.data"),
        ("empriv_part0", "the name 'empriv_part0'"),
        ("read_csv('data.csv')", r"calls read_csv\(\) for a table"),
        ("query('FROM data')", r"calls query\(\) for a table"),
        ("'data.csv'", "reads a table 'data.csv' at line 1"),
    ],
)
def test_the_sentence_names_the_culprit(place: str, said: str, data: empriv.Databases) -> None:
    with pytest.raises(QueryError, match=said):
        empriv.collect(data, STOLEN.format(place))


def _made(query: str) -> empriv.Query:
    """A query whose tree nobody looked at yet."""
    return empriv.Query(query, select=parse_one(query, dialect="duckdb"), items=(0,), names=("q",))


ENTRANCES: dict[str, Callable[[empriv.Databases, str], Any]] = {
    "collect": lambda data, query: empriv.collect(data, query),
    "one of several": lambda data, query: empriv.collect(data, ["count(*)", query]),
    "audit": lambda data, query: empriv.audit(data, query),
    "in chunks": lambda data, query: empriv.audit(data, query, in_chunks=True),
    "explain": lambda data, query: explain(data, query),
    "explain without rows": lambda _, query: explain(None, query),
    "known": lambda data, query: empriv.audit(data, "avg(x)", known=query),
    "buckets": lambda data, query: empriv.audit(data, "avg(x)", known=empriv.Buckets(query, 2)),
    "protocol": lambda data, query: empriv.protocols.rounded(query, to=1).collect(data),
    "capped people": lambda data, query: empriv.protocols.cap_people(query, at=3).collect(data),
    "query": lambda data, query: empriv.collect(data, empriv.Query(query)),
    "tree of one's own": lambda data, query: empriv.collect(data, _made(query)),
}  # fmt: skip


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_every_entrance_is_closed(entrance: str, data: empriv.Databases) -> None:
    places = ["temp.data", "query('FROM data')", *(["'data.csv'"] if entrance != "explain without rows" else [])]
    for place in places if entrance in ("collect", "tree of one's own") else places[-1:]:
        with pytest.raises(QueryError, match=re.escape(place.split("(")[0])):
            ENTRANCES[entrance](data, f"SELECT sum(x) FROM data WHERE x > (SELECT min(x) FROM {place})")


OUTSIDE = [
    "getenv('HOME')", "current_setting('threads')", "read_text('data.csv')", "getvariable('x')", "current_database()",
    "current_user", "version()", "json_serialize_plan('FROM data')", "stats(x)", "write_log('a')", "pg_sleep(1)",
    "nextval('s')", "currval('s')", "('data').query_table()", "error('x')", "no_such_function(x)",
    "in_search_path('a')",
]  # fmt: skip
CHANGING = [
    "now()", "current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "today()",
    "get_current_timestamp()", "transaction_timestamp()", "random()", "uuid()", "gen_random_uuid()", "uuidv7()",
    "setseed(0.5)", "age(TIMESTAMP '2020-01-01')", "ago(INTERVAL 1 DAY)", "reservoir_quantile(x, 0.5)",
    "list_aggregate([1, 2], 'reservoir_quantile', 0.5)", "txid_current()", "current_query()", "system.main.now()",
    "current_localtimestamp()", "unix_timestamp()",
]  # fmt: skip


@pytest.mark.parametrize("call", [*OUTSIDE, *CHANGING])
def test_what_does_not_follow_from_the_rows_is_refused(call: str, session: Session) -> None:
    name = (re.search(r"(\w+)\W*(?:\(|$)", call.replace("('data').", "").replace("system.main.", "")) or [""])[1]
    # Some have two names, of which the parser keeps one.
    same = {"today": "current_date", "gen_random_uuid": "uuid", "current_localtimestamp": "localtimestamp"}
    with pytest.raises(QueryError, match=same.get(name, name)):
        answered(session, query_of(f"SELECT count(*) + count({call}) FROM data"))


SAMPLED = ["data TABLESAMPLE 50%", "data USING SAMPLE 50%", "(SELECT * FROM data USING SAMPLE 3 ROWS)",
           "data TABLESAMPLE reservoir(3) REPEATABLE (7)"]  # fmt: skip


@pytest.mark.parametrize("table", SAMPLED)
def test_samples_are_refused(table: str) -> None:
    with pytest.raises(QueryError, match="takes a sample"):
        query_of(f"SELECT avg(x) FROM {table}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(x) INTO stolen FROM data", "SELECT sum(x) FROM data; DROP TABLE data", "COPY data TO 'out.csv'",
        "SELECT $left_out", "SELECT sum(x) + ? FROM data", "ATTACH 'a.db'", "SET threads = 1", "PRAGMA version",
        "SELECT sum(x) FROM data AT (VERSION => 1)", "WITH data AS (SELECT * FROM data) SELECT sum(x) FROM data",
        "SELECT sum(empriv_individual) FROM data", "SELECT sum(x) AS empriv_total FROM data",
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT sum(x) FROM a",
        "WITH a AS (SELECT * FROM a) SELECT sum(x) FROM a",
        "SELECT sum(x) FROM (WITH q AS (SELECT x FROM data) FROM q) AS d, q",
    ],
)  # fmt: skip
def test_other_statements_and_names_are_refused(query: str, data: empriv.Databases, folder: Path) -> None:
    with pytest.raises(QueryError):
        empriv.collect(data, query)
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv", "data.parquet"]


def test_the_connection_is_closed_by_itself(data: empriv.Databases, folder: Path) -> None:
    """The second lock, with the first one passed by."""
    with empriv.DuckDBEngine().session(data) as session:
        session.admit(parse_one("SELECT sum(x) FROM data", dialect="duckdb"), None)
        for statement in (
            "FROM 'data.csv'", "FROM read_text('data.csv')", "FROM glob('*')", "COPY (SELECT 1) TO 'out.csv'",
            "ATTACH 'new.db'", "SET enable_external_access = true", "SET memory_limit = '1GB'", "FROM ROWS",
            "SET lock_configuration = false", "SET allowed_paths = ['data.csv']", "INSTALL httpfs",
        ):  # fmt: skip
            with pytest.raises(duckdb.Error):
                session.connection.execute(statement).fetchall()
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv", "data.parquet"]


def test_a_pattern_of_parquet_files_is_read_behind_the_allowlist(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for day in range(3):
        ROWS[ROWS.day == day].to_parquet(tmp_path / "in" / "deep" / f"{day}.parquet")
    data = empriv.databases(f"{tmp_path}/in/**/*.parquet", database="day", individual="who")
    for query in ("SELECT sum(x) FROM data", "SELECT sum(y) FROM (SELECT max(x) AS y FROM data GROUP BY kind)"):
        assert empriv.collect(data, query, progress=False, notice=lambda _: None).n_databases == 3


def test_duckdb_sees_by_itself_what_the_first_look_should_have_seen() -> None:
    with duckdb.connect() as connection:
        for query in (
            *(STOLEN.format(place) for place in ("temp.data", "empriv_part0", "'data.csv'", "query('FROM data')")),
            "SELECT now() FROM data", "SELECT sum(x) FROM data USING SAMPLE 3", "SELECT $1 FROM data",
            "SELECT count(*) FROM (DESCRIBE data)",
        ):  # fmt: skip
            ((tree,),) = connection.execute("SELECT json_serialize_sql($q)", {"q": query}).fetchall()
            with pytest.raises(QueryError, match="nothing but what it was given"):
                check_allowed(parsed(tree), ["data"])
        with pytest.raises(QueryError, match="one SELECT"):
            parsed(json.dumps({"error": True}))


KEEPS_WORKING = [
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(x * i) FROM data, n",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) "
    "SELECT sum(x) + (SELECT max(i) FROM n) FROM data",
    "WITH RECURSIVE n AS (SELECT min(x) AS y FROM data UNION ALL SELECT y + 5 FROM n WHERE y < 30) SELECT sum(y) "
    "FROM n",
    "WITH a AS (SELECT x FROM data), b AS (SELECT x + 1 AS x FROM a) SELECT sum(x) FROM b",
    "WITH shops AS (SELECT 'a' AS kind) SELECT count(*) FROM data JOIN shops USING (kind)",
    "SELECT count(*) FROM data AS d WHERE x > (SELECT avg(x) FROM data AS e WHERE e.kind = d.kind)",
    "SELECT sum(x * size) FROM data JOIN shops USING (kind)",
    "SELECT sum(x * size) FROM (data JOIN shops USING (kind))",
    "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY kind ORDER BY x) AS r FROM data)",
    "SELECT sum(x) FROM data, range(3) AS t(i)",
    "SELECT max(u) FROM (SELECT unnest([x, 2 * x]) AS u FROM data)",
    "SELECT sum(d) FROM data AS t(a, b, c, e), (SELECT 2 AS d)",
    "SELECT sum(c) FROM data AS t(a, b, c, e)",
    "SELECT sum(a) FROM (SELECT x, kind FROM data) PIVOT (sum(x) FOR kind IN ('a', 'b'))",
    "SELECT sum(x) FROM data -- */ , (SELECT 1)",
    "SELECT count(*) FROM data UNION ALL SELECT count(*) FROM data WHERE FALSE LIMIT 1",
    "SELECT list_aggregate(list(x ORDER BY x), 'max') FROM data",
    "FROM data SELECT quantile_cont(x, 0.3)",
    "SELECT sum(CASE WHEN EXISTS (FROM shops WHERE shops.kind = data.kind) THEN x END) FROM data",
    "SELECT sum(v) FROM (VALUES (1), (2)) AS t(v), (SELECT count(*) AS n FROM data)",
]


@pytest.mark.parametrize("query", KEEPS_WORKING)
def test_what_a_query_may_do_it_does(query: str, session: Session) -> None:
    results = answered(session, query_of(query), show=False, notice=lambda _: None)[0]
    check_against_brute_force(results, ROWS, query, tables={"shops": SHOPS}, rtol=1e-12)


def test_functions_that_may_be_called_are_those_of_the_engine_that_answer_alike() -> None:
    with duckdb.connect() as connection:
        listed = connection.execute(
            "SELECT lower(function_name), function_type, stability, internal FROM duckdb_functions()"
        ).fetchall()
    pure = {name for name, _, stability, internal in listed if stability == "CONSISTENT" and internal}
    macros = {name for name, kind, _, internal in listed if kind == "macro" and internal}
    changing = {name for name, _, stability, _ in listed if stability in ("VOLATILE", "CONSISTENT_WITHIN_QUERY")}
    assert allowlist.PURE - macros <= pure
    assert not allowlist.PURE & changing
    assert not allowlist.PURE & (allowlist.CHANGING | allowlist.OUTSIDE)
    # Of each that answers differently, one sentence says so, or says that it looks elsewhere.
    assert changing <= allowlist.CHANGING | allowlist.OUTSIDE
    # What macros call is what a query may call.
    asked = "SELECT macro_definition FROM duckdb_functions() WHERE function_name = $name AND function_type = 'macro'"
    with duckdb.connect() as connection:
        # One fails on a key that is NULL; two cast to types by names that a query need not know.
        apart = {"json_group_object", "md5_number_lower", "md5_number_upper"}
        for name in sorted((allowlist.PURE & macros) - apart):
            for (definition,) in connection.execute(asked, {"name": name}).fetchall():
                check(parse_one(f"SELECT {definition} FROM data", dialect="duckdb"))


def test_tables_are_resolved_where_they_stand() -> None:
    def tree(query: str) -> exp.Expr:
        return parse_one(query, dialect="duckdb")

    check_tables(tree("WITH a AS (FROM data) FROM a, (WITH b AS (FROM a) FROM b)"), ["data"])
    for query in ("WITH a AS (FROM a) FROM a", "FROM (WITH b AS (FROM data) FROM b), b", "FROM (FROM (FROM c))"):
        with pytest.raises(QueryError, match="does not exist"):
            check_tables(tree(query), ["data"])


PASTED = "SELECT * FROM 'data.csv'); COPY (SELECT * FROM 'data.csv') TO 'out.csv'; CREATE TEMP TABLE zz AS (SELECT 1"


@pytest.mark.parametrize(
    "text",
    [
        PASTED, "SELECT 1 AS day; SELECT 2", "SELECT * INTO out FROM 'data.csv'", "SELECT * FROM 'data.csv') --",
        "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a", "FROM",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["source", "member", "table"])
@pytest.mark.usefixtures("data")
def test_a_source_is_one_select(text: str, place: str, folder: Path) -> None:
    if place == "table":
        made = empriv.databases("data.csv", database="day", individual="who", tables={"t": text})
    else:
        source: Any = text if place == "source" else [text]
        made = empriv.databases(source, database=None if place == "member" else "day", individual="who")
    with pytest.raises(SourceError, match="one SELECT") as refused:
        empriv.collect(made, "count(*)")
    assert "data.csv" not in str(refused.value)
    assert sorted(path.name for path in folder.iterdir()) == ["data.csv", "data.parquet"]


@pytest.mark.usefixtures("data")
def test_a_source_may_read_files_and_be_random() -> None:
    made = empriv.databases(
        "WITH r AS (SELECT *, random() AS y FROM read_csv('data.csv')) SELECT * FROM r; -- mine", database="day",
        individual="who", tables={"small": "SELECT DISTINCT kind FROM 'data.csv'"},
    )  # fmt: skip
    query = "SELECT count(*) FROM data JOIN small USING (kind) WHERE x > (SELECT min(x) FROM data)"
    assert empriv.collect(made, query, progress=False, notice=lambda _: None).n_databases == 20


@pytest.mark.parametrize(
    "cut", ["(SELECT 1)", "random()", "now()", "day + (SELECT max(x) FROM 'data.csv')", "day; FROM"]
)
@pytest.mark.usefixtures("data")
def test_databases_are_cut_by_what_a_row_holds(cut: str) -> None:
    with pytest.raises(EmprivError, match="`database`"):
        empriv.collect(empriv.databases("data.csv", database=cut, individual="who"), "count(*)")


ENDLESS = "SELECT sum(sin(a.x * b.x + c.i)) FROM data AS a, data AS b, range(100000000) AS c(i)"


@pytest.mark.parametrize("asked", [empriv.collect, empriv.audit])
def test_a_query_ends_in_time(asked: Callable[..., Any], data: empriv.Databases) -> None:
    for query in (ENDLESS, "SELECT sum(x * i) FROM data, range(10000000000) AS c(i)"):
        with pytest.raises(QueryError, match=r"within `timeout`, 0.3 seconds, and did not\. Hint"):
            asked(data, query, timeout=0.3, progress=False)


def test_measuring_in_chunks_ends_in_time() -> None:
    rows = "SELECT i % 40 AS day, i % 1000003 AS who, random() AS x FROM range(20000000000) AS t(i)"
    endless = empriv.databases(rows, database="day", individual="who")
    with pytest.raises(QueryError, match="within `timeout`"):
        empriv.audit(endless, "sum(x)", in_chunks=True, timeout=0.5, progress=False)


def test_a_query_ends_in_time_wherever_it_is_asked(data: empriv.Databases) -> None:
    with pytest.raises(QueryError, match="within `timeout`"):
        empriv.collect(data, ENDLESS, engine=empriv.DuckDBEngine(timeout=0.3))
    with pytest.raises(QueryError, match="within `timeout`"):
        empriv.audit(data, "avg(x)", known=ENDLESS, timeout=1.5)
    assert empriv.collect(data, "avg(x)", timeout=60).n_databases == 20
    assert "SELECT" in explain(data, "avg(x)", timeout=60, memory_limit="1GB")


@pytest.mark.parametrize("timeout", [0, -1, True, "soon", float("nan"), float("inf"), 1e300, 10**400])
def test_a_timeout_is_a_number_of_seconds(timeout: Any, data: empriv.Databases) -> None:
    with pytest.raises(empriv.InputError, match="`timeout` must be a number of seconds above 0"):
        empriv.collect(data, "avg(x)", timeout=timeout)


def test_limits_are_given_once(data: empriv.Databases) -> None:
    with pytest.raises(empriv.InputError, match=r"DuckDBEngine\(timeout=\.\.\.\)"):
        empriv.collect(data, "avg(x)", engine=empriv.DuckDBEngine(), timeout=3)


def test_a_query_that_needs_too_much_memory_says_what_to_do(data: empriv.Databases) -> None:
    query = "SELECT len(list(i * x)) FROM data, range(30000000) AS c(i)"
    with pytest.raises(QueryError, match=r"not enough memory for this query\. Hint: give a larger `memory_limit`"):
        empriv.collect(data, query, memory_limit="40MB", progress=False)
