"""A query in the plainest form that gives the same: what is read of ``data`` then shows. Tree in, tree out.

What people write around a query goes: names of results in the SELECT list and in HAVING, a SELECT around SELECTs of one
row, a SELECT in brackets in the place of a number, WITH, and LIMIT on one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from empriv.collecting.engines.engine import DATA
from empriv.collecting.sql.allowlist import OF_MANY
from empriv.collecting.sql.printing import called, in_place_of, reads_of_data

_UNNAMED = "unnamed_subquery"  # what DuckDB calls a derived table without a name, and a query may then call it


def plain_form(select: exp.Select, keys: Sequence[exp.Expr] = ()) -> exp.Select:
    """The query in this form, as far as it can be; a copy. ``keys`` are what it groups by."""
    select = select.copy()
    _unwrap(select)
    for inner in list(select.find_all(exp.Select, bfs=False))[::-1]:
        _inline_with(inner, outermost=inner is select)
    _dissolve_names(select, keys)
    while _merge_one_row(select):
        pass
    _merge_numbers(select)
    _drop_idle(select)
    if not any(column.table.lower().startswith(_UNNAMED) for column in select.find_all(exp.Column)):
        _name_derived(select)
    return select


def _own_aggregates(select: exp.Select) -> list[exp.Expr]:
    """Aggregates of a SELECT itself, outside windows and outside SELECTs in it."""
    return [
        node
        for node in select.find_all(exp.AggFunc, exp.Anonymous)
        if called(node) in OF_MANY
        and node.find_ancestor(exp.Select) is select
        and not isinstance(node.find_ancestor(exp.Window, exp.Select), exp.Window)
    ]


def _has_only(select: exp.Expr, *parts: str) -> bool:
    return not any(value for part, value in select.args.items() if part not in parts)


def _gives_one_row(select: exp.Select) -> bool:
    """Whether all rows are added up, to one row whatever they are."""
    return select.args.get("group") is None and not select.args.get("having") and bool(_own_aggregates(select))


def _dissolve_names(select: exp.Select, keys: Sequence[exp.Expr]) -> None:
    """``sum(x) AS s, s / 2`` and ``HAVING s > 3`` without the names, in place.

    Outside an aggregate a name can only be that of a result: a column that is no key is an error there.
    """
    named: dict[str, exp.Expr] = {}
    taken = {key.name.lower() for key in keys if isinstance(key, exp.Column)}
    places = [*select.expressions, *filter(None, [select.args.get("having")])]
    for place in places:
        for column in list(place.find_all(exp.Column)):
            own = column.find_ancestor(exp.AggFunc, exp.Anonymous, exp.Window, exp.Filter, exp.Select) is select
            meant = named.get(column.name.lower())
            if own and not column.table and meant is not None and column is not place.unalias():
                column.replace(exp.paren(meant.copy()))
        if isinstance(place, exp.Alias) and place.alias.lower() not in taken and _adds_up(place.this):
            named[place.alias.lower()] = place.this


def _adds_up(tree: exp.Expr) -> bool:
    return any(called(node) in OF_MANY for node in tree.find_all(exp.AggFunc)) and not tree.find(exp.Window, exp.Query)


def _merge_one_row(select: exp.Select) -> bool:
    """``SELECT a / n FROM (SELECT sum(x) AS a FROM data WHERE c) AS p, (SELECT count(*) AS n FROM data) AS q`` as one
    SELECT, in place; whether it was."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or []
    if from_ is None or not _has_only(select, "expressions", "from_", "joins", "order", "with_", "limit"):
        return False
    crossed = all(join.kind in ("", "CROSS") and _has_only(join, "this", "kind") for join in joins)
    holders = [from_.this, *(join.this for join in joins)]
    if not crossed or not all(map(_holds_one_row, holders)) or any(map(_holds_more, select.expressions)):
        return False
    rows: list[exp.Select] = [holder.this for holder in holders]
    if joins and not all(map(_is_of_data, rows)):
        return False
    meant: dict[tuple[str, str], list[exp.Expr]] = {}
    for holder, inner in zip(holders, rows, strict=True):
        _dissolve_names(inner, ())
        for item in inner.expressions:
            for table in {"", holder.alias.lower()}:
                meant.setdefault((table, item.alias_or_name.lower()), []).append(item)
    columns = [column for item in select.expressions for column in item.find_all(exp.Column)]
    found = [meant.get((column.table.lower(), column.name.lower()), []) for column in columns]
    if not columns or any(len(items) != 1 for items in found):
        return False
    for inner in rows if joins else ():
        _ask_all_rows(inner)
    for column, (item,) in zip(columns, found, strict=True):
        column.replace(exp.paren(item.unalias().copy()))
    for part in ("from_", "where", "joins"):
        select.set(part, rows[0].args.get(part))
    return True


def _holds_one_row(holder: exp.Expr) -> bool:
    """Whether this in FROM is a SELECT that adds up its rows to one."""
    inner, alias = holder.this, holder.args.get("alias")
    return (
        isinstance(holder, exp.Subquery)
        and _has_only(holder, "this", "alias")
        and (alias is None or not alias.columns)
        and isinstance(inner, exp.Select)
        and _gives_one_row(inner)
        and all(map(_asks_many, inner.expressions))  # what does not may have a value for each row
        and _has_only(inner, "expressions", "from_", "where", "joins", "order")
    )


def _holds_more(item: exp.Expr) -> bool:
    """Whether a result is more than a formula of columns."""
    if item.find(exp.Query, exp.Window, exp.Star, exp.Columns) is not None:
        return True
    return _asks_many(item)


def _asks_many(item: exp.Expr) -> bool:
    return any(called(node) in OF_MANY for node in item.find_all(exp.AggFunc, exp.Anonymous))


def _merge_numbers(select: exp.Select) -> None:
    """``(SELECT sum(x) FROM data WHERE c) / count(*)`` as ``sum(x) FILTER (WHERE c) / count(*)``, in place."""
    from_, where = select.args.get("from_"), select.args.get("where")
    rows = None if from_ is None else from_.this
    if not _has_only(select, "expressions", "from_", "where", "order", "limit") or not (rows is None or _is_data(rows)):
        return
    numbers = [
        node
        for item in select.expressions
        for node in item.find_all(exp.Subquery)
        if node.find_ancestor(exp.Select) is select
    ]
    if not numbers or (rows is not None and not _own_aggregates(select)):
        return
    if where is not None and where.find(exp.Query):
        return
    if not all(len(node.this.expressions) == 1 and _is_of_data(node.this) for node in numbers):
        return
    if any(node.args.get("alias") for node in numbers):
        return
    if rows is None:
        select.from_(DATA, copy=False)
    if where is not None:
        _filter(select, where.this)
        select.set("where", None)
    for node in numbers:
        _ask_all_rows(node.this)
        node.replace(exp.paren(node.this.expressions[0].unalias()))


def _ask_all_rows(select: exp.Select) -> None:
    """``SELECT sum(d.x) FROM data AS d WHERE c`` as ``SELECT sum(x) FILTER (WHERE c) FROM data``, in place."""
    alias = select.args["from_"].this.alias_or_name.lower()
    for column in select.find_all(exp.Column):
        if column.table.lower() == alias:
            column.set("table", None)
    select.set("from_", exp.From(this=exp.to_table(DATA)))
    if select.args.get("where") is not None:
        _filter(select, select.args.pop("where").this)


def _is_data(table: exp.Expr) -> bool:
    alias = table.args.get("alias")
    named = {part for part, value in table.args.items() if value}
    plain = isinstance(table, exp.Table) and table.name.lower() == DATA and named <= {"this", "alias"}
    return plain and (alias is None or not alias.columns)


def _is_of_data(inner: exp.Expr) -> bool:
    """Whether this is a SELECT of aggregates of rows of ``data`` alone."""
    if not isinstance(inner, exp.Select) or not _has_only(inner, "expressions", "from_", "where"):
        return False
    from_ = inner.args.get("from_")
    if from_ is None or not _is_data(from_.this) or not _own_aggregates(inner):
        return False
    own = from_.this.alias_or_name.lower()
    nested = any(node is not inner for node in inner.find_all(exp.Query)) or inner.find(exp.Window, exp.Columns)
    return not nested and all(column.table.lower() in ("", own) for column in inner.find_all(exp.Column))


def _filter(select: exp.Select, condition: exp.Expr) -> None:
    """Have each aggregate of the SELECT list look at rows where this holds, in place."""
    for aggregate in _own_aggregates(select):
        node = aggregate
        while isinstance(node.parent, exp.WithinGroup | exp.Order) and node.arg_key == "this":
            node = node.parent
        if isinstance(node.parent, exp.Filter) and node.arg_key == "this":
            asked = node.parent.expression
            asked.set("this", exp.and_(asked.this, condition.copy()))
            continue
        place = exp.Filter(expression=exp.Where(this=condition.copy()))
        node.replace(place)
        place.set("this", node)


def _drop_idle(select: exp.Select) -> None:
    """Drop ``LIMIT 1`` and DISTINCT of one row, in place."""
    if not _gives_one_row(select):
        return
    limit, distinct = select.args.get("limit"), select.args.get("distinct")
    most = None if limit is None else limit.expression
    if isinstance(most, exp.Literal) and most.is_int and int(most.this) > 0:
        select.set("limit", None)
    if distinct is not None and distinct.args.get("on") is None:
        select.set("distinct", None)


def _unwrap(select: exp.Select) -> None:
    """((SELECT ...)) with fewer brackets, in place."""
    for holder in list(select.find_all(exp.Subquery)):
        if holder.is_wrapper and isinstance(holder.parent, exp.Subquery):
            holder.replace(holder.this)


def _inline_with(select: exp.Select, *, outermost: bool) -> None:
    """Put a named part of a WITH where it is read, if it is read once; in place.

    The outermost WITH may keep parts that do not read ``data``: they are the same whoever is left out.
    """
    with_ = select.args.get("with_")
    if with_ is None or with_.args.get("recursive"):
        return
    named = [cte.alias.lower() for cte in select.root().find_all(exp.CTE)]
    if len(set(named)) < len(named):
        return  # which of them is meant depends on the place
    every = list(with_.expressions)
    for number, cte in enumerate(every):
        used = [
            table
            for table in select.find_all(exp.Table)
            if table.name.lower() == cte.alias.lower() and not table.db and table.find_ancestor(exp.CTE) is not cte
        ]
        # Before it is named, the same name means another table.
        early = any(inner is table for other in every[:number] for inner in other.find_all(exp.Table) for table in used)
        if len(used) != 1 or early or (outermost and not reads_of_data(cte.this)) or cte.args["alias"].columns:
            continue
        if isinstance(cte.this, exp.Query):
            (table,) = used
            table.replace(in_place_of(table, cte.this.copy()))
            cte.pop()
    if not with_.expressions:
        with_.pop()


def _name_derived(select: exp.Select) -> None:
    """Give names to derived tables of ``data``, in place."""
    for number, holder in enumerate(list(select.find_all(exp.Subquery))):
        if isinstance(holder.parent, exp.From | exp.Join) and not holder.alias and reads_of_data(holder):
            holder.set("alias", exp.TableAlias(this=exp.to_identifier(f"empriv_t{number}")))
