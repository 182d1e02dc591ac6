"""A connection to a PostgreSQL server: one transaction, in which nothing can be written and names mean one thing.

It sees one state of the rows however long it lasts (REPEATABLE READ), and functions and operators are the server's own:
nobody's schema is searched but pg_catalog, so that tables are named with theirs. What the server says of a failure
may hold the address, a password or a row; it is never passed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from sqlglot import TokenType, exp, tokenize
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from empriv.collecting.engines.connections.incoming import Incoming, different
from empriv.collecting.engines.engine import BeyondLimits, FailedOnRows, quoted, text_literal
from empriv.collecting.sources import Address, Connected
from empriv.collecting.sql.allowlist import one_select, tables_of
from empriv.collecting.sql.printing import nearest
from empriv.errors import EmprivError, MissingExtraError, QueryError, SourceError

T = TypeVar("T")
_CONNECT_SECONDS = 20
# Types that come as they are; all others come as text. A text of fixed length is one without the spaces at its end.
_AS_THEY_ARE = {"bool", "int2", "int4", "int8", "float4", "float8", "date", "time", "timestamp", "timestamptz", "bytea"}
_DUCKDB = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE",
    "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "bytea": "BLOB",
}  # fmt: skip
_MOST_DIGITS = 38

_REFUSED = (
    "The PostgreSQL server must accept the user and the password, and does not. "
    "Hint: psql with the same address says why."
)
_UNREACHABLE = (
    "The PostgreSQL server must be reachable at its address, and is not. Hint: psql with the same address says why."
)
_GONE = "The PostgreSQL server went away before all rows were read. Hint: run it again; nothing was written."
_TOO_SLOW = (
    "The PostgreSQL server ended the query before it was done. Hint: give a larger `timeout`, or see the server's "
    "statement_timeout."
)
_IN_FAILED_TRANSACTION = "25P02"
_NO_RIGHT = "The user must have the right to read the table on the PostgreSQL server. Hint: GRANT SELECT gives it."


@dataclass(frozen=True)
class ServerColumn:
    """A column as the server knows it: its type, and digits of a numeric if they were declared."""

    name: str
    kind: str
    digits: tuple[int, int] | None = None

    @property
    def duckdb(self) -> str:
        """The type that DuckDB has for it."""
        if self.kind == "numeric":
            return "DOUBLE" if self.digits is None else f"DECIMAL({self.digits[0]}, {self.digits[1]})"
        return _DUCKDB.get(self.kind, "VARCHAR")


@dataclass(frozen=True)
class Relation:
    """Rows on the server: a SELECT that gives them in types that every engine has, and its columns."""

    select: str
    columns: tuple[ServerColumn, ...]


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
        schemas = self.fetch("SELECT unnest(current_schemas(false))::text")
        self._schemas = [str(schema) for (schema,) in schemas]
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
        self._stop_reading()
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

    def read(self, sql: str, types: dict[str, str]) -> Incoming:
        """The rows of a SELECT as a stream."""
        cursor = self._connection.cursor()
        self._cursors.append(cursor)

        def begin() -> Any:
            cursor.execute(sql)
            return cursor.fetch_record_batch()

        reader = asked(begin)
        self._readers.append(reader)
        return Incoming(_Said(reader, self._broken, time.monotonic()), types)

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

    def _stop_reading(self) -> None:
        """Let go of streams, read to the end or not: the connection says nothing else meanwhile."""
        for begun in (*self._readers, *self._cursors):
            with suppress(Exception):
                begun.close()
        self._readers.clear()
        self._cursors.clear()

    def relation(self, table: Connected) -> Relation:
        """The rows of a table or of a SELECT."""
        inner = f"SELECT * FROM {self._found(table.table)}" if table.table is not None else self._one_select(table)
        columns = self._columns(inner)
        different([column.name for column in columns])
        sent = ", ".join(_as_sent(column) for column in columns)
        relation = Relation(f"SELECT {sent} FROM ({inner}) AS empriv_source", columns)
        undeclared = any(column.kind == "numeric" and column.digits is None for column in columns)
        return self.with_digits(relation) if undeclared else relation

    def stream(self, relation: Relation) -> Incoming:
        """All rows of a relation."""
        types = {column.name: column.duckdb for column in relation.columns if column.kind == "numeric"}
        return self.read(relation.select, types)

    def with_digits(self, relation: Relation) -> Relation:
        """The same relation with digits that hold every value of its numeric columns; none where one is no number."""
        numeric = [column.name for column in relation.columns if column.kind == "numeric"]
        if not numeric:
            return relation
        measured = ", ".join(
            f"max(scale({q})), max(length(trunc(abs({q}))::text)), "
            f"coalesce(bool_or({q} IN ('NaN', 'Infinity', '-Infinity')), false)"
            for q in map(quoted, numeric)
        )
        (found,) = self.fetch(f"SELECT {measured} FROM ({relation.select}) AS empriv_source")
        digits: dict[str, tuple[int, int] | None] = {}
        for place, name in enumerate(numeric):
            scale, whole, other = found[3 * place : 3 * place + 3]
            fits = not other and (whole or 1) + (scale or 0) <= _MOST_DIGITS
            digits[name] = (_MOST_DIGITS, int(scale or 0)) if fits else None
        columns = tuple(ServerColumn(column.name, column.kind, digits.get(column.name)) for column in relation.columns)
        return Relation(relation.select, columns)

    def _found(self, name: str) -> str:
        """A table with its schema, as the user's own search path finds it."""
        schema, _, table = name.rpartition(".")
        schemas = [schema] if schema else self._schemas
        listed = ", ".join(map(text_literal, schemas)) or "''"
        known = self.fetch(
            "SELECT n.nspname::text, c.relname::text FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            f"WHERE n.nspname IN ({listed}) AND c.relkind IN ('r', 'v', 'm', 'p', 'f')"
        )
        for wanted in (table, table.lower()):
            for place in schemas:
                if (place, wanted) in known:
                    return f"{quoted(place)}.{quoted(wanted)}"
        raise SourceError(
            f"`table` must be a table or view on the PostgreSQL server, got {name!r}"
            f"{nearest(table, [relation for _, relation in known])}"
        )

    def _one_select(self, table: Connected) -> str:
        """The one SELECT that a source is, written anew from its tree, in which tables are named with their schemas."""
        assert table.sql is not None
        tree = one_select(table.sql, "postgres")
        for node, visible in list(tables_of(tree, frozenset())):
            if isinstance(node.this, exp.Identifier) and not node.db and node.name.lower() not in visible:
                name = node.name if node.this.quoted else node.name.lower()
                schema, _, relation = self._found(name).partition(".")
                node.set("db", exp.to_identifier(schema[1:-1].replace('""', '"'), quoted=True))
                node.set("this", exp.to_identifier(relation[1:-1].replace('""', '"'), quoted=True))
        # Every name in quotes, as the server would fold it: nothing in a name is read as anything else.
        folded = normalize_identifiers(tree, dialect="postgres")
        text = str(folded.sql(dialect="postgres", identify=True, comments=False))
        self._refuse_volatile(text)
        return text

    def _refuse_volatile(self, text: str) -> None:
        """A source gives the same rows each time, and does nothing besides: the server tells which functions do."""
        tokens = tokenize(text, read="postgres")
        called = {
            name
            for token, after in pairwise(tokens)
            if after.token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING
            for name in (token.text, token.text.lower())
        }
        if not called:
            return
        listed = ", ".join(map(text_literal, sorted(called)))
        volatile = self.fetch(
            f"SELECT DISTINCT proname::text FROM pg_proc WHERE provolatile = 'v' AND proname IN ({listed}) ORDER BY 1"
        )
        if volatile:
            raise SourceError(
                f"`sql` must give the same rows each time and do nothing else, but calls {volatile[0][0]}()."
            )

    def _columns(self, select: str) -> tuple[ServerColumn, ...]:
        def describe() -> Any:
            with self._cursor() as cursor:
                return cursor.adbc_execute_schema(select)

        return tuple(_column(each) for each in asked(describe))

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
            if cursor in self._cursors:
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


class _Said:
    """A reader whose failures are said in words of ours."""

    def __init__(self, reader: Any, why: Callable[[float], EmprivError], started: float) -> None:
        self.reader, self.schema = reader, reader.schema
        self.why, self.started = why, started

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
        if refused:
            return SourceError(_REFUSED)
        if 'database "' in said and "does not exist" in said:
            return SourceError("The database must exist on the PostgreSQL server, and does not.")
        if "invalid" in said and "uri" in said:
            return SourceError("The address must read postgresql://user@host:port/database, and cannot be read so.")
        return SourceError(_UNREACHABLE)
    if state == "57014":
        return BeyondLimits(_TOO_SLOW)
    if state == "42501":
        return SourceError(_NO_RIGHT)
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


def _column(each: Any) -> ServerColumn:
    metadata = {key.decode(): value.decode() for key, value in (each.metadata or {}).items()}
    kind = metadata.get("POSTGRESQL:type") or metadata.get("ADBC:postgresql:typname") or "text"
    modifier = int(metadata.get("POSTGRESQL:typmod", "-1"))
    digits = None
    if kind == "numeric" and modifier >= 4:
        whole, scale = (modifier - 4) >> 16 & 0xFFFF, modifier - 4 & 0x7FF
        digits = (whole, scale) if whole <= _MOST_DIGITS and scale <= whole else None
    return ServerColumn(str(each.name), kind, digits)


def _as_sent(column: ServerColumn) -> str:
    name = quoted(column.name)
    if column.kind in _AS_THEY_ARE or column.kind == "numeric":
        return name
    # Texts compare by their bytes, as in DuckDB, whatever the database's language is.
    return f'{name}::text COLLATE "C" AS {name}'
