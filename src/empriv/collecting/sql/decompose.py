"""Whether a query can be rewritten, and what it is made of then: the rows that it reads, and its aggregates.

Rows are those of ``data``, or of a table derived from it whose every row is one person's and follows from theirs alone.
`sources_of_rows` finds what is read, or raises `NotDecomposable`; `propagate_columns` has it hand on whose rows they
are. A query is in its `plain_form` by then. Tree in, tree out: what becomes of the parts is for `rewrite`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from sqlglot import exp

from empriv.collecting.engines.engine import DATA, DATABASE, INDIVIDUAL
from empriv.collecting.queries import Query
from empriv.collecting.sql.aggregates import AGGREGATES, Aggregate, NotDecomposable
from empriv.collecting.sql.allowlist import OF_MANY, conjuncts, follows_from_row, joined_columns
from empriv.collecting.sql.plain_form import plain_form
from empriv.collecting.sql.printing import Node, called, fill, reads_of_data, text

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
PAIR = "empriv_pair"  # a database without an individual, where that is taken for a database of its own
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

    ``alias`` is what the query calls ``data``, or the table derived from it person by person. ``results`` are formulas
    of ``calls``, which are columns ``empriv_call.call0`` ... there. ``plain`` says whether what is read is ``data``
    itself, and nothing else of it. Sums of what is ``compared`` in HAVING must be of no doubles.
    """

    query: Query
    select: exp.Select
    alias: str
    results: tuple[Node, ...]
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
    _check_joins(select, sources[0])
    if _reads_whole_rows(select):
        raise NotDecomposable("it reads whole rows")
    if any(not follows_from_row(key) for key in query.groups):
        raise NotDecomposable("it groups by more than an expression of one row")
    for part in (select.args.get("where"), *(join.args.get("on") for join in select.args.get("joins") or ())):
        if part is not None and part.find(exp.Window, exp.Columns) is not None:
            raise NotDecomposable("it has a window function")
    calls: list[Call] = []
    having = select.args.get("having")
    holds = None if having is None else _replace_calls(having.this.copy(), calls, query)
    if any(call.name not in _PLAIN_HAVING for call in calls):
        raise NotDecomposable("its HAVING asks for more than counts, sums and extremes")
    compared = frozenset(text(x) for call in calls if call.name == "sum" for x in call.arguments)
    results = [_replace_calls(select.expressions[k].unalias().copy(), calls, query) for k in query.items]
    if holds is not None:
        results = [fill("CASE WHEN h THEN q END", h=holds, q=result) for result in results]
    plain = len(sources) == 1 and isinstance(sources[0], exp.Table) and not _filters_of(select)
    return Decomposition(query, select, sources[0].alias_or_name, tuple(results), tuple(calls), plain, compared)


def _replace_calls(tree: Node, calls: list[Call], query: Query) -> Node:
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


_INSIDE = NotDecomposable("it reads `data` inside a subquery whose rows are not those of one individual each")
_MIXING = (
    "limit", "offset", "fetch", "sample", "cluster", "distribute", "sort", "windows", "laterals", "with_", "with",
)  # fmt: skip
Source: TypeAlias = exp.Table | exp.Subquery
Names: TypeAlias = tuple[str, ...] | None
"""By which names a source hands on the individual; None if it does not."""


def sources_of_rows(select: exp.Select, whose: Sequence[str]) -> list[Source]:
    """The table ``data`` in a query's FROM, or the table there that is derived from it person by person.

    More may follow that are joined to the first by the person: whoever is left out is left out of all of them. So they
    are of a condition that the person is among those whom a SELECT from ``data`` lists.
    """
    sources, filters = _sources(select), _filters_of(select)
    if sum(len(reads_of_data(part)) for part in (*sources, *filters)) < len(reads_of_data(select)):
        if select.find(exp.Exists) is not None:
            raise NotDecomposable("it asks EXISTS, which is not rewritten as x IN (SELECT x ...) is")
        raise _INSIDE
    if not sources:
        raise NotDecomposable("it does not read `data` itself")
    first, *others = sources
    names, *of_others = (_rows_of(source, whose) for source in sources)
    for source, own in zip(others, of_others, strict=True):
        join = source.parent
        assert isinstance(join, exp.Join)
        equal = joined_columns(join, first.alias_or_name, source.alias_or_name)
        if not names or own != names or not set(names) <= equal:
            raise NotDecomposable("it reads `data` more than once, not joined by the person")
    for condition in filters:
        listed = condition.args["query"].this
        person = names is not None and len(names) == 1 and _columns_of([condition.this], first) == set(names)
        if not person or not isinstance(listed, exp.Select) or len(listed.expressions) > 1:
            raise _INSIDE
        if _is_star(listed.expressions[0]) or not _rows_of_select(listed, whose):
            raise _INSIDE
    return sources


def _sources(select: exp.Select) -> list[Source]:
    """What a SELECT reads of ``data``: in its FROM, then in its joins."""
    holders = [select.args.get("from_"), *(select.args.get("joins") or ())]
    return [holder.this for holder in holders if holder is not None and reads_of_data(holder.this)]


def _filters_of(select: exp.Select) -> list[exp.In]:
    """Conditions in WHERE, ``who IN (SELECT who FROM data ...)``, that must hold of every row."""
    where = select.args.get("where")
    return [
        part
        for part in conjuncts(None if where is None else where.this)
        if isinstance(part, exp.In) and part.args.get("query") is not None and reads_of_data(part.args["query"])
    ]


def _rows_of(source: Source, whose: Sequence[str]) -> Names:
    """By which names a source hands on the individual; refused unless each of its rows is of one."""
    if source.args.get("pivots"):
        raise NotDecomposable("it pivots `data`")
    # A table whose columns are given other names, as in ``data AS d(a, b)``, has more of them when it is rewritten.
    if source.args.get("alias") is not None and source.args["alias"].columns:
        raise NotDecomposable("it gives the columns of a table other names")
    if isinstance(source, exp.Table) and source.name.lower() == DATA and len(reads_of_data(source)) == 1:
        return tuple(name.lower() for name in whose)
    if not isinstance(source, exp.Subquery) or not isinstance(source.this, exp.Select) or not source.alias:
        raise _INSIDE
    return _rows_of_select(source.this, whose)


def _only_source(select: exp.Select) -> Source:
    """What a derived table reads of ``data``: one source, and nothing elsewhere."""
    sources = _sources(select)
    if len(sources) != 1 or len(reads_of_data(sources[0])) < len(reads_of_data(select)):
        raise _INSIDE
    return sources[0]


def _rows_of_select(select: exp.Select, whose: Sequence[str]) -> Names:
    """By which names a derived table hands on the individual, None if it does not; refused if it mixes people."""
    source = _only_source(select)
    names = _rows_of(source, whose)
    _check_joins(select, source)
    for item in select.expressions:
        if names and item.alias.lower() in names and not _columns_of([item.unalias()], source) == {item.alias.lower()}:
            raise _INSIDE  # another expression is called as the individual is: a name then means one or the other
    group, windows = select.args.get("group"), list(_windows_of(select))
    if any(select.args.get(part) for part in _MIXING):
        raise _INSIDE
    if group is not None:
        sets = [
            key for key in group.expressions if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple)
        ]
        if sets or any(value for part, value in group.args.items() if part not in ("expressions", "all")):
            raise _INSIDE  # rows of several groupings
        # A column that is selected as it stands is one of the keys: under another name, by its position, or by ALL.
        if not _holds([*group.expressions, *select.expressions], select, source, names):
            raise _INSIDE
    elif _aggregates(select):
        raise _INSIDE  # one row for everybody
    if not all(_holds(window.args.get("partition_by") or [], select, source, names) for window in windows):
        raise _INSIDE
    distinct = select.args.get("distinct")
    if distinct is not None:
        chosen = distinct.args.get("on")
        listed = list(chosen.expressions) if chosen is not None else list(select.expressions)
        if not (chosen is None and _hands_on_all(select, source)) and not _holds(listed, select, source, names):
            raise _INSIDE
    return None if names is None else _surely(select, source, names)


def _surely(select: exp.Select, source: Source, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names by which a SELECT hands on the individual, where each surely is the individual and nothing else."""
    stars = [item for item in select.expressions if _is_star(item)]
    given = [item.alias_or_name.lower() for item in select.expressions if not _is_star(item)]
    if stars:
        (first, *more) = stars
        plain = first if isinstance(first, exp.Star) else first.this
        changed = any(plain.args.values())  # EXCLUDE, REPLACE, RENAME
        others = isinstance(first, exp.Star) and select.args.get("joins")
        own = not isinstance(first, exp.Column) or _is_column(first, source)
        return None if more or changed or others or not own or set(given) & set(names) else names
    called = {
        item.unalias().name.lower(): item.alias_or_name.lower()
        for item in select.expressions
        if _is_column(item.unalias(), source)
    }
    found = tuple(called[name] for name in names if name in called)
    return found if len(found) == len(names) and all(given.count(name) == 1 for name in found) else None


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _holds(listed: Sequence[exp.Expr], select: exp.Select, source: Source, names: tuple[str, ...] | None) -> bool:
    """Whether the individual is among expressions, which may be positions of what is selected."""
    if not names:
        return False
    meant = [
        select.expressions[int(item.this) - 1]
        if isinstance(item, exp.Literal) and item.is_int and 0 < int(item.this) <= len(select.expressions)
        else item
        for item in listed
    ]
    return set(names) <= _columns_of([item.unalias() for item in meant], source)


def _columns_of(items: Sequence[exp.Expr], source: Source) -> set[str]:
    """Names of those expressions that are columns of a source as they stand."""
    return {item.name.lower() for item in items if _is_column(item, source)}


def _is_column(item: exp.Expr, source: Source) -> bool:
    """Whether this is a column of the source, as far as its name tells."""
    return isinstance(item, exp.Column) and item.table.lower() in ("", source.alias_or_name.lower())


def _hands_on_all(select: exp.Select, source: Source) -> bool:
    return any(
        isinstance(item, exp.Star)
        or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star) and _is_column(item, source))
        for item in select.expressions
    )


def _aggregates(select: exp.Select) -> bool:
    """Whether rows may be added up without GROUP BY: a function that the parser does not know may do so."""
    if select.args.get("having"):
        return True
    for aggregate in select.find_all(exp.AggFunc, exp.Anonymous):
        over = aggregate.find_ancestor(exp.Window, exp.Select)
        if aggregate.find_ancestor(exp.Select) is select and not isinstance(over, exp.Window):
            return True
    return False


def _windows_of(select: exp.Select) -> Iterator[exp.Window]:
    """Window functions of a SELECT, not of those inside it."""
    for window in select.find_all(exp.Window):
        if window.find_ancestor(exp.Select) is select and window.arg_key != "windows":
            yield window


def _check_joins(select: exp.Select, source: Source) -> None:
    """Only joins that keep the rows of a source apart can be rewritten."""
    for join in select.args.get("joins") or ():
        if join.method or join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "CROSS", "OUTER"):
            raise NotDecomposable(f"it has a {' '.join(filter(None, (join.method, join.side, join.kind)))} JOIN")
        if join.side == "LEFT" and join is source.parent:
            raise NotDecomposable("it has a LEFT JOIN of `data`")


def propagate_columns(scan: exp.Select, names: Sequence[str]) -> None:
    """Have what a query reads of ``data`` hand on columns of it, and keep rows apart by them; in place.

    The first source hands on all of them. Further ones, and filters, hand on which database a row is in, where rows
    stand once for each database.
    """
    first, *others = _sources(scan)
    _propagate(first, names)
    within = [name for name in names if name in (DATABASE, PAIR)]
    whose = [exp.column(name, table=first.alias_or_name) for name in within]
    for source in others if within else ():
        _propagate(source, within)
        join = source.parent
        assert isinstance(join, exp.Join)
        if join.args.get("using"):
            join.set("using", [*join.args["using"], *map(exp.to_identifier, within)])
        else:
            own = [exp.column(name, table=source.alias_or_name) for name in within]
            equal = [mine.eq(its.copy()) for mine, its in zip(own, whose, strict=True)]
            join.set("on", exp.and_(join.args["on"], *equal))
    for condition in _filters_of(scan) if within else ():
        _propagate_select(condition.args["query"].this, within)
        condition.set("this", exp.Tuple(expressions=[condition.this, *(column.copy() for column in whose)]))


def _propagate(source: Source, names: Sequence[str]) -> None:
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        _propagate_select(source.this, names)


def _propagate_select(select: exp.Select, names: Sequence[str]) -> None:
    """Have a SELECT from ``data`` hand on columns of it, and keep rows apart by them."""
    source = _only_source(select)
    _propagate(source, names)
    columns = [exp.column(name, table=source.alias_or_name) for name in names]
    group = select.args.get("group")
    if group is not None and not group.args.get("all"):  # ALL is whatever is selected
        group.set("expressions", [*group.expressions, *(column.copy() for column in columns)])
    for window in _windows_of(select):
        own = window.args.get("partition_by") or []
        window.set("partition_by", [*own, *(column.copy() for column in columns)])
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        chosen = distinct.args["on"]
        chosen.set("expressions", [*chosen.expressions, *(column.copy() for column in columns)])
    if not _hands_on_all(select, source):
        select.select(*columns, copy=False)
