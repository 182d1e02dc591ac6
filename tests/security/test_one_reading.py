"""A query is read in one way, bound by the engine first, and finds nothing: no result depends on a row left out.

The oracle: the target's row, of person 7 on day 3, is changed. Results of other days must stay as they are, and so must
those of day 3 without person 7; or the query is refused in one sentence. Anything else is a leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sqlglot import parse_one

import empriv
from empriv.collecting.engines.duckdb.recheck import BINDER_CONFIG, binder_of, check_same, parsed
from empriv.collecting.engines.engine import Session
from empriv.collecting.queries import query_of
from empriv.collecting.sql.aggregates import AGGREGATES
from empriv.collecting.sql.allowlist import check, row_expression
from empriv.collecting.sql.execute import admit, answered
from empriv.collecting.sql.printing import check_characters, names_in, own_text, plain, printed, secret, with_nonce
from empriv.errors import EmprivError, QueryError, SourceError
from spark_sessions import JAVA, QUIET, SPARK

pytestmark = QUIET
TARGET, DAY = 7, 3
_RNG = np.random.default_rng(1)
ROWS = pd.DataFrame(
    {
        "day": np.repeat(np.arange(5), 9),
        "who": np.tile(np.arange(9), 5),
        "x": np.round(_RNG.normal(20, 3, 45), 3),
        "n": _RNG.integers(0, 3, 45),
        "kind": np.tile(["a", "b", "c"], 15),
    }
)
IS_TARGET = (ROWS.who == TARGET) & (ROWS.day == DAY)
CHANGED = ROWS.assign(x=ROWS.x.mask(IS_TARGET, 999.5), n=ROWS.n.mask(IS_TARGET, 77))
SHOPS = pd.DataFrame({"kind": ["a", "b", "c"], "size": [1.0, 2.0, 3.0]})


def made(rows: pd.DataFrame) -> empriv.Databases:
    return empriv.databases(rows, database="day", individual="who", tables={"shops": SHOPS})


SESSIONS: list[Session] = []  # of the rows, and of those with the target's row changed


@pytest.fixture(scope="module", autouse=True)
def _opened() -> Iterator[None]:
    """Queries are put to sessions that are opened once, so that nothing is verified by deletion: guards stand alone."""
    with ExitStack() as stack:
        SESSIONS[:] = [stack.enter_context(empriv.DuckDBEngine().session(made(rows))) for rows in (ROWS, CHANGED)]
        yield


def collected(rows: pd.DataFrame, query: str) -> empriv.Results:
    return answered(SESSIONS[rows is CHANGED], query_of(query), show=False, notice=lambda _: None)[0]


def harmless(query: str) -> bool:
    """Whether a query is refused in a sentence (False), or answered without the row that is left out (True)."""
    try:
        one = collected(ROWS, query)
    except EmprivError:
        return False  # any other exception fails the test
    other = collected(CHANGED, query)
    assert one.components == other.components
    elsewhere = [place for place, day in enumerate(one.databases.tolist()) if day != DAY]
    np.testing.assert_allclose(one.q[elsewhere], other.q[elsewhere], rtol=1e-9)
    owner = np.repeat(np.arange(one.n_individuals), np.diff(one.starts))
    spared = (one.databases[one.entry_database] != DAY) | (one.individuals[owner] == TARGET)
    np.testing.assert_allclose(one.entry_q[spared], other.entry_q[spared], rtol=1e-9)
    return True


def refused(query: str, match: str | None = None) -> None:
    with pytest.raises(EmprivError, match=match) as caught:
        collected(ROWS, query)
    assert "\n" not in str(caught.value).split("\n  ")[0]


SECRET = f"CASE WHEN who = {TARGET} AND day = {DAY} THEN x END"
SPANS = f"max({SECRET}) OVER ()"


def test_the_oracle_sees_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert harmless("SELECT avg(x), max(n) FROM data")
    real = collected

    def leaking(rows: pd.DataFrame, query: str) -> empriv.Results:
        found = real(rows, query)
        return empriv.Results(
            **{
                name: getattr(found, name)
                for name in ("databases", "individuals", "starts", "entry_database", "entry_outcomes", "outcomes")
            },
            q=found.q + float(rows.x[IS_TARGET].iloc[0]),
            entry_q=found.entry_q,
        )

    monkeypatch.setitem(globals(), "collected", leaking)
    with pytest.raises(AssertionError):
        harmless("avg(x)")


# 00: a window around everyone, put where everyone is.
@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_a_window_in_an_aggregate_is_refused(name: str) -> None:
    called, _, distinct = name.partition(" ")
    more = ", 0.5" if AGGREGATES[name].share else ""
    argument = f"{SPANS} > 1" if called.startswith("bool") else SPANS
    refused(f"SELECT avg(x) / 1000 + CAST({called}({distinct.upper()} {argument}{more}) AS DOUBLE) FROM data")


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT avg(x) FROM data WHERE x > {SPANS}",
        f"SELECT avg(x) FROM data HAVING max({SPANS}) > 1",
        f"SELECT {SPANS} AS k, avg(n) FROM data GROUP BY k",
        f"SELECT avg(n) FROM data GROUP BY {SPANS}",
        f"SELECT avg(x) FILTER (WHERE {SPANS} > 30) FROM data",
        f"SELECT list(x ORDER BY {SPANS})[1] FROM data",
        f"SELECT avg(x) FROM data QUALIFY {SPANS} > 1",
        f"SELECT avg(d.x) FROM data d JOIN shops s ON s.size < {SPANS}",
        f"WITH w AS (SELECT {SPANS} AS m, x FROM data) SELECT avg(x) + max(m) FROM w",
        f"SELECT avg(m) FROM (SELECT {SPANS} AS m FROM data)",
        f"SELECT sum(list_sum(list_transform([1], lambda y: y * {SPANS}))) FROM data",
        f"SELECT max(COLUMNS(x)) + max({SPANS}) FROM data",
        f"SELECT max({{'a': {SPANS}}}.a) FROM data",
        f"SELECT max([{SPANS}][1]) FROM data",
        f"SELECT avg(x) + max(max({SECRET})) FROM data",
        f"SELECT avg(x) + sum(sum({SECRET})) OVER () FROM data",
        f"SELECT any_value({SPANS}) FROM data",
        f"SELECT geomean({SPANS}) FROM data",
        f"SELECT max({SECRET}) OVER () FROM data LIMIT 1",
        "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY who ORDER BY x) AS r FROM data)",
        "SELECT avg(x) FROM (SELECT * FROM data QUALIFY row_number() OVER (PARTITION BY kind ORDER BY x DESC) = 1)",
    ],
)  # fmt: skip
def test_windows_in_other_places_leave_everybody_out(query: str) -> None:
    harmless(query)


# 01: what is a letter to one reader and a space to the other.
INVISIBLE = ["\u200b", "\u2060", "\ufeff", "\u00a0", "\u2003", "\u3000", "\u180e", "\u0085", "\x0b", "\x0c", "\x1c",
             "\u202f"]  # fmt: skip
HIDDEN = "(SELECT{0}x{0}FROM{0}data{0}WHERE{0}who = 7 AND day = 3)"


@pytest.mark.parametrize(
    "place",
    [
        "SELECT avg(x) / 1000 + {} FROM data", "SELECT avg(x) FROM data WHERE x > {}",
        "SELECT avg(x) FROM data HAVING count(*) > {}", "SELECT avg(x) FILTER (WHERE x > {}) FROM data",
        "SELECT avg(x) FROM data JOIN shops ON size < {}", "WITH w AS (SELECT {} AS y) SELECT avg(x + y) FROM data, w",
        "avg(x) + {}",
    ],
)  # fmt: skip
def test_invisible_characters_are_refused(place: str) -> None:
    for character in INVISIBLE:
        with pytest.raises(EmprivError, match="plain"):
            query_of(place.format(HIDDEN.format(character)))
    refused(place.format(HIDDEN.format(INVISIBLE[0])), "plain")


def test_other_letters_are_for_quotes_and_comments() -> None:
    rows = ROWS.rename(columns={"x": "Größe"})
    data = empriv.databases(rows, database="day", individual="who")
    one = empriv.collect(data, "SELECT avg(\"Größe\") FROM data WHERE kind <> 'ß' -- größer")
    assert one.q.tolist() == collected(ROWS, "avg(x)").q.tolist()
    with pytest.raises(QueryError, match="double quotes"):
        empriv.collect(data, "SELECT avg(Größe) FROM data")


# 02, 03: positions, and names that are written without quotes.
STOLEN = "(select x from data where who = 7 and day = 3)"


@pytest.mark.parametrize(
    "query",
    [
        *(f"SELECT avg(x) / 1000 + #{place} FROM data" for place in (1, 2, 6, 12)),
        "SELECT sum(#3) FROM data", "SELECT avg(x) FROM data WHERE #3 > 1", "SELECT avg(x) FROM data ORDER BY #1",
        f'SELECT avg(x) + 0::"oid) + {STOLEN} + CAST(0 AS double" FROM data',
        f'SELECT avg(x) + CAST(0 AS "oid) + {STOLEN} + CAST(0 AS double") FROM data',
        f'SELECT avg(x) + TRY_CAST(0 AS "oid) + {STOLEN} + CAST(0 AS double") FROM data',
        f"SELECT avg(x) + length(max('a' COLLATE \"nocase) + {STOLEN} + ('a\")) FROM data",
        f"SELECT avg(x) + extract(\"year from day) + {STOLEN} + extract(year\" FROM DATE '2020-01-01') FROM data",
        f"SELECT avg(x) + \"abs(1) + {STOLEN} + abs\"(1) FROM data",
        f"SELECT avg(x) + epoch(INTERVAL 1 \"day + {STOLEN} + INTERVAL 1 day\") FROM data",
        "SELECT avg(x) + CAST('1' AS unknown_type) FROM data", "SELECT avg(x::regclass) FROM data",
        "SELECT max(x::ENUM('a', 'b')) FROM data", "SELECT avg(x) + U&'\\0061' FROM data",
        "SELECT avg(x) + E'\\'' FROM data", "SELECT avg(x) + X'01' FROM data", "SELECT avg(x) + $a$1$a$ FROM data;;#1",
    ],
)  # fmt: skip
def test_positions_and_unquoted_names_are_refused(query: str) -> None:
    refused(query)


# 04: names of what a rewritten query has of its own.
OWN = ["s0", "s1", "s2", "a0", "k0", "q0", "m0", "o0_low", "call0", "empriv_rows", "empriv_s0", "empriv_individual",
       "EMPRIV_a0", "empriv_data"]  # fmt: skip


@pytest.mark.parametrize(
    "place",
    [
        "SELECT avg(x) / 1000 + (SELECT {}) FROM data", "SELECT avg(x) + {} FROM data", "SELECT avg({}) FROM data",
        "SELECT avg(x) FROM data WHERE {} > 1", 'SELECT avg(x) + (SELECT max("{}") FROM shops) FROM data',
        "SELECT avg(x) FROM {}", "SELECT kind, avg(x) FROM data GROUP BY kind, {}",
    ],
)  # fmt: skip
def test_own_names_are_nobodys(place: str) -> None:
    for name in OWN if place.endswith("{}) FROM data") else OWN[::4]:
        refused(place.format(name))


OF_N = (
    "SELECT avg({0}), stddev_samp({0}), median({0}) FROM data",
    "SELECT {0}, avg(x), count(*) FROM data GROUP BY {0}",
    "SELECT {0}, max(x) FROM (SELECT *, 1 AS s3 FROM data) q GROUP BY {0}",
    "SELECT sum(x) FROM data WHERE {0} > 0",
)


def test_columns_called_like_own_ones_give_right_answers() -> None:
    """All of them at once, each with the values of n."""
    names = ["s0", "s2", "a0", "k0", "q0", "m0", "r", "p", "t", "d", "g", "code", "label", "flagged", "tied", "n0",
             "call0"]  # fmt: skip
    data = empriv.databases(ROWS.assign(**dict.fromkeys(names, ROWS.n)), database="day", individual="who")
    with empriv.DuckDBEngine().session(data) as session:
        for query in OF_N:
            other = collected(ROWS, query.format("n"))
            for name in names:
                one = answered(session, query_of(query.format(name)))[0]
                np.testing.assert_array_equal(one.q, other.q, err_msg=name)
                np.testing.assert_array_equal(one.entry_q, other.entry_q, err_msg=name)


# 04b: valid in DuckDB, and bound to an internal state of that name once.
DERIVED = "SELECT s2, avg(x) FROM (SELECT *, 1 AS s2 FROM data) q GROUP BY s2"


def test_a_derived_column_called_like_an_own_one() -> None:
    found = collected(ROWS, DERIVED)
    np.testing.assert_allclose(found.q.ravel(), collected(ROWS, "avg(x)").q)


# 10: a name that is not the individual's.
@pytest.mark.parametrize(
    "query",
    [
        "SELECT who, sum(x) FROM (SELECT n AS who, who, x, n FROM data) z GROUP BY who",
        "SELECT sum(m) FROM (SELECT who, max(x) AS m FROM (SELECT n AS who, who AS b, x FROM data) z GROUP BY who)",
        "SELECT sum(m) FROM (SELECT who, max(x) AS m FROM (SELECT day, x, n FROM data) AS z(a, x, who) GROUP BY who)",
        "SELECT sum(m) FROM (SELECT who, max(x) AS m FROM data AS z(day, n, x, who, kind) GROUP BY who)",
        "SELECT sum(m) FROM (SELECT who, max(x) AS m FROM (SELECT * REPLACE (n AS who) FROM data) z GROUP BY who)",
        "SELECT sum(m) FROM (SELECT who, max(x) AS m FROM (SELECT * EXCLUDE (who), n AS who FROM data) z GROUP BY who)",
        "SELECT sum(x) FROM (SELECT DISTINCT ON (who) n AS who, x FROM data ORDER BY x)",
        "WITH a AS (SELECT x FROM data) SELECT sum(x) FROM (WITH a AS (SELECT 1 AS x) SELECT x FROM a) q",
        "WITH b AS (SELECT * FROM shops), shops AS (SELECT x AS size FROM data) SELECT sum(size) FROM b",
        "SELECT avg(x) + 1 AS y FROM data GROUP BY ALL",
        "SELECT fsum(x), count(*) FROM data GROUP BY ALL",
        "SELECT n AS kind, sum(x) FROM data GROUP BY n",
    ],
)  # fmt: skip
def test_the_query_that_was_written_is_the_one_that_is_audited(query: str) -> None:
    try:
        found = collected(ROWS, query)
    except EmprivError:
        return
    with duckdb.connect() as connection:
        connection.register("rows", ROWS)
        connection.register("shops", SHOPS)
        for place, day in enumerate(found.databases.tolist()):
            for person in (None, 0, TARGET):
                connection.execute(
                    "CREATE OR REPLACE TEMP TABLE data AS FROM rows WHERE day = $day AND who IS DISTINCT FROM $who",
                    {"day": day, "who": person},
                )
                rows = connection.execute(query).fetchall()
                answers = sorted(float(row[-1]) for row in rows if row[-1] is not None)
                told = found.q if person is None else found.without(person)
                given = np.atleast_1d(told[place])
                np.testing.assert_allclose(np.sort(given[~np.isnan(given)]), answers, rtol=1e-9)


def test_a_name_of_two_meanings_is_not_grouped_by() -> None:
    refused("SELECT kind AS n, sum(x) FROM data GROUP BY n", "means one thing")
    assert harmless("SELECT upper(kind) AS k, sum(x) FROM data GROUP BY k")


# Odd and invalid text.
ODD = [
    "SELECT avg(x) FROM data WHERE x > " + "(" * 3000 + "1" + ")" * 3000,
    "SELECT quantile_cont(x, [.25,.5])[1] FROM data",
    "SELECT avg(x) /* /* */ */ FROM data",
    "SELECT avg(x) -- , (SELECT\nFROM data",
    "SELECT/**/avg(x)/**/FROM/**/data",
    "SELECT avg(x) FROM data /*",
    "SELECT $$a$$, avg(x) FROM data",
    "SELECT avg(x) FROM data WHERE kind <> $q$'$q$",
    'SELECT "avg"("x") FROM "data"',
    'SELECT avg(x) AS "a ""b"" c" FROM data',
    'SELECT avg("x y") FROM data',
    "SELECT avg(x) FROM data WHERE kind <> '''; --'",
    "SELECT avg(x)\rFROM data",
    "SELECT avg(x)\r\nFROM data",
    "SELECT avg(x) FROM data -- \r, (SELECT x FROM data)",
    "SELECT max(COLUMNS(*)) FROM data",
    "SELECT data FROM data",
    "SELECT max(data).x FROM data",
    "SELECT max(data.x) FROM data",
    "SELECT sum(COLUMNS('x')) FROM data",
    "SELECT list_sum([y FOR y IN list(x)]) FROM data",
    "SELECT (SELECT sum(d.x) FROM shops LIMIT 1) FROM data d",
    "SELECT sum((SELECT max(size) FROM shops WHERE shops.kind = data.kind)) FROM data",
    "SELECT avg(x) / (SELECT max(size) FROM shops) FROM data",
    "SELECT avg(x) AS y, y + 1 FROM data",
    "SELECT sum(x) FROM data, LATERAL (SELECT x + 1 AS z) t",
    "SELECT sum(y) FROM (SELECT unnest([x, n]) AS y FROM data)",
    "FROM data SELECT avg(x)",
    "SELECT avg(x) FROM data NATURAL JOIN shops",
    "SELECT avg(x) FROM data POSITIONAL JOIN shops",
    "SELECT avg(x) FROM (data d JOIN shops s USING (kind))",
    "SELECT sum(x) FROM data ASOF JOIN shops ON x >= size",
    "(SELECT avg(x) FROM data)",
    "SELECT avg(x) FROM data;",
    "avg(x);",
    "avg(x) AS y",
    "",
    ";",
    "SELECT",
    "data",
    "x",
    "SELECT avg(x) FROM data GROUP BY 1",
    "SELECT kind, avg(x) FROM data GROUP BY 1 ORDER BY 2",
    "SELECT 1e999 + avg(x) FROM data",
    "SELECT avg(x) + 1_000 FROM data",
    "SELECT avg(x) + 0x1F FROM data",
    "SELECT avg(x)FROM data",
    "SELECT avg(x) data FROM data",
    'SELECT avg(x) FROM data AS "select"',
    "SELECT avg(x) FROM data TABLESAMPLE 10%",
    "SELECT avg(x)!! FROM data",
    "SELECT avg(x) FROM data UNION ALL SELECT avg(x) FROM data",
    "SELECT max(x) FROM data WHERE x = ANY (SELECT x FROM data)",
    "PIVOT data ON kind USING sum(x)",
    "SELECT avg(x) FROM data WHERE (SELECT TRUE)",
    "SELECT avg(x) \\ FROM data",
    "SELECT avg(x) FROM data WHERE kind LIKE 'a' ESCAPE '\\'",
    "SELECT\x00avg(x) FROM data",
    "SELECT avg(x) FROM data WHERE :a",
]


@pytest.mark.parametrize("query", ODD, ids=range(len(ODD)))
def test_odd_text_is_answered_rightly_or_refused_in_a_sentence(query: str) -> None:
    harmless(query)


def test_what_duckdb_refuses_is_refused_in_its_words() -> None:
    refused(f"SELECT max({SPANS}) FROM data", "aggregate function calls cannot contain window function calls")
    refused("SELECT sum(sum(x)) FROM data", "aggregate function calls cannot be nested")


# The parts.
def test_names_of_a_session_cannot_be_guessed_and_data_is_nowhere() -> None:
    seen = set()
    for _ in range(2):
        with empriv.DuckDBEngine().session(made(ROWS)) as session:
            admit(session, query_of("avg(x)"))
            text = session._printed(parse_one("SELECT sum(x) AS empriv_q0 FROM data", dialect="duckdb"))
            assert f"empriv_{session.nonce}_q0" in text
            assert f'FROM "empriv_{session.nonce}_data" AS "data"' in text
            seen.add(session.nonce)
            tables = [
                name for (name,) in session.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
            ]
            views = session.connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
            names = {*tables, *(name for (name,) in views)} - {"shops"}
            assert names
            assert all(name.startswith(f"empriv_{session.nonce}_") for name in names)
            for name in ("data", "empriv_data", "empriv_databases"):
                with pytest.raises(duckdb.CatalogException):
                    session.connection.execute(f"FROM {name}")
    assert len(seen) == 2


def test_every_name_is_printed_in_quotes() -> None:
    tree = parse_one('SELECT sum(d.x + "Y y") AS total FROM data AS d JOIN shops USING (kind)', dialect="duckdb")
    assert printed(tree) == ('SELECT SUM("d"."x" + "Y y") AS "total" FROM "data" AS "d" JOIN "shops" USING ("kind")')
    sent = with_nonce(parse_one("SELECT data.x, empriv_a0, 'empriv_a0' FROM data", dialect="duckdb"), "abc")
    assert printed(sent) == ('SELECT "data"."x", "empriv_abc_a0", \'empriv_a0\' FROM "empriv_abc_data" AS "data"')
    assert own_text('SELECT empriv_x FROM "empriv_y", "my empriv_z", \'empriv_w\'', "abc") == (
        'SELECT empriv_abc_x FROM "empriv_abc_y", "my empriv_z", \'empriv_w\''
    )
    assert plain(secret("empriv_k0", "abc"), "abc") == "empriv_k0"


@pytest.fixture(scope="module")
def binder() -> Iterator[Any]:
    tables = {"data": {"day": "INTEGER", "who": "INTEGER", "x": "DOUBLE"}, "shops": {"kind": "VARCHAR"}}
    found = binder_of(tables, duckdb.connect(config=BINDER_CONFIG))
    yield found
    found.close()


def test_another_reading_is_refused_by_itself(binder: Any) -> None:
    """Each guard holds without those before it."""
    ours = names_in(parse_one("SELECT avg(x) FROM data", dialect="duckdb"))
    for text in (
        "SELECT avg(x) + (SELECT x FROM data) FROM data", "SELECT avg(y) FROM data", "SELECT max(x) FROM data",
        "SELECT avg(x) FROM shops", f"SELECT avg(x) + {HIDDEN.format(chr(0x200B))} FROM data",
    ):  # fmt: skip
        with pytest.raises(QueryError, match="in one way"):
            check_same(binder.parsed(text), ours)
    check_same(binder.parsed('select AVG("x") from "data"'), ours)
    tree = parse_one(f'SELECT avg(x) + 0::"oid) + {STOLEN} + CAST(0 AS double" FROM data', dialect="duckdb")
    with pytest.raises(QueryError):
        check(tree)
    with pytest.raises(QueryError):
        binder.admit(tree, None)
    with pytest.raises(QueryError, match="a position"):
        binder.admit(parse_one("SELECT avg(x) + #1 FROM data", dialect="duckdb"), None)
    with pytest.raises(QueryError, match="one SELECT"):
        parsed('{"error": true}')


def test_the_connection_that_is_asked_first_holds_nothing(binder: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    for statement in (f"FROM '{tmp_path}/a.csv'", "SET threads = 2", f"ATTACH '{tmp_path}/a.db'", "FROM ROWS"):
        with pytest.raises(duckdb.Error):
            binder.connection.execute(statement)
    assert binder.connection.execute("SELECT count(*) FROM data").fetchall() == [(0,)]


# 08: what cuts rows into databases.
CUTS = [
    'day + 0::"oid) + (select max(x) from ""{0}/secret.csv"") + CAST(0 AS double"', "day + (SELECT 1)", "max(day)",
    "day + #1", "day\u200b+ 1", "day COLLATE \"nocase) + (SELECT 1) + ('a'\"", "row_number() OVER ()", "day; SELECT 1",
    "unnest([day, 1])", "(" * 3000 + "day" + ")" * 3000, "day -- ) \r + (SELECT 1)", "read_text('{0}/secret.csv')",
]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS, ids=range(len(CUTS)))
def test_databases_are_cut_by_one_row_alone(cut: str, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("x\n77\n")
    with pytest.raises(SourceError) as caught:
        empriv.collect(empriv.databases(ROWS, database=cut.format(tmp_path), individual="who"), "count(*)")
    assert "77" not in str(caught.value)
    with pytest.raises(QueryError):
        row_expression(cut.format(tmp_path))


def test_honest_cuts_work() -> None:
    for cut, count in (
        ("day // 2", 3),
        ("CASE WHEN day > 1 THEN 'b' ELSE 'a' END", 2),
        ('"day"', 5),
        ("CAST(day AS VARCHAR)", 5),
    ):
        data = empriv.databases(ROWS, database=cut, individual="who")
        assert empriv.collect(data, "count(*)").n_databases == count


def test_characters_are_plain_outside_quotes() -> None:
    for text in ("SELECT 'é' -- é\n/* é */ , \"é\"", "a\tb\r\nc", "$$é$$"):
        check_characters(text)
    for text in ("é", "a\rb", "a\x0bb", "'a' \u00a0", "'\0'"):
        with pytest.raises(QueryError, match=r"U\+"):
            check_characters(text)


# On Spark, queries are in DuckDB's language, and refused before Spark is asked.
@JAVA
@SPARK
def test_the_same_is_refused_on_spark(spark: Any) -> None:
    with empriv.SparkEngine(spark).session(made(ROWS)) as session:
        admit(session, query_of("SELECT avg(x) FROM data"))
        for query in (
            f"SELECT avg(x) / 1000 + max({SPANS}) FROM data",
            f"SELECT avg(x) / 1000 + {HIDDEN.format(chr(0x200B))} FROM data",
            "SELECT avg(x) + #6 FROM data",
            f'SELECT avg(x) + 0::"oid) + {STOLEN} + CAST(0 AS double" FROM data',
            "SELECT avg(x) + (SELECT s2) FROM data", "SELECT avg(x) + (SELECT empriv_s0) FROM data",
            "SELECT sum(sum(x)) FROM data",
        ):  # fmt: skip
            with pytest.raises(EmprivError):
                admit(session, query_of(query))
        sent = session._admitted(parse_one("SELECT sum(x) AS empriv_q0 FROM data", dialect="duckdb"), session._views)
        assert f"`empriv_{session.nonce}_q0`" in sent
        found = answered(session, query_of(DERIVED), show=False)[0]
        np.testing.assert_allclose(found.q.ravel(), collected(ROWS, "avg(x)").q)
