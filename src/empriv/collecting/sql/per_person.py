"""What a query reads of ``data`` person by person: rows that are one person's each, and follow from theirs alone.

`sources_of_rows` finds what is read, or raises `NotDecomposable`; `propagate_columns` has it hand on whose rows they
are. Tree in, tree out; a query is in its `plain_form` by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from sqlglot import exp

from empriv.collecting.engines.engine import DATA, DATABASE
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.allowlist import conjuncts, joined_columns

PAIR = "empriv_pair"  # what is left for a pair, where it is taken for a database of its own


def reads_rows(tree: exp.Expr) -> bool:
    """Whether ``data`` is read in here."""
    return any(table.name.lower() == DATA and not table.db for table in tree.find_all(exp.Table))


def windows_of(select: exp.Select) -> Iterator[exp.Window]:
    """Window functions of a SELECT, not of those inside it."""
    for window in select.find_all(exp.Window):
        if window.find_ancestor(exp.Select) is select and window.arg_key != "windows":
            yield window


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
    agreed: dict[int, Names] = {}
    (first, names), *others = (_source_of_rows(table, select, whose, agreed) for table in tables)
    for table, (source, own) in zip(tables[1:], others, strict=True):
        if source is first:  # UNION ALL and the like put both there, and a join within does not
            if own != names or not all(_are_put_together(table, one) for one in tables if one is not table):
                raise _INSIDE
        elif not names or own != names or not _joined_by(source, first, names):
            raise NotDecomposable("it reads `data` more than once, not joined by the person")
    for condition in filters_of(select):
        inner = condition.args["query"].this
        reads = _reads_of_data(inner)
        if len(whose) != 1 or len(reads) != 1 or not isinstance(inner, exp.Select):
            raise _INSIDE
        listed, own = _source_of_rows(reads[0], inner, whose, agreed)
        if not (_is_person(condition.this, first, names) and _is_person(inner.expressions[0], listed, own)):
            raise _INSIDE
    return [first, *(source for source, _ in others if source is not first)]


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


def _source_of_rows(
    table: exp.Table, select: exp.Select, whose: Sequence[str], agreed: dict[int, Names]
) -> tuple[Source, Names]:
    """What a query reads of ``data`` at this place, and by which names it hands on the individual.

    ``agreed`` is by which names each UNION, INTERSECT and EXCEPT hands them on, as far as it was seen.
    """
    if table.args.get("pivots"):
        raise NotDecomposable("it pivots `data`")
    _check_columns(table)
    source: Source = table
    names: Names = tuple(name.lower() for name in whose)
    while (inner := _select_of(source)) is not select:
        holder = _holder(inner)
        if not isinstance(holder, exp.Subquery) or not isinstance(holder.parent, exp.From | exp.Join):
            raise _INSIDE
        if holder.args.get("pivots") or not holder.alias:
            raise _INSIDE
        _check_columns(holder)
        names = _exported_individual(inner, source, names)
        for operation in _operations(inner):
            names = _put_together(operation, inner, names, agreed)
        source = holder
    return source, names


def _operations(select: exp.Select) -> Iterator[exp.SetOperation]:
    """UNION, INTERSECT and EXCEPT that a SELECT is a part of, from the inside."""
    node = select.parent
    while isinstance(node, exp.SetOperation):
        yield node
        node = node.parent


def _holder(select: exp.Select) -> exp.Expr | None:
    """What a SELECT stands in, perhaps with others that it is put together with."""
    return [select, *_operations(select)][-1].parent


def _are_put_together(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether these are in different parts of a UNION, INTERSECT or EXCEPT, and nothing else has them both before."""
    above: exp.Expr | None = one
    while above is not None and not any(node is other for node in above.walk()):
        above = above.parent
    return isinstance(above, exp.SetOperation)


def _put_together(operation: exp.SetOperation, part: exp.Select, names: Names, agreed: dict[int, Names]) -> Names:
    """Names by which a UNION, INTERSECT or EXCEPT hands on the individual that one part hands on by ``names``."""
    parts = [one for one in operation.find_all(exp.Select) if any(above is operation for above in _operations(one))]
    first = operation.find(exp.Select, bfs=False)
    assert first is not None
    told, others = _selected(part), _selected(first)
    plain = not any(value for name, value in operation.args.items() if name not in ("this", "expression", "distinct"))
    if not plain or not all(map(reads_rows, parts)) or len({_selected(one) is None for one in parts}) > 1:
        raise _INSIDE
    if names and told is not None and others is not None:
        if len(told) != len(others) or not set(names) <= set(told):
            raise _INSIDE
        names = tuple(others[told.index(name)] for name in names)
        names = names if all(others.count(name) == 1 for name in names) else None
    if not names and (not isinstance(operation, exp.Union) or operation.args.get("distinct")):
        raise _INSIDE  # equal rows of several people become one
    if agreed.setdefault(id(operation), names) != names:
        raise _INSIDE
    return names


def _selected(select: exp.Select) -> list[str] | None:
    """Names of what a SELECT hands on, in order; None if it is all of ``data``, refused if it cannot be told."""
    if not any(is_star(item) for item in select.expressions):
        return [item.alias_or_name.lower() for item in select.expressions]
    from_ = select.args.get("from_")
    source = None if from_ is None else from_.this
    if len(select.expressions) > 1 or select.args.get("joins") or source is None or source.args.get("joins"):
        raise _INSIDE
    if isinstance(source, exp.Table):
        return None
    if not isinstance(source.this, exp.Select):
        raise _INSIDE
    return _selected(source.this)


def _joined_by(source: Source, first: Source, names: Sequence[str]) -> bool:
    """Whether a source is joined to the first by these columns of both."""
    join = source.parent
    return isinstance(join, exp.Join) and set(names) <= joined_columns(join, first.alias_or_name, source.alias_or_name)


def filters_of(select: exp.Expr) -> list[exp.In]:
    """Conditions in WHERE, ``who IN (SELECT who FROM data ...)``, that must hold of every row."""
    where = select.args.get("where")
    return [
        part
        for part in conjuncts(None if where is None else where.this)
        if isinstance(part, exp.In) and part.args.get("query") is not None and reads_rows(part.args["query"])
    ]


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
    tables, done = _reads_of_data(scan), set[int]()
    sources = [_outermost(table, scan) for table in tables]
    first = sources[0].alias_or_name
    for table, source in zip(tables, sources, strict=True):
        _propagate_from(table, scan, names if source is sources[0] else within, done)
    for source in sources[1:] if within else ():
        if source is sources[0]:
            continue
        join = source.parent
        assert isinstance(join, exp.Join)
        if join.args.get("using"):
            join.set("using", [*join.args["using"], *map(exp.to_identifier, within)])
        else:
            own = [exp.column(name, table=source.alias_or_name).eq(exp.column(name, table=first)) for name in within]
            join.set("on", exp.and_(join.args["on"], *own))
    for condition in filters if within else ():
        inner = condition.args["query"].this
        (table,) = _reads_of_data(inner)
        source = _outermost(table, inner)
        _propagate_from(table, inner, within, done)
        inner.set(
            "expressions", [*(exp.column(name, table=source.alias_or_name) for name in within), *inner.expressions]
        )
        whose = [exp.column(name, table=first) for name in within]
        condition.set("this", exp.Tuple(expressions=[*whose, condition.this]))


def _outermost(table: exp.Table, scan: exp.Select) -> Source:
    """What a SELECT reads of ``data`` at this place."""
    source: Source = table
    while (select := _select_of(source)) is not scan:
        holder = _holder(select)
        assert isinstance(holder, exp.Subquery)
        source = holder
    return source


def _propagate_from(table: exp.Table, scan: exp.Select, names: Sequence[str], done: set[int]) -> None:
    """Have what is derived from a table hand on columns of it, up to a SELECT; ``done`` are SELECTs that do already."""
    source: Source = table
    while (select := _select_of(source)) is not scan and id(select) not in done:
        done.add(id(select))
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
        holder = _holder(select)
        assert isinstance(holder, exp.Subquery)
        source = holder


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
    stars = [item for item in select.expressions if is_star(item)]
    given = [item.alias_or_name.lower() for item in select.expressions if not is_star(item)]
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


def is_star(item: exp.Expr) -> bool:
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
