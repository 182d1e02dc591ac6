"""What to tell somebody whose query or file an engine refuses: what is wrong, where, and what may have been meant.

Engines say it in words of their own, which may quote rows; here only names that the user wrote, names of columns and
tables, and numbers of rows are used. `evaluate` asks for it, and so do engines.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import product
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.engines.engine import BeyondLimits, Refused, Session
from empriv.collecting.queries import DATA, Query
from empriv.collecting.sources import Databases, Files
from empriv.collecting.sql.pointing import nearest, pointed
from empriv.collecting.sql.templates import fill
from empriv.errors import QueryError, SourceError

# Aggregates that need numbers, by their names in a tree.
_NUMERIC = (
    exp.Sum, exp.Avg, exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.CovarPop,
    exp.CovarSamp, exp.Corr, exp.Quantile, exp.PercentileCont, exp.Median,
)  # fmt: skip
# How dates are written that do not sort as text.
_DATES = (
    "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d %Y", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y",
    "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")  # what may follow
_SWAPPED = {
    "%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y", "%d.%m.%Y": "%m.%d.%Y", "%d/%m/%y": "%m/%d/%y",
    "%d.%m.%y": "%m.%d.%y",
}  # fmt: skip  # what else would fit
_MONTHS = 12
_SERIES = 10  # days from which they are taken for a series
_UNITS = {1: "day", 7: "week"}
_MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\d([ T]00:00:00([+-]\d\d(:?\d\d)?)?)?")
# Numbers as people write them: signs of money and per cent, spaces, and commas between thousands or before decimals.
_THOUSANDS = "REGEXP_MATCHES(x, '^[^0-9]*[0-9]{1,3}(,[0-9]{3})+([.][0-9]+)?[^0-9]*$')"
_BARE = "REGEXP_REPLACE(x, '[£$€¥%, ]', '', 'g')"
_BARE_COMMA = "REPLACE(REGEXP_REPLACE(x, '[£$€¥%. ]', '', 'g'), ',', '.')"
_LOOKED_AT = 1000  # labels; databases are seldom more


def explained(session: Session, query: Query, error: QueryError) -> QueryError:
    """The error of an engine in the user's terms, where its cause is known: a name, or text that is no number."""
    assert query.select is not None
    if isinstance(error, BeyondLimits | Refused):
        return error
    for trouble in (_table_not_read, _wrong_column, _text_for_number):
        with suppress(QueryError):  # looking closer may fail just as the query did
            found = trouble(session, query)
            if found is not None:
                return QueryError(found)
    return error


def unreadable(kind: str, message: str) -> str:
    """Why rows cannot be read, from the kind of an engine's error and its message, which is not passed on."""
    # a CSV file that no dialect fits gets a list of things to try, encodings among them, whatever is wrong with it
    said = message.lower().partition("the search space used was")[0]
    if re.search(r"utf-?8|unicode|encod", said):
        return (
            "The rows cannot be read: a file holds text that is not UTF-8. Hint: save it as UTF-8, or read it by SQL, "
            "\"SELECT * FROM read_csv('file.csv', encoding='latin-1')\"."
        )
    if kind == "IOException" or re.search(r"magic bytes|parquet file|valid duckdb", said):
        return "The rows cannot be read: a file is missing, or not what its name says."
    if kind == "ConversionException":
        return (
            "The rows cannot be read: a value does not fit the type that its column has elsewhere. Hint: all files "
            "must write dates and numbers alike; \"SELECT * FROM read_csv('*.csv', all_varchar=true)\" reads text."
        )
    if "sniffing" in said:
        return (
            "The rows cannot be read: the lines of a CSV file are not alike. Hint: see whether every line has as many "
            "fields, and ends in the same way."
        )
    hint = " Hint: see whether every line has as many fields." if kind == "InvalidInputException" else ""
    return f"The rows cannot be read: DuckDB reports a problem of kind {kind}.{hint}"


def out_of_order(labels: npt.NDArray[Any], database: str | None) -> str | None:
    """What to say of databases named by dates that, as text, do not stand in the order of time."""
    if database is None or labels.dtype.kind != "U" or len(labels) < 2:
        return None
    for form, clock in product(_DATES, _CLOCKS):
        try:
            days = [datetime.strptime(label, form + clock) for label in labels[:_LOOKED_AT].tolist()]
        except ValueError:
            continue
        if days == sorted(days) and not clock:
            return None
        swapped = _SWAPPED.get(form) if max(day.day for day in days) <= _MONTHS else None
        first = "" if swapped is None else f", or {_as_day(database, swapped, clock)} if the month comes first"
        return (
            "The databases are named by dates, but sort as text: trends and cycles cannot be seen so. "
            f"Hint: {_as_day(database, form, clock)} makes dates of them{first}."
        )
    return None


def _as_day(database: str, form: str, clock: str) -> str:
    """The SQL that makes days of dates that are text."""
    moment = f"strptime({database}, '{form}{clock}')"
    return f"date_trunc('day', {moment})" if clock else moment


def missing_days(labels: npt.NDArray[Any]) -> str | None:
    """What to say of days, weeks or months that are missing in a series of them; weekdays that never come are not."""
    if labels.dtype.kind == "U" and all(map(_MIDNIGHT.fullmatch, labels.tolist())):
        with suppress(ValueError):  # there is no month 13
            labels = labels.astype("U10").astype("datetime64[s]")
    if labels.dtype.kind != "M" or len(labels) < _SERIES:
        return None
    days = np.unique(labels.astype("datetime64[D]"))
    if np.isnat(days).any() or (labels != labels.astype("datetime64[D]")).any():
        return None
    months = days.astype("datetime64[M]")
    steps, counts = np.unique(np.diff(days).astype(np.int64), return_counts=True)
    step = int(steps[np.argmax(counts)])
    if (days == months.astype("datetime64[D]")).all():
        every, unit = np.arange(months[0], months[-1] + 1).astype("datetime64[D]"), "month"
    elif step in _UNITS:
        every, unit = np.arange(days[0], days[-1] + 1, step), _UNITS[step]
        if step == 1:
            weekday = every.astype(np.int64) % 7
            every = every[np.isin(weekday, np.unique(days.astype(np.int64) % 7))]
    else:
        return None
    gone = np.setdiff1d(every, days)
    if not len(gone) or len(gone) > len(days):
        return None
    if len(gone) == 1:
        return (
            f"One {unit} of the series has no rows ({gone[0]}): it is no database, rather than one with the answer 0."
        )
    return (
        f"{len(gone):,} {unit}s of the series have no rows (the first is {gone[0]}): they are no databases, rather "
        "than databases with the answer 0."
    )


def check_files(data: Databases) -> None:
    """Refuse files on this machine that are missing or empty, by name and without their folders."""
    for part in (*data.parts, *data.tables.values()):
        for path in part.paths if isinstance(part, Files) else ():
            if "://" in path or "{" in path:
                continue  # elsewhere, or a pattern of the engine's own
            if glob.has_magic(path) and not Path(path).exists():
                if not glob.glob(path, recursive=True):  # noqa: PTH207 — a pattern may be absolute
                    raise SourceError(f"`source` must match a file, got {PurePath(path).name!r}.")
                continue
            place, name = Path(path), PurePath(path).name
            if not place.exists():
                raise SourceError(f"The file must exist, got {name!r}.")
            if place.is_file() and place.stat().st_size == 0:
                raise SourceError(f"The file must hold rows, got {name!r}, which is empty.")


def _table_not_read(session: Session, query: Query) -> str | None:
    assert query.select is not None
    aliases = {name.lower() for name in session.columns} | {cte.alias.lower() for cte in query.select.find_all(exp.CTE)}
    for table in query.select.find_all(exp.Table):
        aliases.add(table.alias_or_name.lower())
    aliases |= {one.alias.lower() for one in query.select.find_all(exp.Subquery)}
    for column in query.select.find_all(exp.Column):
        if column.table and column.table.lower() not in aliases:
            at = column.args["table"]
            return (
                f"The query uses a table {column.table!r}{_place(query, at)} that it does not read. "
                f"Hint: write {column.name} alone, or {DATA}.{column.name}."
            ) + _caret(query, at)
    return None


def _wrong_column(session: Session, query: Query) -> str | None:
    assert query.select is not None
    known = [column for columns in session.columns.values() for column in columns]
    names = {name.lower() for name in known} | {cte.alias.lower() for cte in query.select.find_all(exp.CTE)}
    names |= {alias.alias.lower() for alias in query.select.find_all(exp.Alias)}
    for column in query.select.find_all(exp.Column):
        if column.name.lower() in names or isinstance(column.this, exp.Star):
            continue
        # Who puts a text in double quotes names a column by mistake: only a close name is then the likelier cause.
        in_quotes = bool(column.this.args.get("quoted"))
        hint = nearest(column.name, known, at_least=0.75 if in_quotes else 0.5)
        if hint == "." and in_quotes:
            return _quoted_text(query, column.this)
        if hint != "." and not re.fullmatch(r"\w+", _suggested(hint)):
            hint += f' Write "{_suggested(hint)}", in double quotes.'
        where = _place(query, column.this)
        return f"The query uses a column {column.name!r}{where} that does not exist{hint}" + _caret(query, column.this)
    return None


def _quoted_text(query: Query, node: exp.Expr) -> str:
    """Of what was perhaps meant as a text, which may be of an individual: the place, and nothing that it says."""
    start, masked = node.meta.get("start"), query.text
    if start is not None:
        masked = f"{masked[: start + 1]}{'…' * len(node.name)}{masked[start + 1 + len(node.name) :]}"
    return (
        f"The query uses a column{_at(masked, start)} that does not exist. Hint: a text stands in single quotes, "
        f"double quotes are for names.{'' if start is None else pointed(masked, *_line_column(masked, start))}"
    )


def _suggested(hint: str) -> str:
    return hint.split("did you mean ")[1].rstrip("?")[1:-1]


def _text_for_number(session: Session, query: Query) -> str | None:
    """Whether a column of text is added up, and how many of its values are numbers, as they stand or with commas."""
    if not isinstance(query.select, exp.Select):
        return None
    for aggregate, column in _summed(query.select):
        base = query.select.copy()
        for part in ("group", "having", "order", "limit", "distinct", "qualify"):
            base.set(part, None)
        base.set("expressions", [exp.alias_(column.copy(), "x")])
        if session.types(base)["x"].kind != "other":
            continue
        text = fill("CAST(x AS TEXT)", x=column)
        base.set("expressions", [
            exp.alias_(fill(template, x=text), name)
            for name, template in (
                ("n", "COUNT(x)"),
                ("plain", "COUNT(TRY_CAST(x AS DOUBLE))"),
                ("comma", "COUNT(TRY_CAST(REPLACE(x, ',', '.') AS DOUBLE))"),
                ("grouped", "COUNT(CASE WHEN x LIKE '%,%' AND NOT " + _THOUSANDS + " THEN 1 END)"),
                ("bare", f"COUNT(TRY_CAST({_BARE} AS DOUBLE))"),
                ("bare_comma", f"COUNT(TRY_CAST({_BARE_COMMA} AS DOUBLE))"),
            )
        ])  # fmt: skip
        found = session.fetch(base)
        n, plain, comma, odd, bare, bare_comma = (int(column.values[0]) for column in found.values())
        name = column.sql("duckdb")
        if plain < bare == n and odd == 0:
            hint = f"CAST({_written(_BARE, name)} AS DOUBLE) strips what is no digit, and makes numbers of its values."
        elif comma == n and plain < n:
            hint = f"it has decimal commas: CAST(replace({name}, ',', '.') AS DOUBLE) makes numbers of them."
        elif plain == n:
            hint = f"CAST({name} AS DOUBLE) makes numbers of its values."
        elif bare_comma == n:
            hint = f"CAST({_written(_BARE_COMMA, name)} AS DOUBLE) strips what is no digit, and makes numbers of it."
        elif plain:
            hint = f"TRY_CAST({name} AS DOUBLE) makes numbers of {plain:,} of its {n:,} values, and NULL of the others."
        else:
            hint = f"none of its {n:,} values is a number as it stands; count({name}) counts them."
        where, caret = _place(query, column.this), _caret(query, column.this)
        return f"The query needs a number in {aggregate}(), but {name!r}{where} is not one. Hint: {hint}{caret}"
    return None


def _written(template: str, name: str) -> str:
    """A template of ``x`` with a column in its place, as somebody would write it."""
    return (
        re.sub(r"\bx\b", lambda _: name, template)
        .replace("REGEXP_REPLACE", "regexp_replace")
        .replace("REPLACE", "replace")
    )


def _summed(select: exp.Select) -> Iterator[tuple[str, exp.Column]]:
    for aggregate in select.find_all(*_NUMERIC):
        for argument in (aggregate.this, aggregate.args.get("expression")):
            bare = argument.unnest() if isinstance(argument, exp.Expr) else None
            if isinstance(bare, exp.Column):
                yield aggregate.sql_name().lower(), bare


def _place(query: Query, node: exp.Expr) -> str:
    return _at(query.text, node.meta.get("start"))


def _caret(query: Query, node: exp.Expr) -> str:
    start = node.meta.get("start")
    return "" if start is None else pointed(query.text, *_line_column(query.text, start))


def _at(text: str, start: int | None) -> str:
    if start is None:
        return ""
    line, column = _line_column(text, start)
    return f" at line {line}, column {column}"


def _line_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
