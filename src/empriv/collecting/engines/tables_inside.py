"""Which tables a database file holds, for a person who chooses one."""

from __future__ import annotations

from empriv.collecting.engines.connections import sqlite
from empriv.collecting.sources import is_sqlite


def tables_inside(path: str) -> tuple[str, ...]:
    """Tables of an SQLite or DuckDB file, by name."""
    if is_sqlite(path):
        return sqlite.table_names(path)
    from empriv.collecting.engines.duckdb.table_names import table_names

    return table_names(path)
