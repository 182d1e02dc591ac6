"""Rows in a PostgreSQL server or an SQLite file, or in any object that speaks Arrow, as streams that are read once.

Both connections only read. What a server or a file says of a failure may hold the address, a password or a row, and is
never passed on.

A PostgreSQL connection is one transaction. It sees one state of the rows however long it lasts (REPEATABLE READ), and
functions and operators are the server's own: nobody's schema is searched but pg_catalog, so that tables are named with
theirs. An SQLite file is opened to read only, and SQLite itself refuses all but reading. A column of SQLite may hold
anything in any row; what it does hold is counted first, so that each column has one type.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from sqlglot import TokenType, exp, tokenize
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from empriv.collecting.engines.engine import BeyondLimits, FailedOnRows, quoted, text_literal
from empriv.collecting.sources import Address, Connected
from empriv.collecting.sql.allowlist import one_select, tables_of
from empriv.collecting.sql.printing import nearest
from empriv.errors import EmprivError, MissingExtraError, QueryError, SourceError

T = TypeVar("T")


@dataclass(eq=False)
class Incoming:
    """The rows of one SELECT on their way.

    Attributes
    ----------
    reader : Arrow's batches; it can be read once
    types : DuckDB's types of those columns that come as another type, such as decimals, which come as text
    failure : what went wrong on the way; whoever reads the batches may report it in words of its own
    """

    reader: Any
    types: Mapping[str, str] = field(default_factory=dict)
    failure: EmprivError | None = None

    def columns(self) -> list[str]:
        """Names of the columns."""
        return different([str(name) for name in self.reader.schema.names])

    def batches(self) -> Any:
        """A reader of the same rows, without types that only the driver knows."""
        import pyarrow

        kinds = [getattr(kind, "storage_type", kind) for kind in self.reader.schema.types]
        schema = pyarrow.schema([pyarrow.field(name, kind) for name, kind in zip(self.columns(), kinds, strict=True)])

        def passing() -> Iterator[Any]:
            try:
                for batch in self.reader:
                    arrays = [getattr(column, "storage", column) for column in batch.columns]
                    yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
            except EmprivError as error:
                self.failure = error
                raise

        return pyarrow.RecordBatchReader.from_batches(schema, passing())


class SourceConnection(Protocol):
    """A table of a server or a file, or a SELECT there."""

    def stream(self, *, declared: bool = True) -> Incoming:
        """All rows, in the types that columns are declared with; if not ``declared``, that their values fit."""

    def cancel(self) -> None:
        """End what is done for this connection, from another thread."""


@contextmanager
def connected(table: Connected, *, timezone: str, timeout: float | None) -> Iterator[SourceConnection]:
    """A connection that only reads, closed at the end."""
    if table.kind == "postgresql":
        with connection_to(table.address, timezone=timezone, timeout=timeout) as server:
            yield ServerTable(server, table)
    else:
        file = SQLiteFile(table)
        try:
            yield file
        finally:
            file.connection.close()


def different(names: list[str]) -> list[str]:
    """Names of columns, which must differ, apart from upper and lower case."""
    if len({name.lower() for name in names}) != len(names):
        raise SourceError("The columns of a table must have different names, apart from upper and lower case.")
    return names


def of_stream(stream: Any) -> Incoming:
    """The rows of any object that speaks Arrow."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    try:
        reader = pyarrow.RecordBatchReader.from_stream(stream)
    except (pyarrow.ArrowException, TypeError, ValueError):
        raise SourceError("The stream must give Arrow's batches of rows, and does not.") from None
    return Incoming(reader)


# PostgreSQL

_CONNECT_SECONDS = 20
# Types that come as they are; all others come as text. A text of fixed length is one without the spaces at its end.
_AS_THEY_ARE = {"bool", "int2", "int4", "int8", "float4", "float8", "date", "time", "timestamp", "timestamptz", "bytea"}
_MOST_DIGITS = 38
_IN_FAILED_TRANSACTION = "25P02"
_GONE = "The PostgreSQL server went away before all rows were read. Hint: run it again; nothing was written."
_TOO_SLOW = (
    "The PostgreSQL server ended the query before it was done. Hint: give a larger `timeout`, or see the server's "
    "statement_timeout."
)


@dataclass(eq=False)
class PostgresConnection:
    """One read-only transaction on a server."""

    address: Address
    timezone: str
    timeout: float | None = None
    _cursors: list[Any] = field(default_factory=list)
    _readers: list[Any] = field(default_factory=list)

    def open(self) -> None:
        try:
            import adbc_driver_postgresql.dbapi as driver
            import pyarrow  # noqa: F401
        except ImportError:
            raise MissingExtraError("adbc-driver-postgresql", "postgres") from None
        # Never in a variable: tools that show tracebacks show variables too.
        self._connection = asked(lambda: driver.connect(_patient(self.address).text, autocommit=True), connecting=True)
        # Said here rather than by the driver, which would give up the transaction at the first failure.
        asked(lambda: self._run("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
        self.schemas = [str(schema) for (schema,) in self.fetch("SELECT unnest(current_schemas(false))::text")]
        milliseconds = 0 if self.timeout is None else max(1, int(1000 * self.timeout))
        for setting in (
            "search_path = pg_catalog, pg_temp",
            "row_security = on",
            "extra_float_digits = 1",
            "standard_conforming_strings = on",
            f"timezone = {text_literal(self.timezone)}",
            *([f"statement_timeout = {milliseconds}"] if milliseconds else []),
        ):
            asked(lambda setting=setting: self._run(f"SET LOCAL {setting}"))  # type: ignore[misc]

    def close(self) -> None:
        # Streams are let go, read to the end or not: the connection says nothing else meanwhile.
        for begun in (*self._readers, *self._cursors):
            with suppress(Exception):
                begun.close()
        with suppress(Exception):
            self._run("ROLLBACK")
        with suppress(Exception):
            self._connection.close()

    def cancel(self) -> None:
        """End what the server is doing for this connection, from another thread."""
        for cursor in self._cursors:
            with suppress(Exception):
                cursor.adbc_cancel()

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a short answer."""

        def read() -> list[tuple[Any, ...]]:
            with self._cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
                cursor.execute(sql)
                return list(cursor.fetchall())

        return asked(read)

    def read(self, sql: str) -> Any:
        """A reader of the rows of a SELECT."""
        cursor = self._connection.cursor()
        self._cursors.append(cursor)

        def begin() -> Any:
            cursor.execute(sql)
            return cursor.fetch_record_batch()

        reader = asked(begin)
        self._readers.append(reader)
        return _ExplainedReader(reader, self._broken, time.monotonic())

    def schema(self, select: str) -> Any:
        """The columns of a SELECT, as Arrow has them; it is not run."""

        def describe() -> Any:
            with self._cursor() as cursor:
                return cursor.adbc_execute_schema(select)

        return asked(describe)

    def _broken(self, seconds: float) -> EmprivError:
        """Why a stream broke off after so many seconds; the driver tells it in the server's words alone."""
        try:
            self._run("SELECT 1")
        except Exception as error:
            if getattr(error, "sqlstate", None) != _IN_FAILED_TRANSACTION:
                return SourceError(_GONE)
        if self.timeout is not None and seconds >= 0.9 * self.timeout:
            return BeyondLimits(_TOO_SLOW)
        return FailedOnRows("The rows cannot be read: PostgreSQL fails on a value in them.")

    def _run(self, sql: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(sql)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        try:
            yield cursor
        finally:
            cursor.close()
            self._cursors.remove(cursor)


@contextmanager
def connection_to(address: Address, *, timezone: str, timeout: float | None) -> Iterator[PostgresConnection]:
    """A read-only transaction on the server, ended at the end."""
    connection = PostgresConnection(address, timezone, timeout)
    connection.open()
    try:
        yield connection
    finally:
        connection.close()


@dataclass(frozen=True)
class _ServerColumn:
    """A column as the server knows it: its type, and digits of a numeric if they were declared."""

    name: str
    kind: str
    digits: tuple[int, int] | None

    @property
    def as_sent(self) -> str:
        """What is selected of it."""
        name = quoted(self.name)
        if self.kind in _AS_THEY_ARE or self.kind == "numeric":
            return name
        # Texts compare by their bytes, as in DuckDB, whatever the database's language is.
        return f'{name}::text COLLATE "C" AS {name}'


@dataclass(frozen=True)
class ServerTable:
    """A table of a server, or the rows of a SELECT there."""

    server: PostgresConnection
    table: Connected

    def cancel(self) -> None:
        self.server.cancel()

    def stream(self, *, declared: bool = True) -> Incoming:
        """All rows; a numeric has the digits that it is declared with, else those that hold all of its values."""
        inner = self._one_select() if self.table.table is None else f"SELECT * FROM {self._found(self.table.table)}"
        columns = [_column(each) for each in self.server.schema(inner)]
        different([column.name for column in columns])
        select = f"SELECT {', '.join(column.as_sent for column in columns)} FROM ({inner}) AS empriv_source"
        digits = {column.name: column.digits for column in columns if column.kind == "numeric"}
        if digits and not (declared and all(digits.values())):
            digits = self._digits(list(digits), select)
        types = {name: "DOUBLE" if held is None else f"DECIMAL({held[0]}, {held[1]})" for name, held in digits.items()}
        return Incoming(self.server.read(select), types)

    def _digits(self, numeric: list[str], select: str) -> dict[str, tuple[int, int] | None]:
        """Digits that hold every value of these columns; None where one is no number, or has too many."""
        measured = ", ".join(
            f"max(scale({q})), max(length(trunc(abs({q}))::text)), "
            f"coalesce(bool_or({q} IN ('NaN', 'Infinity', '-Infinity')), false)"
            for q in map(quoted, numeric)
        )
        (found,) = self.server.fetch(f"SELECT {measured} FROM ({select}) AS empriv_source")
        digits: dict[str, tuple[int, int] | None] = {}
        for place, name in enumerate(numeric):
            scale, whole, other = found[3 * place : 3 * place + 3]
            fits = not other and (whole or 1) + (scale or 0) <= _MOST_DIGITS
            digits[name] = (_MOST_DIGITS, int(scale or 0)) if fits else None
        return digits

    def _found(self, name: str) -> str:
        return ".".join(map(quoted, self._place(name)))

    def _place(self, name: str) -> tuple[str, str]:
        """The schema and the name of a table, as the user's own search path finds it."""
        schema, _, table = name.rpartition(".")
        schemas = [schema] if schema else self.server.schemas
        listed = ", ".join(map(text_literal, schemas)) or "''"
        known = self.server.fetch(
            "SELECT n.nspname::text, c.relname::text FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            f"WHERE n.nspname IN ({listed}) AND c.relkind IN ('r', 'v', 'm', 'p', 'f')"
        )
        for wanted in (table, table.lower()):
            for place in schemas:
                if (place, wanted) in known:
                    return place, wanted
        raise SourceError(
            f"`table` must be a table or view on the PostgreSQL server, got {name!r}"
            f"{nearest(table, [relation for _, relation in known])}"
        )

    def _one_select(self) -> str:
        """The one SELECT that a source is, written anew from its tree, in which tables are named with their schemas."""
        assert self.table.sql is not None
        tree = one_select(self.table.sql, "postgres")
        for node, visible in list(tables_of(tree, frozenset())):
            if isinstance(node.this, exp.Identifier) and not node.db and node.name.lower() not in visible:
                schema, relation = self._place(node.name if node.this.quoted else node.name.lower())
                node.set("db", exp.to_identifier(schema, quoted=True))
                node.set("this", exp.to_identifier(relation, quoted=True))
        # Every name in quotes, as the server would fold it: nothing in a name is read as anything else.
        folded = normalize_identifiers(tree, dialect="postgres")
        text = str(folded.sql(dialect="postgres", identify=True, comments=False))
        self._refuse_volatile(text)
        return text

    def _refuse_volatile(self, text: str) -> None:
        """A source gives the same rows each time, and does nothing besides: the server tells which functions do."""
        called = {
            name
            for token, after in pairwise(tokenize(text, read="postgres"))
            if after.token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING
            for name in (token.text, token.text.lower())
        }
        listed = ", ".join(map(text_literal, sorted(called))) or "''"
        volatile = self.server.fetch(
            f"SELECT DISTINCT proname::text FROM pg_proc WHERE provolatile = 'v' AND proname IN ({listed}) ORDER BY 1"
        )
        if volatile:
            raise SourceError(
                f"`sql` must give the same rows each time and do nothing else, but calls {volatile[0][0]}()."
            )


@dataclass(frozen=True)
class _ExplainedReader:
    """A reader whose failures are said in words of ours."""

    reader: Any
    why: Callable[[float], EmprivError]
    started: float

    @property
    def schema(self) -> Any:
        return self.reader.schema

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.reader)
        while True:
            failure = None
            try:
                batch = next(batches, None)
            except Exception:
                failure = self.why(time.monotonic() - self.started)
            if failure is not None:
                raise failure
            if batch is None:
                return
            yield batch


def asked(ask: Callable[[], T], *, connecting: bool = False) -> T:
    """What a question gives; a failure of the driver or the server is said without quoting it."""
    try:
        return ask()
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("adbc_driver_manager", "pyarrow"):
            raise
        failure = _failure(error, connecting)
    # Outside of the handler: the driver's error holds the server's words, and must not hang on as the context.
    raise failure


def _failure(error: Any, connecting: bool) -> EmprivError:
    state = str(getattr(error, "sqlstate", None) or "")
    said = str(error).lower()
    if connecting or state.startswith("28"):
        refused = state.startswith("28") or any(word in said for word in ("password", "authentication", 'role "'))
        if not refused and 'database "' in said and "does not exist" in said:
            return SourceError("The database must exist on the PostgreSQL server, and does not.")
        if not refused and "invalid" in said and "uri" in said:
            return SourceError("The address must read postgresql://user@host:port/database, and cannot be read so.")
        must = "accept the user and the password" if refused else "be reachable at its address"
        return SourceError(
            f"The PostgreSQL server must {must}, and {'does' if refused else 'is'} not. "
            "Hint: psql with the same address says why."
        )
    if state == "57014":
        return BeyondLimits(_TOO_SLOW)
    if state == "42501":
        return SourceError(
            "The user must have the right to read the table on the PostgreSQL server. Hint: GRANT SELECT gives it."
        )
    if state.startswith(("22", "42804")):
        return FailedOnRows(f"The rows cannot be read: PostgreSQL reports SQLSTATE {state}.")
    if state.startswith(("08", "57")) or not state:
        return SourceError(_GONE)
    if state.startswith("53"):
        return BeyondLimits(f"The PostgreSQL server lacks memory, disk or connections (SQLSTATE {state}).")
    if state == "25006":
        return SourceError("`sql` must only read: the transaction on the PostgreSQL server is read-only.")
    if state.startswith("42"):
        return QueryError(
            f"The SELECT uses a name or a word that the PostgreSQL server does not know (SQLSTATE {state}). "
            "Hint: functions of your own are called with their schema."
        )
    return QueryError(f"The rows cannot be read: PostgreSQL reports SQLSTATE {state}.")


def _patient(address: Address) -> Address:
    """An address that says how long to wait for the server to answer."""
    if "connect_timeout=" in address.text:
        return address
    return Address(f"{address.text}{'&' if '?' in address.text else '?'}connect_timeout={_CONNECT_SECONDS}")


def _column(each: Any) -> _ServerColumn:
    metadata = {key.decode(): value.decode() for key, value in (each.metadata or {}).items()}
    kind = metadata.get("POSTGRESQL:type") or metadata.get("ADBC:postgresql:typname") or "text"
    modifier = int(metadata.get("POSTGRESQL:typmod", "-1"))
    digits = None
    if kind == "numeric" and modifier >= 4:
        whole, scale = (modifier - 4) >> 16 & 0xFFFF, modifier - 4 & 0x7FF
        digits = (whole, scale) if whole <= _MOST_DIGITS and scale <= whole else None
    return _ServerColumn(str(each.name), kind, digits)


# SQLite

_BATCH = 65_536
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
# Functions that do not follow from the rows, or do more than answer.
_REFUSED = {"random", "randomblob", "changes", "total_changes", "last_insert_rowid", "load_extension", "fts3_tokenizer"}
_STEPS = 100_000  # of SQLite's machine between two looks at whether somebody wants it to stop


class SQLiteFile:
    """A connection that only reads."""

    def __init__(self, table: Connected) -> None:
        path = Path(table.address.text)
        if not path.is_file():
            raise SourceError(f"The file must exist, got {path.name!r}.")
        self.stopped = False
        self.connection = _opened(str(path))
        self.connection.set_progress_handler(lambda: self.stopped, _STEPS)
        self.declared: dict[str, str] = {}
        if table.table is not None:
            self.declared = self._declared(table.table)
            self.select = f"SELECT * FROM {quoted(table.table)}"
        else:
            assert table.sql is not None
            self.select = str(one_select(table.sql, "sqlite").sql(dialect="sqlite", comments=False))
        self.connection.set_authorizer(_only_reading)

    def cancel(self) -> None:
        """End what SQLite is doing, from another thread."""
        self.stopped = True

    def stream(self, *, declared: bool = True) -> Incoming:
        """All rows; columns declared as dates or booleans are of that type, unless told otherwise."""
        try:
            import pyarrow
        except ImportError:
            raise MissingExtraError("pyarrow", "sqlite") from None
        # Of the SELECT itself: inside another, SQLite would give columns of one name different ones.
        begun = _read(lambda: self.connection.execute(self.select))
        names = different([str(column[0]) for column in begun.description])
        begun.close()
        listed = [quoted(name) for name in names]
        counts = ", ".join(
            f"COALESCE(SUM(TYPEOF({name}) = '{kind}'), 0)" for name in listed for kind in ("text", "real", "blob")
        )
        found = _read(lambda: self.connection.execute(f"SELECT {counts} FROM ({self.select})").fetchone())
        types, sent, casts = [], [], {}
        for place, (name, column) in enumerate(zip(names, listed, strict=True)):
            texts, reals, blobs = found[3 * place : 3 + 3 * place]
            if blobs and not texts:
                kind, read = pyarrow.binary(), f"CAST({column} AS BLOB)"
            elif texts:
                kind, read = pyarrow.string(), f"CAST({column} AS TEXT)"
            else:
                kind, read = (pyarrow.float64(), f"CAST({column} AS REAL)") if reals else (pyarrow.int64(), column)
            types.append(pyarrow.field(name, kind))
            sent.append(f"{read} AS {column}")
            meant = _meant(self.declared.get(name, "")) if declared else None
            if meant is not None and (texts or meant == "BOOLEAN"):
                casts[name] = meant
        reader = _Batches(self.connection, f"SELECT {', '.join(sent)} FROM ({self.select})", pyarrow.schema(types))
        return Incoming(reader, casts)

    def _declared(self, table: str) -> dict[str, str]:
        """The declared type of each column of a table, which must exist."""
        known = _read(lambda: self.connection.execute("SELECT name FROM sqlite_master").fetchall())
        names = [str(name) for (name,) in known]
        if table.lower() not in [name.lower() for name in names]:
            raise SourceError(f"`table` must be a table or view of the file, got {table!r}{nearest(table, names)}")
        pragma = "SELECT name, type FROM pragma_table_info(?)"
        return dict(_read(lambda: self.connection.execute(pragma, (table,)).fetchall()))


class _Batches:
    """A reader of a SELECT's rows in batches."""

    def __init__(self, connection: sqlite3.Connection, select: str, schema: Any) -> None:
        self.connection, self.select, self.schema = connection, select, schema

    def __iter__(self) -> Iterator[Any]:
        import pyarrow

        cursor = _read(lambda: self.connection.execute(self.select))
        while True:
            rows = _read(lambda: cursor.fetchmany(_BATCH))
            if not rows:
                return
            columns = zip(*rows, strict=True)
            arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, self.schema.types, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def _opened(path: str) -> sqlite3.Connection:
    address = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
    return _read(lambda: sqlite3.connect(address, uri=True, check_same_thread=False))


def sqlite_tables(path: str) -> tuple[str, ...]:
    """Tables and views of a file, by name."""
    listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    connection = _opened(path)
    try:
        return tuple(str(name) for (name,) in _read(lambda: connection.execute(listed).fetchall()))
    finally:
        connection.close()


def _only_reading(action: int, _one: str | None, other: str | None, _database: str | None, _trigger: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and str(other).lower() in _REFUSED):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _read(ask: Callable[[], T]) -> T:
    """What SQLite answers; what it says of a failure may quote a row, and is not passed on."""
    failure: Exception
    try:
        return ask()
    except UnicodeDecodeError:
        failure = SourceError("The rows cannot be read: the SQLite file holds text that is not UTF-8.")
    except sqlite3.Error as error:
        code = str(getattr(error, "sqlite_errorname", ""))
        if code == "SQLITE_AUTH" or str(error).startswith("not authorized"):
            failure = SourceError("`sql` must give the same rows each time, and read and do nothing else.")
        elif code == "SQLITE_INTERRUPT":
            failure = BeyondLimits("Reading the SQLite file was stopped.")
        elif code == "SQLITE_NOTADB":
            failure = SourceError("The file must be an SQLite file, and is not.")
        elif code == "SQLITE_ERROR":
            failure = SourceError("The SELECT uses a table, column or function that the SQLite file does not have.")
        else:
            failure = SourceError(f"The SQLite file cannot be read: SQLite reports {code or type(error).__name__}.")
    raise failure


def _meant(declared: str) -> str | None:
    """DuckDB's type of a column whose declared type SQLite itself makes nothing of."""
    word = declared.upper().strip()
    if word.startswith(("TIMESTAMP", "DATETIME")):
        return "TIMESTAMPTZ" if "ZONE" in word or word.startswith("TIMESTAMPTZ") else "TIMESTAMP"
    return {"DATE": "DATE", "TIME": "TIME", "BOOLEAN": "BOOLEAN", "BOOL": "BOOLEAN"}.get(word)
