"""Small Spark tables, read here: Spark takes seconds for any statement, however few the rows.

A table is small if Spark expects it to be, by its own statistics, and it then turns out to have few rows. A table of
which Spark knows nothing stays on Spark, since even its first rows might take a whole job; and so does one with moments
in time, which the two spell differently: databases must not be called otherwise when a table grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from empriv.base.progress import progress as progress_bar
from empriv.collecting.engines.duckdb import DuckDBEngine
from empriv.collecting.engines.duckdb.session import DuckDBSession
from empriv.collecting.engines.spark.failures import reading
from empriv.collecting.engines.spark.tables import to_arrow
from empriv.collecting.sources import Databases, Frame, Table

MOST_BYTES = 10 * 2**20  # as much as Spark itself sends to every executor, unless told otherwise
MOST_ROWS = 200_000  # however well they are compressed
_UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}


@dataclass(frozen=True)
class DriverEngine(DuckDBEngine):
    """DuckDB on rows that came from Spark; ``fetched`` are the frames and their rows."""

    fetched: tuple[tuple[Any, Any], ...] = field(default=(), repr=False)

    @contextmanager
    def session(self, data: Databases) -> Iterator[DuckDBSession]:
        """Open the databases for querying."""
        here = replace(
            data,
            parts=tuple(map(self._here, data.parts)),
            tables={name: self._here(table) for name, table in data.tables.items()},
        )
        with super().session(here) as session:
            yield session

    def _here(self, table: Table) -> Table:
        rows = [rows for frame, rows in self.fetched if isinstance(table, Frame) and table.frame is frame]
        return Frame(rows[0]) if rows else table


def driver_engine(data: Databases, progress: bool | None = None) -> DriverEngine | None:
    """An engine that reads these tables here, None if one of them is not small."""
    frames = [table.frame for table in (*data.parts, *data.tables.values()) if is_spark(table)]  # type: ignore[union-attr]
    moments = any(kind.startswith("timestamp") for frame in frames for _, kind in frame.dtypes)
    if moments or sum(map(expected_bytes, frames)) > MOST_BYTES:
        return None
    fetched = []
    for frame in frames:
        saying = "Spark sends its rows, which takes some seconds for any table"
        with reading(), progress_bar(1, saying, show=progress) as advance:
            rows = to_arrow(frame.limit(MOST_ROWS + 1))
            advance()
        if rows.num_rows > MOST_ROWS:
            return None
        fetched.append((frame, rows))
    return DriverEngine(progress=progress, fetched=tuple(fetched))


def is_spark(table: Table) -> bool:
    """Whether a table is a Spark DataFrame."""
    return isinstance(table, Frame) and type(table.frame).__module__.startswith("pyspark.")


def expected_bytes(frame: Any) -> float:
    """How large Spark expects a table to be before it reads it; infinite if it does not say."""
    try:
        if hasattr(frame, "_jdf"):
            return float(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        said = re.search(r"sizeInBytes=([\d.]+) ?([KMGTPE]?i?B)", frame._explain_string(mode="cost"))
    except Exception:  # whatever Spark says, it is no reason to fail here: it will say so again
        return float("inf")
    return float("inf") if said is None else float(said[1]) * 1024.0 ** _UNITS.get(said[2], 6)
