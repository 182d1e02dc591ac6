"""Answers of an engine, put in order as `Results`.

Knows arrays only: an answer is a position of a database, of an individual (-1: nobody left out) and of a group, and
the values of the query's items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.engine import Column
from empriv.errors import QueryError
from empriv.results import FloatArray, IntArray, Outcome, Results, outcomes_of

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Answers:
    """Values of the query's items, one row per database, individual and group."""

    database: IntArray
    individual: IntArray
    group: IntArray
    items: tuple[tuple[FloatArray, Codes], ...]


def answer(column: Column) -> tuple[FloatArray, Codes]:
    """Numbers and outcomes of a column of doubles."""
    values = np.array(column.values, np.float64)
    codes = outcomes_of(values)
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
) -> Results:
    """Results in order of individual and database.

    A group that has no answer is NULL with everyone; without an individual it is what it is with everyone, since
    an individual without rows in it changes nothing.
    """
    n, size = len(databases), n_groups * len(answers.items)
    nobody, each = _parted(answers.individual)
    q, codes = np.full((n, size), np.nan), np.full((n, size), Outcome.NULL, np.int8)
    _put(q, codes, answers, nobody, answers.database[nobody], n_groups)

    pair = answers.individual[each].astype(np.int64) * n
    pair += answers.database[each]
    if len(individuals) * n <= 4 * len(pair) + 1024:
        # Nearly everyone is nearly everywhere: a place for every pair is quicker than sorting.
        slot, present = pair, np.zeros((len(individuals), n), bool)
        present.reshape(-1)[pair] = True
        starts = np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64)
        entry_database = np.broadcast_to(np.arange(n, dtype=np.int32), present.shape)[present]
        chosen, entries = present.reshape(-1), len(individuals) * n
    else:
        order, slot = np.unique(pair, return_inverse=True)
        starts, entry_database = _starts(order, len(individuals), n)
        chosen, entries = np.ones(len(order), bool), len(order)
    # Where each pair has one answer, every entry that stays is written below.
    entry_q, entry_codes = np.empty((entries, size)), np.zeros((entries, size), np.int8)
    if n_groups > 1:
        at = np.arange(entries) % n if entries != len(entry_database) else entry_database
        entry_q, entry_codes = q[at], codes[at]
    _put(entry_q, entry_codes, answers, each, slot, n_groups)
    if len(entry_database) < entries:
        entry_q, entry_codes = _kept(entry_q, chosen), _kept(entry_codes, chosen)
    shape = () if components is None else (size,)
    return Results(
        q=q.reshape(n, *shape),
        outcomes=codes.reshape(n, *shape),
        databases=databases,
        individuals=individuals,
        starts=starts,
        entry_database=entry_database,
        entry_q=entry_q.reshape(len(entry_database), *shape),
        entry_outcomes=entry_codes.reshape(len(entry_database), *shape),
        components=None if components is None else tuple(components),
    )


def presence(
    individual: IntArray, database: IntArray, n_individuals: int, n: int
) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """``starts`` and ``entry_database`` of `Results` from pairs in any order."""
    return _starts(np.unique(individual.astype(np.int64) * n + database), n_individuals, n)


def apply_post(results: Results, post: Callable[[Any], Any]) -> Results:
    """Results after a function of the number; outcomes that are not numbers stay."""
    q, codes = _posted(results.q, results.outcomes, post)
    entry_q, entry_codes = _posted(results.entry_q, results.entry_outcomes, post)
    return Results(
        q, codes, results.databases, results.individuals, results.starts, results.entry_database, entry_q, entry_codes,
        results.components, results.draws,
    )  # fmt: skip


def _kept(array: npt.NDArray[Any], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The chosen rows; one column is quicker to choose from when flat."""
    return array.reshape(-1)[chosen].reshape(-1, 1) if array.shape[1] == 1 else array[chosen]


def _parted(individual: IntArray) -> tuple[IntArray | slice, IntArray | slice]:
    """Answers with everyone, and without each individual; as slices, which cost nothing, where they stand apart."""
    everyone = individual < 0
    count = int(np.count_nonzero(everyone))
    if everyone[:count].all():
        return slice(0, count), slice(count, None)
    return np.flatnonzero(everyone), np.flatnonzero(~everyone)


def _put(
    q: FloatArray, codes: Codes, answers: Answers, chosen: IntArray | slice, slot: IntArray, n_groups: int
) -> None:
    place = slot if q.shape[1] == 1 else slot * q.shape[1]
    if n_groups > 1:
        place = place + answers.group[chosen] * len(answers.items)
    for number, (values, outcomes) in enumerate(answers.items):
        at = place + number if number else place
        q.reshape(-1)[at] = values[chosen]
        taken = outcomes[chosen]
        if n_groups > 1 or codes.any() or taken.any():
            codes.reshape(-1)[at] = taken


def _starts(order: IntArray, n_individuals: int, n: int) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """``starts`` and ``entry_database`` from the pairs (individual * n + database) in order."""
    individual, database = np.divmod(order, n)
    counts = np.bincount(individual, minlength=n_individuals)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), database.astype(np.int32)


def _posted(values: FloatArray, codes: Codes, post: Callable[[Any], Any]) -> tuple[FloatArray, Codes]:
    number = codes == Outcome.NUMBER
    given = values[number]
    found: Any = None
    try:
        found = np.asarray(post(given.copy()), np.float64)
    except Exception:
        found = None
    try:
        if found is None or found.shape != given.shape:
            found = np.array([float(post(float(value))) for value in given], np.float64)
    except Exception as error:
        raise QueryError(f"`post` must give a number for every number, but raised {type(error).__name__}.") from None
    out, out_codes = values.copy(), codes.copy()
    out_codes[number] = outcomes_of(found)
    found = np.where(np.isfinite(found), found, np.nan)
    out[number] = found
    return out, out_codes
