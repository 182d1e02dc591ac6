"""A query in the one form that is rewritten, however it is written: the same rows, the same results.

A part named by WITH stands where it is read, every derived table of ``data`` has a name and names its columns itself,
and a window that has a name is written out. Names given here begin with ``empriv_``, which no query may use. Tree in,
tree out.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from empriv.collecting.names import DATA
from empriv.collecting.sql.templates import in_place_of

_UNNAMED = "unnamed_subquery"  # what DuckDB calls a derived table without a name, and a query may then call it


def plain_form(select: exp.Select) -> exp.Select:
    """The query in this form, as far as it can be; a copy."""
    select = select.copy()
    _unwrap(select)
    for inner in list(select.find_all(exp.Select, bfs=False))[::-1]:
        _inline_with(inner, outermost=inner is select)
    for inner in select.find_all(exp.Select):
        _write_out_windows(inner)
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
