"""What collecting asks of a data engine: a new engine is one folder with an `Engine` and a `Session`.

Statements are trees, written once; each engine puts them in its own dialect. An engine whose rows are on other
machines is a `ClusterEngine` too: it is given plain functions of Arrow batches, and gives back bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from empriv.errors import QueryError

if TYPE_CHECKING:
    from sqlglot import exp

    from empriv.collecting.function_calls import Chunk
    from empriv.collecting.function_calls import FunctionQuery as Called
    from empriv.collecting.sources import Databases
    from empriv.collecting.sql.aggregates import Type
    from empriv.collecting.sql.printing import Names


# The table that queries read, and the columns that say where each of its rows belongs.
DATA, DATABASE, INDIVIDUAL = "data", "empriv_database", "empriv_individual"
# What the table `data` of everyone is called in an engine, which no query can name.
EVERYONE = "empriv_data"
# Columns of an entry: a result without an individual, and the database that it is of.
ENTRY = WHO, WHERE, VALUE = "individual", "database", "q"
# Every row once, and one row for each random database that is drawn from them.
MASTER, SAMPLES = "empriv_master", "empriv_samples"
_PRIME = 268_435_459  # the first above 16 ** 7

Rows = list[tuple[Any, ...]]
Batches = Iterator[Any]  # of Arrow

# Which individual is in which database, by their codes.
PRESENCE = (
    f"SELECT d.code AS d, i.code AS i FROM (SELECT DISTINCT {DATABASE}, {INDIVIDUAL} FROM {EVERYONE}) AS p "
    f"JOIN empriv_databases AS d ON d.label = p.{DATABASE} "
    f"JOIN empriv_individuals AS i ON i.label = p.{INDIVIDUAL} ORDER BY d.code, i.code"
)


def in_sample(rows: str, samples: str) -> str:
    """The condition that a unit's rows are in a random database; rows without an individual are in all of them.

    A unit is a point (x, y) of hashes, a database a random line: the unit is in if its distance from the line, modulo a
    prime, is small enough. Units are in or out independently of each other, and in any two databases independently.
    """
    distance = f"({rows}.empriv_x * {samples}.a + {rows}.empriv_y * {samples}.b + {samples}.c) % {_PRIME}"
    return f"({distance} < {samples}.most OR {rows}.empriv_x IS NULL)"


def hash_of(text: str, part: int) -> str:
    """A number below 16 ** 7, alike on every engine, from the md5 ``text``; it has parts 0 to 3."""
    digits = (f"(STRPOS('123456789abcdef', SUBSTR({text}, {8 * part + k + 1}, 1)) * {16**k})" for k in range(7))
    return f"CAST({' + '.join(digits)} AS BIGINT)"


def largest_distance(fraction: float) -> int:
    """The distance below which a unit is in a database that holds such a fraction."""
    return round(fraction * _PRIME)


def quoted(name: str) -> str:
    """An identifier, whatever characters it holds."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text, whatever characters it holds."""
    return "'" + text.replace("'", "''") + "'"


class FailedOnRows(QueryError):
    """The query is well formed, but fails on some rows."""


class BeyondLimits(QueryError):
    """The query needs more time or memory than it may have."""


class Refused(QueryError):
    """The query reaches for something that no query may read or call; nothing is to be added to what is said."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column of results: values, and where they are NULL."""

    values: npt.NDArray[Any]
    null: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SentRows:
    """Rows on their way to another connection: an object that speaks Arrow, and DuckDB's types of its columns.

    A type is empty where it is that of the column as it arrives.
    """

    rows: Any
    types: Mapping[str, str]


class Session(Protocol):
    """A `Databases` made ready to be queried under the name ``data``, with its labels."""

    @property
    def databases(self) -> npt.NDArray[Any]: ...

    @property
    def individuals(self) -> npt.NDArray[Any]: ...

    @property
    def integer_bits(self) -> int:
        """How many bits the integers have in which doubles are added up."""

    @property
    def whose(self) -> Sequence[str]:
        """Columns of ``data`` that say whom a row belongs to."""

    @property
    def said(self) -> Sequence[str]:
        """Sentences about how the rows were read, where that had to be found out."""

    @property
    def drawn(self) -> bool:
        """Whether databases are random samples of individuals, whose rows are each once in `MASTER`."""

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """Columns of ``data`` and of the other tables, by table."""

    def label_individuals(self) -> None:
        """Make the table ``empriv_individuals`` of codes and labels, if it is not there; databases have theirs."""

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        """Refuse a query that the engine refuses on empty tables, or reads otherwise; and close what it could reach.

        ``written`` is the text as somebody wrote it, and what we read in it.
        """

    def types(self, statement: exp.Expr) -> dict[str, Type]:
        """Type of each column that the statement would give."""

    def fetch(self, statement: exp.Expr) -> dict[str, Column]:
        """Run a statement whose columns are numbers, booleans or text."""

    def store(self, name: str, statement: exp.Expr) -> None:
        """Run a statement and keep its rows as a table of this name for as long as the session lasts."""

    def store_numbers(self, name: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Make a table of numbers for as long as the session lasts."""

    def rerun(self, statement: exp.Expr, database: int) -> AbstractContextManager[Callable[[int], Rows | None]]:
        """A function that runs a query on one database without an individual (-1: nobody); None where it fails."""

    def extract(self, directory: str) -> Callable[[int], tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]]:
        """Put the rows into a directory, and return a function that gives those of one database.

        The function can be pickled. It gives the columns, in a repeatable order of rows, and whose each row is, as
        the position of the individual (-1: nobody's).
        """

    def presence(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Every pair of database and individual that has rows, as positions, in order."""

    def stream(self, statement: exp.Expr) -> SentRows:
        """The rows of a statement, in the order of the source where it has one, for another connection."""


@dataclass(frozen=True)
class Deletion:
    """Who is deleted from a database: a half of the people in one of the draws, one individual, or nobody."""

    database: int
    draw: int | None = None
    half: int = 0
    individual: int | None = None


class IsolatedRows(Protocol):
    """A connection of its own that holds the rows of a few databases and nothing else; people can be deleted from one.

    Databases have the positions that they have in the session that they are of. People are dealt into halves 0 and 1 at
    random, many times: the draws. They are numbered from 0.
    """

    @property
    def individuals(self) -> npt.NDArray[Any]:
        """Labels of those who have rows, as a `Session` gives them."""

    def ask(self, statement: exp.Expr, deletions: Sequence[Deletion], *, shuffled: bool = False) -> list[Rows | None]:
        """Run a query on the rows of a database that each of these leaves; None where it fails on them.

        With ``shuffled``, the rows are in another order.
        """

    def without(self, deletion: Deletion) -> AbstractContextManager[None]:
        """Within, the rows of those who are deleted, and of all other databases, are nowhere in the connection."""

    def repeated(self, deletions: Sequence[Deletion]) -> AbstractContextManager[Session]:
        """A session with the database of each of these once more, in which individuals are other ones.

        For a draw they are the two halves; for one individual it is they, and all other rows are nobody's.
        """


class Engine(Protocol):
    """Opens sessions; must be possible to pickle."""

    def session(self, data: Databases) -> AbstractContextManager[Session]: ...

    def isolated(
        self, session: Session, data: Databases, chosen: Sequence[int]
    ) -> AbstractContextManager[IsolatedRows]:
        """The rows of these databases of a session, in a connection of their own."""


class ClusterSession(Session, Protocol):
    """A session on other machines, where functions are called and results without individuals stay."""

    def fingerprint(self) -> str:
        """The rows in one text, by which they are known again."""

    def run_calls(self, query: Called, *, show: bool | None = None) -> list[Chunk]:
        """A function called on every database with everyone, and without each individual."""

    def run_batches(
        self, entries: exp.Expr, work: Callable[[Batches], Batches], schema: Any, table: str | None = None
    ) -> list[bytes]:
        """Deal entries out to the machines by individual, have each do its work, and return what it says in bytes.

        ``entries`` is a statement with the columns of `ENTRY`. ``work`` is given Arrow batches of these in order of
        individual and database, where an individual is an integer, a text, or a struct of several columns. It gives
        batches of the Arrow ``schema``, whose last column is binary: where that is not NULL it is returned, and the
        other rows, without it, are written to ``table``. The bytes come sorted, whichever machine was first.
        """

    def save(self, place: str, statement: exp.Expr, note: str) -> None:
        """Write a statement's rows and a text to a directory."""

    def load(self, place: str) -> tuple[exp.Expr, str] | None:
        """A statement of the rows that were saved, and the text; None if they were not saved to the end."""


@runtime_checkable
class ClusterEngine(Engine, Protocol):
    """An engine whose rows are on other machines."""

    def session(self, data: Databases) -> AbstractContextManager[ClusterSession]: ...

    def parts(self) -> int:
        """Into how many parts individuals are dealt."""


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
