"""Arrow tables as arrays, and what an executor does with them for Python functions.

Knows neither an engine nor SQL: it runs wherever the rows are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.engines.engine import Column
from empriv.collecting.functions.chunks import Chunk, ChunkTask, FunctionQuery, run_task
from empriv.collecting.queries import DATABASE

# The column that says whose a row is, by position.
CODE = "left_out"


def labels_of(column: Any) -> npt.NDArray[Any]:
    """Labels from an Arrow column: integers, texts, or the values of several columns as JSON arrays."""
    import pyarrow

    if pyarrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy().astype(np.int64))
    if pyarrow.types.is_struct(column.type):
        rows = column.to_pylist()
        return np.array([json.dumps(list(row.values()), default=str, ensure_ascii=False) for row in rows], np.str_)
    return np.array(column.to_pylist(), np.str_)


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
    here = FunctionQuery(query.function, lambda _: (arrays, codes), query.frame, query.draws, query.seed)
    everyone_first = np.concatenate(([-1], members))
    chunk = run_task(here, ChunkTask(database, 0, everyone_first, members, float("inf"), twice=database == 0))
    said = {"database": database, "names": chunk.names, "failure": chunk.failure, "shape": chunk.values.shape}
    return json.dumps(said).encode() + b"\n" + chunk.values.tobytes() + chunk.outcomes.tobytes()


def chunk_from(content: bytes) -> Chunk:
    """The inverse of what `called` gives."""
    head, _, rest = content.partition(b"\n")
    said = json.loads(head)
    size = 8 * int(np.prod(said["shape"]))
    names = None if said["names"] is None else tuple(said["names"])
    values = np.frombuffer(rest[:size], np.float64).reshape(said["shape"])
    outcomes = np.frombuffer(rest[size:], np.int8).reshape(said["shape"])
    return Chunk(said["database"], 0, names, values, outcomes, said["failure"], 0.0, 0.0)


def _plain(column: Any) -> npt.NDArray[Any]:
    """An array in which NULL is NaN, NaT or None, as DuckDB's rows have it."""
    import pyarrow

    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return np.asarray(column.to_numpy())


def columns_of(table: Any) -> dict[str, Column]:
    """Columns of a table of results."""
    import pyarrow

    found = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
        if pyarrow.types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        if null.any() and not pyarrow.types.is_string(column.type):
            column = column.fill_null(False if pyarrow.types.is_boolean(column.type) else 0)
        found[name] = Column(np.asarray(column.to_numpy(zero_copy_only=False)), null)
    return found
