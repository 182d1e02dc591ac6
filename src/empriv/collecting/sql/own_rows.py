"""Rows that belong to one person: in a source given as SQL, and in tables beside ``data``.

Leaving a person out of ``data`` takes out what they did only if no row of another person holds it. A source that
computes across rows (a total beside each row, a self-join, the largest value) breaks that, and so does a table with
rows of people that is read on its own. Both are refused, with what to write instead. Tree in, nothing out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sqlglot import exp

from empriv.collecting.sources import Connected, Databases, Select
from empriv.collecting.sql.allowlist import one_select, tables_of
from empriv.collecting.sql.functions import OF_MANY
from empriv.collecting.sql.pointing import listed
from empriv.collecting.sql.printing import called
from empriv.errors import QueryError, SourceError

_ROWS = "data"
_DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite"}
_HINT = (
    "Hint: compute it in the query, where people are left out of it, or for each person apart (GROUP BY, PARTITION BY)."
)


def check_sources(data: Databases) -> None:
    """Refuse a source given as SQL whose rows may hold what other people did."""
    for part in data.parts:
        if isinstance(part, Select):
            across = _across_rows(one_select(part.sql), data.individual)
        elif isinstance(part, Connected) and part.sql is not None:
            across = _across_rows(one_select(part.sql, _DIALECTS[part.kind]), data.individual)
        else:
            continue
        if across:
            raise SourceError(
                "A source given as SQL must make each row of one person's rows, since leaving a person out must take "
                f"out all that they did, got {across}. {_HINT}"
            )


def check_tables_of_people(select: exp.Expr, columns: Mapping[str, Sequence[str]], whose: Sequence[str]) -> None:
    """Refuse a query that reads a table with the individual's column other than joined to ``data`` by it.

    ``columns`` are those of each table, ``whose`` the individual's.
    """
    people = {
        name.lower() for name, own in columns.items()
        if name.lower() != _ROWS and whose and set(map(str.lower, whose)) <= set(map(str.lower, own))
    }  # fmt: skip
    for table, named in tables_of(select, frozenset()):
        if table.name.lower() in people - named and not _joined_by(table, [name.lower() for name in whose]):
            keys = ", ".join(whose)
            raise QueryError(
                f"The query must join {table.name} to data by {keys}: it holds rows of people, and whoever is left "
                f"out of data must be left out of it too. Hint: FROM data JOIN {table.name} USING ({keys})."
            )


def _joined_by(table: exp.Table, keys: Sequence[str]) -> bool:
    """Whether a table is joined to ``data``, so that its rows need a partner there with the same keys."""
    join = table.parent
    if not isinstance(join, exp.Join) or join.method or join.side not in ("", "LEFT") or join.kind not in ("", "INNER"):
        return False
    select = join.parent
    start = select.args.get("from_") or select.args.get("from") if isinstance(select, exp.Select) else None
    first = start.this if isinstance(start, exp.From) else None
    if not isinstance(first, exp.Table) or first.name.lower() != _ROWS:
        return False
    using = {item.name.lower() for item in join.args.get("using") or ()}
    equal: set[str] = set()
    condition = join.args.get("on")
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        sides = [side for side in part.iter_expressions() if isinstance(side, exp.Column)] if part else []
        if isinstance(part, exp.EQ) and len(sides) == 2:
            tables = {side.table.lower() for side in sides}
            names = {side.name.lower() for side in sides}
            if tables == {first.alias_or_name.lower(), table.alias_or_name.lower()} and len(names) == 1:
                equal |= names
    return set(keys) <= using | equal


def _across_rows(tree: exp.Expr, individual: Sequence[str]) -> str:
    """What a SELECT computes across rows of several people, in words; "" if nothing."""
    if isinstance(tree, exp.SetOperation):
        return _across_rows(tree.left, individual) or _across_rows(tree.right, individual)
    keys = {name.lower() for name in individual}
    reads = Counter(_place(table) for table in tree.find_all(exp.Table))
    if any(count > 1 for count in reads.values()):
        return "a table that is read twice"
    for node in tree.walk():
        if isinstance(node, exp.Limit | exp.Offset | exp.Fetch | exp.TableSample):
            return "a LIMIT or a sample"
        if isinstance(node, exp.Window):
            if not keys <= {item.name.lower() for item in node.args.get("partition_by") or ()}:
                return f"a window that is not PARTITION BY {listed(individual)}"
        elif _aggregates(node) and not _grouped(node, keys):
            return f"an aggregate that is not GROUP BY {listed(individual)}"
    return ""


def _aggregates(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Func) and called(node) in OF_MANY)


def _grouped(node: exp.Expr, keys: Collection[str]) -> bool:
    """Whether an aggregate is taken within groups of one person's rows."""
    wrapper = node.parent
    if isinstance(wrapper, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        wrapper = wrapper.parent
    if isinstance(wrapper, exp.Window):
        return True  # looked at as a window
    select = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select is not None else None
    if not isinstance(group, exp.Group) or select is None:
        return False
    if group.args.get("all"):
        return set(keys) <= {item.alias_or_name.lower() for item in select.selects}
    names = set()
    for item in group.expressions:
        if isinstance(item, exp.Literal) and not item.is_string and 0 < int(item.name) <= len(select.selects):
            names.add(select.selects[int(item.name) - 1].alias_or_name.lower())
        else:
            names.add(item.name.lower())
            names |= {shown.alias_or_name.lower() for shown in select.selects if shown.unalias() == item}
    simple = not any(group.args.get(kind) for kind in ("cube", "rollup", "grouping_sets"))
    return simple and set(keys) <= names


def _place(table: exp.Table) -> str:
    """The same for all ways to write one table or file."""
    if not isinstance(table.this, exp.Identifier):
        return str(table.this.sql()).lower()
    name = ".".join(part.name for part in table.parts)
    return str(Path(name).resolve()) if Path(name).exists() else name.lower()
