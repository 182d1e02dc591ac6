"""Python queries: the calls of a function split into chunks, run in parallel, kept in a checkpoint, and verified.

`function_calls` is what runs in the workers. `sources` says where the rows come from, and `measure` what the results
mean.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import pickle
import secrets
import struct
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import jobs_or_none
from empriv.base.progress import progress as progress_bar
from empriv.base.scratch import work_for
from empriv.base.storage import open_checkpoint
from empriv.collecting.function_calls import (
    SCALAR,
    SEEDING,
    Chunk,
    ChunkTask,
    Fetch,
    FunctionQuery,
    GivenRows,
    places,
    run_task,
)
from empriv.errors import QueryError
from empriv.results import Outcome, Results, Verified

_CHUNK_SECONDS = 1.0
_LOCAL_SECONDS = 1.0
_CHUNK_BYTES = 2**26
_MARKED = "function, seed, draws, way of drawing, databases or individuals"


@dataclass(frozen=True, eq=False)
class Presence:
    """Who is in which database, as `Results` has it."""

    databases: npt.NDArray[Any]
    individuals: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    entry_database: npt.NDArray[np.int32]

    @cached_property
    def entries(self) -> npt.NDArray[np.int64]:
        """Entries, database by database."""
        return np.argsort(self.entry_database, kind="stable").astype(np.int64)

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """Individuals of these."""
        return np.repeat(np.arange(len(self.individuals), dtype=np.int64), np.diff(self.starts))[self.entries]

    @cached_property
    def firsts(self) -> npt.NDArray[np.int64]:
        """Where the entries of each database begin, and the end."""
        return np.searchsorted(self.entry_database[self.entries], np.arange(len(self.databases) + 1)).astype(np.int64)

    def members(self, database: int) -> npt.NDArray[np.int64]:
        return self.owners[self.firsts[database] : self.firsts[database + 1]]

    def n_items(self, database: int) -> int:
        return 1 + int(self.firsts[database + 1] - self.firsts[database])


def presence_of(
    databases: npt.NDArray[Any], individuals: npt.NDArray[Any], pairs: tuple[npt.NDArray[Any], npt.NDArray[Any]]
) -> Presence:
    """Who is in which database, from the positions of databases and individuals of all pairs."""
    database, individual = pairs
    entries = np.unique(individual.astype(np.int64) * len(databases) + database)
    starts = np.searchsorted(entries, np.arange(len(individuals) + 1) * len(databases)).astype(np.int64)
    return Presence(databases, individuals, starts, (entries % len(databases)).astype(np.int32))


def collect_calls(
    query: FunctionQuery,
    fetch: Fetch,
    presence: Presence,
    *,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> Results:
    """Results of a Python function on each database, with everyone and without each individual.

    Parameters
    ----------
    query : what is called
    fetch : gives the rows of a database. It is pickled with every chunk: it should hold where the data is, or NumPy
        arrays (which joblib shares between processes), rather than large objects.
    presence : who is in which database
    jobs : number of processes; None uses all cores
    checkpoint : a file that keeps finished work, so that a run interrupted in any way continues from there when called
        again with the same arguments. It is never deleted here: the caller does that once the results are safe. It
        records the function, seed, draws, databases and individuals, and refuses others; it does not record
        the values in the rows, so delete it when they change.
    progress : whether to show progress; None shows it if the work takes long

    Notes
    -----
    An exception raised by the function is an outcome, `Outcome.ERROR`, unless it is raised on every database. Without
    ``draws``, the function is called once more on one database, and refused if its answer differs presence.
    """
    total = len(presence.databases) + len(presence.entry_database)
    chunks: list[Chunk] = []
    with ExitStack() as stack:
        keep = None
        if checkpoint is not None:
            drawn = None if query.draws is None else (query.draws, SEEDING)
            mark = fingerprint(
                query.function, drawn, query.seed, presence.databases, presence.individuals, presence.starts,
                presence.entry_database,
            )  # fmt: skip
            keep = stack.enter_context(open_checkpoint(checkpoint, mark, of=_MARKED))
            chunks.extend(map(Chunk.from_bytes, keep.pieces.values()))
        calls = query.draws or 1
        advance = stack.enter_context(progress_bar(total * calls, "Calls without each individual", show=progress))
        advance(sum(len(chunk.values) for chunk in chunks) * calls)
        workers = _Workers(jobs)
        names = next((chunk.names for chunk in chunks if chunk.names is not None), None)
        while tasks := _next_tasks(presence, chunks, workers.count):
            if tasks[0].first > 0:
                _refuse_if_all_failed(chunks)
            with closing(workers.run(query, fetch, tasks)) as fresh:
                for chunk in fresh:
                    names = chunk.names if names is None else names
                    # Checked here as well as in `assemble_calls`, so as not to fail after hours of work.
                    places(chunk.names, names or SCALAR, database=chunk.database)
                    if keep is not None:
                        keep.put(chunk.to_bytes())
                    chunks.append(chunk)
                    advance(len(chunk.values) * calls)
    return assemble_calls(chunks, presence, query.draws)


def _next_tasks(presence: Presence, chunks: list[Chunk], workers: int) -> list[ChunkTask]:
    """What remains to do: first everyone on each database, which shows how long calls take; then the rest."""
    n_databases = len(presence.databases)
    left = _unfinished(presence, chunks)
    # On the first database with anybody in it, a function not declared randomised must give the same answer twice.
    first = int(np.argmax(np.diff(presence.firsts) > 0))
    everyone = [
        ChunkTask(j, 0, np.array([-1]), presence.members(j), math.inf, twice=j == first)
        for j in range(n_databases)
        if 0 in left[j][:1]
    ]
    if everyone:
        return everyone
    call_seconds = _seconds_of_an_item(chunks, n_databases)
    item_bytes = 9 * max(chunk.values[0].size for chunk in chunks)
    # Enough chunks to keep every worker busy to the end, long enough to pay for fetching the rows.
    fair = float(call_seconds @ [len(items) for items in left]) / (4 * workers)
    seconds = max(min(_CHUNK_SECONDS, fair), 0.1)
    tasks = []
    for j in range(n_databases):
        size = max(1, min(int(seconds / call_seconds[j]), _CHUNK_BYTES // item_bytes))
        members = presence.members(j)
        for stretch in _stretches(left[j], size):
            whom = members[stretch.start - 1 : stretch.stop - 1]
            tasks.append(ChunkTask(j, stretch.start, whom, None, 2 * seconds))
    return tasks


def _unfinished(presence: Presence, chunks: list[Chunk]) -> list[npt.NDArray[np.int64]]:
    finished = [np.zeros(presence.n_items(j), np.bool_) for j in range(len(presence.databases))]
    for chunk in chunks:
        finished[chunk.database][chunk.first : chunk.stop] = True
    return [np.flatnonzero(~flags) for flags in finished]


def _stretches(items: npt.NDArray[np.int64], size: int) -> Iterator[range]:
    """Runs of consecutive items, at most ``size`` long."""
    breaks = np.flatnonzero(np.diff(items) != 1) + 1
    for run in np.split(items, breaks):
        for at in range(0, len(run), size):
            part = run[at : at + size]
            yield range(int(part[0]), int(part[-1]) + 1)


def _seconds_of_an_item(chunks: list[Chunk], n_databases: int) -> npt.NDArray[np.float64]:
    """On each database, where every one has been called with everyone."""
    items, calls = np.zeros(n_databases), np.zeros(n_databases)
    for chunk in chunks:
        items[chunk.database] += len(chunk.values)
        calls[chunk.database] += chunk.call_seconds
    return np.maximum(calls, 1e-7) / items


class _Workers:
    """Runs the chunks: in this process while the work is short, then with joblib's workers."""

    def __init__(self, jobs: int | None) -> None:
        from joblib import effective_n_jobs

        self._jobs = -1 if jobs is None else jobs_or_none(jobs)
        self._local_until = -math.inf if jobs is not None else time.monotonic() + _LOCAL_SECONDS
        self.count = max(1, int(effective_n_jobs(self._jobs)))

    def run(self, query: FunctionQuery, fetch: Fetch, tasks: list[ChunkTask]) -> Generator[Chunk, None, None]:
        """Chunks as they are finished, in any order."""
        # Starting processes takes about a second: not worth it for work that is done by then.
        at = 0
        while at < len(tasks) and time.monotonic() < self._local_until:
            yield run_task(query, fetch, tasks[at])
            at += 1
        try:
            yield from self._run_parallel(query, fetch, tasks[at:])
        except BrokenExecutor:
            broken = (
                "A worker process ended abruptly, perhaps because it ran out of memory. Hint: ask for fewer `jobs`."
            )
        except pickle.PicklingError:
            broken = "The query's function must be one that can be sent to other processes. Hint: `jobs=1`."
        else:
            return
        raise QueryError(broken)

    def _run_parallel(self, query: FunctionQuery, fetch: Fetch, tasks: list[ChunkTask]) -> Generator[Chunk, None, None]:
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=self._jobs, batch_size=1, return_as="generator_unordered")
        chunks = parallel(delayed(work_for)(os.getpid(), run_task, query, fetch, task) for task in tasks)
        try:
            for chunk in chunks:  # noqa: UP028 — `yield from` would close it outside of the filter below
                yield chunk
        finally:
            with warnings.catch_warnings():
                # joblib warns about unused work; a run that stops early expects that.
                warnings.simplefilter("ignore", UserWarning)
                chunks.close()


def _refuse_if_all_failed(chunks: list[Chunk]) -> None:
    whole = sorted((chunk for chunk in chunks if chunk.first == 0), key=lambda chunk: chunk.database)
    if all((chunk.outcomes[0] == Outcome.ERROR).all() for chunk in whole):
        raise QueryError(
            f"The query must work on at least one database with everyone, got an exception on each: "
            f"{whole[0].failure}, on database {whole[0].database}. "
            "Hint: its message is withheld, since it may hold row values; call the function yourself to see it. "
            "Rows are a dict of arrays: pandas.DataFrame(rows) makes a frame of them."
        )


def assemble_calls(chunks: list[Chunk], presence: Presence, draws: int | None) -> Results:
    """Results from chunks, wherever they were run."""
    _refuse_if_all_failed(chunks)
    chunks = sorted(chunks, key=lambda chunk: (chunk.database, chunk.first))
    # The first database with components sets their order, by its answer with everyone, whichever chunk finished first.
    names = next((chunk.names for chunk in chunks if chunk.names is not None), None) or SCALAR
    shape = (draws or 1, max(len(names), 1))
    q, entry_q = np.empty((len(presence.databases), *shape)), np.empty((len(presence.entries), *shape))
    outcomes, entry_outcomes = np.empty(q.shape, np.int8), np.empty(entry_q.shape, np.int8)
    for chunk in chunks:
        at = places(chunk.names, names, database=chunk.database)
        skip = 1 if chunk.first == 0 else 0
        if skip:
            q[chunk.database], outcomes[chunk.database] = chunk.values[0][:, at], chunk.outcomes[0][:, at]
        base = presence.firsts[chunk.database] - 1
        into = presence.entries[base + chunk.first + skip : base + chunk.stop]
        entry_q[into], entry_outcomes[into] = chunk.values[skip:, :, at], chunk.outcomes[skip:, :, at]
    index = (slice(None), 0 if draws is None else slice(None), 0 if names == SCALAR else slice(None))
    return Results(
        q=np.ascontiguousarray(q[index]),
        outcomes=np.ascontiguousarray(outcomes[index]),
        entry_q=np.ascontiguousarray(entry_q[index]),
        entry_outcomes=np.ascontiguousarray(entry_outcomes[index]),
        components=None if names == SCALAR else names,
        draws=draws,
        databases=presence.databases,
        individuals=presence.individuals,
        starts=presence.starts,
        entry_database=presence.entry_database,
    )


def fingerprint(function: Callable[..., Any], *facts: object) -> bytes:
    """Digest of a function and of facts (arrays, numbers, text): equal for the same run, whatever the process."""
    digest = hashlib.blake2b(digest_size=32)
    for part in (_identity(function, seen=set()), *map(_fact, facts)):
        digest.update(struct.pack("<Q", len(part)) + part)
    return digest.digest()


def _fact(fact: object) -> bytes:
    if isinstance(fact, np.ndarray):
        head = f"{fact.dtype.str} {fact.shape} ".encode()
        if fact.dtype == object:
            return head + repr([(type(item).__qualname__, repr(item)) for item in fact.tolist()]).encode()
        return head + np.ascontiguousarray(fact).tobytes()
    return repr(fact).encode()


def _identity(function: Any, *, seen: set[int]) -> bytes:
    """Name, bytecode and settings of a function, with those of the helpers of its own module that it calls."""
    if id(function) in seen:
        return b"again"
    seen.add(id(function))
    if isinstance(function, functools.partial):
        return b"partial" + _identity(function.func, seen=seen) + _plain([function.args, function.keywords], seen)
    if isinstance(function, MethodType):
        return _identity(function.__func__, seen=seen) + _plain(_attributes(function.__self__), seen)
    if isinstance(function, FunctionType):
        settings = [function.__defaults__, function.__kwdefaults__, _closed_over(function), _globals(function)]
        return function.__qualname__.encode() + _code(function.__code__) + _plain(settings, seen)
    kind = function if isinstance(function, type) else type(function)
    call = vars(kind).get("__call__")
    own = _identity(call, seen=seen) if isinstance(call, FunctionType) else b""
    name = getattr(function, "__qualname__", kind.__qualname__)
    return f"{kind.__module__}.{name}".encode() + own + _plain(_attributes(function), seen)


def _globals(function: FunctionType) -> dict[str, Any]:
    """Constants and helpers of its own module that a function uses.

    Lists and dicts are left out: as globals they are mostly caches, which change during a run. Modules, and
    objects of other packages, are identified by their names, which the bytecode holds.
    """
    used = {}
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        own = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if own or isinstance(value, (bool, int, float, complex, str, bytes, tuple)):
            used[name] = value
    return used


def _names(code: CodeType) -> set[str]:
    inner = (_names(item) for item in code.co_consts if isinstance(item, CodeType))
    return set(code.co_names).union(*inner)


def _attributes(item: object) -> dict[str, Any]:
    return {} if isinstance(item, type) else dict(getattr(item, "__dict__", {}))


def _closed_over(function: FunctionType) -> list[Any]:
    values = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # the cell is empty
            values.append(cell.cell_contents)
    return values


def _code(code: CodeType) -> bytes:
    constants = [_code(item) if isinstance(item, CodeType) else _plain(item, set()) for item in code.co_consts]
    return code.co_code + repr((code.co_names, code.co_varnames)).encode() + b",".join(constants)


def _plain(value: Any, seen: set[int]) -> bytes:
    """Text of a plain value, the same in every process; of any other value, only its type."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value).encode()
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(_plain(item, seen) for item in value) + b"]"
    if isinstance(value, (set, frozenset)):
        return b"{" + b",".join(sorted(_plain(item, seen) for item in value)) + b"}"
    if isinstance(value, dict):
        return _plain([(key, value[key]) for key in sorted(value, key=repr)], seen)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _fact(value)
    if isinstance(value, (FunctionType, MethodType, functools.partial)):
        return _identity(value, seen=seen)
    return type(value).__qualname__.encode()


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
    present = np.unique(results.entry_database)
    chosen = chance.permutation(present)[: MOST_DATABASES if calls >= 1000 else 1]
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
