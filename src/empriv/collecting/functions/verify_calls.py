"""Answers of a Python function, verified by deletion: who is left out of them is really out.

A copy of the function as it was before the first call is called on rows of which one person's, or those of half of the
people, were taken out beforehand, with the same random numbers if it is randomised. A function that remembers rows from
an earlier call, or answers that were mixed up, are found so.
"""

from __future__ import annotations

import math
import pickle
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.functions.chunks import SCALAR, Chunk, ChunkTask, Fetch, FunctionQuery, places, run_task
from empriv.errors import QueryError
from empriv.results import Results, Verified

MOST_DATABASES, HALVES, ALONE = 3, 10, 3
"""Databases that are looked at, halves that are drawn in each, and people who are deleted one at a time."""
_ROUNDED = 1e-9
CALLS = 100
"""Of a randomised function whose answers differ, to see whether its chance is its own."""
MISMATCH_OF_CALLS = (
    "The query's function does not give the same answer when rows are really removed as when people are left out, and "
    "so nobody can say what it tells about them. Hint: it must follow from the rows that it is given alone, and keep "
    "nothing from one call to the next."
)

Function = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows that are there already, whatever the database."""

    columns: dict[str, npt.NDArray[Any]]
    codes: npt.NDArray[Any]

    def __call__(self, _database: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
        return self.columns, self.codes

    def only(self, kept: npt.NDArray[np.bool_]) -> GivenRows:
        """The rows where this is true, and nobody's."""
        return GivenRows({name: column[kept] for name, column in self.columns.items()}, self.codes[kept])


def copier(function: Function) -> Callable[[], Function]:
    """A function that gives copies of a function as it is now; the function itself where it cannot be copied."""
    from joblib import wrap_non_picklable_objects

    try:
        content = pickle.dumps(wrap_non_picklable_objects(function, keep_wrapper=False))
    except Exception:  # whatever a class of the user's own raises
        return lambda: function
    return lambda: pickle.loads(content)  # of this process's own making


def verify_calls(
    query: FunctionQuery, fetch: Fetch, results: Results, fresh: Callable[[], Function]
) -> Verified | None:
    """Call copies of a function on rows that were really removed; refuse one that says something else then.

    Parameters
    ----------
    query, fetch : what gave the results
    results : the answers
    fresh : gives a copy of the function as it was before the first call

    Returns
    -------
    what was verified, None if nobody has rows
    """
    chance = np.random.default_rng(secrets.randbits(128))
    calls = results.n_databases + len(results.entry_database)
    halves = min(HALVES, max(1, calls // 200))
    there = np.unique(results.entry_database)
    chosen = chance.permutation(there)[: MOST_DATABASES if calls >= 1000 else 1]
    for database in map(int, chosen):
        rows = GivenRows(*fetch(database))
        try:
            _check_database(query, results, fresh, rows, database, halves=halves, chance=chance)
        except QueryError:
            if query.draws is None or _repeats(query, fresh, rows, database):
                raise
            return None  # its chance is not that of the generator it is given: no two calls can be compared
    return Verified(len(chosen), halves) if len(chosen) else None


def _check_database(
    query: FunctionQuery,
    results: Results,
    fresh: Callable[[], Function],
    rows: GivenRows,
    database: int,
    *,
    halves: int,
    chance: np.random.Generator,
) -> None:
    """Raise if answers on one database are not those of the rows that are left.

    Some individuals are taken out one at a time, and halves of the people, drawn so often.
    """
    entries = chance.permutation(np.flatnonzero(results.entry_database == database))[: min(ALONE, halves)]
    for entry in entries:
        owner = int(np.searchsorted(results.starts, entry, side="right")) - 1
        left = _called(query, fresh, rows.only(rows.codes != owner), database)
        _compare(left, 0, results.entry_q[entry], results.entry_outcomes[entry], results)
    people = np.unique(rows.codes[rows.codes >= 0])
    for _ in range(halves):
        half = chance.integers(0, 2, len(people))
        codes = np.full(len(rows.codes), -1)
        known = rows.codes >= 0
        codes[known] = half[np.searchsorted(people, rows.codes[known])]
        dealt = _called(query, fresh, replace(rows, codes=codes), database, [0, 1])
        for gone in (0, 1):
            left = _called(query, fresh, rows.only(codes != gone), database)
            _same(left, 0, dealt, gone)


def _repeats(query: FunctionQuery, fresh: Callable[[], Function], rows: GivenRows, database: int) -> bool:
    """Whether calls with the same rows and the same generator answer alike: many, as there may be few answers."""
    one = _called(query, fresh, rows, database).values[0]
    return all(
        np.array_equal(one, _called(query, fresh, rows, database).values[0], equal_nan=True) for _ in range(CALLS)
    )


def _called(
    query: FunctionQuery,
    fresh: Callable[[], Function],
    rows: GivenRows,
    database: int,
    left_out: list[int] | None = None,
) -> Chunk:
    """Answers of a fresh copy, without each of these; with all the rows if nobody is named."""
    task = ChunkTask(database, 0, np.array([-1] if left_out is None else left_out), None, math.inf)
    return run_task(replace(query, function=fresh()), rows, task)


def _same(one: Chunk, item: int, other: Chunk, its_item: int) -> None:
    names = one.names or other.names or SCALAR
    mine, its = (places(chunk.names, names, database=chunk.database) for chunk in (one, other))
    _refuse_unlike(one.values[item][:, mine], other.values[its_item][:, its])
    _refuse_unlike(one.outcomes[item][:, mine], other.outcomes[its_item][:, its])


def _compare(left: Chunk, item: int, values: npt.NDArray[Any], outcomes: npt.NDArray[Any], results: Results) -> None:
    at = places(left.names, results.components or SCALAR, database=left.database)
    shape = left.values[item][:, at].shape
    _refuse_unlike(left.values[item][:, at], values.reshape(shape))
    _refuse_unlike(left.outcomes[item][:, at], outcomes.reshape(shape))


def _refuse_unlike(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
    size = np.nanmax(np.abs(np.concatenate((one.ravel(), other.ravel(), [0.0]))))
    if not np.allclose(one, other, rtol=_ROUNDED, atol=_ROUNDED * size, equal_nan=True):
        raise QueryError(MISMATCH_OF_CALLS)
