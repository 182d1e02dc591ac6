"""The statistic, of the step Data: what is published, put together from choices or written as SQL.

The audit's TOML holds the query. The choices that made it are remembered in .empriv-app; a query that was not made so,
or was changed since, is shown as SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import FormData

from empriv.app.folder import Folder
from empriv.app.form_fields import by_label, typed_in
from empriv.app.table import TableAtHand, at_hand
from empriv.app.workers import engine_beside
from empriv.base.storage import write_atomically
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

if TYPE_CHECKING:
    from empriv.collecting.profile import ColumnProfile

BUILD, SQL = "build", "sql"
MEASURES = {
    "mean": ("Mean", "the average of a column"),
    "sum": ("Sum", "a column added up"),
    "count": ("Count", "how many rows there are"),
    "rate": ("Rate", "the share of rows where something holds"),
    "median": ("Median", "the middle value of a column"),
    "people": ("People", "how many different people there are"),
}
FIELDS = {"mode": BUILD, "measure": "mean", "column": "", "by": "", "query": "", "unit": ""}
_CHOICES = ("mode", "measure", "column", "by")  # those that are remembered, beside `holds` and `where`
LABELS = {
    "measure": "The statistic", "column": "The column", "by": "The column of groups", "holds": "What must hold",
    "unit": "The unit", "query": "The statistic",
}  # fmt: skip
OPERATORS = ("=", "≠", "<", "≤", ">", "≥", "is one of", "is empty", "is not empty")
_MOST_CONDITIONS = 20
NO_ROW = ("", "=", "")
"""A condition on rows, to be filled in: column, operator, value."""


@dataclass(frozen=True)
class StatisticShown:
    """The SQL of what was typed, what it gives in a sentence, why it takes long, and what is wrong with which field."""

    sql: str = ""
    gives: str = ""
    slow: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


def look_closer(
    settings: Settings, columns: Sequence[ColumnProfile], typed: Mapping[str, Any], quick: bool = False
) -> StatisticShown:
    """The SQL of what was typed, and whether it can be audited; called beside the server.

    ``quick`` leaves the rows alone: of very many, nobody waits at every key that is pressed.
    """
    from empriv.base.arguments import unit_name
    from empriv.cli.inputs import source_of
    from empriv.cli.running import limits_of
    from empriv.collecting import explain
    from empriv.collecting.profile import gives
    from empriv.collecting.query_builder import RowCondition, Statistic, written

    places = [place for place, row in enumerate(typed["where"]) if row[0]]
    sql = ""
    try:
        unit_name(typed["unit"].strip())
        if typed["mode"] == SQL:
            sql = typed["query"].strip()
            if not sql:
                raise InputError("`query` must be SQL, such as avg(amount).")
        else:
            chosen = Statistic(
                measure=typed["measure"], column=typed["column"] or None, by=typed["by"] or None,
                where=tuple(RowCondition(*typed["where"][place]) for place in places),
                holds=RowCondition(*typed["holds"]) if typed["measure"] == "rate" else None,
            )  # fmt: skip
            sql = written(chosen, columns, settings.individual)
        if quick or not settings.individual:
            explain(None, sql)
            return StatisticShown(sql, "Whether it can be audited is seen when you save it." if quick else "")
        with engine_beside(**limits_of(settings)) as engine:
            given = gives(engine, source_of(at_hand(settings)), sql)
    except EmprivError as error:
        labels = {**LABELS, **{f"where_{k}": f"Condition {place + 1}" for k, place in enumerate(places)}}
        ((about, sentence),) = by_label(error, labels).items()
        if about.startswith("where_"):  # of those that are filled in, to those that are shown
            about = f"where_{places[int(about.removeprefix('where_'))]}"
        return StatisticShown(sql, errors={about or "query": sentence})
    return StatisticShown(sql, _given_in_words(given.names), given.slow or "")


def _given_in_words(names: tuple[str, ...] | None) -> str:
    if names is None:
        return "This can be audited. It gives one number of each database."
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"This can be audited. It gives a table of {len(names):,} numbers of each database: {shown}."


def statistic_in(form: FormData, table: TableAtHand) -> dict[str, Any]:
    """What a form holds, with columns called as the table calls them."""

    def rows(prefix: str) -> list[tuple[str, str, str]]:
        parts = ([str(text) for text in form.getlist(f"{prefix}_{part}")] for part in ("column", "operator", "value"))
        found = zip(*parts, strict=False)
        return [(table.column_named(column), operator, value) for column, operator, value in found]

    typed = typed_in(form, FIELDS)
    named = {field: table.column_named(typed[field]) for field in ("column", "by")}
    return {**typed, **named, "holds": (*rows("holds"), NO_ROW)[0], "where": tuple(rows("where")[:_MOST_CONDITIONS])}


def statistic_content(
    folder: Folder, name: str, settings: Settings, table: TableAtHand, typed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the fields of the page show, with one condition to be filled in."""
    typed = typed or _typed_from(settings, table, _built(folder, name))
    blank = () if typed["where"] and not typed["where"][-1][0] else (NO_ROW,)
    return {
        "measures": MEASURES, "operators": OPERATORS,
        "typed": {**typed, "where": (*typed["where"], *blank)},
    }  # fmt: skip


def _typed_from(settings: Settings, table: TableAtHand, built: Mapping[str, Any]) -> dict[str, Any]:
    """What the form holds at first: the choices that made the query, its SQL, or what is likeliest."""
    empty = {**FIELDS, "holds": NO_ROW, "where": (), "unit": settings.unit}
    if not settings.query:
        likely = "".join(table.numbers[:1])
        return {**empty, "measure": "mean" if likely else "count", "column": likely}
    query = settings.query[0]
    fields: Any = built.get(query)
    try:  # a file that anybody may change
        holds, *where = [tuple(map(str, row)) for row in (fields["holds"], *fields["where"])]
        typed = {name: str(fields[name]) for name in _CHOICES}
        named = {typed["column"], typed["by"], *(column for column, _, _ in (holds, *where))} - {""}
    except (TypeError, KeyError, ValueError):
        return {**empty, "mode": SQL, "query": query}
    if not named <= set(table.names):
        return {**empty, "mode": SQL, "query": query}
    return {**empty, **typed, "query": query, "holds": holds, "where": tuple(where)}


def remember_built(folder: Folder, name: str, typed: Mapping[str, Any], sql: str) -> None:
    """Keep the choices that made a query."""
    choices = {field: typed[field] for field in (*_CHOICES, "holds", "where")}
    built = {sql: choices} if typed["mode"] == BUILD else {}
    path = _memory_of(folder, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(path, json.dumps(built).encode())


def _built(folder: Folder, name: str) -> dict[str, Any]:
    """The choices that made the query of an audit, by its text."""
    try:
        content = json.loads(_memory_of(folder, name).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _memory_of(folder: Folder, name: str) -> Path:
    return folder.own / "built" / folder.file(name, ".json").name
