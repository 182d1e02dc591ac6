"""The engine is asked first: a query is parsed and bound by DuckDB against empty tables, before any row is near it.

The connection holds nothing but these tables, reads no file and takes no setting. What DuckDB refuses there is refused,
in its words; and what it reads must be what we read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
from sqlglot import exp

from empriv.collecting.engines.duckdb.failures import querying
from empriv.collecting.engines.duckdb.recheck import Parsed, check_allowed, check_same, parsed
from empriv.collecting.engines.duckdb.sandbox import Connection
from empriv.collecting.sql.printing import Names, names_in, printed

BINDER_CONFIG: dict[str, Any] = {
    "threads": "1",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
}
_CLOSED = ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true")


@dataclass(frozen=True, eq=False)
class Binder:
    """Empty tables of the same columns and types as those that a query may read."""

    connection: Connection
    tables: tuple[str, ...]

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        """Refuse a query that DuckDB refuses, or in which it finds other names than we do.

        Parameters
        ----------
        select : the query, from which what is sent is printed
        written : the text as somebody wrote it, and what we read in it; None if nobody did
        """
        if written is not None:
            text, ours = written
            found = self.parsed(text)
            check_allowed(found, self.tables)
            check_same(found, ours, functions=False)
        text = printed(select)
        found = self.parsed(text)
        check_allowed(found, self.tables)
        check_same(found, names_in(select))
        with querying():
            self.connection.execute(f"DESCRIBE {text}").fetchall()

    def parsed(self, text: str) -> Parsed:
        """A text as DuckDB reads it."""
        with querying():
            rows = self.connection.execute("SELECT CAST(json_serialize_sql($text) AS VARCHAR)", {"text": text})
            ((serialized,),) = rows.fetchall()
        return parsed(serialized)

    def check_sent(self, tree: exp.Expr, text: str) -> None:
        """Refuse a statement whose text, as DuckDB reads it, names something else than the tree it was printed from."""
        check_same(self.parsed(text), names_in(tree))

    def close(self) -> None:
        self.connection.close()


def binder_of(tables: Mapping[str, Mapping[str, str]], connection: Connection) -> Binder:
    """Empty tables from the types of their columns, in a connection that holds nothing."""
    for name, columns in tables.items():
        typed = ", ".join(f"{_quoted(column)} {kind}" for column, kind in columns.items())
        connection.execute(f"CREATE TABLE {_quoted(name)} ({typed})").fetchall()
    return _closed(connection, tables)


def binder_of_arrow(tables: Mapping[str, Any]) -> Binder:
    """Empty tables like those of Arrow."""
    connection = duckdb.connect(":memory:", config=BINDER_CONFIG)
    for name, table in tables.items():
        connection.register("empriv_arrow", table.slice(0, 0))
        connection.execute(f"CREATE TABLE {_quoted(name)} AS SELECT * FROM empriv_arrow")
        connection.unregister("empriv_arrow")
    return _closed(connection, tables)


def _closed(connection: Connection, tables: Mapping[str, Any]) -> Binder:
    for setting in _CLOSED:
        connection.execute(f"SET {setting}").fetchall()
    return Binder(connection, tuple(tables))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
