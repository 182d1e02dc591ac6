"""What to tell a person whose query an engine refuses: what is wrong, where, and what may have been meant.

Engines say it in words of their own, which may quote rows; here only names that the user wrote, names of columns and
tables, and numbers of rows are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlglot import exp

from empriv.collecting.engines.engine import BeyondLimits, FailedOnRows, Refused, Session
from empriv.collecting.queries import DATA, Query
from empriv.collecting.sql.printing import fill, nearest, placed
from empriv.errors import QueryError

# Aggregates that need numbers, by their names in a tree.
_NUMERIC = (
    exp.Sum, exp.Avg, exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.CovarPop,
    exp.CovarSamp, exp.Corr, exp.Quantile, exp.PercentileCont, exp.Median,
)  # fmt: skip
# Numbers as people write them: signs of money and per cent, spaces, and commas between thousands or before decimals.
_THOUSANDS = "REGEXP_MATCHES(x, '^[^0-9]*[0-9]{1,3}(,[0-9]{3})+([.][0-9]+)?[^0-9]*$')"
_WAYS = {
    "plain": "x",
    "bare": "REGEXP_REPLACE(x, '[£$€¥%, ]', '', 'g')",
    "comma": "REPLACE(x, ',', '.')",
    "bare_comma": "REPLACE(REGEXP_REPLACE(x, '[£$€¥%. ]', '', 'g'), ',', '.')",
}


@contextmanager
def explaining(session: Session, query: Query, *, failures: bool = False) -> Iterator[None]:
    """Errors of an engine come in the user's terms, where their cause is known: a name, or text that is no number.

    With ``failures``, so do those on some rows only, for which the query is else run once per individual.
    """
    try:
        yield
    except (BeyondLimits, Refused):
        raise
    except QueryError as error:
        if isinstance(error, FailedOnRows) and not failures:
            raise
        raise _explained(session, query, error) from None


def _explained(session: Session, query: Query, error: QueryError) -> QueryError:
    for trouble in (_table_not_read, _wrong_column, _truth_for_number, _text_for_number):
        with suppress(QueryError):  # looking closer may fail just as the query did
            found = trouble(session, query)
            if found is not None:
                return QueryError(found)
    return error


def _table_not_read(session: Session, query: Query) -> str | None:
    assert query.select is not None
    aliases = {name.lower() for name in session.columns} | {cte.alias.lower() for cte in query.select.find_all(exp.CTE)}
    for table in query.select.find_all(exp.Table):
        aliases.add(table.alias_or_name.lower())
    aliases |= {one.alias.lower() for one in query.select.find_all(exp.Subquery)}
    for column in query.select.find_all(exp.Column):
        if column.table and column.table.lower() not in aliases:
            where, caret = placed(query.text, column.args["table"].meta.get("start"))
            return (
                f"The query uses a table {column.table!r}{where} that it does not read. "
                f"Hint: write {column.name} alone, or {DATA}.{column.name}.{caret}"
            )
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
        where, caret = placed(query.text, column.this.meta.get("start"))
        return f"The query uses a column {column.name!r}{where} that does not exist{hint}{caret}"
    return None


def _quoted_text(query: Query, node: exp.Expr) -> str:
    """Of what was perhaps meant as a text, which may be of an individual: the place, and nothing that it says."""
    start, masked = node.meta.get("start"), query.text
    if start is not None:
        masked = f"{masked[: start + 1]}{'…' * len(node.name)}{masked[start + 1 + len(node.name) :]}"
    where, caret = placed(masked, start)
    return (
        f"The query uses a column{where} that does not exist. Hint: a text stands in single quotes, double quotes are "
        f"for names.{caret}"
    )


def _suggested(hint: str) -> str:
    return hint.split("did you mean ")[1].rstrip("?")[1:-1]


def _truth_for_number(session: Session, query: Query) -> str | None:
    """Whether something that is true or false is averaged; sum() counts what is true."""
    if not isinstance(query.select, exp.Select):
        return None
    for aggregate in query.select.find_all(*_NUMERIC):
        asked = aggregate.this
        if isinstance(aggregate, exp.Sum) or not isinstance(asked, exp.Expr) or asked.find(exp.Query) is not None:
            continue
        base = _rows_of(query.select, asked)
        if session.types(base)["x"].kind == "boolean":
            name, called = asked.unnest().sql("duckdb"), aggregate.sql_name().lower()
            place = next((one.this.meta.get("start") for one in asked.find_all(exp.Column)), None)
            where, caret = placed(query.text, place)
            if not isinstance(asked.unnest(), exp.Column):
                name = "..."  # which may hold a text that names somebody
            return (
                f"The query needs a number in {called}(), but {name!r}{where} is true or false. "
                f"Hint: CAST({name} AS INTEGER) makes 1 and 0 of it.{caret}"
            )
    return None


def _rows_of(select: exp.Select, x: exp.Expr) -> exp.Select:
    """The rows that a query adds up, with one expression of them."""
    base = select.copy()
    for part in ("group", "having", "order", "limit", "distinct", "qualify"):
        base.set(part, None)
    base.set("expressions", [exp.alias_(x.copy(), "x")])
    return base


def _text_for_number(session: Session, query: Query) -> str | None:
    """Whether a column of text is added up, and how many of its values are numbers, as they stand or with commas."""
    if not isinstance(query.select, exp.Select):
        return None
    for aggregate, column in _summed(query.select):
        base = _rows_of(query.select, column)
        kind = session.types(base)["x"].kind
        if kind != "other":
            continue
        name, text = column.sql("duckdb"), fill("CAST(x AS TEXT)", x=column)
        ways = {way: f"COUNT(TRY_CAST({template} AS DOUBLE))" for way, template in _WAYS.items()}
        counted = {"n": "COUNT(x)", "odd": f"COUNT(CASE WHEN x LIKE '%,%' AND NOT {_THOUSANDS} THEN 1 END)", **ways}
        base.set("expressions", [exp.alias_(fill(template, x=text), called) for called, template in counted.items()])
        found = {called: int(column.values[0]) for called, column in session.fetch(base).items()}
        n = found["n"]
        fitting = [way for way in _WAYS if found[way] == n and not (way == "bare" and found["odd"])]
        if fitting:
            hint = f"CAST({_written(_WAYS[fitting[0]], name)} AS DOUBLE) makes numbers of its values."
        elif found["plain"]:
            some = f"{found['plain']:,} of its {n:,} values"
            hint = f"TRY_CAST({name} AS DOUBLE) makes numbers of {some}, and NULL of the others."
        else:
            hint = f"none of its {n:,} values is a number as it stands; count({name}) counts them."
        where, caret = placed(query.text, column.this.meta.get("start"))
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
