"""What a query reads of ``data`` person by person: rows that are one person's each, and follow from theirs alone.

`plain_form` writes a query so that this shows; `sources_of_rows` finds what is read, or raises `NotDecomposable`;
`propagate_columns` has it hand on whose rows they are. Tree in, tree out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sqlglot import exp

from empriv.collecting.engines.engine import DATA, DATABASE
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.printing import in_place_of

PAIR = "empriv_pair"  # what is left for a pair, where it is taken for a database of its own
_UNNAMED = "unnamed_subquery"  # what DuckDB calls a derived table without a name, and a query may then call it


def plain_form(select: exp.Select) -> exp.Select:
    """The query in this form, as far as it can be; a copy."""
    select = select.copy()
    _unwrap(select)
    for inner in list(select.find_all(exp.Select, bfs=False))[::-1]:
        _inline_with(inner, outermost=inner is select)
    for inner in select.find_all(exp.Select):
        _write_out_windows(inner)
    _wrap_filters(select)
    if not any(column.table.lower().startswith(_UNNAMED) for column in select.find_all(exp.Column)):
        _name_derived(select)
    return select


def reads_rows(tree: exp.Expr) -> bool:
    """Whether ``data`` is read in here."""
    return any(table.name.lower() == DATA and not table.db for table in tree.find_all(exp.Table))


def _unwrap(select: exp.Select) -> None:
    """((SELECT ...)) in FROM as (SELECT ...), in place."""
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
        whole = _with_names(cte.this.copy(), names) if isinstance(cte.this, exp.Select) else None
        if whole is not None:
            (table,) = used
            table.replace(in_place_of(table, whole))
            cte.pop()
    if not with_.expressions:
        with_.pop()


def _with_names(select: exp.Select, names: list[str]) -> exp.Select | None:
    """A SELECT whose columns have these names; None if it cannot be told which is which."""
    if not names:
        return select
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


def windows_of(select: exp.Select) -> Iterator[exp.Window]:
    """Window functions of a SELECT, not of those inside it."""
    for window in select.find_all(exp.Window):
        if window.find_ancestor(exp.Select) is select and window.arg_key != "windows":
            yield window


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


Source: TypeAlias = exp.Table | exp.Subquery
Names: TypeAlias = tuple[str, ...] | None
"""By which names a source hands on the individual; None if it does not."""


def sources_of_rows(select: exp.Select, whose: Sequence[str]) -> list[Source]:
    """The table ``data`` in a query's FROM, or the table there that is derived from it person by person.

    More may follow that are joined to the first by the person: whoever is left out is left out of all of them. So they
    are of a condition that the person is among those whom a SELECT from ``data`` lists.
    """
    tables = _reads_of_data(select)
    if not tables:
        raise NotDecomposable("it does not read `data` itself")
    (first, names), *others = (_source_of_rows(table, select, whose) for table in tables)
    for source, own in others:
        if not names or own != names or not _joined_by(source, first, names):
            raise NotDecomposable("it reads `data` more than once, not joined by the person")
    for condition in filters_of(select):
        inner = condition.args["query"].this
        reads = _reads_of_data(inner)
        if len(whose) != 1 or len(reads) != 1 or not isinstance(inner, exp.Select):
            raise _INSIDE
        listed, own = _source_of_rows(reads[0], inner, whose)
        if not (_is_person(condition.this, first, names) and _is_person(inner.expressions[0], listed, own)):
            raise _INSIDE
    return [first, *(source for source, _ in others)]


def _reads_of_data(select: exp.Expr) -> list[exp.Table]:
    """Where ``data`` is read for rows: first what is in FROM, then what is joined."""
    within = {id(table) for condition in filters_of(select) for table in condition.find_all(exp.Table)}
    from_ = select.args.get("from_")
    found = [table for table in select.find_all(exp.Table) if table.name.lower() == DATA and not table.db]
    first = {id(table) for table in from_.find_all(exp.Table)} if from_ is not None else set()
    return sorted((table for table in found if id(table) not in within), key=lambda table: id(table) not in first)


def _is_person(item: exp.Expr, source: Source, names: Names) -> bool:
    """Whether an expression is the column of a source that says whose a row is."""
    return bool(names) and _is_column(item, source) and item.name.lower() in (names or ())


def _source_of_rows(table: exp.Table, select: exp.Select, whose: Sequence[str]) -> tuple[Source, Names]:
    """What a query reads of ``data`` at this place, and by which names it hands on the individual."""
    if table.args.get("pivots"):
        raise NotDecomposable("it pivots `data`")
    _check_columns(table)
    source: Source = table
    names: Names = tuple(name.lower() for name in whose)
    while (inner := _select_of(source)) is not select:
        holder = inner.parent
        if not isinstance(holder, exp.Subquery) or not isinstance(holder.parent, exp.From | exp.Join):
            raise _INSIDE
        if holder.args.get("pivots") or not holder.alias:
            raise _INSIDE
        _check_columns(holder)
        names = _exported_individual(inner, source, names)
        source = holder
    return source, names


def _joined_by(source: Source, first: Source, names: Sequence[str]) -> bool:
    """Whether a source is joined to the first by these columns of both."""
    join, tables = source.parent, {first.alias_or_name.lower(), source.alias_or_name.lower()}
    if not isinstance(join, exp.Join):
        return False
    equal = {one.name.lower() for one in join.args.get("using") or ()}
    for part in _conjuncts(join.args.get("on")):
        sides = [one for one in part.iter_expressions() if isinstance(one, exp.Column)]
        if isinstance(part, exp.EQ) and {one.table.lower() for one in sides} == tables:
            equal |= {sides[0].name.lower()} & {sides[1].name.lower()}
    return set(names) <= equal


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts that all must hold."""
    if condition is None:
        return []
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def filters_of(select: exp.Expr) -> list[exp.In]:
    """Conditions in WHERE, ``who IN (SELECT who FROM data ...)``, that must hold of every row."""
    where = select.args.get("where")
    return [
        part
        for part in _conjuncts(None if where is None else where.this)
        if isinstance(part, exp.In) and part.args.get("query") is not None and reads_rows(part.args["query"])
    ]


def _wrap_filters(select: exp.Select) -> None:
    """``who IN (SELECT who ...)`` as ``who IN (SELECT f.who FROM (SELECT who ...) AS f)``, in place."""
    for number, part in enumerate(filters_of(select)):
        inner = part.args["query"].this
        if isinstance(inner, exp.Select) and len(inner.expressions) == 1 and not _is_star(inner.expressions[0]):
            name = f"empriv_f{number}"
            listed = exp.column(inner.expressions[0].alias_or_name, table=name)
            holder = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(name)))
            part.set("query", exp.Subquery(this=exp.select(listed).from_(holder, copy=False)))


def _check_columns(source: Source) -> None:
    """A table whose columns are given other names, as in ``data AS d(a, b)``, has more of them when it is rewritten."""
    alias = source.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise NotDecomposable("it gives the columns of a table other names")


def check_joins(select: exp.Select, source: Source) -> None:
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
    within = [name for name in names if name in (DATABASE, PAIR)]
    filters = filters_of(scan)
    table, *others = _reads_of_data(scan)
    first = _propagate_from(table, scan, names).alias_or_name
    for table in others if within else ():
        source = _propagate_from(table, scan, within)
        join = source.parent
        assert isinstance(join, exp.Join)
        if join.args.get("using"):
            join.set("using", [*join.args["using"], *map(exp.to_identifier, within)])
        else:
            own = [exp.column(name, table=source.alias_or_name).eq(exp.column(name, table=first)) for name in within]
            join.set("on", exp.and_(join.args["on"], *own))
    for condition in filters if within else ():
        inner = condition.args["query"].this
        source = _propagate_from(_reads_of_data(inner)[0], inner, within)
        inner.set(
            "expressions", [*(exp.column(name, table=source.alias_or_name) for name in within), *inner.expressions]
        )
        whose = [exp.column(name, table=first) for name in within]
        condition.set("this", exp.Tuple(expressions=[*whose, condition.this]))


def _propagate_from(table: exp.Table, scan: exp.Select, names: Sequence[str]) -> Source:
    """Have what is derived from a table hand on columns of it, up to a SELECT; gives what this SELECT reads."""
    source: Source = table
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
    return source


def _select_of(source: exp.Expr) -> exp.Select:
    holder = source.parent
    if not isinstance(holder, exp.From | exp.Join) or not isinstance(holder.parent, exp.Select):
        raise _INSIDE
    return holder.parent


def _exported_individual(select: exp.Select, source: Source, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
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
    columns = {item.unalias().name.lower() for item in meant if _is_column(item.unalias(), source)}
    return set(names) <= columns


def _is_column(item: exp.Expr, source: Source) -> bool:
    """Whether this is a column of the source, as far as its name tells."""
    return isinstance(item, exp.Column) and item.table.lower() in ("", source.alias_or_name.lower())


def _is_column_called(item: exp.Expr, source: Source, name: str) -> bool:
    return _is_column(item, source) and item.name.lower() == name.lower()


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
