"""The rows of one database, and those that remain without one individual.

Rows come as columns and, for each row, the index of its individual; they go to the query's function as a dict of
arrays or as a frame, always fresh, so that no call can spoil the next. `returned` reads what the function returns.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError, SourceError

Columns = dict[str, npt.NDArray[Any]]
FrameKind = Literal["dict", "pandas", "polars", "arrow"]
FRAME_KINDS: tuple[str, ...] = get_args(FrameKind)

# For these, copying the reference is enough: no function can change the value behind it.
_IMMUTABLE = {
    type(None), bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class DatabaseRows:
    """One database's rows, grouped by individual once so that leaving one out is quick.

    Attributes
    ----------
    base : the rows of everyone, in the frame that the function takes; never handed out itself
    kind : the kind of frame
    order : row numbers, sorted by individual
    codes : individual of each row of ``order``; -1 is nobody, whose rows stay in
    delicate : names of columns that hold values a function could change in place
    """

    base: Any
    kind: FrameKind
    order: npt.NDArray[np.intp]
    codes: npt.NDArray[Any]
    delicate: tuple[str, ...]

    def everyone(self) -> Any:
        """A fresh copy of all rows."""
        if self.kind == "dict":
            return self._spared({name: column.copy() for name, column in self.base.items()})
        if self.kind == "pandas":
            return self._spared(self.base.copy(deep=True))
        return self.base.clone() if self.kind == "polars" else self.base

    def without(self, individual: int) -> Any:
        """A fresh copy of the rows that are not this individual's."""
        first, last = np.searchsorted(self.codes, [individual, individual + 1])
        keep = np.ones(len(self.codes), np.bool_)
        keep[self.order[first:last]] = False
        if self.kind == "dict":
            return self._spared({name: column[keep] for name, column in self.base.items()})
        if self.kind == "pandas":
            return self._spared(self.base[keep].reset_index(drop=True))
        return self.base.filter(keep)

    def _spared(self, frame: Any) -> Any:
        for name in self.delicate:
            fresh = np.empty(len(frame[name]), object)
            fresh[:] = [copy.deepcopy(value) for value in frame[name]]
            frame[name] = fresh
        return frame


def group_rows(
    columns: Mapping[str, npt.NDArray[Any]],
    codes: npt.ArrayLike,
    *,
    kind: FrameKind,
    members: npt.NDArray[Any] | None,
    database: int,
) -> DatabaseRows:
    """Rows ready for leaving individuals out.

    ``members`` are all the individuals known to be in this database, in increasing order; a row of anybody else
    would never be left out, and is refused. None skips that check.
    """
    codes = np.asarray(codes)
    # Masked arrays (NULLs) must stay masked; the function must not get a memory map.
    plain = {
        str(name): column if isinstance(column, np.ma.MaskedArray) else np.asarray(column)
        for name, column in columns.items()
    }
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise SourceError(
            f"The individuals of the rows of database {database} must be a one-dimensional array of integers."
        )
    if any(column.shape != codes.shape for column in plain.values()):
        raise SourceError(f"The columns of database {database} must all have one value per row.")
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    if members is not None:
        present = np.unique(ordered)
        strangers = int(np.count_nonzero(~np.isin(present[present != -1], members)))
        if strangers:
            raise SourceError(
                f"Database {database} must hold only rows of the individuals listed for it, "
                f"got rows of {strangers} others, who would never be left out."
            )
    frame = _frame(plain, kind)
    delicate = [name for name, column in plain.items() if kind in ("dict", "pandas") and _is_delicate(column)]
    return DatabaseRows(base=frame, kind=kind, order=order, codes=ordered, delicate=tuple(delicate))


def _is_delicate(column: npt.NDArray[Any]) -> bool:
    return column.dtype == object and not set(map(type, column)) <= _IMMUTABLE


def _frame(columns: Columns, kind: FrameKind) -> Any:
    if kind == "pandas":
        pandas = frame_package(kind)
        return pandas.DataFrame({name: _pandas_column(column, pandas) for name, column in columns.items()})
    if kind == "polars":
        polars = frame_package(kind)
        # From a list, polars recognises dates and decimals; from an array of objects it keeps opaque objects.
        return polars.DataFrame(
            {name: column.tolist() if column.dtype == object else column for name, column in columns.items()}
        )
    if kind == "arrow":
        return frame_package(kind).table(columns)
    return columns


def _pandas_column(column: npt.NDArray[Any], pandas: Any) -> Any:
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)
        # By default pandas turns these into float64, which rounds integers beyond 2^53.
        if column.dtype.kind in "iu":
            return pandas.arrays.IntegerArray(column.data.copy(), mask.copy())
        if column.dtype.kind == "b":
            return pandas.arrays.BooleanArray(column.data.copy(), mask.copy())
    return column


def frame_kind(frame: Any) -> FrameKind:
    """What a function receives, checked: one of `FRAME_KINDS`, of a package that is installed."""
    if frame not in FRAME_KINDS:
        raise InputError(f"`frame` must be one of {', '.join(map(repr, FRAME_KINDS))}, got {frame!r}.")
    kind: FrameKind = frame
    if kind != "dict":
        frame_package(kind)
    return kind


def frame_package(kind: FrameKind) -> Any:
    """The package that makes such frames."""
    try:
        if kind == "pandas":
            import pandas

            return pandas
        if kind == "polars":
            import polars

            return polars
        import pyarrow
    except ImportError as error:
        hint = f"Hint: pip install {error.name or kind}."
        raise InputError(f"`frame` must be of an installed package, got {kind!r}. {hint}") from None
    return pyarrow
