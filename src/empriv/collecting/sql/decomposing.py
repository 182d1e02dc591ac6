"""Whether a query can be rewritten, and what it is made of then: the rows that it reads, and its aggregates.

Rows may be those of a table whose every row follows from the rows of one individual (`per_person`). Tree in,
tree out: what becomes of the parts is for `rewrite`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from empriv.collecting.engines.engine import DATABASE, INDIVIDUAL
from empriv.collecting.queries import Query
from empriv.collecting.sql.aggregates import AGGREGATES, Aggregate, NotDecomposable
from empriv.collecting.sql.allowlist import OF_MANY, follows_from_row
from empriv.collecting.sql.per_person import check_joins, filters_of, propagate_columns, sources_of_rows
from empriv.collecting.sql.plain_form import plain_form
from empriv.collecting.sql.printing import Node, called, fill, text

_REFUSED = {
    "distinct": "SELECT DISTINCT",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "fetch": "FETCH",
    "qualify": "QUALIFY",
    "sample": "a sample of the rows",
}
# Parts of a SELECT that are understood; its order does not matter, since each group is a result of its own.
_UNDERSTOOD = {"expressions", "from_", "joins", "where", "group", "having", "order", "with_"}
# What HAVING may ask: other aggregates, and sums of doubles, may come out with another last digit than in the query as
# it is written.
_PLAIN_HAVING = {"count", "count distinct", "min", "max", "bool_and", "bool_or", "sum"}
# Estimates do not follow from what each individual has: they are had by running the query, unlike these.
_EXACT = {"approx_count_distinct": "count(DISTINCT ...)", "approx_quantile": "quantile_cont"}


@dataclass(frozen=True)
class Call:
    """An aggregate in the query, with FILTER and DISTINCT dissolved."""

    name: str
    aggregate: Aggregate
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Decomposition:
    """A query that can be rewritten: where its rows come from, and its aggregates.

    ``alias`` is what the query calls ``data``, or the table derived from it person by person. ``plain`` says whether it
    is ``data`` itself, and nothing else of it is read. Sums of what is ``compared`` in HAVING must be of no doubles.
    """

    query: Query
    select: exp.Select
    alias: str
    calls: tuple[Call, ...]
    plain: bool = True
    compared: frozenset[str] = frozenset()

    def rows(self, *expressions: Node, carried: Sequence[str] = (DATABASE, INDIVIDUAL)) -> exp.Select:
        """Select these from the rows that the query reads; a derived table hands on columns of ``data``."""
        scan = exp.Select()
        for part in ("with_", "with", "from_", "from", "joins", "where"):
            value = self.select.args.get(part)
            if value is not None:
                scan.set(part, [item.copy() for item in value] if isinstance(value, list) else value.copy())
        if not self.plain:
            propagate_columns(scan, carried)
        return scan.select(*expressions, copy=False)

    @property
    def chooses_groups(self) -> bool:
        """Whether HAVING says which groups there are."""
        return bool(self.query.groups and self.query.select and self.query.select.args.get("having"))

    @property
    def reads_all(self) -> bool:
        """Whether every row of ``data`` is read."""
        return self.plain and not any(self.select.args.get(part) for part in ("joins", "where"))

    def column(self, name: str) -> exp.Column:
        return exp.column(name, table=self.alias)

    @property
    def arguments(self) -> dict[str, Node]:
        """Arguments of all aggregates, by the names that they have in ``empriv_rows``."""
        texts = dict.fromkeys(text(x) for call in self.calls for x in call.arguments if not isinstance(x, exp.Literal))
        nodes = {text(x): x for call in self.calls for x in call.arguments}
        return {f"empriv_a{number}": nodes[argument] for number, argument in enumerate(texts)}

    @property
    def summed(self) -> set[str]:
        """Names of the arguments whose range must be known if they are doubles."""
        needed = {text(x) for call in self.calls if call.aggregate.sums for x in call.arguments}
        return {name for name, x in self.arguments.items() if text(x) in needed}


def decompose(query: Query, whose: Sequence[str] = ()) -> Decomposition:
    """See whether a query can be rewritten; raise `NotDecomposable` with the reason if not.

    ``whose`` are the columns of ``data`` that say whom a row belongs to.
    """
    select = query.select
    if not isinstance(select, exp.Select):
        raise NotDecomposable("it combines several SELECTs")
    select = plain_form(select, query.groups)
    for part, words in _REFUSED.items():
        if select.args.get(part):
            raise NotDecomposable(f"it has {words}")
    if any(value for part, value in select.args.items() if part not in _UNDERSTOOD):
        raise NotDecomposable("it has a part that is not rewritten")
    group = select.args.get("group")
    if group is not None and any(group.args.get(part) for part in ("rollup", "cube", "grouping_sets")):
        raise NotDecomposable("it has grouping sets")
    sources = sources_of_rows(select, whose)
    check_joins(select, sources[0])
    if _reads_whole_rows(select):
        raise NotDecomposable("it reads whole rows")
    if any(not follows_from_row(key) for key in query.groups):
        raise NotDecomposable("it groups by more than an expression of one row")
    for part in (select.args.get("where"), *(join.args.get("on") for join in select.args.get("joins") or ())):
        if part is not None and part.find(exp.Window, exp.Columns) is not None:
            raise NotDecomposable("it has a window function")
    calls: list[Call] = []
    having = select.args.pop("having", None)
    if having is not None:
        replace_calls(having.this.copy(), calls, query)
        if any(call.name not in _PLAIN_HAVING for call in calls):
            raise NotDecomposable("its HAVING asks for more than counts, sums and extremes")
    compared = frozenset(text(x) for call in calls if call.name == "sum" for x in call.arguments)
    for position in query.items:
        item = select.expressions[position].unalias()
        if having is not None:
            item.replace(fill("CASE WHEN h THEN q END", h=having.this, q=item))
        replace_calls(select.expressions[position].unalias().copy(), calls, query)
    plain = len(sources) == 1 and isinstance(sources[0], exp.Table) and not filters_of(select)
    return Decomposition(query, select, sources[0].alias_or_name, tuple(calls), plain, compared)


def replace_calls(tree: Node, calls: list[Call], query: Query) -> Node:
    """Put ``empriv_call_0`` ... in the place of aggregates, and check that nothing else depends on rows."""

    def put(node: Node) -> Node:
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            raise NotDecomposable("a result reads a table of its own")
        if node in query.groups:
            return exp.column(f"k{query.groups.index(node)}", table="empriv_key")
        if isinstance(node, exp.Window):
            raise NotDecomposable("it has a window function")
        call = _call(node)
        if call is None:
            return node
        calls.append(call)
        return exp.column(f"call{len(calls) - 1}", table="empriv_call")

    tree = tree.transform(put)
    for node in tree.walk():
        if isinstance(node, exp.AggFunc | exp.Anonymous) and (name := called(node)) in OF_MANY:
            instead = f", as {_EXACT[name]} is" if name in _EXACT else ""
            raise NotDecomposable(f"{name} is not an aggregate that can be rewritten{instead}")
        if isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and node.table not in {"empriv_call", "empriv_key"}
        ):
            raise NotDecomposable("it uses columns outside the aggregates that can be rewritten")
        if isinstance(node, exp.Column) and node.table == "empriv_key":
            raise NotDecomposable("a result is computed from a group key")
    # Where a result is taken of states, columns that are not the query's own are in sight: only plain forms go there.
    if not follows_from_row(tree):
        raise NotDecomposable("a result is more than a formula of its aggregates")
    return tree


def check_aliases(plan: Decomposition, columns: Mapping[str, Sequence[str]]) -> None:
    """Refuse to rewrite a query that uses a name of its SELECT list elsewhere: a rewritten query has no such list."""
    select = plan.select
    known = {name.lower() for own in columns.values() for name in own}
    known |= {one.alias.lower() for one in select.find_all(exp.Alias) if one.find_ancestor(exp.Select) is not select}
    named = {item.alias.lower() for item in select.expressions if item.alias} - known
    for column in select.find_all(exp.Column):
        if not column.table and column.name.lower() in named and column.find_ancestor(exp.Group, exp.Order) is None:
            raise NotDecomposable("it uses a name of its SELECT list elsewhere")


def _call(node: Node) -> Call | None:
    """Understand an aggregate that the table knows."""
    condition = None
    if isinstance(node, exp.Filter):
        condition, node = node.expression.this, node.this
    descending = False
    if isinstance(node, exp.WithinGroup):
        ordered = node.expression.expressions
        if len(ordered) != 1 or not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
            return None
        descending = bool(ordered[0].args.get("desc"))
        name = "quantile_cont" if isinstance(node.this, exp.PercentileCont) else "quantile_disc"
        arguments = [ordered[0].this, node.this.this]
    elif isinstance(node, exp.AggFunc):
        name = text(node).partition("(")[0].lower()
        arguments = [value for value in node.args.values() if isinstance(value, exp.Expression)]
    elif isinstance(node, exp.Anonymous):
        name, arguments = node.name.lower(), list(node.expressions)
    else:
        return None
    if name == "count" and (not arguments or isinstance(arguments[0], exp.Star)):
        arguments = [exp.Literal.number(1)]
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        name, arguments = f"{name} distinct", list(arguments[0].expressions)
    aggregate = AGGREGATES.get(name)
    if aggregate is None or len(arguments) != 1 + aggregate.share or any(isinstance(x, exp.Order) for x in arguments):
        return None
    columns = arguments[:1]
    if aggregate.share and not (isinstance(arguments[-1], exp.Literal) and not arguments[-1].is_string):
        raise NotDecomposable("its quantile is not given as a number")
    if any(not follows_from_row(x) for x in (*columns, *([] if condition is None else [condition]))):
        raise NotDecomposable("an aggregate is of more than an expression of one row")
    if descending:
        if name == "quantile_disc" or not isinstance(arguments[1], exp.Literal):
            return None
        arguments[1] = exp.Literal.number(str(1 - Decimal(arguments[1].this)))
    if name != "count":
        # A constant takes the place of a column, with a name and a type of its own.
        columns = [exp.paren(x) if isinstance(x, exp.Literal) else x for x in columns]
    if condition is not None:
        columns = [fill("CASE WHEN c THEN x END", c=condition, x=x) for x in columns]
    return Call(name, aggregate, (*columns, *arguments[1:]))


def _reads_whole_rows(select: exp.Select) -> bool:
    """Whether a row is read as one value, or all its columns: a rewritten query has columns of its own there."""
    tables = {table.alias_or_name.lower() for table in select.find_all(exp.Table, exp.Subquery)} - {""}
    if any(not column.table and column.name.lower() in tables for column in select.find_all(exp.Column)):
        return True
    stars = [
        star
        for star in select.find_all(exp.Star)
        # a derived table may hand on all columns
        if not isinstance(star.parent, exp.Count) and star.find_ancestor(exp.Select) is select
    ]
    return bool(stars) or select.find(exp.Columns) is not None
