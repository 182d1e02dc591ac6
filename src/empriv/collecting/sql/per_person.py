"""Tables derived from ``data`` person by person: each of their rows follows from the rows of one individual.

    SELECT avg(t) FROM (SELECT who, sum(x) AS t FROM data GROUP BY who)

Leaving somebody out of ``data`` takes out of such a table the rows that are theirs, and changes no other row. So it is
``data`` again, for a query that reads it: it must only keep databases apart and say whose a row is (`carry`). That is
so where rows are grouped or partitioned by the individual, are made distinct with the individual among their columns,
or are chosen and computed one by one; nested and joined likewise.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from empriv.collecting.names import DATA
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.plain_form import windows_of

_INSIDE = NotDecomposable("it reads `data` inside a subquery whose rows are not those of one individual each")
_MIXING = (
    "limit",
    "offset",
    "fetch",
    "sample",
    "cluster",
    "distribute",
    "sort",
    "windows",
    "laterals",
    "with_",
    "with",
)


def source_of_rows(select: exp.Select, whose: Sequence[str]) -> exp.Table | exp.Subquery:
    """The table ``data`` in a query's FROM or JOIN, or the table there that is derived from it person by person."""
    tables = [table for table in select.find_all(exp.Table) if table.name.lower() == DATA and not table.db]
    if len(tables) != 1:
        raise NotDecomposable("it reads `data` more than once" if tables else "it does not read `data` itself")
    (table,) = tables
    if table.args.get("pivots"):
        raise NotDecomposable("it pivots `data`")
    _check_columns(table)
    source: exp.Table | exp.Subquery = table
    names: tuple[str, ...] | None = tuple(name.lower() for name in whose)
    while (inner := _select_of(source)) is not select:
        holder = inner.parent
        if not isinstance(holder, exp.Subquery) or not isinstance(holder.parent, exp.From | exp.Join):
            raise _INSIDE
        if holder.args.get("pivots") or not holder.alias:
            raise _INSIDE
        _check_columns(holder)
        names = _handed_on(inner, source, names)
        source = holder
    return source


def _check_columns(source: exp.Table | exp.Subquery) -> None:
    """A table whose columns are given other names, as in ``data AS d(a, b)``, has more of them when it is rewritten."""
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise NotDecomposable("it gives the columns of a table other names")


def check_joins(select: exp.Select, source: exp.Table | exp.Subquery) -> None:
    """Only joins that keep the rows of a source apart can be rewritten."""
    for join in select.args.get("joins") or ():
        if join.method or join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "CROSS", "OUTER"):
            raise NotDecomposable(f"it has a {' '.join(filter(None, (join.method, join.side, join.kind)))} JOIN")
        if join.side == "LEFT" and join is source.parent:
            raise NotDecomposable("it has a LEFT JOIN of `data`")


def carry(scan: exp.Select, names: Sequence[str]) -> None:
    """Have the derived table that a query reads hand on columns of ``data``, and keep rows apart by them; in place."""
    table = next(table for table in scan.find_all(exp.Table) if table.name.lower() == DATA and not table.db)
    source: exp.Table | exp.Subquery = table
    while (select := _select_of(source)) is not scan:
        columns = [exp.column(name, table=source.alias_or_name) for name in names]
        group = select.args.get("group")
        if group is not None and not group.args.get("all"):  # ALL is whatever is selected
            group.set("expressions", [*group.expressions, *(column.copy() for column in columns)])
        for window in windows_of(select):
            own = window.args.get("partition_by") or []
            window.set("partition_by", [*own, *(column.copy() for column in columns)])
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            chosen = distinct.args["on"]
            chosen.set("expressions", [*chosen.expressions, *(column.copy() for column in columns)])
        if not _hands_on_all(select, source):
            select.select(*columns, copy=False)
        holder = select.parent
        assert isinstance(holder, exp.Subquery)
        source = holder


def _select_of(source: exp.Expr) -> exp.Select:
    holder = source.parent
    if not isinstance(holder, exp.From | exp.Join) or not isinstance(holder.parent, exp.Select):
        raise _INSIDE
    return holder.parent


def _handed_on(
    select: exp.Select, source: exp.Table | exp.Subquery, names: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Names by which a derived table hands on the individual, None if it does not; refused if it mixes people."""
    check_joins(select, source)
    for item in select.expressions:
        if names and item.alias.lower() in names and not _is_column_called(item.unalias(), source, item.alias):
            raise _INSIDE  # another expression is called as the individual is: a name then means one or the other
    group, windows = select.args.get("group"), list(windows_of(select))
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


def _surely(select: exp.Select, source: exp.Table | exp.Subquery, names: tuple[str, ...]) -> tuple[str, ...] | None:
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


def _holds(
    listed: Sequence[exp.Expr], select: exp.Select, source: exp.Table | exp.Subquery, names: tuple[str, ...] | None
) -> bool:
    """Whether the individual is among expressions, which may be positions of what is selected."""
    if not names:
        return False
    meant = [
        select.expressions[int(item.this) - 1]
        if isinstance(item, exp.Literal) and item.is_int and 0 < int(item.this) <= len(select.expressions)
        else item
        for item in listed
    ]
    columns = {item.unalias().name.lower() for item in meant if _is_column(item.unalias(), source)}
    return set(names) <= columns


def _is_column(item: exp.Expr, source: exp.Table | exp.Subquery) -> bool:
    """Whether this is a column of the source, as far as its name tells."""
    return isinstance(item, exp.Column) and item.table.lower() in ("", source.alias_or_name.lower())


def _is_column_called(item: exp.Expr, source: exp.Table | exp.Subquery, name: str) -> bool:
    return _is_column(item, source) and item.name.lower() == name.lower()


def _hands_on_all(select: exp.Select, source: exp.Table | exp.Subquery) -> bool:
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
