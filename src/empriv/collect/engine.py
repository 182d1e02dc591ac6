"""What collecting asks of a data engine: a new engine is one file with these two classes.

Statements are trees, written once; each engine puts them in its own dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collect.aggregates import Kind
from empriv.collect.sources import Databases


@dataclass(frozen=True, eq=False)
class Column:
    """A column of results: values, and where they are NULL."""

    values: npt.NDArray[Any]
    null: npt.NDArray[np.bool_]


class Session(Protocol):
    """A `Databases` made ready to be queried under the name ``data``, with its labels."""

    @property
    def databases(self) -> npt.NDArray[Any]: ...

    @property
    def individuals(self) -> npt.NDArray[Any]: ...

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """Columns of ``data`` and of the other tables, by table."""

    def kinds(self, statement: exp.Expression) -> dict[str, Kind]:
        """Kind of each column that the statement would give."""

    def fetch(self, statement: exp.Expression) -> dict[str, Column]:
        """Run a statement whose columns are numbers, booleans or text."""

    def store(self, name: str, statement: exp.Expression) -> None:
        """Run a statement and keep its rows as a table of this name for as long as the session lasts."""

    def rerun(
        self, statement: exp.Expression, database: int, individuals: npt.NDArray[np.int64]
    ) -> list[list[tuple[Any, ...]] | None]:
        """Run a query on one database without each of these individuals (-1: nobody); None where it fails."""

    def rows(self, database: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
        """Rows of one database as arrays in a repeatable order, and whose each is (-1: nobody's)."""

    def presence(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Every pair of database and individual that has rows, as positions."""


class Engine(Protocol):
    """Opens sessions; must be possible to pickle."""

    def session(self, data: Databases) -> AbstractContextManager[Session]: ...
