"""A real PostgreSQL server for tests: started once for each worker of pytest, and stopped at the end.

`pgserver` carries the server's programs and runs them as a user who is not root. Rows come and go in schemas of their
own, so that tests do not meet.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver
except ImportError:  # pragma: no cover
    pgserver = None

NEEDED = pytest.mark.skipif(pgserver is None, reason="the tests of PostgreSQL need pgserver: pip install pgserver")


@dataclass(frozen=True)
class Server:
    """Where the server is, and a way to tell it things as its owner."""

    address: str
    folder: str

    @contextmanager
    def owner(self) -> Iterator[Any]:
        import adbc_driver_postgresql.dbapi as driver

        with driver.connect(self.address, autocommit=True) as connection:
            yield connection

    def run(self, *statements: str) -> None:
        with self.owner() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with self.owner() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def put(self, name: str, rows: Any) -> None:
        """Make a table of rows, a pandas frame or an Arrow table."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
        with self.owner() as connection, connection.cursor() as cursor:
            cursor.adbc_ingest(name, table.replace_schema_metadata(), mode="replace")


@contextmanager
def started() -> Iterator[Server]:
    """A server in a folder of its own under the system's temporary directory: sockets have short paths."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Path(folder).chmod(0o755)
        server = pgserver.get_server(Path(folder) / "d", cleanup_mode="stop")
        try:
            yield Server(server.get_uri(), str(Path(folder) / "d"))
        finally:
            server.cleanup()
