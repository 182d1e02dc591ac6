"""The DuckDB engine: reads every kind of source, runs statements, gives NumPy arrays.

A query is run on a locked connection: from then on it reads no file but the Parquet files that were
handed over, and takes no other setting. Only this folder imports duckdb.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp, parse_one

from empriv.base.scratch import scratch_directory
from empriv.collecting.engines.data_view import DataView, data_view, labels, zone_of
from empriv.collecting.engines.duckdb.connection import ABOUT_VALUES, Connection, Statements, querying, reading
from empriv.collecting.engines.duckdb.recheck import BINDER_CONFIG, Binder, binder_of
from empriv.collecting.engines.duckdb.sandbox import AVAILABLE, Sandbox, sandboxed
from empriv.collecting.engines.duckdb.sandbox_child import Sent
from empriv.collecting.engines.duckdb.tables import TableReader, check_files
from empriv.collecting.engines.engine import (
    DATA,
    DATABASE,
    EVERYONE,
    Column,
    IsolatedRows,
    Rows,
    SentRows,
    Session,
    quoted,
    text_literal,
)
from empriv.collecting.function_calls import GivenRows
from empriv.collecting.sources import Connected, Databases, Stored
from empriv.collecting.sql.aggregates import Type
from empriv.collecting.sql.allowlist import row_expression
from empriv.collecting.sql.printing import (
    OWN_NAMES,
    Names,
    in_place_of,
    printed,
    secret,
    with_nonce,
)
from empriv.errors import InputError, QueryError, SourceError

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"}
_LONG_INTEGERS = {"UBIGINT", "HUGEINT"}  # of which some do not fit in NumPy's int64
_CODE = "empriv_code"  # the column that says whose a row is, by position
_LONGEST_LABEL = 1000  # characters
_MOST_SECONDS = 10**6  # that a server counts in milliseconds, in 32 bits


@dataclass(frozen=True)
class DuckDBEngine:
    """Runs queries on this machine with DuckDB.

    Parameters
    ----------
    memory_limit : such as ``"2GB"``; beyond it DuckDB writes to disk
    timeout : seconds that a query may take, with the reading of its rows; without end unless given
    threads : number of threads; all cores unless given
    temp_directory : where DuckDB writes what does not fit in memory
    progress : whether reading rows from a database shows progress: False never, True always, None if it takes long
    views : whether views of DuckDB files are read, which can read any file; False refuses them
    sandbox : whether DuckDB runs in a process of its own, which the system limits to the memory that ``memory_limit``
        asks for and which is killed after ``timeout``; None if one of the two is given

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> engine = empriv.DuckDBEngine(memory_limit="1GB", threads=1)
    >>> empriv.collect(data, "avg(delay)", engine=engine).n_databases
    365
    """

    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | None = None
    timeout: float | None = None
    progress: bool | None = None
    views: bool = True
    sandbox: bool | None = None

    def __post_init__(self) -> None:
        seconds = self.timeout
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (number and 0 < seconds <= _MOST_SECONDS):
            raise InputError(f"`timeout` must be a number of seconds above 0, up to a million, got {seconds!r}.")

    @contextmanager
    def session(self, data: Databases) -> Iterator[DuckDBSession]:
        """Open the databases for querying."""
        with self.connected(data) as (connection, worker):
            session = DuckDBSession(
                connection, data, threads=self.threads, worker=worker, timeout=self.timeout, show=self.progress,
                views=self.views,
            )  # fmt: skip
            try:
                yield session
            finally:
                session.close()

    @contextmanager
    def isolated(self, session: Session, data: Databases, chosen: Sequence[int]) -> Iterator[IsolatedRows]:
        """The rows of these databases of a session, in a connection of their own."""
        from empriv.collecting.engines.duckdb.isolated import IsolatedSession, rows_of

        alone = replace(data, parts=(), labels=None, tables={}, draws=None)
        sent = {DATA: session.stream(rows_of(session.columns[DATA], chosen))}
        sent |= {name: session.stream(exp.select("*").from_(exp.table_(name, quoted=True))) for name in data.tables}
        with ExitStack() as stack:
            connection, worker, timeout = self._beside(session) or (*stack.enter_context(self.connected(alone)), None)
            rows = IsolatedSession(
                connection, alone, threads=self.threads, worker=worker, timeout=timeout, sent=sent, zone=zone_of(data)
            )
            stack.callback(rows.close)
            yield rows

    def _beside(self, session: Session) -> tuple[Connection, Executor | None, float | None] | None:
        """A further connection where a session's is limited by the system, so that the same limits hold for both."""
        session = getattr(session, "inner", session)  # of a protocol's session, that of the engine
        if not isinstance(session, DuckDBSession) or not isinstance(session.connection, Sandbox):
            return None
        beside = session.connection.beside(":memory:", config=session.connection.config)
        return beside, session.worker, session.seconds_left()

    @contextmanager
    def connected(self, data: Databases) -> Iterator[tuple[Connection, Executor]]:
        """A connection with the engine's limits, and the thread that works on it."""
        check_files(data)
        # What does not fit in memory holds people's rows: it goes where nobody else may read, and is removed at last.
        with _own_directory(self.temp_directory) as directory, ExitStack() as stack:
            # Python's variables are no tables: only what is handed over is one.
            config: dict[str, Any] = {"temp_directory": directory, "python_enable_replacements": "false"}
            config["autoinstall_known_extensions"] = "false"  # nothing is downloaded that nobody asked for
            for name, value in (("memory_limit", self.memory_limit), ("threads", self.threads)):
                if value is not None:
                    config[name] = str(value)
            limited = self.memory_limit is not None or self.timeout is not None
            alone = AVAILABLE and (limited if self.sandbox is None else self.sandbox)
            connection: Connection
            try:
                if alone:
                    connection = stack.enter_context(sandboxed(config, directory))
                else:
                    connection = stack.enter_context(closing(duckdb.connect(":memory:", config=config)))
            except duckdb.Error:
                raise InputError(
                    "`memory_limit` and `threads` must be settings that DuckDB understands. "
                    'Hint: a memory limit reads "2GB".'
                ) from None
            yield connection, stack.enter_context(ThreadPoolExecutor(1))


@contextmanager
def _own_directory(parent: str | None) -> Iterator[str]:
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(scratch_directory(parent))
        except (OSError, ValueError):
            raise InputError("`temp_directory` must be a directory in which files can be made.") from None
        yield directory


@dataclass(frozen=True)
class Extract:
    """The rows in a file, sorted by database: gives the rows of any one database, in any process."""

    path: str
    columns: tuple[str, ...]
    nonce: str

    def __call__(self, database: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
        own = ", ".join(map(quoted, self.columns))
        with reading(), duckdb.connect(":memory:", config={"threads": "1"}) as connection:
            found = connection.execute(
                f"SELECT {own}, {quoted(secret(_CODE, self.nonce))} FROM read_parquet({text_literal(self.path)}) "
                f"WHERE {quoted(secret(DATABASE, self.nonce))} = {database}"
            ).fetchnumpy()
        codes = np.asarray(found[secret(_CODE, self.nonce)], np.int64)
        return {name: _plain(found[name]) for name in self.columns}, codes


@dataclass(eq=False)
class DuckDBSession(Statements, DataView):
    """One connection in which ``data`` and the other tables are views."""

    data: Databases
    _: KW_ONLY
    threads: int | None = None
    show: bool | None = None
    views: bool = True
    closed: bool = False
    integer_bits: int = 126
    said: list[str] = field(default_factory=list)
    _sorted: bool = False
    _files: list[str] = field(default_factory=list)
    _sent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        with reading():
            self.prepare(self.timezone)
            reader = TableReader(self, self.timezone, self.show, self.views, self._files, self.said)
            relations = reader.read(self.data)
            self._check_cut(reader)
            for statement in data_view(self.data, relations, self.columns_of):
                self.run(statement)
        self.check_nulls()
        self.make_labels("empriv_databases", DATABASE)
        self._check_moments()

    @cached_property
    def timezone(self) -> str:
        """Where days begin."""
        return zone_of(self.data)

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        binder = self.binder
        self.interruptible(lambda: binder.admit(select, written))
        self._close_door()

    def close(self) -> None:
        """Close what is beside the connection."""
        if "binder" in self.__dict__:
            self.binder.close()

    @cached_property
    def binder(self) -> Binder:
        """Empty tables like those that a query may read."""
        types = {name: self.columns_of(EVERYONE if name == DATA else quoted(name)) for name in self.columns}
        tables = {name: {column: types[name][column] for column in own} for name, own in self.columns.items()}
        # Binding computes what is constant: where DuckDB is limited by the system, so is that.
        beside = self.connection.beside if isinstance(self.connection, Sandbox) else duckdb.connect
        binder = binder_of(tables, beside(":memory:", config=BINDER_CONFIG))
        self.stops.append(binder.connection.interrupt)
        return binder

    def _close_door(self) -> None:
        """From here on no file is read but the Parquet files that were handed over, and nothing is set but threads.

        Parquet files are left where they are, however large; text, SQL and frames have been read or registered by now.
        What does not fit in memory still goes to the session's own directory.
        """
        if self.closed:
            return
        for setting in (
            f"allowed_paths = [{', '.join(map(text_literal, self._files))}]",
            "allowed_configs = ['threads']",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self.run(f"SET {setting}")
        self.closed = True

    def types(self, statement: exp.Expr) -> dict[str, Type]:
        text = self._printed(statement)
        with querying():
            return {name: _type(type_) for name, type_ in self.described(text).items()}

    def fetch(self, statement: exp.Expr) -> dict[str, Column]:
        text = self._printed(statement)
        with querying():
            return self.fetch_sent(text)

    def store(self, name: str, statement: exp.Expr) -> None:
        text = self._printed(statement)
        with querying():
            self.send(f"CREATE OR REPLACE TEMP TABLE {quoted(secret(name, self.nonce))} AS {text}")

    def append(self, name: str, statement: exp.Expr) -> None:
        text = self._printed(statement)
        with querying():
            self.send(f"INSERT INTO {quoted(secret(name, self.nonce))} {text}")

    def count_individuals(self) -> int:
        self.label_individuals()
        with reading():
            return int(self.run("SELECT COUNT(*) FROM empriv_individuals")[0][0])

    def individuals_between(self, first: int, stop: int) -> npt.NDArray[Any]:
        self.label_individuals()
        with reading():
            return self.labels_in("empriv_individuals", f"WHERE code >= {first} AND code < {stop}")

    def store_numbers(self, name: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        own = {
            secret(column, self.nonce) if column.startswith(OWN_NAMES) else column: columns[column]
            for column in columns
        }
        self.register(f"{name}_arrays", own)
        self.run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT * FROM {quoted(name + '_arrays')}")
        self.unregister(f"{name}_arrays")

    def about_rows(self, sql: str) -> dict[str, Column]:
        with reading():
            return self.fetch_own(sql)

    def stream(self, statement: exp.Expr) -> SentRows:
        text = self._printed(statement)
        rows = Sent(self.connection, text if self._ordered else f"{text} ORDER BY ALL")
        return SentRows(rows, self.described(text))

    @property
    def _ordered(self) -> bool:
        """Whether the rows have an order in their source."""
        return self.data.draws is None and not any(isinstance(part, Stored | Connected) for part in self.data.parts)

    @contextmanager
    def rerun(self, statement: exp.Expr, database: int) -> Iterator[Callable[[int], Rows | None]]:
        own = self.own_columns()
        self._close_door()
        with reading():
            if not self._sorted:
                # Read once, whatever the number of databases: the rows of one stand together, and are quickly had.
                self.run(f"CREATE TEMP TABLE empriv_sorted AS {self._coded('TRUE')}")
                self._sorted = True
            one = f"SELECT * FROM empriv_sorted WHERE {DATABASE} = {database}"
            self.run(f"CREATE OR REPLACE TEMP TABLE empriv_one AS {one}")

        def rest(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.name.lower() != DATA or node.db:
                return node
            left = f"SELECT {own} FROM empriv_one WHERE empriv_code <> $left_out"
            return in_place_of(node, cast(exp.Select, parse_one(left, dialect="duckdb")))

        sql = self._printed(statement.transform(rest))

        def run(individual: int) -> Rows | None:
            try:
                # Nobody has code -2 here, and rows without an individual -1: with everyone, no row is left out.
                return self.send(sql, {"left_out": -2 if individual < 0 else individual})
            except ABOUT_VALUES:
                return None

        with querying(), self._one_thread():
            yield run

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """One thread adds in one order, so that doubles come out alike each time."""
        self.run("SET threads = 1")
        try:
            yield
        finally:
            with suppress(duckdb.Error):  # DuckDB may be gone by now
                self.run("RESET threads" if self.threads is None else f"SET threads = {self.threads}")

    def extract(self, directory: str) -> Extract | GivenRows:
        path = str(Path(directory) / "rows.parquet")
        same = self.data.draws is not None and self.data.draws.repeats
        wanted = self._coded("d.code = 0" if same else "TRUE")
        with reading():
            self.run(f"COPY ({wanted}) TO {text_literal(path)} (FORMAT PARQUET)")
        found = Extract(path, tuple(self.columns[DATA]), self.nonce)
        return GivenRows(*found(0)) if same else found

    def copy_rows(self, path: str) -> None:
        """Write the rows as a Parquet file, which is read again far more quickly than text."""
        with reading():
            self.run(f"COPY (SELECT {self.own_columns()} FROM {EVERYONE}) TO {text_literal(path)} (FORMAT PARQUET)")

    def _coded(self, condition: str) -> str:
        """All columns with positions of database and individual, in the order of the source where it has one."""
        if self._ordered:
            rows = f"(SELECT *, ROW_NUMBER() OVER () AS empriv_order FROM {EVERYONE})"
            return f"{self.coded(rows, _CODE, condition)} ORDER BY d.code, p.empriv_order"
        return f"{self.coded(EVERYONE, _CODE, condition)} ORDER BY d.code, {self.own_columns('p')}"

    def _printed(self, statement: exp.Expr) -> str:
        """A statement as it is sent, in which DuckDB finds the names that we know to be there."""
        tree = with_nonce(statement, self.nonce)
        text = printed(tree)
        if text not in self._sent:
            binder = self.binder
            self.interruptible(lambda: binder.verify_sql(tree, text))
            self._sent.add(text)
        return text

    def _check_cut(self, reader: TableReader) -> None:
        """Refuse an expression of `database` that DuckDB reads otherwise than we do."""
        if self.data.database is not None and not self.data.database.isidentifier():
            with suppress(QueryError):  # what is no expression is refused where the rows are cut
                tree = row_expression(self.data.database)
                reader.one_reading(exp.select(tree), f"SELECT {self.data.database}")

    def _check_moments(self) -> None:
        """Refuse times as databases where most moments have one row: surely the day was meant, or the hour."""
        column = self.data.database
        if column is None or not re.fullmatch(r"TIMESTAMP.*|TIME", self.columns_of(EVERYONE)[DATABASE]):
            return
        if column.lower() not in [name.lower() for name in self.columns[DATA]]:
            return  # an expression is what the user made of it
        with reading():
            sizes = f"SELECT COUNT(*) AS n FROM {EVERYONE} GROUP BY {DATABASE}"
            ((alone, every),) = self.run(f"SELECT COUNT(*) FILTER (WHERE n = 1), COUNT(*) FROM ({sizes})")
        if 2 * alone > every:
            raise SourceError(
                f"`database` must put many rows in one database, but it is a time, and {alone:,} of {every:,} "
                f"databases have one row. Hint: date_trunc('day', {quoted(column)}) makes a database of each day."
            )

    def make_labels(self, name: str, column: str) -> None:
        with reading():
            self.run(f"CREATE TEMP TABLE {name} AS {labels(self.data, column)}")

    def labels_in(self, name: str, where: str = "") -> npt.NDArray[Any]:
        type_ = self.describe(f"SELECT label FROM {name}")["label"]
        if type_ in _INTEGERS - _LONG_INTEGERS:
            return self.fetch_own(f"SELECT CAST(label AS BIGINT) AS label FROM {name} {where} ORDER BY code")[
                "label"
            ].values
        self._check_length(name)
        if type_.startswith("STRUCT"):
            rows = self.run(f"SELECT label FROM {name} {where} ORDER BY code")
            return np.array(
                [json.dumps(list(row[0].values()), default=str, ensure_ascii=False) for row in rows], np.str_
            )
        texts = self.fetch_own(f"SELECT CAST(label AS VARCHAR) AS label FROM {name} {where} ORDER BY code")[
            "label"
        ].values
        return texts.astype(np.str_)

    def _check_length(self, name: str) -> None:
        """Refuse labels so long that an array of them, in which all take as much as the longest, would fill memory."""
        with reading():
            ((longest,),) = self.run(f"SELECT MAX(LENGTH(CAST(label AS VARCHAR))) FROM {name}")
        if (longest or 0) > _LONGEST_LABEL:
            raise SourceError(
                f"A database or an individual must be named by at most {_LONGEST_LABEL:,} characters, got {longest:,}."
            )


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array in which NULL is NaN, NaT or None."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    missing = np.ma.getmaskarray(values)
    kind = values.dtype.kind
    if kind in "iuf":
        return np.where(missing, np.nan, np.ma.getdata(values).astype(np.float64))
    if kind in "mM":
        return np.where(missing, np.array("NaT", values.dtype), np.ma.getdata(values))
    plain = np.ma.getdata(values).astype(object)
    plain[missing] = None
    return plain


def _type(type_: str) -> Type:
    if type_ in _INTEGERS:
        return Type("integer")
    decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", type_)  # and no list of them
    if decimal is not None:
        return Type("decimal", int(decimal[1]), int(decimal[2]))
    if type_ in {"DOUBLE", "FLOAT"}:
        return Type("double")
    return Type("boolean" if type_ == "BOOLEAN" else "other")
