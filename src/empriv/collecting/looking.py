"""`look`: which columns of a table may say whom a row belongs to, when it was, and what was measured.

By names, types and counts of different values alone. `empriv init` writes down what it suggests, and a person decides.
`first_rows` is for the eyes of that person: the only function here that gives values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from empriv.collecting.engines.engine import Engine, Session
from empriv.collecting.names import DATA
from empriv.collecting.sources import Databases, Draws, Source, table_of
from empriv.collecting.sql.templates import fill

# Parts of names that people give to such columns.
_PEOPLE = {
    "id", "uid", "client", "customer", "patient", "person", "user", "member", "account", "card", "employee", "staff",
    "worker", "student", "household", "subscriber", "visitor", "driver", "owner", "who", "name", "email", "aircraft",
    "individual", "citizen", "tenant", "meter", "device", "player",
}  # fmt: skip
_ROWS = {"row", "rowid", "index", "transaction", "order", "invoice", "event", "line", "record", "visit", "entry"}
_DAYS = {"day", "date"}
_TIMES = {"day", "date", "time", "timestamp", "t", "at", "when", "month", "week", "hour", "year"}
_AMOUNTS = {
    "amount", "value", "price", "total", "cost", "revenue", "salary", "pay", "wage", "income", "delay", "duration",
    "minutes", "seconds", "hours", "quantity", "kwh", "usage", "score", "x", "size", "weight", "spend",
}  # fmt: skip
_CODES = {"zip", "postcode", "code", "phone", "lat", "lon", "latitude", "longitude"}
LEAST_DATABASES = 30  # below which random samples are suggested instead


@dataclass(frozen=True)
class ColumnSeen:
    """A column, and what its values look like.

    Attributes
    ----------
    name : of the column
    kind : "integer", "decimal", "double", "boolean" or "other"
    filled, different : rows in which it is not NULL, and how many different values it has
    times, moments : rows in which it can be read as a time, and in which that is not midnight
    days, weeks : different days and weeks
    """

    name: str
    kind: str
    filled: int
    different: int
    times: int = 0
    moments: int = 0
    days: int = 0
    weeks: int = 0

    @property
    def words(self) -> set[str]:
        """The parts of its name: clientId and client_id are client and id."""
        return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", self.name)}

    @property
    def is_time(self) -> bool:
        return self.kind == "other" and self.filled > 0 and self.times == self.filled

    def cut(self, unit: str) -> str:
        """The expression that puts the rows of a day, or of a week, in one database."""
        return self.name if unit == "day" and self.moments == 0 else f"date_trunc('{unit}', {in_sql(self.name)})"


@dataclass(frozen=True)
class TableSeen:
    """What a table looks like.

    Attributes
    ----------
    rows : how many
    columns : all of them, in their order
    individuals : names that may say whom a row belongs to, likeliest first
    databases : expressions that may cut it into databases, likeliest first, and how many each makes
    amounts : names of what may have been measured, likeliest first
    row_numbers : names that differ in every row, and so may number rows rather than people
    closely : what the values of each column look like
    """

    rows: int
    columns: tuple[str, ...]
    individuals: tuple[str, ...]
    databases: tuple[tuple[str, int], ...]
    amounts: tuple[str, ...]
    row_numbers: tuple[str, ...]
    closely: tuple[ColumnSeen, ...] = ()


def in_sql(column: str) -> str:
    """A column's name as a query has it: quoted only where it must be."""
    return str(exp.to_identifier(column, quoted=not re.fullmatch(r"[a-z_]\w*", column)).sql(dialect="duckdb"))


def look(engine: Engine, source: Source) -> TableSeen:
    """Look at a table."""
    with engine.session(_whole(source)) as session:
        return _judged(*_seen(session))


def first_rows(engine: Engine, source: Source, count: int) -> tuple[tuple[str | None, ...], ...]:
    """Some rows of a table, each value as text; None where it is NULL."""
    with engine.session(_whole(source)) as session:
        names = session.columns[DATA]
        as_text = [
            exp.alias_(fill("CAST(x AS VARCHAR)", x=exp.column(name, quoted=True)), f"c{k}")
            for k, name in enumerate(names)
        ]
        columns = session.fetch(exp.select(*as_text).from_(DATA).limit(count)).values()
    texts = [
        [None if null else str(value) for value, null in zip(column.values, column.null, strict=True)]
        for column in columns
    ]
    return tuple(zip(*texts, strict=True))


def _whole(source: Source) -> Databases:
    """A table as one database of nobody's rows."""
    return Databases((table_of(source),), None, None, (), {}, "keep", Draws(1, 1.0, "individual", 0, split=False))


def _seen(session: Session) -> tuple[int, list[ColumnSeen]]:
    names = session.columns[DATA]
    types = session.types(exp.select(*(exp.column(name, quoted=True) for name in names)).from_(DATA))
    measures = [exp.alias_(fill("COUNT(*)"), "n")]
    for number, name in enumerate(names):
        x = exp.column(name, quoted=True)
        as_time = fill("TRY_CAST(CAST(x AS VARCHAR) AS TIMESTAMP)", x=x)
        templates = {"filled": "COUNT(x)", "different": "COUNT(DISTINCT x)"}
        if types[name].kind == "other":
            templates |= {
                "times": "COUNT(t)",
                "moments": "COUNT(CASE WHEN t > DATE_TRUNC('day', t) THEN 1 END)",
                "days": "COUNT(DISTINCT DATE_TRUNC('day', t))",
                "weeks": "COUNT(DISTINCT DATE_TRUNC('week', t))",
            }
        measures += [
            exp.alias_(fill(template, x=x, t=as_time), f"{measure}{number}") for measure, template in templates.items()
        ]
    counted = {name: int(column.values[0]) for name, column in session.fetch(exp.select(*measures).from_(DATA)).items()}
    seen = []
    for number, name in enumerate(names):
        parts = ("filled", "different", "times", "moments", "days", "weeks")
        counts = {part: counted[f"{part}{number}"] for part in parts if f"{part}{number}" in counted}
        seen.append(ColumnSeen(name, types[name].kind, **counts))
    return counted["n"], seen


def _judged(rows: int, seen: list[ColumnSeen]) -> TableSeen:
    people, times, amounts, row_numbers = [], [], [], []
    for place, column in enumerate(seen):
        whole = column.kind in ("integer", "other")
        if column.is_time:
            times.append((-len(column.words & _TIMES) - len(column.words & _DAYS), place, column))
        elif whole and column.different >= 2:
            named = len(column.words & _PEOPLE) - len(column.words & _ROWS) - len(column.words & _CODES)
            every_row = column.different == rows > 1
            if every_row:
                row_numbers.append(column.name)
            if named > 0 or (not every_row and column.kind == "other" and column.different > 20):
                people.append((every_row, -named, -column.different, place, column.name))
        if column.kind in ("integer", "decimal", "double") and not column.words & (_PEOPLE | _ROWS | _CODES):
            named = len(column.words & _AMOUNTS)
            amounts.append((-named, column.kind == "integer", place, column.name))
    cuts = [
        (column.cut(unit), getattr(column, f"{unit}s"))
        for *_, column in sorted(times, key=lambda found: found[:2])
        for unit in ("day", "week")
    ]
    enough = [cut for cut in cuts if cut[1] >= LEAST_DATABASES]
    return TableSeen(
        rows=rows,
        columns=tuple(column.name for column in seen),
        individuals=tuple(found[-1] for found in sorted(people)),
        databases=tuple(dict.fromkeys([*enough, *cuts])),
        amounts=tuple(found[-1] for found in sorted(amounts)),
        row_numbers=tuple(row_numbers),
        closely=tuple(seen),
    )
