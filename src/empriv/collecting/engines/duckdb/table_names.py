"""Which tables a DuckDB file holds."""

from __future__ import annotations

import duckdb

from empriv.collecting.engines.duckdb.failures import reading


def table_names(path: str) -> tuple[str, ...]:
    """Tables that hold their rows, by name, those of other schemas with it; no views, which can read any file."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "python_enable_replacements": "false",
    }
    with reading(), duckdb.connect(path, read_only=True, config=config) as connection:
        rows = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
    plain = [(schema, table) for schema, table in rows if "." not in f"{schema}{table}"]  # a dot parts schema and table
    return tuple(table if schema == "main" else f"{schema}.{table}" for schema, table in plain)
