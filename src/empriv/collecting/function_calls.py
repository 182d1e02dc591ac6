"""A Python function called on one database, with everyone and without one individual after another.

This is what worker processes and Spark's executors run: it knows no engine and no SQL. `function_runs` splits the work
into chunks and puts the results together.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import hashlib
import json
import math
import struct
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import EmprivError, QueryError, SourceError
from empriv.results import Outcome

Columns = dict[str, npt.NDArray[Any]]

# For these, copying the reference is enough: no function can change the value behind it.
_IMMUTABLE = {
    type(None), bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class DatabaseRows:
    """One database's rows, grouped by individual once so that leaving one out is quick.

    Attributes
    ----------
    columns : the rows of everyone; never handed out themselves
    order : row numbers, sorted by individual
    codes : individual of each row of ``order``; -1 is nobody, whose rows stay in
    delicate : names of columns that hold values a function could change in place
    """

    columns: Columns
    order: npt.NDArray[np.intp]
    codes: npt.NDArray[Any]
    delicate: frozenset[str]

    def everyone(self) -> Columns:
        """A fresh copy of all rows."""
        return self._only(np.ones(len(self.codes), np.bool_))

    def without(self, individual: int) -> Columns:
        """A fresh copy of the rows that are not this individual's."""
        first, last = np.searchsorted(self.codes, [individual, individual + 1])
        keep = np.ones(len(self.codes), np.bool_)
        keep[self.order[first:last]] = False
        return self._only(keep)

    def _only(self, keep: npt.NDArray[np.bool_]) -> Columns:
        rows = {name: column[keep] for name, column in self.columns.items()}
        for name in self.delicate:
            rows[name][:] = [copy.deepcopy(value) for value in rows[name]]
        return rows


def group_rows(
    columns: Mapping[str, npt.NDArray[Any]],
    codes: npt.ArrayLike,
    *,
    members: npt.NDArray[Any] | None,
    database: int,
) -> DatabaseRows:
    """Rows ready for leaving individuals out.

    ``members`` are all the individuals known to be in this database, in increasing order; a row of anybody else
    would never be left out, and is refused. None skips that check.
    """
    codes = np.asarray(codes)
    # Masked arrays (NULLs) must stay masked; the function must not get a memory map.
    plain = {
        str(name): column if isinstance(column, np.ma.MaskedArray) else np.asarray(column)
        for name, column in columns.items()
    }
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise SourceError(
            f"The individuals of the rows of database {database} must be a one-dimensional array of integers."
        )
    if any(column.shape != codes.shape for column in plain.values()):
        raise SourceError(f"The columns of database {database} must all have one value per row.")
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    if members is not None:
        present = np.unique(ordered)
        strangers = int(np.count_nonzero(~np.isin(present[present != -1], members)))
        if strangers:
            raise SourceError(
                f"Database {database} must hold only rows of the individuals listed for it, "
                f"got rows of {strangers} others, who would never be left out."
            )
    return DatabaseRows(plain, order, ordered, frozenset(name for name in plain if _is_delicate(plain[name])))


def _is_delicate(column: npt.NDArray[Any]) -> bool:
    return column.dtype == object and not set(map(type, column)) <= _IMMUTABLE


SEEDING = "by database and draw"
"""How generators are seeded. A checkpoint holds it, so that it is not continued with other numbers."""


def chance_of(seed: int, database: int, draw: int) -> Chance:
    """The generator of one draw on one database, whoever is left out."""
    return Chance(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(database, draw))))


class Chance(np.random.Generator):
    """A NumPy generator that also has a stream for each individual.

    A function that draws for each row needs them: without somebody, all rows that follow theirs would get other
    numbers.

    Examples
    --------
    >>> from empriv.collecting.function_calls import chance_of
    >>> everyone, without_ada = chance_of(0, 0, 0), chance_of(0, 0, 0)
    >>> [everyone.for_individual(name).normal() for name in ("Ada", "Ben")][1] == (
    ...     without_ada.for_individual("Ben").normal()
    ... )
    True
    """

    def __init__(self, bit_generator: np.random.BitGenerator) -> None:
        super().__init__(bit_generator)
        self._streams: dict[bytes, Chance] = {}

    def for_individual(self, *label: Any) -> Chance:
        """The individual's own stream, the same whoever else is left out.

        ``label`` is what the rows call the individual, in as many columns as it takes. Asked again in the same call of
        the function, the stream goes on where it was: an individual with three rows gets three different numbers.
        """
        # Lengths keep ("a", "bc") apart from ("ab", "c"); str() makes a NumPy number the same as Python's.
        text = "".join(f"{len(part)}:{part}" for part in map(str, label))
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._streams:
            own = self.bit_generator.seed_seq
            sequence = np.random.SeedSequence(own.entropy, spawn_key=(*own.spawn_key, *struct.unpack("<4I", key)))  # type: ignore[attr-defined]
            self._streams[key] = Chance(np.random.PCG64(sequence))
        return self._streams[key]

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy's own would restore a plain generator, and forget how far the streams are.
        return _restored, (self.bit_generator, self._streams)


def _restored(bit_generator: np.random.BitGenerator, streams: dict[bytes, Chance]) -> Chance:
    chance = Chance(bit_generator)
    chance._streams.update(streams)
    return chance


EXACT_INTEGERS = 2**53

SCALAR: tuple[str, ...] = ()
Answer = tuple[tuple[str, ...] | None, list[float], list[int]]
"""Names of the components (`SCALAR` for one number, None where that is not known), values, outcomes."""

FAILED: Answer = (None, [math.nan], [int(Outcome.ERROR)])
ABSENT: Answer = (None, [math.nan], [int(Outcome.NULL)])


def read_answer(returned: Any, *, database: int) -> Answer:
    """The answer in what a function returned; ``database`` is for the error message."""
    if type(returned) is float and math.isfinite(returned):
        return SCALAR, [returned], [0]
    returned = _plain(returned)
    if returned is None:
        return ABSENT
    if isinstance(returned, Mapping):
        if not all(isinstance(name, str) for name in returned):
            raise QueryError(
                f"A query's mapping must have text as its keys, got keys of other types on database {database}."
            )
        return _vector(tuple(returned), list(returned.values()), database)
    parts = _parts(returned)
    if parts is not None:
        return _vector(tuple(map(str, range(len(parts)))), parts, database)
    value, outcome = _number(returned, database)
    return SCALAR, [value], [outcome]


def align(answer: Answer, names: tuple[str, ...], *, database: int) -> Answer:
    """The answer with its components in the order of ``names``; if it failed or is absent, all components are."""
    own_names, values, outcomes = answer
    if own_names == names:
        return answer
    at = places(own_names, names, database=database)
    return names, [values[place] for place in at], [outcomes[place] for place in at]


def places(own_names: tuple[str, ...] | None, names: tuple[str, ...], *, database: int) -> list[int]:
    """Where each of ``names`` is among the answer's components; an answer without components stands for all."""
    if own_names is None or own_names == SCALAR == names:
        return [0] * max(len(names), 1)
    if sorted(own_names) != sorted(names):
        raise QueryError(
            f"A query must return the same components every time, {_shape(names)} elsewhere, "
            f"got {_shape(own_names)} on database {database}. Hint: return None for a component that has no value."
        )
    return [own_names.index(name) for name in names]


def _shape(names: tuple[str, ...]) -> str:
    if names == SCALAR:
        return "one number"
    if all(name.isdigit() for name in names):
        return f"a row of {len(names)}"
    return f"{len(names)} named component{'s' if len(names) > 1 else ''}"


def _vector(names: tuple[str, ...], parts: list[Any], database: int) -> Answer:
    if not names:
        raise QueryError(f"A query must return at least one component, got none on database {database}.")
    pairs = [_number(_plain(part), database) for part in parts]
    return names, [value for value, _ in pairs], [outcome for _, outcome in pairs]


def _number(returned: Any, database: int) -> tuple[float, int]:
    """Value and outcome of one number; NaN where the outcome is not a number."""
    if returned is None:
        return math.nan, Outcome.NULL
    if not isinstance(returned, (Real, decimal.Decimal, np.bool_)):
        raise QueryError(
            f"A query must return a number, several numbers or None, "
            f"got a value of type {type(returned).__name__} on database {database}."
        )
    if isinstance(returned, decimal.Decimal) and returned.is_nan():
        return math.nan, Outcome.NAN
    if _is_large_integer(returned):
        raise QueryError(
            "A query must return integers of at most 2^53, which a float holds exactly, "
            f"got a larger one on database {database}. Hint: return `float(...)` if rounding it does no harm."
        )
    try:
        value = float(returned)
    except OverflowError:
        raise QueryError(
            f"A query must return numbers that a float can hold, got a larger one on database {database}."
        ) from None
    if math.isnan(value):
        return math.nan, Outcome.NAN
    if math.isinf(value):
        return math.nan, Outcome.PLUS_INFINITY if value > 0 else Outcome.MINUS_INFINITY
    return value, Outcome.NUMBER


def _is_large_integer(value: Any) -> bool:
    if isinstance(value, decimal.Decimal):
        return value.is_finite() and abs(value) > EXACT_INTEGERS and value == value.to_integral_value()
    return isinstance(value, Integral) and abs(int(value)) > EXACT_INTEGERS


def _plain(value: Any) -> Any:
    """A scalar of NumPy, Arrow or pandas as a Python value; anything else as it is."""
    if value is np.ma.masked:
        return None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _plain(value[()])
    pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")  # where one is not loaded, nothing is its
    if pyarrow is not None and isinstance(value, pyarrow.Scalar):
        return value.as_py()
    return None if pandas is not None and value is pandas.NA else value


def _parts(returned: Any) -> list[Any] | None:
    """The components of a sequence, or None if it is not one: a text, or a table."""
    if isinstance(returned, str | bytes | bytearray | memoryview):
        return None
    series = (("polars", "Series"), ("pyarrow", "Array"), ("pyarrow", "ChunkedArray"))
    kinds = (Sequence, *(getattr(sys.modules[package], name) for package, name in series if package in sys.modules))
    # Arrays of NumPy, and Series of pandas, say how many axes they have.
    return list(returned) if isinstance(returned, kinds) or getattr(returned, "ndim", 0) == 1 else None


Fetch = Callable[[int], tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]]
"""From the position of a database: its columns and, for each row, the index of its individual, -1 for nobody."""


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


@dataclass(frozen=True, eq=False)
class FunctionQuery:
    """A function that is called on rows.

    Attributes
    ----------
    function : ``function(rows)``, of a dict of arrays, returns a number, a sequence of numbers, a mapping of names to
        numbers, or None; with ``draws`` it is called as ``function(rows, rng)``. The rows are its own: it may change
        them.
    draws : calls for each result of a randomised function, each with the generator of (seed, database, draw): so chance
        is the same with everyone and without each individual, and no result depends on the order of the work
    seed : a whole number
    """

    function: Callable[..., Any]
    draws: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class ChunkTask:
    """Items ``first``, ``first + 1``... of a database; item 0 is everyone, the others are without one individual."""

    database: int
    first: int
    individuals: npt.NDArray[np.int64]
    """Whom each item leaves out, -1 for nobody."""
    members: npt.NDArray[np.int64] | None
    """All the individuals of the database, if the rows have to be checked against them."""
    seconds: float
    """A chunk that takes longer than this ends early; another does the rest."""
    twice: bool = False
    """Whether to check first that a function not declared randomised gives the same answer twice."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Answers for a stretch of one database's items: item 0 is everyone, item k is without its k-th individual.

    Attributes
    ----------
    database, first : position of the database, and of the first item
    names : components; empty for one number, None if every item failed or was absent
    values, outcomes : arrays (items, draws, components)
    failure : type and place of the first exception, or None
    call_seconds : time taken by all calls
    """

    database: int
    first: int
    names: tuple[str, ...] | None
    values: npt.NDArray[np.float64]
    outcomes: npt.NDArray[np.int8]
    failure: str | None
    call_seconds: float

    @property
    def stop(self) -> int:
        return self.first + len(self.values)

    def to_bytes(self) -> bytes:
        """The chunk without pickle; `from_bytes` reads it."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        values, outcomes = facts.pop("values"), facts.pop("outcomes")
        text = json.dumps({**facts, "shape": values.shape}).encode()
        return b"%d\n%b%b%b" % (len(text), text, values.astype("<f8").tobytes(), outcomes.astype(np.int8).tobytes())

    @staticmethod
    def from_bytes(content: bytes) -> Chunk:
        """The inverse of `to_bytes`."""
        length, _, rest = content.partition(b"\n")
        text, arrays = rest[: int(length)], rest[int(length) :]
        facts = json.loads(text)
        shape, names = facts.pop("shape"), facts.pop("names")
        n_values = math.prod(shape)
        values = np.frombuffer(arrays, "<f8", n_values).reshape(shape)
        outcomes = np.frombuffer(arrays, np.int8, n_values, 8 * n_values).reshape(shape)
        return Chunk(names=None if names is None else tuple(names), values=values, outcomes=outcomes, **facts)


def run_task(query: FunctionQuery, fetch: Fetch, task: ChunkTask) -> Chunk:
    """One chunk; this is what workers do."""
    rows = _fetched(fetch, task)
    twice = task.twice and query.draws is None
    earlier = _call(query, rows, task.database, int(task.individuals[0]), 0)[0] if twice else None
    fetched = time.perf_counter()
    answers: list[list[Answer]] = []
    failures: list[str] = []
    for individual in task.individuals.tolist():
        draws: list[Answer] = []
        for draw in range(query.draws or 1):
            answer, failure = _call(query, rows, task.database, individual, draw)
            draws.append(answer)
            if failure is not None:
                failures.append(failure)
        if earlier is not None and not answers:
            _refuse_chance(earlier, draws[0], task.database)
        answers.append(draws)
        if time.perf_counter() - fetched > task.seconds:
            break
    names = next((names for draws in answers for names, _, _ in draws if names is not None), None)
    aligned = [[align(answer, names or SCALAR, database=task.database) for answer in draws] for draws in answers]
    return Chunk(
        database=task.database,
        first=task.first,
        names=names,
        values=np.array([[values for _, values, _ in draws] for draws in aligned], np.float64),
        outcomes=np.array([[outcomes for _, _, outcomes in draws] for draws in aligned], np.int8),
        failure=failures[0] if failures else None,
        call_seconds=time.perf_counter() - fetched,
    )


def _fetched(fetch: Fetch, task: ChunkTask) -> DatabaseRows:
    try:
        columns, codes = fetch(task.database)
    except EmprivError:
        raise
    except Exception as error:
        trouble = _where(error)
    else:
        return group_rows(columns, codes, members=task.members, database=task.database)
    # Raised outside of `except`, so that it does not carry the other's message, which may hold row values.
    raise SourceError(f"The rows of database {task.database} cannot be read: {trouble}.")


def _call(
    query: FunctionQuery, rows: DatabaseRows, database: int, individual: int, draw: int
) -> tuple[Answer, str | None]:
    """The answer of one call, and the exception it raised, if any."""
    arguments: list[Any] = [rows.everyone() if individual < 0 else rows.without(individual)]
    if query.draws is not None:
        arguments.append(chance_of(query.seed, database, draw))
    starved = False
    try:
        returned = query.function(*arguments)
    except MemoryError:
        starved = True  # says something about the machine, not about the rows: not an outcome
    except Exception as error:
        return FAILED, _where(error)
    if starved:
        raise QueryError(f"The query ran out of memory on database {database}. Hint: ask for fewer `jobs`.")
    return read_answer(returned, database=database), None


def _refuse_chance(earlier: Answer, answer: Answer, database: int) -> None:
    """Refuse a function that gives two answers for the same rows: chance would look like an individual's influence."""
    (names, values, outcomes), (names_again, values_again, outcomes_again) = earlier, answer
    # Threads may add in any order: answers that differ only by rounding are the same.
    alike = names == names_again and outcomes == outcomes_again
    if not alike or not np.allclose(values, values_again, rtol=1e-12, atol=0.0, equal_nan=True):
        raise QueryError(
            "The query's function must give the same answer each time it is called on the same rows, "
            f"got two different ones on database {database}. Hint: a randomised function takes a generator as well, "
            "`function(rows, rng)`, uses no other source of chance, and is run with `draws=`."
        )


def _where(error: Exception) -> str:
    """Type and place of an exception, without its message, which may hold row values."""
    kind = type(error).__name__
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)][1:]
    if not places:
        return kind
    # The first frame is ours, the second the user's function: the last one in that file is the line to look at.
    file = places[0][0]
    line = [number for name, number in places if name == file][-1]
    return f"{kind} in line {line} of {PurePath(file).name}"


# Columns of rows in Arrow batches that say in which database a row is and whose it is, by position.
PLACE, CODE = "empriv_database", "left_out"


def called_batches(query: FunctionQuery, columns: tuple[str, ...], batches: Iterator[Any]) -> Iterator[Any]:
    """From Arrow batches of rows in order of database, a batch of one chunk for each; this is what executors do.

    One database is held at a time, however many of them a partition has.
    """
    import pyarrow

    kept: list[Any] = []
    for batch in batches:
        places = batch[PLACE].to_numpy(zero_copy_only=False)
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)] if len(places) else []
        for first, stop in pairwise(edges):
            if kept and kept[0][PLACE][0].as_py() != places[first]:
                yield _called(query, columns, pyarrow.Table.from_batches(kept))
                kept = []
            kept.append(batch.slice(first, stop - first))
    if kept:
        yield _called(query, columns, pyarrow.Table.from_batches(kept))


def _called(query: FunctionQuery, columns: tuple[str, ...], table: Any) -> Any:
    """The chunk of one database's calls, as bytes in an Arrow batch."""
    import pyarrow

    database = int(table[PLACE][0].as_py())
    # Shuffles deal rows out in any order: put into one order, so that every run gives the function the same.
    table = table.sort_by([(name, "ascending") for name in (CODE, *columns)])
    codes = table[CODE].to_numpy().astype(np.int64)
    arrays = {name: _without_nulls(table[name]) for name in columns}
    members = np.unique(codes[codes >= 0])
    everyone_first = np.concatenate(([-1], members))
    task = ChunkTask(database, 0, everyone_first, members, math.inf, twice=database == 0)
    chunk = run_task(query, lambda _: (arrays, codes), task).to_bytes()
    return pyarrow.RecordBatch.from_arrays([pyarrow.array([chunk], pyarrow.binary())], names=["chunk"])


def _without_nulls(column: Any) -> npt.NDArray[Any]:
    """An array in which NULL is NaN, NaT or None, as DuckDB's rows have it."""
    import pyarrow

    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return np.asarray(column.to_numpy())
