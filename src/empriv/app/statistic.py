"""The statistic, of the step Data: what is published, put together from choices or written as SQL.

The audit's TOML holds the query. The choices that made it are remembered in .empriv-app; a query that was not made so,
or was changed since, is shown as SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData

from empriv.app.folder import Folder
from empriv.app.form_fields import by_label
from empriv.app.source_preview import SourcePreview
from empriv.app.workers import engine_beside
from empriv.base.storage import write_atomically
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

BUILD, SQL = "build", "sql"
MEASURES = {
    "mean": ("Mean", "the average of a column"),
    "sum": ("Sum", "a column added up"),
    "count": ("Count", "how many rows there are"),
    "rate": ("Rate", "the share of rows where something holds"),
    "median": ("Median", "the middle value of a column"),
    "people": ("People", "how many different people there are"),
}
LABELS = {
    "measure": "The statistic", "column": "The column", "by": "The column of groups", "holds": "What must hold",
    "unit": "The unit", "query": "The statistic",
}  # fmt: skip
OPERATORS = ("=", "≠", "<", "≤", ">", "≥", "is one of", "is empty", "is not empty")
_MOST_CONDITIONS = 20
MOST_STATISTICS = 50
Row = tuple[str, str, str]  # column, operator, value
NO_ROW: Row = ("", "=", "")


@dataclass(frozen=True)
class StatisticTyped:
    """What the form holds: as typed, whether it can be used or not."""

    mode: str = BUILD
    measure: str = "mean"
    column: str = ""
    by: str = ""
    holds: Row = NO_ROW
    where: tuple[Row, ...] = ()
    query: str = ""
    unit: str = ""


@dataclass(frozen=True)
class StatisticShown:
    """The SQL of what was typed, what it gives in a sentence, why it takes long, and what is wrong with which field."""

    sql: str = ""
    gives: str = ""
    slow: str = ""
    errors: tuple[tuple[str, str], ...] = ()


def look_closer(
    settings: Settings, facts: tuple[tuple[Any, ...], ...], typed: StatisticTyped, quick: bool = False
) -> StatisticShown:
    """The SQL of what was typed, and whether it can be audited; called beside the server.

    ``quick`` leaves the rows alone: of very many, nobody waits at every key that is pressed.
    """
    from empriv.base.arguments import unit_name
    from empriv.cli.inputs import source_of
    from empriv.cli.running import limits_of
    from empriv.collecting import explain
    from empriv.collecting.building import RowCondition, Statistic, written
    from empriv.collecting.looking import ColumnSeen, gives

    places = [place for place, row in enumerate(typed.where) if row[0]]
    sql = ""
    try:
        unit_name(typed.unit)
        if typed.mode == SQL:
            sql = typed.query.strip()
            if not sql:
                raise InputError("`query` must be SQL, such as avg(amount).")
        else:
            chosen = Statistic(
                measure=typed.measure, column=typed.column or None, by=typed.by or None,
                where=tuple(RowCondition(*typed.where[place]) for place in places),
                holds=RowCondition(*typed.holds) if typed.measure == "rate" else None,
            )  # fmt: skip
            sql = written(chosen, [ColumnSeen(*column) for column in facts], settings.individual)
        if quick or not settings.individual:
            explain(None, sql)
            return StatisticShown(sql, "Whether it can be audited is seen when you save it." if quick else "")
        with engine_beside(**limits_of(settings)) as engine:
            given = gives(engine, source_of(settings), sql)
    except EmprivError as error:
        labels = {**LABELS, **{f"where_{k}": f"Condition {place + 1}" for k, place in enumerate(places)}}
        ((field, sentence),) = by_label(error, labels).items()
        if field.startswith("where_"):  # of those that are filled in, to those that are shown
            field = f"where_{places[int(field.removeprefix('where_'))]}"
        return StatisticShown(sql, errors=((field or "query", sentence),))
    return StatisticShown(sql, _given_in_words(given.names), given.slow or "")


def typed_in(form: FormData) -> StatisticTyped:
    """What a form holds."""

    def text(field: str) -> str:
        return str(form.get(field) or "")

    columns, operators, values = (
        [str(part) for part in form.getlist(f"where_{part}")][:_MOST_CONDITIONS]
        for part in ("column", "operator", "value")
    )
    return StatisticTyped(
        mode=text("mode") or BUILD, measure=text("measure"), column=text("column"), by=text("by"),
        holds=(text("holds_column"), text("holds_operator"), text("holds_value")),
        where=tuple(zip(columns, operators, values, strict=False)), query=text("query"), unit=text("unit").strip(),
    )  # fmt: skip


def typed_from(settings: Settings, which: int, table: SourcePreview, built: Mapping[str, Any]) -> StatisticTyped:
    """What a form holds at first: the choices that made the query, its SQL, or what is likeliest."""
    if which >= len(settings.query):
        likely = table.numbers[:1]
        return StatisticTyped(measure="mean" if likely else "count", column="".join(likely), unit=settings.unit)
    query = settings.query[which]
    typed = _from_memory(built.get(query))
    named = () if typed is None else (typed.column, typed.by, typed.holds[0], *(row[0] for row in typed.where))
    if typed is None or any(name and name not in table.names for name in named):
        return StatisticTyped(mode=SQL, query=query, unit=settings.unit)
    return replace(typed, query=query, unit=settings.unit)


def _from_memory(fields: Any) -> StatisticTyped | None:
    """Choices as they were remembered; None if a file that anybody may change holds something else."""
    try:
        rows = [tuple(map(str, row)) for row in (fields["holds"], *fields["where"])]
        if any(len(row) != 3 for row in rows):
            return None
        texts = {name: str(fields[name]) for name in ("mode", "measure", "column", "by")}
    except (TypeError, KeyError):
        return None
    holds, *where = rows
    return StatisticTyped(**texts, holds=holds, where=tuple(where))  # type: ignore[arg-type]


def _given_in_words(names: tuple[str, ...] | None) -> str:
    if names is None:
        return "This can be audited. It gives one number of each database."
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"This can be audited. It gives a table of {len(names):,} numbers of each database: {shown}."


def with_columns_of(typed: StatisticTyped, table: SourcePreview) -> StatisticTyped:
    """What was typed, with columns called as the table calls them."""
    rows: list[Row] = [(table.column_named(row[0]), row[1], row[2]) for row in (typed.holds, *typed.where)]
    return replace(
        typed, column=table.column_named(typed.column), by=table.column_named(typed.by), holds=rows[0],
        where=tuple(rows[1:]),
    )  # fmt: skip


def facts_of(table: SourcePreview) -> tuple[tuple[Any, ...], ...]:
    return tuple(column.facts for column in table.columns)


def _memory_of(folder: Folder, name: str) -> Path:
    return folder.own / "built" / folder.file(name, ".json").name


def built_of(folder: Folder, name: str) -> dict[str, Any]:
    """The choices that made each query of an audit."""
    try:
        content = json.loads(_memory_of(folder, name).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def remember_built(folder: Folder, name: str, typed: StatisticTyped, sql: str, queries: Sequence[str]) -> None:
    """Keep the choices that made a query, and those of the other queries that are still there."""
    built = {query: fields for query, fields in built_of(folder, name).items() if query in queries and query != sql}
    if typed.mode == BUILD:
        built[sql] = asdict(replace(typed, query="", unit=""))
    path = _memory_of(folder, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(path, json.dumps(built).encode())


def statistic_content(
    folder: Folder, name: str, settings: Settings, which: int, table: SourcePreview, typed: StatisticTyped | None
) -> dict[str, Any]:
    """What the fields of the statistic show."""
    typed = typed or typed_from(settings, which, table, built_of(folder, name))
    blank = 0 if typed.where and not typed.where[-1][0] else 1  # one to fill in
    return {
        "which": which, "measures": MEASURES, "operators": OPERATORS,
        "typed": replace(typed, where=(*typed.where, *[NO_ROW] * blank)),
    }  # fmt: skip
