"""The DuckDB engine: reads every kind of source, runs statements, gives NumPy arrays.

A query is run behind a closed door: once it is there, the connection reads no file but the Parquet files that were
handed over, and takes no other setting. Only this folder imports duckdb.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, TypeVar, cast

import duckdb
import numpy as np
import numpy.typing as npt
from sqlglot import exp, parse_one

from empriv.base.scratch import scratch_directory
from empriv.collecting.engines.connections.incoming import Incoming, of_stream
from empriv.collecting.engines.connections.postgresql import connection_to
from empriv.collecting.engines.connections.sqlite import opened
from empriv.collecting.engines.data_view import data_view, each_row, labels, quoted, text_literal
from empriv.collecting.engines.duckdb.binding import BINDER_CONFIG, Binder, binder_of
from empriv.collecting.engines.duckdb.failures import ABOUT_VALUES, querying, reading
from empriv.collecting.engines.duckdb.recheck import check_same, parsed
from empriv.collecting.engines.duckdb.sandbox import AVAILABLE, Connection, Sandbox, sandboxed
from empriv.collecting.engines.duckdb.sandbox_child import Sent
from empriv.collecting.engines.duckdb.text_dates import check_dates
from empriv.collecting.engines.engine import PRESENCE, Apart, BeyondLimits, Column, Integers, Rows, SentRows, Session
from empriv.collecting.engines.zones import zone_of
from empriv.collecting.names import DATA, DATABASE, EVERYONE, INDIVIDUAL
from empriv.collecting.sources import REMOTE, Connected, Databases, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.advice import check_files
from empriv.collecting.sql.aggregates import Type
from empriv.collecting.sql.allowlist import one_select, row_expression
from empriv.collecting.sql.pointing import listed
from empriv.collecting.sql.printing import OWN_NAMES, Names, names_in, own_text, plain, printed, secret, with_nonce
from empriv.collecting.sql.templates import in_place_of
from empriv.errors import InputError, QueryError, SourceError

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"}
_LONG_INTEGERS = {"UBIGINT", "HUGEINT"}  # of which some do not fit in NumPy's int64
_CODE = "empriv_code"  # the column that says whose a row is, by position
_MOST_BITS = 10**9  # of one value, in DuckDB
_LONGEST_LABEL = 1000  # characters
_MOST_SECONDS = 10**6  # that a server counts in milliseconds, in 32 bits
T = TypeVar("T")
_READERS = {"csv": "read_csv", "json": "read_json_auto"}


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
                connection, data, self.threads, worker, self.timeout, self.progress, views=self.views
            )
            try:
                yield session
            finally:
                session.close()

    @contextmanager
    def apart(self, session: Session, data: Databases, chosen: Sequence[int]) -> Iterator[Apart]:
        """The rows of these databases of a session, in a connection of their own."""
        from empriv.collecting.engines.duckdb.apart import ApartRows, rows_of

        alone = replace(data, parts=(), labels=None, tables={}, draws=None)
        sent = {DATA: session.stream(rows_of(session.columns[DATA], chosen))}
        sent |= {name: session.stream(exp.select("*").from_(exp.table_(name, quoted=True))) for name in data.tables}
        with ExitStack() as stack:
            connection, worker, timeout = self._beside(session) or (*stack.enter_context(self.connected(alone)), None)
            apart = ApartRows(connection, alone, self.threads, worker, timeout, sent=sent, zone=zone_of(data))
            stack.callback(apart.close)
            yield apart

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


@dataclass(frozen=True, eq=False)
class SameRows:
    """The rows of one database, which are those of every other too: nothing is read again."""

    columns: dict[str, npt.NDArray[Any]]
    codes: npt.NDArray[np.int64]

    def __call__(self, _database: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
        return self.columns, self.codes


@dataclass(eq=False)
class DuckDBSession:
    """One connection in which ``data`` and the other tables are views."""

    connection: Connection
    data: Databases
    threads: int | None = None
    worker: Executor | None = None
    timeout: float | None = None
    show: bool | None = None
    _labelled: bool = False
    _sorted: bool = False
    _closed: bool = False
    _stop: Callable[[], None] | None = None
    _files: list[str] = field(default_factory=list)
    integer_bits: int = 126
    views: bool = True
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    said: list[str] = field(default_factory=list)
    _sent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        with reading():
            # In a notebook without ipywidgets the bar is off, and DuckDB refuses to be told so.
            with suppress(duckdb.InvalidInputException):
                self._run("SET enable_progress_bar = false")
            self._set_timezone()
            for name, table in self.data.tables.items():
                if _is_stream(table):
                    self._receive(table, name)
                    continue
                made = "TABLE" if _is_loaded(table) else "VIEW"
                relation = self._relation(table, f"empriv_{name}")
                self._run(f"CREATE TEMP {made} {quoted(name)} AS SELECT * FROM {relation}")
                self._check_text(table, quoted(name))
            relations = []
            for number, part in enumerate(self.data.parts):
                name = f"empriv_part{number}"
                if _is_stream(part):
                    self._receive(part, name)
                    relations.append(name)
                    continue
                relation = self._relation(part, name)
                if _is_loaded(part):
                    order = " ORDER BY ALL" if isinstance(part, Select) else ""
                    self._load(part, f"CREATE TEMP TABLE {name} AS SELECT * FROM ", relation, order)
                    self._check_text(part, name)
                    relation = name
                relations.append(relation)
            self._check_rows(relations)
            self._check_cut()
            for statement in data_view(self.data, relations, self._columns_of):
                self._run(statement)
        self._check_nulls()
        self._make_labels("empriv_databases", DATABASE)
        self._check_moments()

    @property
    def digests_rows(self) -> bool:
        return True

    @property
    def whose(self) -> Sequence[str]:
        return self.data.individual

    @property
    def drawn(self) -> bool:
        return self.data.draws is not None and self.data.draws.of_individuals

    @cached_property
    def timezone(self) -> str:
        """Where days begin."""
        return zone_of(self.data)

    def _set_timezone(self) -> None:
        try:
            self._run(f"SET TimeZone = {text_literal(self.timezone)}")
        except duckdb.Error:
            raise SourceError(
                "The times must be in a time zone that DuckDB knows. "
                'Hint: timezone="Europe/Paris" names one (--timezone on the command line).'
            ) from None

    def _receive(self, table: Table, name: str) -> None:
        """Read the rows of a stream or a connection, once, into a table of this name."""
        match table:
            case Connected("postgresql", address):
                with connection_to(address, timezone=self.timezone, timeout=self.seconds_left()) as server:
                    relation = server.relation(table)
                    try:
                        self._pour(server.stream(relation), name, server.cancel)
                    except duckdb.ConversionException:  # a numeric that is NaN, which no decimal is
                        self._pour(server.stream(server.with_digits(relation)), name, server.cancel)
            case Connected():
                with opened(table) as file:
                    try:
                        self._pour(file.stream(), name, file.cancel)
                    except duckdb.ConversionException:  # what was declared as a date is none
                        self._pour(file.stream(declared=False), name, file.cancel)
            case Frame(frame, once):
                if once is not None and not once:
                    raise SourceError(
                        "A stream can be read once, and was. Hint: give a table of its rows, such as "
                        "pyarrow.table(stream), or audit several queries each with a stream of its own."
                    )
                self._pour(of_stream(frame if once is None else once.pop()), name, None)

    def _pour(self, incoming: Incoming, name: str, stop: Callable[[], None] | None) -> None:
        """Make a table of rows as they come in."""
        columns = ", ".join(
            f"CAST({quoted(column)} AS {incoming.types[column]}) AS {quoted(column)}"
            if column in incoming.types
            else quoted(column)
            for column in incoming.columns()
        )
        self._stop, failure = stop, None
        try:
            self._register("empriv_incoming", incoming.batches(show=self.show))
            self._run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT {columns} FROM empriv_incoming")
        except duckdb.Error:
            failure = incoming.failure
            if failure is None:
                raise
        finally:
            self._stop = None
            self._unregister("empriv_incoming")
        if failure is not None:
            raise failure

    @cached_property
    def columns(self) -> Mapping[str, Sequence[str]]:
        hidden = {DATABASE, INDIVIDUAL}
        own = {DATA: [name for name in self._columns_of(EVERYONE) if name not in hidden]}
        return own | {name: list(self._columns_of(quoted(name))) for name in self.data.tables}

    @cached_property
    def databases(self) -> npt.NDArray[Any]:
        return self._labels("empriv_databases")

    @cached_property
    def individuals(self) -> npt.NDArray[Any]:
        self.label_individuals()
        return self._labels("empriv_individuals")

    @cached_property
    def integers(self) -> Integers | None:
        # Whoever is in no random database is listed too: by label.
        if each_row(self.data) != EVERYONE or self._columns_of(EVERYONE)[INDIVIDUAL] not in _INTEGERS - _LONG_INTEGERS:
            return None
        with reading():
            ((rows, first, last),) = self._run(f"SELECT COUNT(*), MIN({INDIVIDUAL}), MAX({INDIVIDUAL}) FROM {EVERYONE}")
        if first is None or last - first >= 2 * rows + 1024:
            return None
        return Integers(first, last - first + 1)

    def label_individuals(self) -> None:
        if not self._labelled:
            self._make_labels("empriv_individuals", INDIVIDUAL)
            self._labelled = True

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        binder = self.binder
        self._interruptible(lambda: binder.admit(select, written))
        self._close_door()

    def close(self) -> None:
        """Close what is beside the connection."""
        if "binder" in self.__dict__:
            self.binder.close()

    @cached_property
    def binder(self) -> Binder:
        """Empty tables like those that a query may read."""
        types = {name: self._columns_of(EVERYONE if name == DATA else quoted(name)) for name in self.columns}
        tables = {name: {column: types[name][column] for column in own} for name, own in self.columns.items()}
        # Binding computes what is constant: where DuckDB is limited by the system, so is that.
        beside = self.connection.beside if isinstance(self.connection, Sandbox) else duckdb.connect
        return binder_of(tables, beside(":memory:", config=BINDER_CONFIG))

    def _close_door(self) -> None:
        """From here on no file is read but the Parquet files that were handed over, and nothing is set but threads.

        Parquet files are left where they are, however large; text, SQL and frames have been read or registered by now.
        What does not fit in memory still goes to the session's own directory.
        """
        if self._closed:
            return
        for setting in (
            f"allowed_paths = [{', '.join(map(text_literal, self._files))}]",
            "allowed_configs = ['threads']",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._run(f"SET {setting}")
        self._closed = True

    def types(self, statement: exp.Expr) -> dict[str, Type]:
        text = self._printed(statement)
        with querying():
            return {name: _type(type_) for name, type_ in self._described(text).items()}

    def fetch(self, statement: exp.Expr) -> dict[str, Column]:
        text = self._printed(statement)
        with querying():
            return self._fetched(text)

    def store(self, name: str, statement: exp.Expr) -> None:
        text = self._printed(statement)
        with querying():
            self._send(f"CREATE OR REPLACE TEMP TABLE {quoted(secret(name, self.nonce))} AS {text}")

    def append(self, name: str, statement: exp.Expr) -> None:
        text = self._printed(statement)
        with querying():
            self._send(f"INSERT INTO {quoted(secret(name, self.nonce))} {text}")

    def count_individuals(self) -> int:
        self.label_individuals()
        with reading():
            return int(self._run("SELECT COUNT(*) FROM empriv_individuals")[0][0])

    def count_integers(self, integers: Integers) -> int:
        """How many of these integers are an individual: a bit for each is quicker than counting distinct values."""
        counted = f"BIT_COUNT(BITSTRING_AGG({INDIVIDUAL}, {integers.first}, {integers.first + integers.size - 1}))"
        if integers.size > _MOST_BITS:
            counted = f"COUNT(DISTINCT {INDIVIDUAL})"
        with reading():
            return int(self._run(f"SELECT {counted} FROM {EVERYONE}")[0][0])

    def individuals_between(self, first: int, stop: int) -> npt.NDArray[Any]:
        self.label_individuals()
        with reading():
            return self._labels("empriv_individuals", f"WHERE code >= {first} AND code < {stop}")

    def interrupt(self) -> None:
        self.connection.interrupt()

    def store_numbers(self, name: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        own = {
            secret(column, self.nonce) if column.startswith(OWN_NAMES) else column: columns[column]
            for column in columns
        }
        self._register(f"{name}_arrays", own)
        self._run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT * FROM {quoted(name + '_arrays')}")
        self._unregister(f"{name}_arrays")

    def presence(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        self.label_individuals()
        with reading():
            found = self._fetch(PRESENCE)
        return found["d"].values.astype(np.int64), found["i"].values.astype(np.int64)

    def stream(self, statement: exp.Expr) -> SentRows:
        text = self._printed(statement)
        rows = Sent(self.connection, text if self._ordered else f"{text} ORDER BY ALL")
        return SentRows(rows, self._described(text))

    @property
    def _ordered(self) -> bool:
        """Whether the rows have an order in their source."""
        return self.data.draws is None and not any(isinstance(part, Stored | Connected) for part in self.data.parts)

    @contextmanager
    def rerun(self, statement: exp.Expr, database: int) -> Iterator[Callable[[int], Rows | None]]:
        own = ", ".join(map(quoted, self.columns[DATA]))
        self._close_door()
        with reading():
            if not self._sorted:
                # Read once, whatever the number of databases: the rows of one stand together, and are quickly had.
                self._run(f"CREATE TEMP TABLE empriv_sorted AS {self._coded('TRUE')}")
                self._sorted = True
            one = f"SELECT * FROM empriv_sorted WHERE {DATABASE} = {database}"
            self._run(f"CREATE OR REPLACE TEMP TABLE empriv_one AS {one}")

        def rest(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.name.lower() != DATA or node.db:
                return node
            left = f"SELECT {own} FROM empriv_one WHERE empriv_code <> $left_out"
            return in_place_of(node, cast(exp.Select, parse_one(left, dialect="duckdb")))

        sql = self._printed(statement.transform(rest))

        def run(individual: int) -> Rows | None:
            try:
                # Nobody has code -2 here, and nobody's rows -1: with everyone, no row is left out.
                return self._send(sql, {"left_out": -2 if individual < 0 else individual})
            except ABOUT_VALUES:
                return None

        with querying(), self._one_thread():
            yield run

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """One thread adds in one order, so that doubles come out alike each time."""
        self._run("SET threads = 1")
        try:
            yield
        finally:
            with suppress(duckdb.Error):  # DuckDB may be gone by now
                self._run("RESET threads" if self.threads is None else f"SET threads = {self.threads}")

    def extract(self, directory: str) -> Extract | SameRows:
        path = str(Path(directory) / "rows.parquet")
        same = self.data.draws is not None and self.data.draws.repeats
        wanted = self._coded("d.code = 0" if same else "TRUE")
        with reading():
            self._run(f"COPY ({wanted}) TO {text_literal(path)} (FORMAT PARQUET)")
        found = Extract(path, tuple(self.columns[DATA]), self.nonce)
        return SameRows(*found(0)) if same else found

    def _coded(self, condition: str) -> str:
        """All columns with positions of database and individual, in the order of the source where it has one."""
        self.label_individuals()
        own = ", ".join(f"p.{quoted(column)}" for column in self.columns[DATA])
        ordered = self._ordered
        number = ", ROW_NUMBER() OVER () AS empriv_order" if ordered else ""
        order = "d.code, p.empriv_order" if ordered else f"d.code, {own}"
        return (
            f"SELECT {own}, d.code AS {DATABASE}, COALESCE(i.code, -1) AS empriv_code "
            f"FROM (SELECT *{number} FROM {EVERYONE}) AS p JOIN empriv_databases AS d ON d.label = p.{DATABASE} "
            f"LEFT JOIN empriv_individuals AS i ON i.label = p.{INDIVIDUAL} WHERE {condition} ORDER BY {order}"
        )

    def _printed(self, statement: exp.Expr) -> str:
        """A statement as it is sent, in which DuckDB finds the names that we know to be there."""
        tree = with_nonce(statement, self.nonce)
        text = printed(tree)
        if text not in self._sent:
            binder = self.binder
            self._interruptible(lambda: binder.check_sent(tree, text))
            self._sent.add(text)
        return text

    def _register(self, name: str, table: Any) -> None:
        self._interruptible(lambda: self.connection.register(secret(name, self.nonce), table))

    def _unregister(self, name: str) -> None:
        self.connection.unregister(secret(name, self.nonce))

    def _run(self, sql: str, parameters: Any = None) -> list[Any]:
        """Run a statement of empriv's own, with nothing in it that an analyst wrote."""
        return self._send(own_text(sql, self.nonce), parameters)

    def _send(self, text: str, parameters: Any = None) -> list[Any]:
        return self._interruptible(lambda: self.connection.execute(text, parameters).fetchall())

    def _fetch(self, sql: str) -> dict[str, Column]:
        return self._fetched(own_text(sql, self.nonce))

    def _fetched(self, text: str) -> dict[str, Column]:
        found = self._interruptible(lambda: self.connection.execute(text).fetchnumpy())
        return {
            plain(name, self.nonce): Column(np.ma.getdata(values), np.ma.getmaskarray(values))
            for name, values in found.items()
        }

    def _interruptible(self, work: Callable[[], T]) -> T:
        """Run a statement in a thread, so that Ctrl-C, which reaches the main thread, and `timeout` can stop it."""
        if self.worker is None:
            return work()
        running = self.worker.submit(work)
        try:
            return running.result(self.seconds_left())
        except BaseException as error:
            late = isinstance(error, TimeoutError) and not running.done()
            # Again and again: an interrupt that comes before the statement has begun is lost.
            while not running.done():
                self.connection.interrupt()
                if "binder" in self.__dict__:
                    self.binder.connection.interrupt()
                if self._stop is not None:
                    self._stop()
                wait([running], timeout=0.05)
            if late:
                raise BeyondLimits(
                    f"The query must end within `timeout`, {self.timeout:g} seconds, and did not. "
                    "Hint: give a larger `timeout`, or a query that reads `data` once: explain() tells how it is run."
                ) from None
            raise

    def seconds_left(self) -> float | None:
        """Of the time that the query may take."""
        return None if self.timeout is None else max(0.0, self._started + self.timeout - time.monotonic())

    def _describe(self, sql: str) -> dict[str, str]:
        return self._described(own_text(sql, self.nonce))

    def _described(self, text: str) -> dict[str, str]:
        return {plain(row[0], self.nonce): str(row[1]) for row in self._send(f"DESCRIBE {text}")}

    def _check_cut(self) -> None:
        """Refuse an expression of `database` that DuckDB reads otherwise than we do."""
        if self.data.database is not None and not self.data.database.isidentifier():
            with suppress(QueryError):  # what is no expression is refused where the rows are cut
                tree = row_expression(self.data.database)
                self._one_reading(exp.select(tree), f"SELECT {self.data.database}")

    def _one_reading(self, tree: exp.Expr, text: str) -> str:
        """A source's tree as text; DuckDB must find the same names in it as we do, and in what somebody wrote."""
        said = printed(tree)
        try:
            for one in (text, said):
                ((serialized,),) = self._send("SELECT CAST(json_serialize_sql($text) AS VARCHAR)", {"text": one})
                check_same(parsed(serialized), names_in(tree), functions=False)
        except QueryError as error:
            raise SourceError(str(error).replace("The query", "The SQL of a source")) from None
        return said

    def _load(self, table: Table, made: str, relation: str, order: str) -> None:
        """Load a table. Numbers of a CSV file, of which a later line has a text, are read as text, and that is said."""
        try:
            self._run(made + relation + order)
        except duckdb.ConversionException:
            if not (isinstance(table, Files) and table.kind == "csv" and len(table.paths) == 1):
                raise
            by_all_lines = f"{relation[:-1]}, sample_size=-1)"
            first, then = self._columns_of(relation), self._columns_of(by_all_lines)
            changed = [column for column, kind in first.items() if then.get(column) != kind]
            if any(first[column] not in ("BIGINT", "DOUBLE") for column in changed):
                raise  # a date that is none would be a database of its own
            self._run(made + by_all_lines + order)
            self.said.append(
                f"Read as text, since some values are not numbers: {listed(changed)}. "
                "Hint: TRY_CAST(... AS DOUBLE) gives NULL in their place."
            )

    def _check_text(self, table: Table, name: str) -> None:
        """Refuse a table read from text whose dates could be read in two ways."""
        if isinstance(table, Files) and table.kind != "parquet":
            self.said.extend(check_dates(table, name, self._columns_of(name), self._run))

    def _check_rows(self, relations: Sequence[str]) -> None:
        """Refuse text files without rows before their columns are taken for text."""
        parts = [part for part in self.data.parts if isinstance(part, Files) and part.kind != "parquet"]
        if len(parts) < len(relations) or any(self._run(f"SELECT 1 FROM {name} LIMIT 1") for name in relations):
            return
        name = PurePath(parts[0].paths[0]).name
        raise SourceError(f"The file must hold rows, got {name!r}, which holds none below its header.")

    def _columns_of(self, relation: str) -> dict[str, str]:
        return self._describe(f"SELECT * FROM {relation}")

    def _relation(self, table: Table, name: str) -> str:
        match table:
            case Files(paths, kind) if _is_remote(table):
                self._load_remote_reader()
                reader = _READERS.get(kind, "read_parquet")
                return f"{reader}([{', '.join(map(text_literal, paths))}])"
            case Files(paths, "parquet"):
                files = [file for path in paths for file in self._matching(path)]
                self._files += files
                return f"read_parquet([{', '.join(map(text_literal, files))}])"
            case Files(paths, kind):
                return f"{_READERS[kind]}([{', '.join(map(text_literal, paths))}])"
            case Stored(path, stored):
                self._run(f"ATTACH {text_literal(path)} AS {quoted(name + '_file')} (READ_ONLY)")
                self._check_view(secret(f"{name}_file", self.nonce), stored.split(".")[-1])
                return ".".join(map(quoted, (name + "_file", *stored.split("."))))
            case Select(sql):
                return f"({self._one_reading(one_select(sql), sql)})"
            case Connected():
                raise AssertionError("rows of a connection are received")
            case Frame(frame):
                names = [str(column).lower() for column in getattr(frame, "columns", getattr(frame, "schema", ()))]
                if hasattr(frame, "column_names"):
                    names = [column.lower() for column in frame.column_names]
                if len(set(names)) != len(names):
                    raise SourceError(
                        "The columns of a table must have different names, apart from upper and lower case."
                    )
                self._register(f"{name}_frame", frame)
                return quoted(f"{name}_frame")

    def _check_view(self, database: str, name: str) -> None:
        """Refuse a view of a DuckDB file, which can read any file, where nobody was asked whether it is trusted."""
        known = "SELECT 1 FROM duckdb_views() WHERE database_name = $database AND lower(view_name) = lower($name)"
        if not self.views and self._run(known, {"database": database, "name": name}):
            raise SourceError(
                "The table must be one that holds its rows, got a view, which can read any file. "
                "Hint: make a table of it, or use the command line."
            )

    def _load_remote_reader(self) -> None:
        try:
            self._run("LOAD httpfs")
        except duckdb.Error:
            raise SourceError(
                "Files at https:// and s3:// are read by DuckDB's extension httpfs, which is not installed. "
                "Hint: INSTALL httpfs in DuckDB gets it, once; or download the files."
            ) from None

    def _matching(self, path: str) -> list[str]:
        """The files that a pattern names, one by one: behind the closed door no folder is listed."""
        if not re.search(r"[*?\[{]", path):
            return [path]
        files = self._run("SELECT file FROM glob($path) ORDER BY file", {"path": path})
        return [str(file) for (file,) in files] or [path]

    def _check_nulls(self) -> None:
        with reading():
            filed = f"COUNT({DATABASE})" if each_row(self.data) == EVERYONE else "COUNT(*)"
            ((rows, databases, individuals),) = self._run(
                f"SELECT COUNT(*), {filed}, COUNT({INDIVIDUAL}) FROM {each_row(self.data)}"
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
                'Hint: unidentified="keep" keeps these rows as nobody\'s, unidentified="drop" leaves them out '
                "(--unidentified on the command line)."
            )

    def _check_moments(self) -> None:
        """Refuse times as databases where most moments have one row: surely the day was meant, or the hour."""
        column = self.data.database
        if column is None or not re.fullmatch(r"TIMESTAMP.*|TIME", self._columns_of(EVERYONE)[DATABASE]):
            return
        if column.lower() not in [name.lower() for name in self.columns[DATA]]:
            return  # an expression is what the user made of it
        with reading():
            sizes = f"SELECT COUNT(*) AS n FROM {EVERYONE} GROUP BY {DATABASE}"
            ((alone, every),) = self._run(f"SELECT COUNT(*) FILTER (WHERE n = 1), COUNT(*) FROM ({sizes})")
        if 2 * alone > every:
            raise SourceError(
                f"`database` must put many rows in one database, but it is a time, and {alone:,} of {every:,} "
                f"databases have one row. Hint: date_trunc('day', {quoted(column)}) makes a database of each day."
            )

    def _make_labels(self, name: str, column: str) -> None:
        with reading():
            self._run(f"CREATE TEMP TABLE {name} AS {labels(self.data, column)}")

    def _labels(self, name: str, where: str = "") -> npt.NDArray[Any]:
        type_ = self._describe(f"SELECT label FROM {name}")["label"]
        if type_ in _INTEGERS - _LONG_INTEGERS:
            return self._fetch(f"SELECT CAST(label AS BIGINT) AS label FROM {name} {where} ORDER BY code")[
                "label"
            ].values
        self._check_length(name)
        if type_.startswith("STRUCT"):
            rows = self._run(f"SELECT label FROM {name} {where} ORDER BY code")
            return np.array(
                [json.dumps(list(row[0].values()), default=str, ensure_ascii=False) for row in rows], np.str_
            )
        texts = self._fetch(f"SELECT CAST(label AS VARCHAR) AS label FROM {name} {where} ORDER BY code")["label"].values
        return texts.astype(np.str_)

    def _check_length(self, name: str) -> None:
        """Refuse labels so long that an array of them, in which all take as much as the longest, would fill memory."""
        with reading():
            ((longest,),) = self._run(f"SELECT MAX(LENGTH(CAST(label AS VARCHAR))) FROM {name}")
        if (longest or 0) > _LONGEST_LABEL:
            raise SourceError(
                f"A database or an individual must be named by at most {_LONGEST_LABEL:,} characters, got {longest:,}."
            )


def _is_loaded(table: Table) -> bool:
    """Whether rows are read once: text is slow to parse, each statement reads the rows more than once, and SQL may
    read what is out of reach later, as remote files are."""
    return isinstance(table, Select) or (isinstance(table, Files) and (table.kind != "parquet" or _is_remote(table)))


def _is_remote(table: Files) -> bool:
    return any(path.lower().startswith(REMOTE) for path in table.paths)


def _is_stream(table: Table) -> bool:
    """Whether rows arrive as a stream: from a connection, or from an object that speaks Arrow and is no table."""
    if isinstance(table, Frame):
        home = type(table.frame).__module__.partition(".")[0]
        return table.once is not None or home not in {"pandas", "polars", "pyarrow"}
    return isinstance(table, Connected)


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
