"""The DuckDB engine: reads every kind of source, runs statements, gives NumPy arrays.

The only module that imports duckdb. Messages of DuckDB are not passed on where they may quote a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collect.aggregates import Kind
from empriv.collect.engine import Column
from empriv.collect.queries import DATA
from empriv.collect.rewrite import DATABASE, INDIVIDUAL
from empriv.collect.sources import Databases, Files, Frame, Select, Stored, Table
from empriv.collect.views import data_view, quoted, text_literal
from empriv.errors import InputError, QueryError, SourceError

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"}
_READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json_auto"}
# What these errors say is about names and syntax, not about rows.
_ABOUT_NAMES = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)


@dataclass(frozen=True)
class DuckDBEngine:
    """Runs queries in this process with DuckDB.

    Parameters
    ----------
    memory_limit : such as ``"2GB"``; beyond it DuckDB writes to disk
    threads : number of threads; all cores unless given
    temp_directory : where DuckDB writes what does not fit in memory
    """

    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | None = None

    @contextmanager
    def session(self, data: Databases) -> Iterator[DuckDBSession]:
        """Open the databases for querying."""
        config: dict[str, Any] = {"preserve_insertion_order": "false"}
        for name, value in (
            ("memory_limit", self.memory_limit),
            ("threads", self.threads),
            ("temp_directory", self.temp_directory),
        ):
            if value is not None:
                config[name] = str(value)
        try:
            connection = duckdb.connect(":memory:", config=config)
        except duckdb.Error:
            raise InputError(
                "`memory_limit`, `threads` and `temp_directory` must be settings that DuckDB understands. "
                'Hint: a memory limit reads "2GB".'
            ) from None
        try:
            yield DuckDBSession(connection, data)
        finally:
            connection.close()


@dataclass(eq=False)
class DuckDBSession:
    """One connection in which ``data`` and the other tables are views."""

    connection: duckdb.DuckDBPyConnection
    data: Databases
    _open: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        with _reading():
            for name, table in self.data.tables.items():
                self._run(f"CREATE TEMP VIEW {quoted(name)} AS SELECT * FROM {self._relation(table, name)}")
            relations = []
            for number, part in enumerate(self.data.parts):
                relation = self._relation(part, f"empriv_part{number}")
                if isinstance(part, Select) or (isinstance(part, Files) and part.kind != "parquet"):
                    # Read once: text is slow to parse, and every statement reads the rows more than once.
                    self._run(f"CREATE TEMP TABLE empriv_part{number} AS SELECT * FROM {relation}")
                    relation = f"empriv_part{number}"
                relations.append(relation)
            for statement in data_view(self.data, relations, self._columns_of):
                self._run(statement)
        self._check_nulls()
        self._make_labels()

    @cached_property
    def columns(self) -> Mapping[str, Sequence[str]]:
        hidden = {DATABASE, INDIVIDUAL}
        own = {DATA: [name for name in self._columns_of(DATA) if name not in hidden]}
        return own | {name: list(self._columns_of(quoted(name))) for name in self.data.tables}

    @cached_property
    def databases(self) -> npt.NDArray[Any]:
        return self._labels("empriv_databases")

    @cached_property
    def individuals(self) -> npt.NDArray[Any]:
        return self._labels("empriv_individuals")

    def kinds(self, statement: exp.Expression) -> dict[str, Kind]:
        with _querying():
            return {name: _kind(type_) for name, type_ in self._describe(statement.sql(dialect="duckdb")).items()}

    def fetch(self, statement: exp.Expression) -> dict[str, Column]:
        with _querying():
            return self._fetch(statement.sql(dialect="duckdb"))

    def store(self, name: str, statement: exp.Expression) -> None:
        with _querying():
            self._run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS {statement.sql(dialect='duckdb')}")

    def _run(self, sql: str, parameters: Any = None) -> list[Any]:
        return self.connection.execute(sql, parameters).fetchall()

    def _fetch(self, sql: str) -> dict[str, Column]:
        found = self.connection.execute(sql).fetchnumpy()
        return {
            name: Column(np.ma.getdata(values), np.ma.getmaskarray(values))  # type: ignore[no-untyped-call]
            for name, values in found.items()
        }

    def _describe(self, sql: str) -> dict[str, str]:
        return {row[0]: str(row[1]) for row in self._run(f"DESCRIBE {sql}")}

    def _columns_of(self, relation: str) -> dict[str, str]:
        return self._describe(f"SELECT * FROM {relation}")

    def _relation(self, table: Table, name: str) -> str:
        match table:
            case Files(paths, kind):
                return f"{_READERS[kind]}([{', '.join(map(text_literal, paths))}])"
            case Stored(path, stored):
                self._run(f"ATTACH {text_literal(path)} AS {quoted(name + '_file')} (READ_ONLY)")
                return ".".join(map(quoted, (name + "_file", *stored.split("."))))
            case Select(sql):
                return f"({sql.strip().rstrip(';')})"
            case Frame(frame):
                names = [str(column).lower() for column in getattr(frame, "columns", getattr(frame, "schema", ()))]
                if hasattr(frame, "column_names"):
                    names = [column.lower() for column in frame.column_names]
                if len(set(names)) != len(names):
                    raise SourceError(
                        "The columns of a table must have different names, apart from upper and lower case."
                    )
                self.connection.register(f"{name}_frame", frame)
                return quoted(f"{name}_frame")

    def _check_nulls(self) -> None:
        with _reading():
            ((rows, databases, individuals),) = self._run(
                f"SELECT COUNT(*), COUNT({DATABASE}), COUNT({INDIVIDUAL}) FROM {DATA}"
            )
        if rows == 0:
            raise SourceError("There must be at least one row, got 0.")
        if databases < rows:
            raise SourceError(
                f"`database` must not be NULL, but is in {rows - databases} of {rows} rows. "
                "Hint: leave these rows out with an SQL source, or give them a database with coalesce()."
            )
        if individuals < rows and self.data.unidentified == "error":
            raise SourceError(
                f"`individual` must not be NULL, but is in {rows - individuals} of {rows} rows. "
                'Hint: unidentified="keep" keeps these rows as nobody\'s, unidentified="drop" leaves them out.'
            )

    def _make_labels(self) -> None:
        for name, column in (("empriv_databases", DATABASE), ("empriv_individuals", INDIVIDUAL)):
            with _reading():
                self._run(
                    f"CREATE TEMP TABLE {name} AS SELECT CAST(ROW_NUMBER() OVER (ORDER BY label) - 1 AS INTEGER) AS code, "
                    f"label FROM (SELECT DISTINCT {column} AS label FROM {DATA} WHERE {column} IS NOT NULL)"
                )

    def _labels(self, name: str) -> npt.NDArray[Any]:
        type_ = self._describe(f"SELECT label FROM {name}")["label"]
        if type_ in _INTEGERS - {"UBIGINT", "HUGEINT"}:
            return self._fetch(f"SELECT CAST(label AS BIGINT) AS label FROM {name} ORDER BY code")["label"].values
        if type_.startswith("STRUCT"):
            rows = self._run(f"SELECT label FROM {name} ORDER BY code")
            return np.array(
                [json.dumps(list(row[0].values()), default=str, ensure_ascii=False) for row in rows], np.str_
            )
        texts = self._fetch(f"SELECT CAST(label AS VARCHAR) AS label FROM {name} ORDER BY code")["label"].values
        return texts.astype(np.str_)


def _kind(type_: str) -> Kind:
    if type_ in _INTEGERS:
        return "integer"
    if type_.startswith("DECIMAL"):
        return "decimal"
    if type_ in {"DOUBLE", "FLOAT", "UHUGEINT"}:
        return "double"
    return "boolean" if type_ == "BOOLEAN" else "other"


@contextmanager
def _reading() -> Iterator[None]:
    """Say what is wrong with a source without quoting it."""
    try:
        yield
    except duckdb.IOException:
        raise SourceError("The rows cannot be read: a file is missing, or not what its name says.") from None
    except _ABOUT_NAMES as error:
        raise SourceError(f"The rows cannot be read: {_first_line(error)}") from None
    except duckdb.Error as error:
        raise SourceError(f"The rows cannot be read: DuckDB reports a {type(error).__name__}.") from None


@contextmanager
def _querying() -> Iterator[None]:
    """Say what is wrong with a query without quoting rows."""
    try:
        yield
    except _ABOUT_NAMES as error:
        raise QueryError(f"The query cannot be run: {_first_line(error)}") from None
    except duckdb.Error as error:
        raise QueryError(f"The query cannot be run: DuckDB reports a {type(error).__name__}.") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") + "."
