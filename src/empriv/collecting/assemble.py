"""Answers of an engine, put in order as `Results`.

It works on arrays: an answer is the position of a database, of an individual (-1: nobody left out) and of a group, with
the values of the query's items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.engines.engine import Column
from empriv.collecting.queries import MOST_CELLS, Query, without_keys
from empriv.errors import QueryError
from empriv.results import Cell, FloatArray, IntArray, Outcome, Results, outcome_codes

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Answers:
    """Values of the query's items, one row per database, individual and group.

    Attributes
    ----------
    pair : individual * n_databases + database, where the individual is -1 if nobody is left out
    n_databases : number of databases
    group : position of the group, ignored if there is only one
    items : numbers and outcomes of each of the query's items
    """

    pair: npt.NDArray[Any]
    n_databases: int
    group: IntArray
    items: tuple[tuple[FloatArray, Codes], ...]


def numbers_and_outcomes(column: Column) -> tuple[FloatArray, Codes]:
    """Numbers and outcomes of a column of doubles."""
    values = np.require(column.values, np.float64, "W")  # some are computed again, in place
    if not column.null.any() and np.isfinite(values).all():
        return values, np.zeros(values.shape, np.int8)
    values = values.copy()
    codes = outcome_codes(values)
    codes[column.null] = Outcome.NULL
    values[codes != Outcome.NUMBER] = np.nan
    return values, codes


def assemble(
    answers: Answers,
    *,
    databases: npt.NDArray[Any],
    individuals: npt.NDArray[Any],
    components: Sequence[str] | None,
    n_groups: int = 1,
    everyone: tuple[FloatArray, Codes] | None = None,
    cells: tuple[Cell, ...] | None = None,
) -> Results:
    """Results in order of individual and database.

    A group without an answer is NULL with everyone. Without an individual it is the same as with everyone, since an
    individual without rows in it changes nothing. ``everyone`` are the results with everyone, where the answers
    do not hold them.
    """
    n, size, width = answers.n_databases, n_groups * len(answers.items), len(individuals)
    nobody, each = np.flatnonzero(answers.pair < 0), np.flatnonzero(answers.pair >= 0)
    q, codes = np.full((n, size), np.nan), np.full((n, size), Outcome.NULL, np.int8)
    _put(q, codes, answers, nobody, answers.pair[nobody] + n, n_groups)
    if everyone is not None:
        q, codes = everyone[0].reshape(n, size), everyone[1].reshape(n, size)

    order, pair = _ordered(answers.pair[each], width * n)
    # A pair has an answer for each of its groups.
    first = np.concatenate(([True], pair[1:] != pair[:-1]))[: len(pair)]
    slot, pair = np.cumsum(first) - 1, pair[first]
    entry_database = (pair % n).astype(np.int32)
    entry_q, entry_codes = q[entry_database], codes[entry_database]
    _put(entry_q, entry_codes, answers, each[order], slot, n_groups)
    shape = () if components is None else (size,)
    return Results(
        q=q.reshape(n, *shape),
        outcomes=codes.reshape(n, *shape),
        databases=databases,
        individuals=individuals,
        starts=np.searchsorted(pair, np.arange(width + 1, dtype=np.int64) * n).astype(np.int64),
        entry_database=entry_database,
        entry_q=entry_q.reshape(len(pair), *shape),
        entry_outcomes=entry_codes.reshape(len(pair), *shape),
        components=None if components is None else tuple(components),
        cells=cells,
    )


def apply_post(results: Results, post: Callable[[Any], Any]) -> Results:
    """Results after a function of the number; outcomes that are not numbers stay."""
    if results.draws is None:
        _refuse_chance(results, post)
    q, codes = _posted(results.q, results.outcomes, post)
    entry_q, entry_codes = _posted(results.entry_q, results.entry_outcomes, post)
    return Results(
        q, codes, results.databases, results.individuals, results.starts, results.entry_database, entry_q, entry_codes,
        results.components, results.draws, postprocessed_from=results, cells=results.cells, verified=results.verified,
    )  # fmt: skip


def _ordered(pair: npt.NDArray[Any], below: int) -> tuple[IntArray, npt.NDArray[Any]]:
    """The order that sorts pairs that are at least 0 and less than ``below``, and the pairs in it."""
    if below > 2**31 or len(pair) > 2**31:
        order = np.argsort(pair, kind="stable")
        return order, pair[order]
    # One number holds a pair and then its position: sorting numbers is far quicker than sorting positions.
    packed = pair.astype(np.int64)
    packed <<= 32
    packed |= np.arange(len(pair), dtype=np.uint32)
    packed.sort()
    return packed & (2**32 - 1), (packed >> 32).astype(np.uint32)


def _put(
    q: FloatArray, codes: Codes, answers: Answers, chosen: IntArray, slot: npt.NDArray[Any], n_groups: int
) -> None:
    """Put chosen answers in rows of a table that has a column for each item of each group."""
    group = answers.group[chosen] if n_groups > 1 else 0
    for number, (values, outcomes) in enumerate(answers.items):
        at = slot, group * len(answers.items) + number
        q[at], codes[at] = values[chosen], outcomes[chosen]


def _refuse_chance(results: Results, post: Callable[[Any], Any]) -> None:
    """Refuse a function that gives two results for one number: chance would look like an individual's influence."""
    number = results.q[results.outcomes == Outcome.NUMBER][:1]
    codes = np.zeros(number.shape, np.int8)
    (value, code), (value_again, code_again) = (_posted(number, codes, post) for _ in range(2))
    if not (np.array_equal(value, value_again, equal_nan=True) and np.array_equal(code, code_again)):
        raise QueryError(
            "`post` must give the same number each time it is called on the same number, got two different ones. "
            "Hint: a randomised query is one function, `function(rows, rng)`, that is run with `draws=`."
        )


def _posted(values: FloatArray, codes: Codes, post: Callable[[Any], Any]) -> tuple[FloatArray, Codes]:
    number = codes == Outcome.NUMBER
    before = values[number]
    after: Any = None
    try:
        after = np.asarray(post(before.copy()), np.float64)
    except Exception:
        after = None
    try:
        if after is None or after.shape != before.shape:
            after = np.array([float(post(float(value))) for value in before], np.float64)
    except Exception as error:
        raise QueryError(f"`post` must give a number for every number, but raised {type(error).__name__}.") from None
    out, out_codes = values.copy(), codes.copy()
    out_codes[number] = outcome_codes(after)
    after = np.where(np.isfinite(after), after, np.nan)
    out[number] = after
    return out, out_codes


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


def chosen_groups(results: Results, query: Query, *, refuse: bool) -> Results:
    """Results of those groups alone that HAVING leaves somewhere; elsewhere all of a group is NULL."""
    shape = (-1, len(results.components or ()) // len(query.items), len(query.items))
    here = (results.outcomes.reshape(shape) != Outcome.NULL).any(axis=2)
    left = (results.entry_outcomes.reshape(shape) != Outcome.NULL).any(axis=2)
    kept = here.any(axis=0) | left.any(axis=0)
    if not kept.any():
        raise QueryError(NO_GROUP)
    shown = here.any(axis=0)
    # NULL names nobody.
    named = shown & [all(value != "NULL" for _, value in cell.keys) for cell in (results.cells or ())[:: shape[2]]]
    if refuse and named.sum() > 1:
        entry, group = np.nonzero(here[results.entry_database] & ~left)  # gone without one individual
        owner = np.repeat(np.arange(results.n_individuals), np.diff(results.starts))[entry]
        owned, _ = np.unique(np.stack((group, owner)), axis=1)
        if np.all(np.bincount(owned, minlength=len(named))[named] == 1):
            raise QueryError(IDENTIFYING)
    if refuse and shown.sum() > 1 and results.n_databases > 1 and np.all(here.sum(axis=0)[shown] == 1):
        raise QueryError(PASSING)
    places = np.flatnonzero(np.repeat(kept, len(query.items)))
    return replace(
        results,
        q=results.q[:, places],
        outcomes=results.outcomes[:, places],
        entry_q=results.entry_q[:, places],
        entry_outcomes=results.entry_outcomes[:, places],
        components=tuple(results.components[k] for k in places) if results.components else None,
        cells=tuple(results.cells[k] for k in places) if results.cells else None,
    )


def _different(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise QueryError("The results of a query must have different names. Hint: name them with AS.")
    return names
