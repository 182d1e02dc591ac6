"""What an executor does with Arrow batches of rows: it calls a Python function on each database in them.

Knows neither Spark nor SQL: it runs wherever the rows are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.engines.engine import DATABASE
from empriv.collecting.functions.chunks import ChunkTask, FunctionQuery, run_task

# The column that says whose a row is, by position.
CODE = "left_out"


def called_batches(query: FunctionQuery, columns: tuple[str, ...], batches: Iterator[Any]) -> Iterator[Any]:
    """Arrow batches of rows in order of database → of one chunk for each database; this is what executors do.

    One database is held at a time, however many of them a partition has.
    """
    import pyarrow

    kept: list[Any] = []
    for batch in batches:
        edges = _edges(batch[DATABASE].to_numpy(zero_copy_only=False))
        for first, stop in pairwise(edges):
            piece = batch.slice(first, stop - first)
            if kept and kept[0][DATABASE][0] != piece[DATABASE][0]:
                yield _called_batch(query, columns, pyarrow.Table.from_batches(kept))
                kept = []
            kept.append(piece)
    if kept:
        yield _called_batch(query, columns, pyarrow.Table.from_batches(kept))


def _edges(values: npt.NDArray[Any]) -> list[int]:
    """Where runs of equal values begin, and the end."""
    return [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)] if len(values) else []


def _called_batch(query: FunctionQuery, columns: tuple[str, ...], table: Any) -> Any:
    import pyarrow

    chunk = called(query, columns, int(table[DATABASE][0].as_py()), table)
    return pyarrow.RecordBatch.from_arrays([pyarrow.array([chunk], pyarrow.binary())], names=["chunk"])


def called(query: FunctionQuery, columns: tuple[str, ...], database: int, table: Any) -> bytes:
    """One database's calls, as bytes."""
    # Shuffles deal rows out in any order: put into one order, so that every run gives the function the same.
    table = table.sort_by([(name, "ascending") for name in (CODE, *columns)])
    codes = table[CODE].to_numpy().astype(np.int64)
    arrays = {name: _plain(table[name]) for name in columns}
    members = np.unique(codes[codes >= 0])
    everyone_first = np.concatenate(([-1], members))
    task = ChunkTask(database, 0, everyone_first, members, float("inf"), twice=database == 0)
    return run_task(query, lambda _: (arrays, codes), task).to_bytes()


def _plain(column: Any) -> npt.NDArray[Any]:
    """An array in which NULL is NaN, NaT or None, as DuckDB's rows have it."""
    import pyarrow

    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return np.asarray(column.to_numpy())
