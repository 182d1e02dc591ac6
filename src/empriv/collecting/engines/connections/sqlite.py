"""An SQLite file, read by the standard library: opened to read only, with all but reading refused by SQLite itself.

A column of SQLite may hold anything in any row. What it does hold is counted first, so that each column has one type.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from empriv.collecting.engines.connections.incoming import Incoming, different
from empriv.collecting.engines.engine import BeyondLimits, quoted
from empriv.collecting.sources import Connected
from empriv.collecting.sql.allowlist import one_select
from empriv.collecting.sql.printing import nearest
from empriv.errors import MissingExtraError, SourceError

T = TypeVar("T")
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
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        self.connection = _read(lambda: sqlite3.connect(address, uri=True, check_same_thread=False))
        self.connection.set_progress_handler(lambda: self.stopped, _STEPS)
        self.declared: dict[str, str] = {}
        if table.table is not None:
            self.declared = self._declared(table.table)
            self.select = f"SELECT * FROM {quoted(table.table)}"
        else:
            assert table.sql is not None
            self.select = str(one_select(table.sql, "sqlite").sql(dialect="sqlite", comments=False))
        self.connection.set_authorizer(_only_reading)

    def close(self) -> None:
        self.connection.close()

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


@contextmanager
def opened(table: Connected) -> Iterator[SQLiteFile]:
    """A file, closed at the end."""
    file = SQLiteFile(table)
    try:
        yield file
    finally:
        file.close()


def table_names(path: str) -> tuple[str, ...]:
    """Tables and views of a file, by name."""
    address = f"file:{quote(str(Path(path).absolute()))}?mode=ro"
    listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    connection = _read(lambda: sqlite3.connect(address, uri=True))
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
