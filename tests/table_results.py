"""Results that tests make from few entries, and from cells of tables and what people change in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from empriv.results import FloatArray, Results
from oracles import gaussian_shift

Person = tuple[Any, FloatArray]  # databases (m,), and what the person adds to the cells there (m, d)


def gaussian_delta(size: float, epsilon: float = 0.1) -> float:
    """Closed form for two normal laws so many standard deviations apart (Balle and Wang)."""
    return gaussian_shift(size, 1.0, epsilon)


def people(rng: np.random.Generator, n: int, count: int, size: float) -> tuple[FloatArray, FloatArray]:
    """A sum over many, and without each of some: contributions lognormal."""
    q = rng.normal(size=n)
    return q, q - size * rng.lognormal(0, 0.3, (count, n))


def of_entries(q: FloatArray, at: Any, entry_q: FloatArray, starts: Any = None, **others: Any) -> Results:
    """Results of numbers, with entries in these databases; of one person where no ``starts`` are given."""
    starts = np.array([0, len(at)]) if starts is None else np.asarray(starts, np.int64)
    fields: dict[str, Any] = {
        "outcomes": np.zeros(q.shape, np.int8), "databases": np.arange(len(q)),
        "individuals": np.arange(len(starts) - 1), "entry_outcomes": np.zeros(np.shape(entry_q), np.int8),
    }  # fmt: skip
    return Results(q=q, starts=starts, entry_database=np.asarray(at, np.int32), entry_q=entry_q, **{**fields, **others})


def table(
    q: FloatArray,
    people: Sequence[Person],
    outcomes: Any = None,
    entry_outcomes: Any = None,
    names: Sequence[str] | None = None,
) -> Results:
    """Results from cells (n, d) with everyone, and from what people add."""
    at = np.concatenate([databases for databases, _ in people]).astype(np.int32)
    codes = np.zeros(q.shape, np.int8) if outcomes is None else outcomes
    entry_codes = codes[at] if entry_outcomes is None else entry_outcomes
    entry_q = q[at] - np.concatenate([changes for _, changes in people])
    return Results(
        q=np.where(codes == 0, q, np.nan),
        outcomes=codes,
        databases=np.arange(len(q)),
        individuals=np.arange(len(people)),
        starts=np.concatenate(([0], np.cumsum([len(databases) for databases, _ in people]))).astype(np.int64),
        entry_database=at,
        entry_q=np.where(entry_codes == 0, entry_q, np.nan),
        entry_outcomes=entry_codes,
        components=tuple(names or (f"cell {k}" for k in range(q.shape[1]))),
    )


def always(change: Any, n: int = 365) -> Person:
    """Somebody who is in every database with the same changes."""
    return np.arange(n), np.tile(np.asarray(change, float), (n, 1))


def unit(d: int, *cells: int) -> FloatArray:
    """(d,) 1 in these cells."""
    return np.isin(np.arange(d), cells).astype(float)
