"""Rows where they live: SQLite files, and anything that speaks Arrow; PostgreSQL has a file of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import empriv
from brute import check_same
from empriv.collecting import collect, databases
from empriv.errors import EmprivError, InputError, MissingExtraError, SourceError

ROWS = pd.DataFrame(
    {
        "day": [1, 1, 1, 2, 2, 3],
        "who": ["amy", "bob", "bob", "amy", "cyd", "dan"],
        "x": [1.5, 2.0, 4.0, 0.1, 0.2, 7.0],
        "shop": ["s", "t", "t", "s", None, "s"],
    }
)
HERE = databases(ROWS, database="day", individual="who")
QUERY = "SELECT avg(x), count(shop), max(x) FROM data"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An SQLite file that has the rows."""
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE sales (day INTEGER, who TEXT, x REAL, shop TEXT)")
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", ROWS.itertuples(index=False))
    connection.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "text", "sql", "db"])
def test_a_table_of_sqlite_is_a_source(file: Path, form: str) -> None:
    options: dict[str, Any] = {"database": "day", "individual": "who"}
    if form == "db":  # also DuckDB's ending: what the file begins with tells
        file = file.rename(file.with_suffix(".db"))
    data = {
        "table": lambda: databases(file, table="sales", **options),
        "text": lambda: databases(f"{file}::sales", **options),
        "sql": lambda: databases(str(file), sql="SELECT * FROM sales", **options),
        "db": lambda: databases(str(file), table="sales", **options),
    }[form]()
    check_same(collect(data, QUERY), collect(HERE, QUERY), rtol=1e-12)


@pytest.mark.slow
def test_columns_of_sqlite_have_one_type_whatever_is_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "mixed.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (day DATE, who, x NUMERIC, paid BOOLEAN, said DATE, empty)")
        row = ("2024-01-01", 1, 2, 1, "2024-01-01", None)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [row] * 2000)
        connection.execute("INSERT INTO t VALUES ('2024-01-02', 'two', 0.5, 0, 'never', 'x')")
    connection.close()
    data = databases(path, table="t", database="day", individual="who")
    with empriv.DuckDBEngine().session(data) as session:
        kinds = session.columns_of("empriv_data")
    assert [kinds[name] for name in ("who", "x")] == ["VARCHAR", "DOUBLE"]
    # A date that is none leaves dates as texts, all of them.
    assert [kinds[name] for name in ("day", "said", "empty")] == ["VARCHAR", "VARCHAR", "VARCHAR"]
    assert collect(data, "sum(x)").q.tolist() == [4000.0, 0.5]
    whole = databases(path, sql="SELECT * FROM t WHERE said <> 'never'", database="day", individual="who")
    assert collect(whole, "count(*)").q.tolist() == [2000.0]


class Speaks:
    """An object of which nothing is known but that it speaks Arrow, as a table does or as a stream."""

    def __init__(self, table: pa.Table, *, again: bool) -> None:
        self.table: pa.Table | None = table
        self.again = again

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        table, self.table = self.table, self.table if self.again else None
        assert table is not None, "read twice"
        return table.__arrow_c_stream__(requested_schema)


class Counts(Speaks):
    """One that says how many rows it has, and so has them still after they were read."""

    def __len__(self) -> int:
        return len(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["relation", "counts"])
def test_what_speaks_arrow_is_a_source(kind: str) -> None:
    table = pa.Table.from_pandas(ROWS)
    with duckdb.connect() as connection:
        connection.register("there", ROWS)
        source = connection.sql("SELECT * FROM there") if kind == "relation" else Counts(table, again=True)
        data = databases(source, database="day", individual="who")
        for _ in range(2):
            check_same(collect(data, QUERY), collect(HERE, QUERY), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reader", "unknown"])
def test_a_stream_is_read_once_and_never_twice_in_silence(kind: str) -> None:
    table = pa.Table.from_pandas(ROWS)
    stream: Any = Speaks(table, again=False)
    if kind == "reader":
        stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2))
    data = databases(stream, database="day", individual="who")
    check_same(collect(data, QUERY), collect(HERE, QUERY), rtol=1e-12)
    with pytest.raises(SourceError, match=r"read once, and was\. Hint: .*pyarrow\.table"):
        collect(data, QUERY)


def test_equal_names_are_refused(file: Path) -> None:
    message = "different names"
    twice = pa.table([pa.array([1]), pa.array([2])], names=["x", "X"])
    for source in (
        databases(Counts(twice, again=True), database="x", individual="X"),
        databases(file, sql="SELECT day, who, x AS y, x AS y FROM sales", database="day", individual="who"),
    ):
        with pytest.raises(SourceError, match=message):
            collect(source, "count(*)")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("postgresql://host/db", {}, r"with a table or a SELECT\. Hint: table="),
        ("x.sqlite", {}, r'An SQLite file must be given with its table\. Hint: table="sales".*"x\.sqlite::sales"'),
        ("x.duckdb", {}, r"A DuckDB file must be given with its table"),
        ("x.csv", {"table": "t"}, r"`source` must be the address .* if `table` is given"),
        ("x.sqlite", {"table": "t", "sql": "SELECT 1"}, r"`table` must not be given beside `sql`"),
        ("x.duckdb", {"sql": "SELECT 1"}, r"`sql` must be given for a PostgreSQL server or an SQLite file"),
        ("SELECT 1", {"table": "t"}, r"`source` must be the address"),
        ("x.sqlite", {"table": 3}, r"`table` must be a text"),
        ("x.csv", {"timezone": "Mars/Olympus"}, r"`timezone` must be the name of a time zone"),
        ("x.csv", {"timezone": 3}, r"`timezone` must be the name of a time zone"),
        (object(), {}, r"an object that speaks Arrow"),
    ],
)
def test_what_is_no_source_is_refused_in_a_sentence(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EmprivError, match=message):
        databases(source, database="day", individual="who", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "sale"}, r"`table` must be a table or view of the file, got 'sale'\. Hint: did you mean 'sales'\?"),
        ({"sql": "SELECT nothing FROM sales"}, "a table, column or function that the SQLite file does not have"),
        ({"sql": "SELECT *, random() FROM sales"}, "the same rows each time"),
        ({"sql": "DELETE FROM sales"}, "must be one SELECT"),
        ({"sql": "SELECT 1; SELECT 2"}, "must be one SELECT, got 2 statements"),
    ],
)
def test_what_sqlite_does_not_have_is_said(file: Path, options: dict[str, str], message: str) -> None:
    data = databases(file, **options, database="day", individual="who")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=message):
        collect(data, "count(*)")
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM sales").fetchone() == (6,)
    connection.close()


def test_no_sqlite_file_and_none_that_exists(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"no such thing" * 100)
    for name, message in (("x.sqlite", "must be an SQLite file"), ("y.sqlite", "The file must exist, got 'y.sqlite'")):
        with pytest.raises(SourceError, match=message):
            collect(databases(tmp_path / name, table="t", database="day", individual="who"), "count(*)")


def test_remote_files_are_read_by_an_extension_or_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")  # where DuckDB keeps extensions
    for source in ("https://u:secret@host.example/x.parquet?key=secret", "s3://bucket/x.csv"):
        data = databases(source, database="day", individual="who")
        assert "secret" not in repr(data)
        with pytest.raises(SourceError, match=r"extension httpfs.* Hint: INSTALL httpfs") as caught:
            collect(data, "count(*)")
        assert "secret" not in str(caught.value)


def test_engines_that_lack_a_package_say_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    data = databases("postgresql://u:secret@host/db", table="t", database="day", individual="who")
    with pytest.raises(MissingExtraError, match=r"Hint: pip install 'empriv\[postgres\]'\.$"):
        collect(data, "count(*)")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"Hint: pip install 'empriv\[sqlite\]'\.$"):
        collect(databases(file, table="sales", database="day", individual="who"), "count(*)")
    with pytest.raises(InputError, match="beside `sql`"):
        databases(file, table="sales", sql="SELECT 1", database="day", individual="who")
