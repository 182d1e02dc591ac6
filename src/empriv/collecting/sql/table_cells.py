"""Cells of a table: how the groups of GROUP BY become named numbers, and how many there may be.

A group that is absent from a database has no answer there, which is an outcome of its own (NULL): so is a cell that a
query suppresses. Names are text from the rows, and may be anything; two cells never share one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from empriv.collecting.queries import MOST_CELLS, Query, without_keys
from empriv.errors import QueryError
from empriv.results import Cell

Group = tuple[str, ...]
"""The value of each grouping column, as text."""

NO_GROUP = "The query must give at least one group, got none. Hint: see whether any row passes WHERE and HAVING."
IDENTIFYING = (
    "The query must not group by what identifies individuals: groups are one individual's each, and their names are "
    "published. Hint: group by what several individuals share."
)

PASSING = (
    "The query must group by what returns in other databases, but each group is in one database only, so that no two "
    "of its answers can be compared. Hint: of dates, dayofweek() and hour() return; or leave the key out."
)


def check_groups(query: Query, count: int) -> None:
    """Refuse a query without groups, and one with more cells than a table may have."""
    if count == 0:
        raise QueryError(NO_GROUP)
    cells = count * len(query.items)
    if cells > MOST_CELLS:
        raise QueryError(
            f"A table may have at most {MOST_CELLS:,} cells, got {cells:,}: {count:,} groups"
            + (f" of {len(query.items)} numbers each." if len(query.items) > 1 else ".")
            + " Hint: group by coarser values (CASE WHEN, date_trunc), by fewer columns, or keep with WHERE the groups "
            "that you publish."
        )


def check_selected(query: Query) -> None:
    """Refuse a query that does not say which group a result is of."""
    assert query.select is not None
    selected = [item.unalias().sql("duckdb") for item in query.select.selects]
    missing = [key.sql("duckdb") for key in query.groups if key.sql("duckdb") not in selected]
    if missing:
        raise QueryError(f"The query must select every key that it groups by. Hint: SELECT {missing[0]}, ...")


def says_which_database(query: Query, keys: Collection[int]) -> QueryError:
    """The error of a query that groups by what is one value in each database, such as the day that cuts them."""
    name = query.groups[min(keys)].sql("duckdb", normalize_functions="lower")
    return QueryError(
        f"The query must not group by what says which database a row is in: each database has one value of {name}, and "
        f"the query is asked of every database anyway. Hint: write {without_keys(query, keys)}"
    )


def group_value(value: str | None) -> str:
    """A key as text; quoted where it could be taken for another: NULL, nothing, a separator or a quoted text."""
    if value is None:
        return "NULL"
    if value == "NULL" or " / " in value or not value.strip() or (value[0] == "'" == value[-1]):
        return "'" + value.replace("'", "''") + "'"
    return value


def component_names(query: Query, groups: Sequence[Group]) -> list[str] | None:
    """Names of a vector's components: of the group, the item, or both; None if the query gives one number."""
    if not query.is_vector:
        return None
    if not query.groups:
        return _different(list(query.names))
    named = [" / ".join(group) for group in groups]
    if len(query.items) == 1:
        return named
    return _different([f"{group} / {name}" for group in named for name in query.names])


def cells_of(query: Query, groups: Sequence[Group]) -> tuple[Cell, ...] | None:
    """Where each component stands in the table, in the order of `component_names`; None without GROUP BY."""
    if not query.groups:
        return None
    columns = _columns(query)
    return tuple(Cell(name, tuple(zip(columns, group, strict=True))) for group in groups for name in query.names)


def _columns(query: Query) -> list[str]:
    """Names of the grouping columns: as the query calls them, else as it writes them."""
    assert query.select is not None
    called = {item.unalias().sql("duckdb"): item.alias for item in query.select.selects if item.alias}
    names: list[str] = []
    for group in query.groups:
        text = group.sql("duckdb")
        name = called.get(text) or (group.name if group.name else text)
        names.append(name if name not in names else text if text not in names else f"{text} ({len(names) + 1})")
    return names


def _different(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise QueryError("The results of a query must have different names. Hint: name them with AS.")
    return names
