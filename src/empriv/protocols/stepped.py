"""A session whose ``data`` are the rows after steps, with a database for each database and draw.

In every statement that collecting runs, it replaces the table ``data`` by the rows after the steps, and
``empriv_databases`` by the pairs of database and draw. So whatever can be collected can be collected after steps, by
the same leave-one-out rewrite. `with_draws` turns the pairs back into `Results` with draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from sqlglot import exp, parse_one

from empriv.collecting.engines.data_view import find_column
from empriv.collecting.engines.engine import Apart, Column, Engine, Integers, Rows, SentRows, Session, quoted
from empriv.collecting.queries import DATA, DATABASE, INDIVIDUAL
from empriv.collecting.sources import Databases
from empriv.collecting.sql.aggregates import Type
from empriv.collecting.sql.printing import Names, in_place_of
from empriv.errors import InputError
from empriv.protocols.query_steps import RowStep
from empriv.results import IntArray, Outcome, Results

STEPPED, UNITS, DRAWS, PLACES = "empriv_stepped", "empriv_units", "empriv_draws", "empriv_places"
_DRAW, _UNIT, _CODE, _HASH = "empriv_draw", "empriv_unit", "empriv_code", "empriv_hash"


@dataclass(frozen=True)
class Layer:
    """A step, with the column that it changes.

    Attributes
    ----------
    step : the step
    column : the column that it is on, or None for one that leaves rows out
    double : whether that column is of doubles when the step is taken
    stream : name of its stream of random numbers
    """

    step: RowStep
    column: str | None
    double: bool
    stream: str

    def over(self, source: str, own: Sequence[str], carried: Sequence[str]) -> str:
        """SQL of the rows after the step; ``carried`` are more columns that pass unchanged."""
        if self.step.randomised:
            drawn = f"MD5_NUMBER('{self.stream}:' || {_DRAW} || ':' || {_UNIT}) AS {_HASH}"
            source = f"SELECT *, {drawn} FROM ({source}) AS s"
        written = self.step.write("" if self.column is None else quoted(self.column), _HASH, double=self.double)
        listed = [f"{written} AS {quoted(name)}" if name == self.column else quoted(name) for name in own]
        where = f" WHERE {written}" if self.column is None else ""
        return f"SELECT {', '.join([*listed, *carried])} FROM ({source}) AS s{where}"


@dataclass(frozen=True)
class Layers:
    """All steps on rows, and ``own``, all columns of the rows."""

    own: tuple[str, ...]
    steps: tuple[Layer, ...]

    @property
    def randomised(self) -> bool:
        return any(layer.step.randomised for layer in self.steps)

    @property
    def drops(self) -> bool:
        """Whether rows may be left out."""
        return any(layer.column is None for layer in self.steps)

    def over(self, source: str, carried: Sequence[str]) -> str:
        """SQL of the rows after all steps."""
        for layer in self.steps:
            source = layer.over(source, self.own, carried)
        return source

    def unit(self, database: str, by: Sequence[str] = ()) -> str:
        """SQL that names a row by its database and content, and by a number among rows of the same content.

        Rows of the same content belong to one individual, since the content includes who it is: a row keeps its name
        when somebody else leaves.
        """
        texts = [f"CAST({quoted(column)} AS VARCHAR)" for column in self.own]
        content = " || ".join(f"COALESCE(LENGTH({text}) || ':' || {text}, '-')" for text in texts)
        content_columns = ", ".join([*by, *map(quoted, self.own)])
        return f"{database} || ':' || MD5({content}) || ':' || ROW_NUMBER() OVER (PARTITION BY {content_columns})"


def layers(session: Session, steps: Sequence[tuple[RowStep, str]], data: Databases) -> Layers:
    """Find the columns that the steps change; each step comes with the name of its stream."""
    own = tuple(session.columns[DATA])
    types = session.types(_tree(f"SELECT {', '.join(map(quoted, own))} FROM {DATA}"))
    identity = {name.lower() for name in data.individual}
    step_layers = []
    for step, stream in steps:
        column = None if step.column is None else find_column(step.column, own, "column", data)
        if column is not None and column.lower() in identity:
            raise InputError("`column` must not be one that says whom a row belongs to.")
        if column is not None and types[column].kind not in ("integer", "decimal", "double"):
            raise InputError(
                f"`column` must be a column of numbers, and {column!r} is not. Hint: cast it in the source, or name "
                "another."
            )
        step_layers.append(Layer(step, column, column is not None and types[column].kind == "double", stream))
        if column is not None and step.randomised:
            types[column] = Type("double")
    return Layers(own, tuple(step_layers))


def name_rows(session: Session, rows: Layers) -> None:
    """Store the rows with their names, which random steps draw from; once for a session."""
    own = ", ".join(f"r.{quoted(column)}" for column in rows.own)
    named = rows.unit(_CODE, [_CODE])
    joined = (
        f"SELECT {own}, r.{INDIVIDUAL}, d.code AS {_CODE} FROM {DATA} AS r "
        f"JOIN empriv_databases AS d ON d.label = r.{DATABASE}"
    )
    session.store(UNITS, _tree(f"SELECT *, {named} AS {_UNIT} FROM ({joined}) AS s"))


@dataclass(eq=False)
class SteppedSession:
    """A session after steps, for ``count`` draws from ``first`` on.

    Database number ``j * count + k`` is database ``j`` with draw ``first + k``. One such session at a time: the next
    replaces its tables.
    """

    inner: Session
    rows: Layers
    first: int
    count: int

    def __post_init__(self) -> None:
        n, m = len(self.inner.databases), self.count
        place = np.arange(n * m)
        self.inner.store_numbers(PLACES, {"code": place, "label": place})
        self.inner.store_numbers(DRAWS, {"draw": self.first + np.arange(m), "place": np.arange(m)})
        own = ", ".join(f"r.{quoted(column)}" for column in self.rows.own)
        carried = [DATABASE, INDIVIDUAL]
        if self.rows.randomised:
            source = (
                f"SELECT {own}, r.{INDIVIDUAL}, r.{_CODE} * {m} + d.place AS {DATABASE}, d.draw AS {_DRAW}, r.{_UNIT} "
                f"FROM {UNITS} AS r CROSS JOIN {DRAWS} AS d"
            )
            carried += [_DRAW, _UNIT]
        else:
            source = (
                f"SELECT {own}, r.{INDIVIDUAL}, d.code AS {DATABASE} FROM {DATA} AS r "
                f"JOIN empriv_databases AS d ON d.label = r.{DATABASE}"
            )
        listed = ", ".join([*map(quoted, self.rows.own), DATABASE, INDIVIDUAL])
        self.inner.store(STEPPED, _tree(f"SELECT {listed} FROM ({self.rows.over(source, carried)}) AS s"))

    @cached_property
    def databases(self) -> npt.NDArray[Any]:
        return np.arange(len(self.inner.databases) * self.count)

    @property
    def individuals(self) -> npt.NDArray[Any]:
        return self.inner.individuals

    @property
    def whose(self) -> Sequence[str]:
        return self.inner.whose

    @property
    def said(self) -> Sequence[str]:
        return self.inner.said

    @property
    def digests_rows(self) -> bool:
        return False

    @property
    def drawn(self) -> bool:
        return False  # steps are taken in each database

    @property
    def integers(self) -> Integers | None:
        # People who lose all their rows are still listed, which takes a table of labels.
        return None if self.rows.drops else self.inner.integers

    @property
    def integer_bits(self) -> int:
        return self.inner.integer_bits

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        return self.inner.columns

    def label_individuals(self) -> None:
        self.inner.label_individuals()

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        self.inner.admit(select, written)

    def types(self, statement: exp.Expr) -> dict[str, Type]:
        return self.inner.types(_exchanged(statement))

    def fetch(self, statement: exp.Expr) -> dict[str, Column]:
        return self.inner.fetch(_exchanged(statement))

    def stream(self, statement: exp.Expr) -> SentRows:
        return self.inner.stream(_exchanged(statement))

    def store(self, name: str, statement: exp.Expr) -> None:
        self.inner.store(name, _exchanged(statement))

    def store_numbers(self, name: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self.inner.store_numbers(name, columns)

    def presence(self) -> tuple[IntArray, IntArray]:
        database, individual = self.inner.presence()
        draw = np.arange(self.count)
        pairs = (database[:, None] * self.count + draw).ravel(), np.repeat(individual, self.count)
        order = np.lexsort((pairs[1], pairs[0]))
        return pairs[0][order], pairs[1][order]

    @contextmanager
    def rerun(self, statement: exp.Expr, database: int) -> Iterator[Callable[[int], Rows | None]]:
        place, draw = divmod(database, self.count)
        own = ", ".join(map(quoted, self.rows.own))
        source, carried = f"SELECT {own} FROM {DATA}", []
        if self.rows.randomised:
            carried = [_DRAW, _UNIT]
            unit = self.rows.unit(f"'{place}'")
            source = f"SELECT {own}, {self.first + draw} AS {_DRAW}, {unit} AS {_UNIT} FROM {DATA}"
        steps = _tree(f"SELECT {own} FROM ({self.rows.over(source, carried)}) AS s")
        tree = statement.copy()
        # List them before replacing any: the replacement reads ``data`` too, and must not be replaced itself.
        for table in list(tree.find_all(exp.Table)):
            if table.name.lower() == DATA and not table.db:
                table.replace(in_place_of(table, steps.copy()))
        with self.inner.rerun(tree, place) as run:
            yield run

    def extract(self, directory: str) -> Callable[[int], tuple[dict[str, npt.NDArray[Any]], IntArray]]:  # noqa: ARG002
        self.label_individuals()
        own = ", ".join(f"p.{quoted(column)}" for column in self.rows.own)
        fetched = self.inner.fetch(
            _tree(
                f"SELECT {own}, p.{DATABASE}, COALESCE(i.code, -1) AS {_CODE} FROM {STEPPED} AS p "
                f"LEFT JOIN empriv_individuals AS i ON i.label = p.{INDIVIDUAL} ORDER BY p.{DATABASE}, {own}"
            )
        )
        starts = np.searchsorted(fetched[DATABASE].values, np.arange(len(self.databases) + 1))
        columns = {name: _plain(fetched[name]) for name in self.rows.own}
        return InMemory(columns, np.asarray(fetched[_CODE].values, np.int64), starts)


@dataclass(frozen=True, eq=False)
class Open:
    """An engine whose session is already open."""

    kept: SteppedSession
    engine: Engine

    def apart(self, session: Session, data: Databases, chosen: Sequence[int]) -> AbstractContextManager[Apart]:
        """The rows of these databases after the steps, in a connection of their own."""
        return self.engine.apart(session, data, chosen)

    def session(self, data: Databases) -> AbstractContextManager[SteppedSession]:  # noqa: ARG002 — they are open
        return nullcontext(self.kept)


@dataclass(frozen=True, eq=False)
class InMemory:
    """Rows sorted by database; calling it returns those of one database."""

    columns: dict[str, npt.NDArray[Any]]
    codes: IntArray
    starts: npt.NDArray[np.intp]

    def __call__(self, database: int) -> tuple[dict[str, npt.NDArray[Any]], IntArray]:
        part = slice(self.starts[database], self.starts[database + 1])
        return {name: column[part] for name, column in self.columns.items()}, self.codes[part]


def with_draws(parts: Sequence[tuple[Results, int]], databases: npt.NDArray[Any]) -> Results:
    """Results on pairs of database and draw, as results on databases with draws; each part has its number of draws.

    A component that a draw does not have (a group whose rows were all left out) is NULL there.
    """
    n, total = len(databases), sum(count for _, count in parts)
    names = list(dict.fromkeys(name for part, _ in parts for name in part.components or ("",)))
    keys = []
    for part, count in parts:
        owner = np.repeat(np.arange(part.n_individuals, dtype=np.int64), part.presence)
        keys.append(owner * n + part.entry_database // count)
    union = np.unique(np.concatenate(keys))
    q, codes = np.full((n, total, len(names)), np.nan), np.full((n, total, len(names)), Outcome.NULL, np.int8)
    columns = [np.array([names.index(name) for name in part.components or ("",)]) for part, _ in parts]
    first = 0
    for (part, count), column in zip(parts, columns, strict=True):
        draws = slice(first, first + count)
        q[:, draws, column] = part.q.reshape(n, count, len(column))
        codes[:, draws, column] = part.outcomes.reshape(n, count, len(column))
        first += count
    # Where an individual has no row left, the result is that with everyone.
    entry_q, entry_codes = q[union % n], codes[union % n]
    first = 0
    for (part, count), column, key in zip(parts, columns, keys, strict=True):
        at = np.searchsorted(union, key)[:, None]
        draw = (first + part.entry_database % count)[:, None]
        entry_q[at, draw, column] = part.entry_q.reshape(len(key), len(column))
        entry_codes[at, draw, column] = part.entry_outcomes.reshape(len(key), len(column))
        first += count
    whole = parts[0][0]
    cells = {
        name: cell for part, _ in parts for name, cell in zip(part.components or (), part.cells or (), strict=False)
    }
    numbers = (slice(None), slice(None), 0 if whole.components is None else slice(None))
    counts = np.bincount(union // n, minlength=whole.n_individuals)
    return Results(
        q=np.ascontiguousarray(q[numbers]),
        outcomes=np.ascontiguousarray(codes[numbers]),
        databases=databases,
        individuals=whole.individuals,
        starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        entry_database=(union % n).astype(np.int32),
        entry_q=np.ascontiguousarray(entry_q[numbers]),
        entry_outcomes=np.ascontiguousarray(entry_codes[numbers]),
        components=None if whole.components is None else tuple(names),
        draws=total,
        cells=None if whole.cells is None else tuple(cells[name] for name in names),
    )


def _exchanged(statement: exp.Expr) -> exp.Expr:
    """The statement with ``data`` and its databases replaced by those after the steps."""
    tree = statement.copy()
    for table in tree.find_all(exp.Table):
        new = {DATA: STEPPED, "empriv_databases": PLACES}.get(table.name.lower())
        if new is not None and not table.db:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=table.this.copy()))
            table.set("this", exp.to_identifier(new))
    return tree


def _tree(sql: str) -> exp.Select:
    return cast(exp.Select, parse_one(sql, dialect="duckdb"))


def _plain(column: Column) -> npt.NDArray[Any]:
    """An array in which NULL is NaN, NaT or None, as Python functions get it."""
    values, null = column.values, column.null
    if not null.any():
        return values
    if values.dtype.kind in "iuf":
        return np.where(null, np.nan, values.astype(np.float64))
    if values.dtype.kind in "mM":
        return np.where(null, np.array("NaT", values.dtype), values)
    plain = values.astype(object)
    plain[null] = None
    return plain
