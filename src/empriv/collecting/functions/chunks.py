"""One stretch of the work of a Python query: a function called on one database without one individual after another.

This is what workers run. `calls` splits the work and puts the results together.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.functions.chance import chance_of
from empriv.collecting.functions.frames import DatabaseRows, FrameKind, group_rows
from empriv.collecting.functions.returned import FAILED, SCALAR, Answer, align, read_answer
from empriv.errors import EmprivError, QueryError, SourceError

Fetch = Callable[[int], tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class FunctionQuery:
    """What every chunk needs to know."""

    function: Callable[..., Any]
    fetch: Fetch
    frame: FrameKind
    draws: int | None
    seed: int


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
    fetch_seconds, call_seconds : time taken to get the rows, and by all calls
    """

    database: int
    first: int
    names: tuple[str, ...] | None
    values: npt.NDArray[np.float64]
    outcomes: npt.NDArray[np.int8]
    failure: str | None
    fetch_seconds: float
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


def run_task(query: FunctionQuery, task: ChunkTask) -> Chunk:
    """One chunk; this is what workers do."""
    began = time.perf_counter()
    rows = _fetch(query, task)
    fetch_seconds = time.perf_counter() - began
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
        fetch_seconds=fetch_seconds,
        call_seconds=time.perf_counter() - fetched,
    )


def _fetch(query: FunctionQuery, task: ChunkTask) -> DatabaseRows:
    try:
        columns, codes = query.fetch(task.database)
    except EmprivError:
        raise
    except Exception as error:
        trouble = _where(error)
    else:
        return group_rows(columns, codes, kind=query.frame, members=task.members, database=task.database)
    # Raised outside of `except`, so that it does not carry the other's message, which may hold row values.
    raise SourceError(f"The rows of database {task.database} cannot be read: {trouble}.")


def _call(
    query: FunctionQuery, rows: DatabaseRows, database: int, individual: int, draw: int
) -> tuple[Answer, str | None]:
    """The answer of one call, and the exception it raised, if any."""
    arguments = [rows.everyone() if individual < 0 else rows.without(individual)]
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
