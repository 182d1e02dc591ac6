"""`written`: the SQL of a statistic that somebody put together from choices, without writing any.

Trees are built, and text is made of them at last: whatever a name or a value holds, it stays a name or a value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlglot import exp

from empriv.collecting.engines.engine import DATA
from empriv.collecting.profile import ColumnProfile, in_sql
from empriv.collecting.sql.printing import fill
from empriv.errors import InputError

_COMPARED = {"=": exp.EQ, "≠": exp.NEQ, "<": exp.LT, "≤": exp.LTE, ">": exp.GT, "≥": exp.GTE}
ONE_OF, EMPTY, FILLED = "is one of", "is empty", "is not empty"
OPERATORS = (*_COMPARED, ONE_OF, EMPTY, FILLED)
# What is computed of a column, and what needs none.
_OF_NUMBERS = {"sum": "SUM(x)", "mean": "AVG(x)", "median": "MEDIAN(x)"}
MEASURES = (*_OF_NUMBERS, "count", "rate", "people")
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")
_DAY = len("2024-01-31")


@dataclass(frozen=True)
class RowCondition:
    """A condition on a row: ``RowCondition("amount", "≥", "10")``.

    Attributes
    ----------
    column : its name
    operator : one of `OPERATORS`
    value : as somebody typed it; several separated by commas, in double quotes where they hold one, for "is one of"
    """

    column: str
    operator: str
    value: str = ""


@dataclass(frozen=True)
class Statistic:
    """A statistic as somebody chose it.

    Attributes
    ----------
    measure : one of `MEASURES`: "rate" is the share of rows where ``holds`` is true, "people" how many people have rows
    column : what is added up or averaged
    by : a column, of whose every value there is a number; None for one number
    where : conditions on the rows that count, all of which must hold
    holds : the condition of a rate
    """

    measure: str
    column: str | None = None
    by: str | None = None
    where: tuple[RowCondition, ...] = ()
    holds: RowCondition | None = None


def written(statistic: Statistic, columns: Sequence[ColumnProfile], individual: Sequence[str]) -> str:
    """The SQL of a statistic of a table with these columns; an error names the field that is wrong."""
    known = {column.name: column for column in columns}
    measure = _measure(statistic, known, individual)
    if statistic.by is None and not statistic.where:
        return _text(measure)
    select = exp.select()
    if statistic.by is not None:
        key = _name(_known(statistic.by, known, "by"))
        select = select.select(key).group_by(key)
    select = select.select(measure).from_(DATA)
    conditions = [_condition(condition, known, f"where_{place}") for place, condition in enumerate(statistic.where)]
    return _text(select.where(*conditions) if conditions else select)


def _measure(statistic: Statistic, known: Mapping[str, ColumnProfile], individual: Sequence[str]) -> exp.Expr:
    if statistic.measure == "count":
        return fill("COUNT(*)")
    if statistic.measure == "people":
        if not individual:
            raise InputError("`measure` must not count people before it is said who they are.")
        names = [_name(_known(name, known, "measure")) for name in individual]
        counted: exp.Expr = names[0] if len(names) == 1 else exp.Tuple(expressions=names)
        return exp.Count(this=exp.Distinct(expressions=[counted]))
    if statistic.measure == "rate":
        if statistic.holds is None or not statistic.holds.column:
            raise InputError("`holds` must say which rows are counted among all.")
        held = exp.case().when(_condition(statistic.holds, known, "holds"), fill("1.0")).else_(fill("0.0"))
        return exp.Avg(this=held)  # 0 where the condition is NULL: it does not hold there
    if statistic.measure not in _OF_NUMBERS:
        raise InputError(f"`measure` must be one of {', '.join(MEASURES)}.")
    column = _known(statistic.column or "", known, "column")
    if not column.is_number:
        raise InputError("`column` must hold numbers. Hint: a rate is the share of rows with some value.")
    return fill(_OF_NUMBERS[statistic.measure], x=_name(column))


def _condition(condition: RowCondition, known: Mapping[str, ColumnProfile], field: str) -> exp.Expr:
    column = _known(condition.column, known, field)
    name = _name(column)
    if condition.operator == EMPTY:
        return exp.Is(this=name, expression=exp.null())
    if condition.operator == FILLED:
        return exp.Not(this=exp.Is(this=name, expression=exp.null()))
    if condition.operator == ONE_OF:
        try:
            typed = [part.strip() for part in next(csv.reader([condition.value], skipinitialspace=True), [])]
        except csv.Error:  # several lines
            typed = []
        typed = [part for part in typed if part]
        if not typed:
            raise InputError(f"`{field}` must have at least one value, several separated by commas.")
    elif condition.operator in _COMPARED:
        typed = [condition.value.strip()]
        if not typed[0]:
            raise InputError(f'`{field}` must have a value. Hint: "{EMPTY}" finds rows without one.')
    else:
        raise InputError(f"`{field}` must compare by one of {', '.join(OPERATORS)}.")
    pairs = [_compared(column, text, field) for text in typed]
    if condition.operator != ONE_OF:
        left, value = pairs[0]
        return _COMPARED[condition.operator](this=left, expression=value)
    by_left: dict[str, tuple[exp.Expr, list[exp.Expr]]] = {}
    for left, value in pairs:
        by_left.setdefault(_text(left), (left, []))[1].append(value)
    return exp.or_(*(exp.In(this=left, expressions=values) for left, values in by_left.values()))


def _compared(column: ColumnProfile, typed: str, field: str) -> tuple[exp.Expr, exp.Expr]:
    """What is compared, and with what: the value that was typed, as a value of the column's own kind."""
    name = _name(column)
    if column.is_number:
        return name, _number(typed, field)
    if column.kind == "boolean":
        if typed.lower() not in (*_YES, *_NO):
            raise InputError(f"`{field}` must be yes or no.")
        return name, exp.Boolean(this=typed.lower() in _YES)
    if not column.is_time:
        return name, exp.Literal.string(typed)
    try:
        if len(typed) > _DAY:
            moment = exp.Literal.string(datetime.fromisoformat(typed).isoformat(sep=" "))
            return (exp.cast(name, "TIMESTAMP", dialect="duckdb") if column.as_text else name), moment
        day = exp.Literal.string(date.fromisoformat(typed).isoformat())
    except ValueError:
        raise InputError(f"`{field}` must be a date such as 2024-01-31, or with a time 2024-01-31 12:00.") from None
    # a day stands for all of its moments
    return (exp.cast(name, "DATE", dialect="duckdb") if column.moments or column.as_text else name), day


def _number(typed: str, field: str) -> exp.Expr:
    try:
        value = float(typed)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in typed or not typed.isascii():
        raise InputError(f"`{field}` must be a number, with a point and not a comma: 1.5.")
    digits = exp.Literal.number(typed.lstrip("+-").strip())
    return exp.Neg(this=digits) if typed.startswith("-") else digits


def _known(name: str, known: Mapping[str, ColumnProfile], field: str) -> ColumnProfile:
    if name not in known:
        raise InputError(f"`{field}` must be a column of the data.")
    return known[name]


def _name(column: ColumnProfile) -> exp.Column:
    return exp.column(column.name, quoted=in_sql(column.name) != column.name)


def _text(tree: exp.Expr) -> str:
    return str(tree.sql(dialect="duckdb", normalize_functions="lower"))
