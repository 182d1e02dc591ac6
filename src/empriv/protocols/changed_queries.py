"""Queries changed so that nobody moves the answer far: what people add capped, 0 for no answer, a least number of rows.

Each is a query of its own, which runs, and is released, like any other. What each person adds is added up in a
subquery that the leave-one-out rewrite understands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp, parse_one

from empriv.collecting.engines.engine import quoted
from empriv.collecting.queries import DATA, Query, query_of
from empriv.collecting.sql.printing import fill
from empriv.errors import QueryError

_RULE = "must be one SELECT of sums, counts or averages, without GROUP BY, to be capped"


def adds_people_up(query: Any) -> bool:
    """Whether the answer is one sum or one count, so that what a person adds is what they move it by."""
    item = _only_answer(query)
    item = item.this if isinstance(item, exp.Filter) else item
    return type(item) in (exp.Sum, exp.Count) and not item.find(exp.Distinct)


def sum_and_rows(query: Any) -> str | None:
    """The sum and the number of rows behind an average, as a query of its own; None of any other query."""
    parts = _sum_and_rows_of(query)
    select = query_of(query).select
    if parts is None or select is None:
        return None
    select = select.copy()
    select.set("expressions", [exp.alias_(part, name) for part, name in zip(parts, ("total", "many"), strict=True)])
    return str(select.sql(dialect="duckdb"))


def zero_text(query: str) -> str:
    """The query with 0 in place of NULL for its one answer, as a query of its own."""
    return _with_answer(query, lambda answer: fill("COALESCE(x, 0)", x=answer))


def least_rows_text(query: str, rows: int) -> str:
    """An average with its sum divided by at least so many rows, as a query of its own."""
    parts = _sum_and_rows_of(query)
    assert parts is not None
    total, many = parts
    divided = fill(
        "COALESCE(total, 0) / GREATEST(many, least)", total=total, many=many, least=exp.Literal.number(str(rows))
    )
    return _with_answer(query, lambda _: divided)


def capped_people_text(query: str, individual: Sequence[str], at: float) -> str:
    """The query with what each person adds capped, as a query of its own; see `protocols.cap_people`."""
    select = capped_people(query_of(query), individual, at).select
    assert select is not None
    return str(select.sql(dialect="duckdb"))


def capped_people(query: Query, individual: Sequence[str], at: float) -> Query:
    """The query with what each person adds to its sums (to its counts, if it has no sums) kept between -at and at.

    An average is the capped sum over the number of rows.
    """
    select = query.select
    if query.function is not None or not isinstance(select, exp.Select):
        raise QueryError(f"The query {_RULE}.")
    if any(select.args.get(name) for name in ("group", "having", "distinct", "qualify", "windows", "limit", "order")):
        raise QueryError(f"The query {_RULE}.")
    outer, inner, alias = select.copy(), select.copy(), _alias(select)
    names = [f"{quoted(alias)}.{quoted(name)}" for name in individual]
    found = [node for item in outer.expressions for node in item.find_all(exp.AggFunc, exp.Anonymous)]
    if not found or any(
        type(node) not in (exp.Sum, exp.Avg, exp.Count) or node.find(exp.Distinct) or node.find_ancestor(exp.Subquery)
        for node in found
    ):
        raise QueryError(f"The query {_RULE}.")
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


def _only_answer(query: Any) -> Any:
    """The one item that a query without GROUP BY selects; None if there are several."""
    select = query_of(query).select
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or select.args.get("group"):
        return None
    return select.expressions[0].unalias()


def _sum_and_rows_of(query: Any) -> list[exp.Expression] | None:
    """The sum, and the number of rows, of a query that is one average."""
    item = _only_answer(query)
    average = item.this if isinstance(item, exp.Filter) else item
    if type(average) is not exp.Avg or average.find(exp.Distinct):
        return None
    parts: list[exp.Expression] = []
    for of in (exp.Sum, exp.Count):
        part = item.copy()
        whole = of(this=average.this.copy())
        if isinstance(part, exp.Filter):
            part.set("this", whole)
        parts.append(part if isinstance(part, exp.Filter) else whole)
    return parts


def _with_answer(query: str, made: Callable[[exp.Expression], exp.Expr]) -> str:
    """The query with something else in place of its answer, the last of what it selects."""
    select = query_of(query).select
    assert select is not None
    select = select.copy()
    answer = select.expressions[-1]
    inner = answer.this if isinstance(answer, exp.Alias) else answer
    inner.replace(made(inner.copy()))
    return str(select.sql(dialect="duckdb"))


def _alias(select: exp.Select) -> str:
    """The name that the outermost SELECT uses for ``data``."""
    for part in (select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or ())):
        table = None if part is None else part.this
        if isinstance(table, exp.Table) and table.name.lower() == DATA and not table.db:
            return str(table.alias_or_name)
    raise QueryError("The query must read `data` itself for what people add to be capped, not in a subquery.")
