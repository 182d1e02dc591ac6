"""Steps on the query itself: no answer (NULL) from too few rows or people; values, or what people add, capped.

SQL items become CASE WHEN count >= k THEN item END, which the leave-one-out rewrite understands, for each group if
there are groups; a Python function is called only if there are enough. Capped, what a query adds up is added up for
each person first, in a subquery that the rewrite understands too; so are values that are capped before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from sqlglot import exp, parse_one

from empriv.collecting.engines.engine import quoted
from empriv.collecting.queries import DATA, Query
from empriv.collecting.sql.printing import fill
from empriv.collecting.sql.rewrite import instead_of_data
from empriv.errors import InputError, QueryError


@dataclass(frozen=True)
class TooFew:
    """No answer from fewer than this many rows, or individuals."""

    least: int
    of: Literal["rows", "individuals"]
    kind: ClassVar[str] = "too few"
    randomised: ClassVar[bool] = False

    def guarded(self, query: Query, individual: Sequence[str]) -> Query:
        whose = tuple(individual) if self.of == "individuals" else ()
        if query.function is not None:
            return replace(query, function=Guarded(query.function, self.least, whose))
        if not whose:
            return _guarded(query, "COUNT(*)", self.least)
        names = [f"{quoted(_alias(query))}.{quoted(name)}" for name in whose]
        counted = names[0]
        if len(names) > 1:
            missing = " OR ".join(f"{name} IS NULL" for name in names)
            fields = ", ".join(f"'c{number}': {name}" for number, name in enumerate(names))
            counted = f"CASE WHEN {missing} THEN NULL ELSE {{{fields}}} END"
        return _guarded(query, f"COUNT(DISTINCT {counted})", self.least)

    @property
    def words(self) -> str:
        return f"no answer from fewer than {self.least} {self.of}"


@dataclass(frozen=True)
class CappedPeople:
    """What each person adds in a database is kept between -at and at."""

    at: float
    kind: ClassVar[str] = "capped people"
    randomised: ClassVar[bool] = False

    def guarded(self, query: Query, individual: Sequence[str]) -> Query:
        return capped_people(query, individual, self.at)

    @property
    def words(self) -> str:
        return f"each person adds at most {self.at:g}"


@dataclass(frozen=True)
class Guarded:
    """A function that is called only if there are enough rows, or enough individuals."""

    function: Callable[..., Any]
    least: int
    individual: tuple[str, ...]

    def __call__(self, rows: Any, *rng: Any) -> Any:
        names = list(getattr(rows, "column_names", getattr(rows, "columns", rows)))
        if not self.individual:
            count = len(rows[names[0]])
        else:
            own = {name.lower(): name for name in names}
            columns = [list(_array(rows[own[name.lower()]])) for name in self.individual]
            # NULL is None or NaN, which differs from itself; rows with a NULL identifier belong to nobody.
            whole = (row for row in zip(*columns, strict=True) if all(x is not None and x == x for x in row))
            count = len(set(whole))
        return self.function(rows, *rng) if count >= self.least else None


def _array(column: Any) -> Any:
    return column.to_pylist() if hasattr(column, "to_pylist") else column


def _guarded(query: Query, count: str, least: int) -> Query:
    select = query.select
    if not isinstance(select, exp.Select):
        raise QueryError("The query must be one SELECT for its rows to be counted, got several combined.")
    select = select.copy()
    for position, name in zip(query.items, query.names, strict=True):
        item = select.expressions[position].unalias()
        within = [node for node in item.find_all(exp.AggFunc, exp.Anonymous) if not node.find_ancestor(exp.Subquery)]
        if not within or item.find(exp.Window):
            raise QueryError(
                f"The query must be of aggregates for the rows behind each to be counted, and {name!r} is not. "
                "Hint: count the rows in the query itself."
            )
        enough = fill(f"n >= {least}", n=_counted(item, count))
        guarded = exp.Case().when(enough, item.copy())
        select.expressions[position].replace(exp.alias_(guarded, name, quoted=True))
    return replace(query, select=select)


def capped_people(query: Query, individual: Sequence[str], at: float) -> Query:
    """The query with what each person adds to its sums (to its counts, if it has no sums) kept between -at and at.

    An average is the capped sum over the number of rows.
    """
    select, rule = query.select, "must be one SELECT of sums, counts or averages, without GROUP BY, to be capped"
    if query.function is not None or not isinstance(select, exp.Select):
        raise QueryError(f"The query {rule}.")
    if any(select.args.get(name) for name in ("group", "having", "distinct", "qualify", "windows", "limit", "order")):
        raise QueryError(f"The query {rule}.")
    outer, inner, alias = select.copy(), select.copy(), _alias(query)
    names = [f"{quoted(alias)}.{quoted(name)}" for name in individual]
    found = [node for item in outer.expressions for node in item.find_all(exp.AggFunc, exp.Anonymous)]
    if not found or any(
        type(node) not in (exp.Sum, exp.Avg, exp.Count) or node.find(exp.Distinct) or node.find_ancestor(exp.Subquery)
        for node in found
    ):
        raise QueryError(f"The query {rule}.")
    sums = any(isinstance(node, exp.Sum | exp.Avg) for node in found)
    columns = [f"{name} AS person_{place}" for place, name in enumerate(names)]
    nobody = " OR ".join(f"people.person_{place} IS NULL" for place in range(len(names)))

    def added(column: str, *, capped: bool) -> str:
        x = f"people.{column}"
        kept = f"CASE WHEN {nobody} THEN {x} WHEN {x} > cap THEN cap WHEN {x} < -cap THEN -cap ELSE {x} END"
        return f"SUM({kept if capped else x})"

    cap = exp.Literal.number(repr(at).removesuffix(".0"))
    for place, node in enumerate(found):
        filtered = node.parent if isinstance(node.parent, exp.Filter) else node
        text, column = filtered.sql("duckdb"), f"added_{place}"
        if isinstance(node, exp.Avg):
            argument = node.this.sql("duckdb")
            counted = text.replace(node.sql("duckdb"), f"COUNT({argument})")
            text = text.replace(node.sql("duckdb"), f"SUM({argument})")
            columns += [f"{text} AS {column}", f"{counted} AS {column}_n"]
            written = f"{added(column, capped=True)} / NULLIF({added(f'{column}_n', capped=False)}, 0)"
        else:
            columns.append(f"{text} AS {column}")
            capped = isinstance(node, exp.Sum) or not sums
            written = added(column, capped=capped)
            written = written if isinstance(node, exp.Sum) else f"COALESCE({written}, 0)"
        filtered.replace(exp.paren(fill(written, cap=cap.copy())))
    inner.set("expressions", [parse_one(column, dialect="duckdb") for column in columns])
    inner.set("group", exp.Group(expressions=[parse_one(name, dialect="duckdb") for name in names]))
    for clause in ("joins", "where"):
        outer.set(clause, None)
    origin = "from_" if "from_" in outer.args else "from"
    outer.set(origin, exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("people")))))
    return replace(query, select=outer)


def contributions(query: Query, column: str | None) -> Query:
    """The query with the sum of a column's sizes, or the number of rows, in the place of each of its numbers.

    Values that are not finite count as nothing: sums with them are not numbers anyway.
    """
    select = query.select
    if query.function is not None or not isinstance(select, exp.Select):
        raise QueryError("The query must be one SELECT for what individuals contribute to be added up.")
    summed = "COUNT(*)"
    if column is not None:
        x = f"{quoted(_alias(query))}.{quoted(column)}"
        summed = f"SUM(CASE WHEN ISFINITE(CAST({x} AS DOUBLE)) THEN ABS({x}) END)"
    select = select.copy()
    for position, name in zip(query.items, query.names, strict=True):
        item = select.expressions[position].unalias()
        select.expressions[position].replace(exp.alias_(_counted(item, summed), name, quoted=True))
    return replace(query, select=select, post=None)


def _counted(item: exp.Expr, count: str) -> exp.Expr:
    """A count over the rows that an item reads: those of its FILTER, if all of its aggregates have the same."""
    counted = parse_one(count, dialect="duckdb")
    conditions = {
        node.parent.expression.this.sql("duckdb") if isinstance(node.parent, exp.Filter) else None
        for node in item.find_all(exp.AggFunc, exp.Anonymous)
        if not node.find_ancestor(exp.Subquery)
    }
    only = conditions.pop() if len(conditions) == 1 else None
    if only is None:
        return counted
    return exp.Filter(this=counted, expression=exp.Where(this=parse_one(only, dialect="duckdb")))


def _alias(query: Query) -> str:
    """The name that the outermost SELECT uses for ``data``."""
    select = query.select
    if isinstance(select, exp.Select):
        for part in (select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or ())):
            table = None if part is None else part.this
            if isinstance(table, exp.Table) and table.name.lower() == DATA and not table.db:
                return str(table.alias_or_name)
    raise QueryError("The query must read `data` itself for its individuals to be counted, not in a subquery.")


@dataclass(frozen=True)
class Clipped:
    """Values of a column beyond a limit become the limit, wherever the query reads ``data``."""

    column: str
    lower: float | None
    upper: float
    kind: ClassVar[str] = "clipped"
    randomised: ClassVar[bool] = False

    def guarded(self, query: Query, individual: Sequence[str]) -> Query:
        if query.select is None:
            raise QueryError(
                "The query must be SQL for a column to be capped, got a Python function. Hint: cap in the function."
            )
        if self.column.lower() in map(str.lower, individual):
            raise InputError("`column` must not be one that says whom a row belongs to.")
        x = quoted(self.column)
        # DuckDB sorts NaN above all numbers: it stays as it is.
        cases = [f"WHEN {x} > {_literal(self.upper)} AND NOT ISNAN(CAST({x} AS DOUBLE)) THEN {_literal(self.upper)}"]
        if self.lower is not None:
            cases.insert(0, f"WHEN {x} < {_literal(self.lower)} THEN {_literal(self.lower)}")
        rows = f"SELECT * REPLACE (CASE {' '.join(cases)} ELSE {x} END AS {x}) FROM {DATA}"
        # The type says one SELECT, and several combined are walked through alike.
        select = instead_of_data(
            cast(exp.Select, query.select.copy()), cast(exp.Select, parse_one(rows, dialect="duckdb"))
        )
        return replace(query, select=select)

    @property
    def words(self) -> str:
        if self.lower is None:
            return f"{self.column} at most {self.upper:g}"
        return f"{self.column} kept between {self.lower:g} and {self.upper:g}"


Guard = TooFew | CappedPeople | Clipped


def _literal(number: float) -> str:
    """Whole limits as integers, so that integer columns stay integer."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 2**53 else repr(float(number))
