"""The view of rows, which queries call ``data``: each with its database and its individual, from any kind of source.

Text for an engine that speaks DuckDB's SQL; who is in a random database is decided by md5, which every engine has.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.engines.engine import (
    DATA,
    DATABASE,
    EVERYONE,
    INDIVIDUAL,
    MASTER,
    PRESENCE,
    SAMPLES,
    Column,
    hash_of,
    in_sample,
    largest_distance,
    quoted,
    text_literal,
)
from empriv.collecting.sources import Databases, Draws, Files, Frame, shown_path
from empriv.collecting.sql.allowlist import row_expression
from empriv.collecting.sql.printing import listed, nearest, printed
from empriv.errors import QueryError, SourceError


def data_view(data: Databases, relations: list[str], columns_of: Callable[[str], Mapping[str, str]]) -> Iterable[str]:
    """Statements that make the view `EVERYONE` from one relation per part."""
    columns = list(columns_of(relations[0]))
    for column in columns:
        if column.lower().startswith("empriv_"):
            raise SourceError(f"A column must not be called {column!r}: empriv needs names of this kind itself.")
    if len(columns) == 1 and isinstance(data.parts[0], Files) and re.search(r"[,;\t|]", columns[0]):
        raise SourceError(
            "The lines of a CSV file must all have as many fields as the first, got a file that can only be read as "
            "one column. Hint: look for lines that are cut short, and for separators in values without quotes."
        )
    kinds = columns_of(relations[0])
    named = [find_column(name, columns, "individual", data) for name in data.individual]
    individual = _individual([name_of(quoted(name), kinds[name]) for name in named])
    known = f" WHERE {individual} IS NOT NULL" if data.unidentified == "drop" else ""
    if data.labels is not None:
        selects = []
        for label, relation in zip(data.labels, relations, strict=True):
            if set(columns_of(relation)) != set(columns):
                raise SourceError("All tables of a list must have the same columns.")
            value = text_literal(label) if isinstance(label, str) else str(label)
            selects.append(
                f"SELECT {', '.join(map(quoted, columns))}, {value} AS {DATABASE}, {individual} AS {INDIVIDUAL} "
                f"FROM {relation}{known}"
            )
        yield f"CREATE TEMP VIEW {EVERYONE} AS {' UNION ALL '.join(selects)}"
    elif data.draws is not None:
        yield from _drawn(data.draws, relations[0], columns, individual, known)
    else:
        assert data.database is not None
        yield (
            f"CREATE TEMP VIEW {EVERYONE} AS SELECT *, {_database(data.database, columns, data)} AS {DATABASE}, "
            f"{individual} AS {INDIVIDUAL} FROM {relations[0]}{known}"
        )


class DataView(ABC):
    """What every engine's session says alike of the view of rows; the engine runs the statements.

    Attributes
    ----------
    data : what the rows are
    labelled : whether individuals have their table of labels
    """

    data: Databases
    labelled: bool = False

    @abstractmethod
    def about_rows(self, sql: str) -> dict[str, Column]:
        """What a statement of empriv's own gives."""

    @abstractmethod
    def columns_of(self, relation: str) -> Mapping[str, str]:
        """Names and types of the columns of a relation."""

    @abstractmethod
    def make_labels(self, name: str, column: str) -> None:
        """Make the table of the labels in a column."""

    @abstractmethod
    def labels_in(self, name: str) -> npt.NDArray[Any]:
        """The labels of such a table."""

    @property
    def whose(self) -> Sequence[str]:
        return self.data.individual

    @property
    def drawn(self) -> bool:
        return self.data.draws is not None and self.data.draws.of_individuals

    @cached_property
    def columns(self) -> Mapping[str, Sequence[str]]:
        own = {DATA: [name for name in self.columns_of(EVERYONE) if name not in (DATABASE, INDIVIDUAL)]}
        return own | {name: list(self.columns_of(quoted(name))) for name in self.data.tables}

    @cached_property
    def databases(self) -> npt.NDArray[Any]:
        return self.labels_in("empriv_databases")

    @cached_property
    def individuals(self) -> npt.NDArray[Any]:
        self.label_individuals()
        return self.labels_in("empriv_individuals")

    def label_individuals(self) -> None:
        if not self.labelled:
            self.make_labels("empriv_individuals", INDIVIDUAL)
            self.labelled = True

    def own_columns(self, table: str = "") -> str:
        """The columns of ``data``, of this table."""
        return ", ".join(f"{table}." * bool(table) + quoted(column) for column in self.columns[DATA])

    def coded(self, rows: str, code: str, condition: str) -> str:
        """The statement of all columns with positions of database and, under the name ``code``, of the individual."""
        self.label_individuals()
        return (
            f"SELECT {self.own_columns('p')}, d.code AS {DATABASE}, COALESCE(i.code, -1) AS {code} FROM {rows} AS p "
            f"JOIN empriv_databases AS d ON d.label = p.{DATABASE} "
            f"LEFT JOIN empriv_individuals AS i ON i.label = p.{INDIVIDUAL} WHERE {condition}"
        )

    def presence(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        self.label_individuals()
        found = self.about_rows(PRESENCE)
        return found["d"].values.astype(np.int64), found["i"].values.astype(np.int64)

    def check_nulls(self) -> None:
        """Refuse rows of no database, and rows of nobody unless they are expected."""
        filed = f"COUNT({DATABASE})" if each_row(self.data) == EVERYONE else "COUNT(*)"
        counts = f"SELECT COUNT(*) AS n, {filed} AS filed, COUNT({INDIVIDUAL}) AS known FROM {each_row(self.data)}"
        rows, databases, individuals = (int(column.values[0]) for column in self.about_rows(counts).values())
        if rows == 0:
            raise SourceError("There must be at least one row, got 0.")
        if databases < rows:
            raise SourceError(
                f"`database` must not be NULL, but is in {rows - databases} of {rows} rows. "
                f"Hint: {self._without_nulls()}, and coalesce() gives them a database."
            )
        if individuals < rows and self.data.unidentified == "error":
            raise SourceError(
                f"`individual` must not be NULL, but is in {rows - individuals} of {rows} rows. "
                'Hint: unidentified="keep" keeps these rows as nobody\'s, unidentified="drop" leaves them out '
                "(--unidentified on the command line)."
            )

    def _without_nulls(self) -> str:
        """How to leave rows of no database out: what stands in place of a file."""
        source, database = self.data.parts[0], self.data.database or "database"
        if not isinstance(source, Files):
            return "leave these rows out beforehand"
        expression = database if database.isidentifier() else f"({database})"
        select = f"SELECT * FROM {text_literal(shown_path(source.paths[0]))} WHERE {expression} IS NOT NULL"
        return f'"{select}" in place of the file leaves these rows out'


def each_row(data: Databases) -> str:
    """The table that has each row once, in however many random databases it is."""
    return EVERYONE if data.draws is None or data.draws.repeats else MASTER


def labels(data: Databases, column: str) -> str:
    """The statement of all labels in ``column``, numbered in their order; a random database may have no rows."""
    draws = data.draws
    if draws is not None and column == DATABASE:
        return f"SELECT CAST(draw AS INTEGER) AS code, draw AS label FROM RANGE({draws.count}) AS n(draw)"
    return (
        "SELECT CAST(ROW_NUMBER() OVER (ORDER BY label) - 1 AS INTEGER) AS code, label FROM "
        f"(SELECT DISTINCT {column} AS label FROM {each_row(data)} WHERE {column} IS NOT NULL) AS l"
    )


def _drawn(draws: Draws, relation: str, columns: list[str], individual: str, known: str) -> Iterable[str]:
    if draws.repeats:
        every = ", ".join(map(quoted, columns))
        yield (
            f"CREATE TEMP VIEW {EVERYONE} AS SELECT {every}, draw AS {DATABASE}, {individual} AS {INDIVIDUAL} "
            f"FROM (SELECT * FROM {relation}{known}) AS r, RANGE({draws.count}) AS draws(draw)"
        )
        return
    if draws.split and any(column.lower() == "is_test" for column in columns):
        raise SourceError("A table to be split must not have a column `is_test` already.")
    if draws.by == "individual":
        unit = f"CAST({individual} AS VARCHAR)"
    else:
        texts = (f"CAST({quoted(column)} AS VARCHAR)" for column in columns)
        content = " || ".join(f"COALESCE(LENGTH({text}) || ':' || {text}, '-')" for text in texts)
        every = ", ".join(map(quoted, columns))
        unit = f"MD5({content}) || ':' || ROW_NUMBER() OVER (PARTITION BY {every})"
    hashes, line = (
        ", ".join(f"{hash_of('empriv_hash', part)} AS {name}" for part, name in enumerate(names))
        for names in (("empriv_x", "empriv_y"), ("a", "b", "c"))
    )
    every = ", ".join(map(quoted, columns))
    yield (
        f"CREATE TEMP TABLE {MASTER} AS SELECT {every}, {INDIVIDUAL}, {hashes} "
        f"FROM (SELECT *, {individual} AS {INDIVIDUAL}, MD5({unit}) AS empriv_hash FROM {relation}{known}) AS r"
    )
    yield (
        f"CREATE TEMP TABLE {SAMPLES} AS SELECT draw, {line}, {largest_distance(draws.fraction)} AS most "
        f"FROM (SELECT draw, MD5('{draws.seed}:' || draw) AS empriv_hash FROM RANGE({draws.count}) AS n(draw)) AS d"
    )
    every = ", ".join(f"r.{quoted(column)}" for column in columns)
    drawn, test = in_sample("r", "d"), ""
    if draws.split:
        drawn, test = "TRUE", f", {drawn} AND r.empriv_x IS NOT NULL AS is_test"
    yield (
        f"CREATE TEMP VIEW {EVERYONE} AS SELECT {every}{test}, d.draw AS {DATABASE}, r.{INDIVIDUAL} "
        f"FROM {MASTER} AS r JOIN {SAMPLES} AS d ON {drawn}"
    )


def name_of(value: str, kind: str) -> str:
    """The SQL of what an individual is called: numbers that became doubles, as 17850.0, are what they were, 17850."""
    if kind.upper() not in ("DOUBLE", "FLOAT"):
        return value
    return f"REGEXP_REPLACE(CAST({value} + 0 AS VARCHAR), '[.]0$', '')"  # -0.0 + 0 is 0.0


def _individual(values: list[str]) -> str:
    if not values:
        return "NULL"  # all rows are nobody's
    if len(values) == 1:
        return values[0]
    missing = " OR ".join(f"{value} IS NULL" for value in values)
    fields = ", ".join(f"{quoted(f'c{number}')}: {value}" for number, value in enumerate(values))
    return f"(CASE WHEN {missing} THEN NULL ELSE {{{fields}}} END)"


def _database(database: str, columns: list[str], data: Databases) -> str:
    if database in columns:
        return quoted(database)
    try:
        tree = row_expression(database)
    except QueryError as error:
        if re.fullmatch(r"[\w ]+", database):  # what was meant is a column
            raise SourceError(f"`database` must be a column or an SQL expression{nearest(database, columns)}") from None
        raise SourceError(
            f"`database` must be a column, or an expression that follows from a row alone: {error}"
        ) from None
    for column in tree.find_all(exp.Column):
        find_column(column.name, columns, "database", data)
    return f"({printed(tree)})"


def find_column(name: str, columns: Iterable[str], argument: str, data: Databases | None = None) -> str:
    """The column of this name, upper and lower case apart; an error with the nearest name if there is none."""
    columns = list(columns)
    if name in columns:
        return name
    for column in columns:
        if column.lower() == name.lower():
            return column
    near = nearest(name, columns)
    hint = _where_to_look(name, columns, data) if near == "." or _is_index(name, data) else near
    raise SourceError(f"`{argument}` must name a column of the source, got {name!r}{hint}")


def _where_to_look(name: str, columns: list[str], data: Databases | None) -> str:
    if _is_index(name, data):
        return ", which is the frame's index. Hint: frame.reset_index() makes a column of it."
    if data is None or any(isinstance(part, Files) and part.kind == "csv" for part in data.parts):
        # Of a file without a header, what stands for names may be values of the first row.
        return ". Hint: the names stand in the first line of a CSV file."
    return f". Hint: there are {listed(columns)}."


def _is_index(name: str, data: Databases | None) -> bool:
    part = None if data is None else data.parts[0]
    names = getattr(getattr(part.frame, "index", None), "names", ()) if isinstance(part, Frame) else ()
    return name in [str(one) for one in names]


_ASK = 'Hint: timezone="Europe/Paris" names one (--timezone on the command line).'


def zone_of(data: Databases) -> str:
    """The time zone of a session."""
    if data.timezone is not None:
        return data.timezone
    first = data.parts[0]
    zones = _own_zones(first) if isinstance(first, Frame) else {}
    cut = data.database or ""
    named = {zone for column, zone in zones.items() if re.search(rf"\b{re.escape(column)}\b", cut, re.IGNORECASE)}
    if len(named) > 1:
        raise SourceError(f"The times by which databases are cut must be in one time zone, got several. {_ASK}")
    own = named or set(zones.values())
    return own.pop() if len(own) == 1 else "UTC"


def _own_zones(source: Frame) -> Mapping[str, str]:
    """The time zones of the columns of a pandas, polars or Arrow table."""
    frame: Any = source.frame if source.once is None else next(iter(source.once), None)
    schema: Any = getattr(frame, "schema", None)
    if hasattr(frame, "dtypes") and hasattr(frame.dtypes, "items"):  # pandas
        kinds = {str(name): getattr(kind, "tz", None) for name, kind in frame.dtypes.items()}
    elif hasattr(schema, "items"):  # polars
        kinds = {str(name): getattr(kind, "time_zone", None) for name, kind in schema.items()}
    elif hasattr(schema, "names") and hasattr(schema, "types"):  # Arrow
        kinds = {str(name): getattr(kind, "tz", None) for name, kind in zip(schema.names, schema.types, strict=True)}
    else:
        kinds = {}
    return {name: _named(str(zone)) for name, zone in kinds.items() if zone is not None}


def _named(zone: str) -> str:
    """The name of a zone that is given as an offset of whole hours; others have names."""
    offset = re.fullmatch(r"(?:UTC)?([+-])(\d\d):?(\d\d)", zone)
    if offset is None:
        return zone
    sign, hours, minutes = offset.groups()
    if minutes != "00":
        raise SourceError(f"The times of a column must be in a time zone that has a name, got an offset. {_ASK}")
    # The sign of these names is the other way round: Etc/GMT-1 is an hour ahead of UTC.
    return "UTC" if hours == "00" else f"Etc/GMT{'-' if sign == '+' else '+'}{int(hours)}"
