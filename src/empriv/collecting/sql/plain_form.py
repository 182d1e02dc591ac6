"""A query in the plainest form that gives the same: what is read of ``data`` then shows. Tree in, tree out.

What people write around a query goes: names of results in the SELECT list and in HAVING, a SELECT around one row, a
SELECT in brackets in the place of a number, WITH, LIMIT on one row, EXISTS, and joins by commas.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from empriv.collecting.engines.engine import DATA
from empriv.collecting.sql.allowlist import OF_MANY, conjuncts
from empriv.collecting.sql.per_person import filters_of, is_star, reads_rows, windows_of
from empriv.collecting.sql.printing import called, in_place_of

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
    _rows_as_numbers(select)
    _merge_numbers(select)
    _drop_idle(select)
    for inner in select.find_all(exp.Select):
        _write_out_windows(inner)
    _exists_as_in(select)
    _join_where_equal(select)
    _wrap_filters(select)
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
    """``SELECT a / b FROM (SELECT sum(x) AS a, count(*) AS b FROM data)`` as one SELECT, in place; whether it was."""
    from_ = select.args.get("from_")
    holder = None if from_ is None else from_.this
    if not isinstance(holder, exp.Subquery) or not _has_only(select, "expressions", "from_", "order", "with_", "limit"):
        return False
    inner = holder.this
    if (
        not isinstance(inner, exp.Select)
        or not _gives_one_row(inner)
        or not _has_only(inner, "expressions", "from_", "where", "joins", "order")
        or holder.args.get("joins")
        or holder.args.get("pivots")
        or (holder.args.get("alias") is not None and holder.args["alias"].columns)
        or any(_holds_more(item) for item in select.expressions)
    ):
        return False
    _dissolve_names(inner, ())
    meant = {item.alias_or_name.lower(): item.unalias() for item in inner.expressions}
    columns = [column for item in select.expressions for column in item.find_all(exp.Column)]
    known = all(
        column.table.lower() in ("", holder.alias.lower()) and column.name.lower() in meant for column in columns
    )
    if not known or len(meant) < len(inner.expressions) or not columns:
        return False
    for column in columns:
        column.replace(exp.paren(meant[column.name.lower()].copy()))
    for part in ("from_", "where", "joins"):
        select.set(part, inner.args.get(part))
    return True


def _holds_more(item: exp.Expr) -> bool:
    """Whether a result is more than a formula of columns."""
    if item.find(exp.Query, exp.Window, exp.Star, exp.Columns) is not None:
        return True
    return any(called(node) in OF_MANY for node in item.find_all(exp.AggFunc, exp.Anonymous))


def _rows_as_numbers(select: exp.Select) -> None:
    """``SELECT a.s / b.n FROM (SELECT sum(x) AS s ...) AS a, (SELECT count(*) AS n ...) AS b`` as
    ``SELECT (SELECT sum(x) ...) / (SELECT count(*) ...)``, in place."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or ()
    if not joins or from_ is None or not _has_only(select, "expressions", "from_", "joins", "order", "with_", "limit"):
        return
    if any(value for join in joins for part, value in join.args.items() if part not in ("this", "kind")):
        return
    holders = [from_.this, *(join.this for join in joins)]
    if any(join.kind not in ("", "CROSS") for join in joins) or any(_holds_more(item) for item in select.expressions):
        return
    meant: dict[str, list[tuple[str, exp.Select, exp.Expr]]] = {}
    for holder in holders:
        inner = holder.this
        alone = (
            isinstance(holder, exp.Subquery) and _has_only(holder, "this", "alias") and _is_number_of_data(inner, 99)
        )
        if not alone or (holder.args.get("alias") is not None and holder.args["alias"].columns):
            return
        for item in inner.expressions:
            if not _adds_up(item):
                return  # it has a value for each row
            meant.setdefault(item.alias_or_name.lower(), []).append((holder.alias.lower(), inner, item.unalias()))
    placed = []
    for column in [column for item in select.expressions for column in item.find_all(exp.Column)]:
        found = [one for one in meant.get(column.name.lower(), ()) if column.table.lower() in ("", one[0])]
        if len(found) != 1:
            return
        ((_, inner, value),) = found
        number = inner.copy()
        number.set("expressions", [value.copy()])
        placed.append((column, exp.Subquery(this=number)))
    for column, instead in placed:
        column.replace(instead)
    select.set("from_", None)
    select.set("joins", None)


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
    if not all(_is_number_of_data(node.this) and not node.args.get("alias") for node in numbers):
        return
    if rows is None:
        select.from_(DATA, copy=False)
    if where is not None:
        _filter(select, where.this)
        select.set("where", None)
    for node in numbers:
        inner = node.this
        alias = inner.args["from_"].this.alias_or_name.lower()
        for column in inner.find_all(exp.Column):
            if column.table.lower() == alias:
                column.set("table", None)
        if inner.args.get("where") is not None:
            _filter(inner, inner.args["where"].this)
        node.replace(exp.paren(inner.expressions[0].unalias()))


def _is_data(table: exp.Expr) -> bool:
    alias = table.args.get("alias")
    named = {part for part, value in table.args.items() if value}
    plain = isinstance(table, exp.Table) and table.name.lower() == DATA and named <= {"this", "alias"}
    return plain and (alias is None or not alias.columns)


def _is_number_of_data(inner: exp.Expr, most: int = 1) -> bool:
    """Whether this is one aggregate expression of rows of ``data`` alone, or several."""
    if not isinstance(inner, exp.Select) or not _has_only(inner, "expressions", "from_", "where"):
        return False
    from_ = inner.args.get("from_")
    if from_ is None or not _is_data(from_.this) or len(inner.expressions) > most or not _own_aggregates(inner):
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


def _exists_as_in(select: exp.Select) -> None:
    """``EXISTS (SELECT 1 FROM data AS e WHERE e.who = d.who AND c)`` as ``d.who IN (SELECT e.who ...)``, in place."""
    where = select.args.get("where")
    for part in conjuncts(None if where is None else where.this):
        inner = part.this if isinstance(part, exp.Exists) else None
        if not isinstance(inner, exp.Select) or not _has_only(inner, "expressions", "from_", "where", "limit"):
            continue
        from_, own = inner.args.get("from_"), inner.args.get("where")
        if from_ is None or own is None or _own_aggregates(inner) or not from_.this.alias_or_name:
            continue
        if from_.this.args.get("joins") or (inner.args.get("limit") is not None):
            continue
        alias = from_.this.alias_or_name.lower()
        parts = conjuncts(own.this)
        links = [one for one in parts if isinstance(one, exp.EQ) and _sides(one, alias) is not None]
        others = [one for one in parts if one not in links]
        alone = all(column.table.lower() in ("", alias) for one in others for column in one.find_all(exp.Column))
        sides = _sides(links[0], alias) if len(links) == 1 else None
        if sides is None or not alone:
            continue
        mine, outer = sides
        inner.set("expressions", [mine.copy()])
        inner.set("where", exp.Where(this=exp.and_(*others)) if others else None)
        part.replace(exp.In(this=outer.copy(), query=exp.Subquery(this=inner)))


def _sides(equal: exp.Expr, alias: str) -> tuple[exp.Column, exp.Column] | None:
    """Of ``e.a = d.b``: the column of this table, and the one of another."""
    one, other = equal.this, equal.expression
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column) and one.table and other.table):
        return None
    if (one.table.lower() == alias) == (other.table.lower() == alias):
        return None
    return (one, other) if one.table.lower() == alias else (other, one)


def _join_where_equal(select: exp.Select) -> None:
    """``FROM data AS a, data AS b WHERE a.who = b.who`` with the condition at the join, in place."""
    before, where = select.args.get("from_"), select.args.get("where")
    if before is None or where is None:
        return
    seen = {before.this.alias_or_name.lower()}
    for join in select.args.get("joins") or ():
        alias = join.this.alias_or_name.lower()
        if not any(join.args.get(part) for part in ("on", "using", "side", "method")) and reads_rows(join.this):
            for part in conjuncts(select.args["where"].this) if select.args.get("where") else []:
                sides = _sides(part, alias) if isinstance(part, exp.EQ) else None
                if sides is not None and sides[1].table.lower() in seen:
                    join.set("kind", None)
                    join.set("on", part.copy() if join.args.get("on") is None else exp.and_(join.args["on"], part))
                    rest = [one for one in conjuncts(select.args["where"].this) if one is not part]
                    select.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
        seen.add(alias)


def _unwrap(select: exp.Select) -> None:
    """((SELECT ...)) in FROM, and (SELECT ...) in a UNION, with fewer brackets; in place."""
    for holder in list(select.find_all(exp.Subquery)):
        if isinstance(holder.parent, exp.SetOperation) and isinstance(holder.this, exp.Select) and holder.is_wrapper:
            holder.replace(holder.this)
    for holder in list(select.find_all(exp.Subquery)):
        inner = holder.this
        if isinstance(inner, exp.Subquery) and not (inner.alias and holder.alias):
            alone = not any(value for name, value in inner.args.items() if name not in ("this", "alias"))
            if alone and isinstance(holder.parent, exp.From | exp.Join):
                holder.set("alias", holder.args.get("alias") or inner.args.get("alias"))
                holder.set("this", inner.this)


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
        if len(used) != 1 or early or (outermost and not reads_rows(cte.this)):
            continue
        names = [column.name for column in cte.args["alias"].columns]
        whole = _with_names(cte.this.copy(), names) if isinstance(cte.this, exp.Query) else None
        if whole is not None:
            (table,) = used
            table.replace(in_place_of(table, whole))
            cte.pop()
    if not with_.expressions:
        with_.pop()


def _with_names(select: exp.Query, names: list[str]) -> exp.Query | None:
    """A SELECT whose columns have these names; None if it cannot be told which is which."""
    if not names:
        return select
    if not isinstance(select, exp.Select):
        return None
    items = select.expressions
    called = [item.alias or f"empriv_c{number}" for number, item in enumerate(items)]
    starred = any(isinstance(item, exp.Star) or isinstance(item.this, exp.Star) for item in items)
    if starred or len(names) != len(items) or len({name.lower() for name in called}) < len(called):
        return None
    select.set(
        "expressions",
        [item if item.alias else exp.alias_(item, name) for item, name in zip(items, called, strict=True)],
    )
    columns = [
        exp.alias_(exp.column(exp.to_identifier(own, quoted=True)), name, quoted=True)
        for own, name in zip(called, names, strict=True)
    ]
    return exp.Select(expressions=columns).from_(exp.Subquery(this=select), copy=False)


def _write_out_windows(select: exp.Select) -> None:
    """``OVER w ... WINDOW w AS (...)`` as ``OVER (...)``, in place; a window that adds to another stays as it is."""
    named = {window.name.lower(): window for window in select.args.get("windows") or ()}
    used = [window for window in windows_of(select) if window.args.get("alias") is not None]
    if any(window.args.get("alias") is not None for window in named.values()):
        return
    for window in used:
        definition = named.get(window.alias.lower())
        parts = ("partition_by", "order", "spec")
        if definition is None or any(window.args.get(part) for part in parts):
            return
        for part in parts:
            value = definition.args.get(part)
            window.set(part, [one.copy() for one in value] if isinstance(value, list) else value and value.copy())
        window.set("alias", None)
    if named:
        select.set("windows", None)


def _name_derived(select: exp.Select) -> None:
    """Give names to derived tables of ``data``, and have them name their columns themselves; in place."""
    number = 0
    for holder in list(select.find_all(exp.Subquery)):
        if not isinstance(holder.parent, exp.From | exp.Join) or not reads_rows(holder):
            continue
        alias = holder.args.get("alias")
        if alias is not None and alias.columns and isinstance(holder.this, exp.Select):
            whole = _with_names(holder.this.copy(), [column.name for column in alias.columns])
            if whole is not None:
                holder.set("this", whole)
                alias.set("columns", None)
    for holder in select.find_all(exp.Subquery):
        if isinstance(holder.parent, exp.From | exp.Join) and not holder.alias and reads_rows(holder):
            holder.set("alias", exp.TableAlias(this=exp.to_identifier(f"empriv_t{number}")))
            number += 1


def _wrap_filters(select: exp.Select) -> None:
    """``who IN (SELECT who ...)`` as ``who IN (SELECT f.who FROM (SELECT who ...) AS f)``, in place."""
    for number, part in enumerate(filters_of(select)):
        inner = part.args["query"].this
        if isinstance(inner, exp.Select) and len(inner.expressions) == 1 and not is_star(inner.expressions[0]):
            name = f"empriv_f{number}"
            listed = exp.column(inner.expressions[0].alias_or_name, table=name)
            holder = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(name)))
            part.set("query", exp.Subquery(this=exp.select(listed).from_(holder, copy=False)))
