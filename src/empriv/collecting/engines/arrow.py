"""Arrow tables as arrays, for any engine that gives them; executors of a cluster use it as well, so it loads little."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.engines.engine import Column


def labels_of(column: Any) -> npt.NDArray[Any]:
    """Labels from an Arrow column: integers, texts, or the values of several columns as JSON arrays."""
    import pyarrow

    if pyarrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy().astype(np.int64))
    if pyarrow.types.is_struct(column.type):
        rows = column.to_pylist()
        return np.array([json.dumps(list(row.values()), default=str, ensure_ascii=False) for row in rows], np.str_)
    return np.array(column.to_pylist(), np.str_)


def columns_of(table: Any) -> dict[str, Column]:
    """Columns of a table of results."""
    import pyarrow

    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
        if pyarrow.types.is_decimal(column.type):
            column = column.cast(pyarrow.float64())
        if null.any() and not pyarrow.types.is_string(column.type):
            column = column.fill_null(False if pyarrow.types.is_boolean(column.type) else 0)
        columns[name] = Column(np.asarray(column.to_numpy(zero_copy_only=False)), null)
    return columns
