"""The rows of one database, and those that remain without one individual: fresh each time, so that no call spoils the
next.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import SourceError

Columns = dict[str, npt.NDArray[Any]]

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
    columns : the rows of everyone; never handed out themselves
    order : row numbers, sorted by individual
    codes : individual of each row of ``order``; -1 is nobody, whose rows stay in
    delicate : names of columns that hold values a function could change in place
    """

    columns: Columns
    order: npt.NDArray[np.intp]
    codes: npt.NDArray[Any]
    delicate: frozenset[str]

    def everyone(self) -> Columns:
        """A fresh copy of all rows."""
        return self._only(np.ones(len(self.codes), np.bool_))

    def without(self, individual: int) -> Columns:
        """A fresh copy of the rows that are not this individual's."""
        first, last = np.searchsorted(self.codes, [individual, individual + 1])
        keep = np.ones(len(self.codes), np.bool_)
        keep[self.order[first:last]] = False
        return self._only(keep)

    def _only(self, keep: npt.NDArray[np.bool_]) -> Columns:
        rows = {name: column[keep] for name, column in self.columns.items()}
        for name in self.delicate:
            rows[name][:] = [copy.deepcopy(value) for value in rows[name]]
        return rows


def group_rows(
    columns: Mapping[str, npt.NDArray[Any]],
    codes: npt.ArrayLike,
    *,
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
    return DatabaseRows(plain, order, ordered, frozenset(name for name in plain if _is_delicate(plain[name])))


def _is_delicate(column: npt.NDArray[Any]) -> bool:
    return column.dtype == object and not set(map(type, column)) <= _IMMUTABLE
