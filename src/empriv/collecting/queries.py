"""SQL text, an expression, or a Python callable, parsed as a `Query`.

Parsing only: `rewrite` decides whether a query can be rewritten, and the engine whether it can run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp, parse
from sqlglot.errors import ParseError, TokenError

from empriv.collecting.engines.engine import DATA as DATA
from empriv.collecting.engines.engine import DATABASE as DATABASE
from empriv.collecting.engines.engine import INDIVIDUAL as INDIVIDUAL
from empriv.collecting.sql.allowlist import DEEP, check, without_comments
from empriv.collecting.sql.printing import (
    KEYWORDS,
    Names,
    check_characters,
    fill,
    misspelt_keyword,
    names_in,
    pointed,
    printed,
    unclosed,
)
from empriv.errors import QueryError

MOST_CELLS = 1_000  # of a table
_LONGEST = 50_000  # characters of a query: reading a text takes time that no limit ends


@dataclass(frozen=True)
class Query:
    """A query on one database: ``Query("sum(x)", post=f)``, or ``Query(function)``.

    It is parsed and checked when it is made. Everything except ``text`` and ``post`` is derived.

    Attributes
    ----------
    text : SQL text or an SQL expression of aggregates; or a function of the rows, whose name it becomes
    post : function applied to each result, or None
    select : the parsed query, with divisions made safe, or None for a callable
    function : the callable, or None for SQL
    items : positions of the select items that are results
    keys : positions of the select items that name groups
    names : names of the result items
    groups : GROUP BY expressions

    Examples
    --------
    >>> query = empriv.Query("avg(delay)", post=round)
    >>> query.text
    'avg(delay)'
    """

    text: str
    post: Callable[[Any], Any] | None = None
    _: KW_ONLY
    select: exp.Select | exp.SetOperation | None = field(default=None, repr=False)
    function: Callable[..., Any] | None = field(default=None, repr=False)
    items: tuple[int, ...] = field(default=(), repr=False)
    keys: tuple[int, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    groups: tuple[exp.Expr, ...] = field(default=(), repr=False)

    if TYPE_CHECKING:  # a function may be given as the text, which then becomes its name

        def __init__(
            self, text: str | Callable[..., Any], post: Callable[[Any], Any] | None = None, **derived: Any
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.select is None and self.function is None:
            parsed = query_of(self.text, post=self.post)
            for part in fields(self):
                object.__setattr__(self, part.name, getattr(parsed, part.name))

    @property
    def is_vector(self) -> bool:
        return bool(self.groups) or len(self.items) > 1

    @property
    def counts(self) -> bool:
        """Whether one of the results is a count."""
        results = [] if self.select is None else [self.select.selects[item].unalias() for item in self.items]
        return any(isinstance(result, exp.Count) for result in results)


def query_of(query: Any, *, post: Callable[[Any], Any] | None = None) -> Query:
    """Parse SQL text, an expression of aggregates, or a callable."""
    if isinstance(query, Query):
        return query
    if post is not None and not callable(post):
        raise QueryError("`post` must be a function of the result.")
    if callable(query):
        return Query(getattr(query, "__qualname__", type(query).__qualname__), function=query, post=post)
    if not isinstance(query, str) or not query.strip():
        raise QueryError("`query` must be SQL text or a function of the rows.")
    if len(query) > _LONGEST:
        raise QueryError(f"The query must be at most {_LONGEST:,} characters long, got {len(query):,}.")
    select = _parse(query)
    check(select, query)
    outermost = select.find(exp.Select) if not isinstance(select, exp.Select) else select
    assert outermost is not None
    groups = _groups(outermost) if isinstance(select, exp.Select) else ()
    keys = tuple(p for p, item in enumerate(outermost.expressions) if item.unalias() in groups)
    items = tuple(p for p in range(len(outermost.expressions)) if p not in keys)
    if len(items) > MOST_CELLS:
        raise QueryError(f"A table may have at most {MOST_CELLS:,} cells, got {len(items):,} results.")
    if not items:
        raise QueryError("The query must select at least one aggregate, got only group keys.")
    names = tuple(outermost.expressions[p].alias or outermost.expressions[p].sql("duckdb") for p in items)
    _make_divisions_safe(select)
    _write_out_macros(select)
    groups = tuple(_safe(group) for group in groups)
    return Query(query, post, select=select, items=items, keys=keys, names=names, groups=groups)


def canonical_text(queries: Sequence[Query]) -> str | None:
    """The canonical text of these queries, however they are written; None if text is not enough to run them again."""
    if any(query.select is None or query.post is not None for query in queries):
        return None
    return "; ".join(printed(_parse(query.text)) for query in queries)


def without_keys(query: Query, dropped: Collection[int]) -> str:
    """The text of a query without some of its keys, as somebody would write it."""
    select = _parse(query.text)
    assert isinstance(select, exp.Select)
    keys = [key for number, key in enumerate(_groups(select)) if number not in dropped]
    gone = [key for number, key in enumerate(_groups(select)) if number in dropped]
    select.set("expressions", [item for item in select.expressions if item.unalias() not in gone])
    select.set("group", exp.Group(expressions=keys) if keys else None)
    select.set("order", None)  # it may be by what is gone, and does not matter
    return str(select.sql(dialect="duckdb", normalize_functions="lower"))


def as_written(text: str) -> tuple[str, Names]:
    """A query as it is written, made a SELECT for an engine's parser to read; and what we read in it."""
    statement = _statement(text)
    if isinstance(statement, exp.Query):
        return text, names_in(statement)
    return f"SELECT {text}", names_in(exp.select(statement))


def queries_in(text: str) -> list[str]:
    """The queries that a canonical text holds."""
    return [statement.sql(dialect="duckdb") for statement in parse(text, dialect="duckdb") if statement is not None]


def _parse(text: str) -> exp.Select | exp.SetOperation:
    statement = _statement(text)
    while isinstance(statement, exp.Subquery) and statement.is_wrapper:
        statement = statement.this
    if isinstance(statement, exp.Select):
        if statement.args.get("from_") is None and statement.args.get("from") is None and not _of_numbers(statement):
            statement = statement.from_(DATA)
        return statement
    if isinstance(statement, exp.SetOperation):
        return statement
    if isinstance(statement, exp.DDL | exp.DML | exp.Command | exp.Drop | exp.Alter | exp.Set | exp.Copy | exp.Pragma):
        raise QueryError("The query must be a SELECT or an expression of aggregates.")
    if isinstance(statement, exp.Condition | exp.Alias | exp.Func | exp.Filter | exp.WithinGroup | exp.Binary):
        return exp.select(statement).from_(DATA)
    raise QueryError("The query must be a SELECT or an expression of aggregates.")


def _of_numbers(select: exp.Select) -> bool:
    """Whether a SELECT without FROM is made of SELECTs in brackets, as ``SELECT (SELECT ...) / (SELECT ...)``."""
    subqueries = list(select.find_all(exp.Subquery))
    own = [node for node in select.find_all(exp.AggFunc) if node.find_ancestor(exp.Select) is select]
    return bool(subqueries) and not own


def _statement(text: str) -> exp.Expr:
    """The one statement of a text, without comments."""
    check_characters(text)
    try:
        statements = [
            statement
            for statement in parse(text, dialect="duckdb")
            if statement is not None and not isinstance(statement, exp.Semicolon)
        ]
    except (ParseError, TokenError) as error:
        raise QueryError(f"The query must be SQL that can be parsed{_trouble(error, text)}") from None
    except RecursionError:
        raise QueryError(DEEP) from None
    if len(statements) != 1:
        raise QueryError(f"The query must be one statement, got {len(statements)}.")
    without_comments(statements[0])
    return statements[0]


def _trouble(error: Exception, text: str) -> str:
    """End of a sentence about text that cannot be parsed: the place, and what may be wrong there."""
    details: dict[str, Any] = (getattr(error, "errors", None) or [{}])[0]
    open_quote = unclosed(text)
    if open_quote is not None:
        quote, line, column = open_quote
        return f": the quote {quote} at line {line}, column {column} is not closed.{pointed(text, line, column)}"
    if details.get("line") is None:
        return "."
    # The parser reports where a word ends.
    line, column = details["line"], max(1, details["col"] - len(details.get("highlight") or " ") + 1)
    wanted = re.fullmatch(r"Expecting (\S)", details.get("description") or "")
    word = misspelt_keyword(text, line, details["col"])
    hint = f" Hint: should {word}?" if word else ""
    after, before = details.get("highlight") or "", re.search(r"(\w+) $", details.get("start_context") or "")
    if not hint and before and after.isidentifier() and after.upper() not in KEYWORDS:
        hint = f' Hint: if this is one name, write "{before.group(1)} {after}".'
    if not hint and set("`[") & set(text.split("\n")[line - 1][max(0, column - 2) : column]):
        hint = " Hint: names stand in double quotes, or in none."
    elif not hint and not re.match(r"\s*(select|with|from|\()", text, re.IGNORECASE):
        hint = " Hint: what is more than one expression begins with SELECT, as in SELECT sum(x), count(*) FROM data."
    missing = f", where {wanted.group(1)!r} is missing" if wanted else ""
    return f", which fails at line {line}, column {column}{missing}.{hint}{pointed(text, line, column)}"


def _make_divisions_safe(select: exp.Expr) -> None:
    """Write x / y as x / NULLIF(y, 0): engines disagree on division by zero, and all agree on this."""
    for node in list(select.find_all(exp.Div, exp.IntDiv, exp.Mod)):
        divisor = node.expression
        if (
            isinstance(divisor.unnest(), exp.Literal)
            and divisor.unnest().is_number
            and float(divisor.unnest().this) != 0
        ):
            continue
        node.set("expression", exp.Nullif(this=divisor.copy(), expression=exp.Literal.number(0)))


def _write_out_macros(select: exp.Expr) -> None:
    """Write out what DuckDB has macros for: count_if(x), NULL where no x is true or false, and geomean(x)."""
    for node in list(select.find_all(exp.CountIf)):
        node.replace(exp.Sum(this=fill("CASE WHEN c THEN 1 WHEN NOT c THEN 0 END", c=node.this)))
    for call in list(select.find_all(exp.Anonymous)):
        if call.name.lower() in ("geomean", "geometric_mean") and len(call.expressions) == 1:
            call.replace(fill("EXP(AVG(LN(x)))", x=call.expressions[0]))


def _safe(tree: exp.Expr) -> exp.Expression:
    holder = exp.Paren(this=tree.copy())
    _make_divisions_safe(holder)
    return cast(exp.Expression, holder.this)


def check_keys(query: Query, columns: Mapping[str, Sequence[str]]) -> None:
    """Refuse GROUP BY a name that is a column and what the query calls another expression: DuckDB takes the column."""
    select = query.select
    group = select.args.get("group") if isinstance(select, exp.Select) else None
    if not isinstance(select, exp.Select) or group is None:
        return
    known = {name.lower() for own in columns.values() for name in own}
    for inner in select.find_all(exp.Subquery, exp.CTE, exp.TableAlias):
        known |= {name.lower() for name in (inner.this.named_selects if isinstance(inner.this, exp.Query) else ())}
        known |= {
            one.name.lower() for one in (inner.args.get("columns") or () if isinstance(inner, exp.TableAlias) else ())
        }
    for item in select.expressions:
        name, meant = item.alias.lower(), item.unalias()
        if name not in known or (isinstance(meant, exp.Column) and meant.name.lower() == name):
            continue
        if any(isinstance(key, exp.Column) and not key.table and key.name.lower() == name for key in group.expressions):
            raise QueryError(
                f"The query must group by a name that means one thing, but {item.alias!r} is a column, and what the "
                "query calls another expression. Hint: choose another name after AS."
            )


def _groups(select: exp.Select) -> tuple[exp.Expr, ...]:
    """GROUP BY expressions, with positions, aliases and ALL resolved, in the order in which they are selected."""
    group = select.args.get("group")
    if group is None:
        return ()
    if group.args.get("all"):
        plain = (item.unalias() for item in select.expressions)
        return tuple(item.copy() for item in plain if item.find(exp.AggFunc) is None)
    aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
    keys: list[exp.Expr] = []
    for key in group.expressions:
        if isinstance(key, exp.Literal) and key.is_int:
            position = int(key.this)
            if not 1 <= position <= len(select.expressions):
                raise QueryError(f"GROUP BY position must be from 1 to {len(select.expressions)}, got {position}.")
            key = select.expressions[position - 1].unalias()
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in aliases:
            key = aliases[key.name.lower()]
        keys.append(key.copy())
    selected = [item.unalias() for item in select.expressions]
    return tuple(sorted(keys, key=lambda key: selected.index(key) if key in selected else len(selected)))
