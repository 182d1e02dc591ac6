"""SQL that cannot be rewritten: run on every database, and again without each individual.

The answers are the same as those of a rewritten query, at the cost of one run per database and individual.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from empriv.base.progress import progress as progress_bar
from empriv.collecting.assemble import (
    IDENTIFYING,
    PASSING,
    Answers,
    Group,
    assemble,
    cells_of,
    check_groups,
    check_selected,
    component_names,
    group_value,
    says_which_database,
)
from empriv.collecting.engines.engine import Rows, Session
from empriv.collecting.queries import Query
from empriv.errors import QueryError
from empriv.results import IntArray, Outcome, Results

MANY_RUNS = 2_000  # a run takes about a millisecond
Key = tuple[Any, ...]
Notice = Callable[[str], None]
Run = dict[Key, list[tuple[float, int]]] | None
"""What one run answers: for each group, the numbers and outcomes of the items; None where the query fails."""
EVERYONE = -1  # in the place of an individual: nobody is left out
LARGEST_EXACT = 2**53
BEYOND = (
    "A result is an integer, or a decimal of as many digits, beyond 2^53, where a double loses its last digit. "
    "Hint: divide it, or cast it to DOUBLE to accept the loss."
)


def rerun(
    session: Session,
    query: Query,
    *,
    reason: str,
    show: bool | None = None,
    notice: Notice | None = None,
    refuse: bool = True,
) -> Results:
    """Results from one run on every database with everyone, and one without each individual who is in it.

    Without ``refuse``, groups may be of one individual each, and the query may fail on every database.
    """
    assert query.select is not None
    check_selected(query)
    database, individual = session.presence()
    n = len(session.databases)
    database = np.concatenate((np.arange(n), database))
    individual = np.concatenate((np.full(n, EVERYONE), individual))
    order = np.lexsort((individual, database))
    database, individual = database[order], individual[order]
    if notice is not None or len(database) > MANY_RUNS:
        (notice or to_stderr)(f"The query runs once per individual, since {reason}: {len(database):,} runs.")
    runs: list[Run] = []
    with progress_bar(len(database), "running the query without each individual", show=show) as advance:
        for j, members in _by_database(database, individual):
            with session.rerun(query.select, j) as run:
                for i in members:
                    runs.append(_read(run(int(i)), query))
                    advance()
    if refuse:
        _check_runs(query, database, individual, runs)
    answers, groups = _answers(database, individual, runs, query, n)
    return assemble(
        answers,
        databases=session.databases,
        individuals=session.individuals,
        components=component_names(query, groups),
        n_groups=len(groups),
        cells=cells_of(query, groups),
    )


def _check_runs(query: Query, database: IntArray, individual: IntArray, runs: list[Run]) -> None:
    """Refuse a query that fails everywhere, and groups that name individuals or databases."""
    everyone = {int(j): run for j, i, run in zip(database, individual, runs, strict=True) if i == EVERYONE}
    if all(run is None for run in everyone.values()):
        raise QueryError(
            "The query fails on every database. Hint: a text that is no number or date makes CAST fail; TRY_CAST gives "
            "NULL in its place."
        )
    if not query.groups:
        return
    groups = {j: set(run or ()) for j, run in everyone.items()}
    # Each group is one individual's if it is gone without one of them alone. NULL names nobody.
    owners: dict[Key, set[int]] = {key: set() for keys in groups.values() for key in keys if None not in key}
    for j, i, run in zip(database, individual, runs, strict=True):
        for key in groups[int(j)] & owners.keys() - set(run or ()):
            owners[key].add(int(i))
    if len(owners) > 1 and all(len(who) == 1 for who in owners.values()):
        raise QueryError(IDENTIFYING)
    _check_across_databases(query, list(groups.values()))


def _by_database(database: IntArray, individual: IntArray) -> Iterator[tuple[int, IntArray]]:
    for j, start, count in zip(*np.unique(database, return_index=True, return_counts=True), strict=True):
        yield int(j), individual[start : start + count]


def _read(rows: Rows | None, query: Query) -> Run:
    if rows is None:
        return None
    if not query.groups and len(rows) > 1:
        raise QueryError(
            "The query must give one row. Hint: an aggregate, such as sum(x), makes one number of all "
            "rows; group by a key to have one for each group."
        )
    if query.groups and rows:
        check_groups(query, len(rows))
    read = {}
    for row in rows:
        key = tuple(row[position] for position in query.keys)
        if key in read:
            raise QueryError("The query must give one row per group. Hint: select every key that it groups by.")
        read[key] = [_number(row[position]) for position in query.items]
    return read


def _number(value: Any) -> tuple[float, int]:
    if value is None:
        return math.nan, Outcome.NULL
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        raise QueryError(BEYOND)
    # A decimal is an integer of its last digits.
    if isinstance(value, Decimal) and int("".join(map(str, value.as_tuple().digits))) > LARGEST_EXACT:
        raise QueryError(BEYOND)
    number = float(value)
    if math.isnan(number):
        return math.nan, Outcome.NAN
    if math.isinf(number):
        return math.nan, Outcome.PLUS_INFINITY if number > 0 else Outcome.MINUS_INFINITY
    return number, Outcome.NUMBER


def _check_across_databases(query: Query, found: list[set[Key]]) -> None:
    """Refuse keys that are one value in each database, and groups of which none is in two databases."""
    assert query.select is not None
    every = [keys for keys in found if keys]
    selected = [query.select.selects[position].unalias() for position in query.keys]
    constant = {
        query.groups.index(item)
        for place, item in enumerate(selected)
        if all(len({key[place] for key in keys}) == 1 for keys in every)
        and len({key[place] for keys in every for key in keys}) > 1
    }
    if constant:
        raise says_which_database(query, constant)
    if 1 < len(set().union(*every)) == sum(map(len, every)) and len(found) > 1:
        raise QueryError(PASSING)


def _answers(
    database: IntArray, individual: IntArray, runs: list[Run], query: Query, n_databases: int
) -> tuple[Answers, list[Group]]:
    keys = sorted({key for run in runs if run is not None for key in run}, key=_sortable)
    if query.groups:
        check_groups(query, len(keys))
    keys = keys or [()]
    place = {key: g for g, key in enumerate(keys)}
    shape = (len(runs), len(keys), len(query.items))
    values, codes = np.full(shape, np.nan), np.full(shape, Outcome.NULL, np.int8)
    for t, run in enumerate(runs):
        if run is None:
            codes[t] = Outcome.ERROR
            continue
        for key, numbers in run.items():
            values[t, place[key]] = [number for number, _ in numbers]
            codes[t, place[key]] = [code for _, code in numbers]
    groups = len(keys)
    answers = Answers(
        np.repeat(individual.astype(np.int64) * n_databases + database, groups),
        n_databases,
        np.tile(np.arange(groups), len(runs)),
        tuple((values[:, :, k].ravel(), codes[:, :, k].ravel()) for k in range(len(query.items))),
    )
    return answers, [tuple(map(label, key)) for key in keys]


def _sortable(key: Key) -> tuple[Any, ...]:
    return tuple((part is None, str(type(part)), 0 if part is None else part) for part in key)


def label(part: Any) -> str:
    """A key of a group as text."""
    return group_value(None if part is None else str(part).lower() if isinstance(part, bool) else str(part))


def to_stderr(sentence: str) -> None:
    """What is done with a sentence that nobody else takes."""
    print(sentence, file=sys.stderr)
