"""Python queries: a function called on every database with everyone, and again without each individual.

The work is split into chunks, stretches of one database's individuals, which joblib runs in parallel and which a
`checkpoint` keeps. `sources` says where the rows come from, and `measure` what the results mean.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import pickle
import struct
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from os import PathLike
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import draws_or_none, jobs_or_none, whole_number
from empriv.base.progress import progress as progress_bar
from empriv.base.scratch import work_for
from empriv.base.storage import open_checkpoint
from empriv.collecting.functions.chunks import SCALAR, SEEDING, Chunk, ChunkTask, Fetch, FunctionQuery, places, run_task
from empriv.collecting.functions.frames import FRAME_KINDS, FrameKind, frame_package
from empriv.errors import InputError, QueryError
from empriv.results import Outcome, Results


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


_CHUNK_SECONDS = 1.0
_LOCAL_SECONDS = 1.0
_CHUNK_BYTES = 2**26
_MARKED = "function, seed, draws, way of drawing, frame, databases or individuals"


@dataclass(frozen=True, eq=False)
class _Plan:
    """Who is in which database, by database; `Results` has it by individual."""

    starts: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int64]
    individuals: npt.NDArray[np.int64]

    def members(self, database: int) -> npt.NDArray[np.int64]:
        return self.individuals[self.starts[database] : self.starts[database + 1]]

    def n_items(self, database: int) -> int:
        return 1 + int(self.starts[database + 1] - self.starts[database])


def collect_calls(
    function: Callable[..., Any],
    *,
    fetch: Fetch,
    databases: npt.NDArray[Any],
    individuals: npt.NDArray[Any],
    starts: npt.NDArray[np.int64],
    entry_database: npt.NDArray[np.int32],
    frame: FrameKind = "dict",
    draws: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> Results:
    """Results of a Python function on each database, with everyone and without each individual.

    Parameters
    ----------
    function : callable
        ``function(rows)`` returns a number, a sequence of numbers, a mapping of names to numbers, or None. With
        ``draws`` it is called as ``function(rows, rng)``. The rows are its own: it may change them.
    fetch : callable
        ``fetch(j)`` returns the columns of database ``j`` and, for each row, the index of its individual, -1 for
        nobody. It is pickled with every chunk: it should hold where the data is, or NumPy arrays (which joblib
        shares between processes), rather than large objects.
    databases, individuals, starts, entry_database : who is in which database, as in `Results`
    frame : what the rows are: a "dict" of arrays, or a "pandas", "polars" or "arrow" frame
    draws : number of calls for each result of a randomised function, each with the generator of (seed, database, draw):
        so chance is the same with everyone and without each individual, and no result depends on the order of the work
    seed : a whole number
    jobs : number of processes; None uses all cores, or what an outer ``joblib.parallel_config`` says
    checkpoint : a file that keeps finished work, so that a run interrupted in any way continues from there when called
        again with the same arguments. It is never deleted here: the caller does that once the results are safe. It
        records the function, seed, draws, frame, databases and individuals, and refuses others; it does not record
        the values in the rows, so delete it when they change.
    progress : whether to show progress; None shows it if the work takes long

    Notes
    -----
    An exception raised by the function is an outcome, `Outcome.ERROR`, unless it is raised on every database. Without
    ``draws``, the function is called once more on one database, and refused if its answer differs there.
    """
    query = FunctionQuery(
        function, fetch, _checked_frame(frame), draws_or_none(draws), whole_number("seed", seed, least=0)
    )
    if not callable(function):
        raise InputError(f"`function` must be callable, got a value of type {type(function).__name__}.")
    databases, individuals = np.asarray(databases), np.asarray(individuals)
    starts, entry_database = np.asarray(starts, np.int64), np.asarray(entry_database, np.int32)
    plan = _invert(starts, entry_database, len(databases), len(individuals))
    total = len(databases) + len(entry_database)
    chunks: list[Chunk] = []
    with ExitStack() as stack:
        keep = None
        if checkpoint is not None:
            drawn = None if query.draws is None else (query.draws, SEEDING)
            mark = fingerprint(function, query.frame, drawn, query.seed, databases, individuals, starts, entry_database)
            keep = stack.enter_context(open_checkpoint(checkpoint, mark, of=_MARKED))
            chunks.extend(map(Chunk.from_bytes, keep.pieces.values()))
        calls = query.draws or 1
        advance = stack.enter_context(progress_bar(total * calls, "Calls without each individual", show=progress))
        advance(sum(len(chunk.values) for chunk in chunks) * calls)
        crew = _Crew(jobs)
        names = next((chunk.names for chunk in chunks if chunk.names is not None), None)
        while tasks := _next_tasks(plan, chunks, crew.workers):
            if tasks[0].first > 0:
                _refuse_if_all_failed(chunks)
            with closing(crew.run(query, tasks)) as fresh:
                for chunk in fresh:
                    names = chunk.names if names is None else names
                    # Checked here as well as in `_assemble`, so as not to fail after hours of work.
                    places(chunk.names, names or SCALAR, database=chunk.database)
                    if keep is not None:
                        keep.put(chunk.to_bytes())
                    chunks.append(chunk)
                    advance(len(chunk.values) * calls)
    _refuse_if_all_failed(chunks)
    return _assemble(
        chunks,
        plan,
        draws=query.draws,
        databases=databases,
        individuals=individuals,
        starts=starts,
        entry_database=entry_database,
    )


def query_for(function: Callable[..., Any], *, frame: FrameKind, draws: int | None, seed: int) -> FunctionQuery:
    """What an engine that calls functions itself needs to know; it brings its own way to fetch rows."""
    return FunctionQuery(
        function, _no_fetch, _checked_frame(frame), draws_or_none(draws), whole_number("seed", seed, least=0)
    )


def _no_fetch(database: int) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[Any]]:
    raise QueryError(f"The rows of database {database} are not here.")


def assemble_calls(
    chunks: list[Chunk],
    *,
    draws: int | None,
    databases: npt.NDArray[Any],
    individuals: npt.NDArray[Any],
    starts: npt.NDArray[np.int64],
    entry_database: npt.NDArray[np.int32],
) -> Results:
    """Results from the chunks of whole databases, wherever they were run."""
    plan = _invert(starts, entry_database, len(databases), len(individuals))
    _refuse_if_all_failed(chunks)
    return _assemble(
        chunks, plan, draws=draws, databases=databases, individuals=individuals, starts=starts,
        entry_database=entry_database,
    )  # fmt: skip


def _checked_frame(frame: str) -> FrameKind:
    if frame not in FRAME_KINDS:
        raise InputError(f"`frame` must be one of {', '.join(map(repr, FRAME_KINDS))}, got {frame!r}.")
    kind: FrameKind = frame  # type: ignore[assignment]
    if kind != "dict":
        frame_package(kind)
    return kind


def _invert(
    starts: npt.NDArray[np.int64], entry_database: npt.NDArray[np.int32], n_databases: int, n_individuals: int
) -> _Plan:
    entries = len(entry_database)
    if len(starts) != n_individuals + 1 or starts[0] != 0 or starts[-1] != entries or np.any(np.diff(starts) < 0):
        raise InputError("`starts` must rise from 0 to the number of entries, with one more value than individuals.")
    if entries and not (0 <= entry_database.min() and entry_database.max() < n_databases):
        raise InputError(f"`entry_database` must hold indices from 0 to {n_databases - 1}.")
    owner = np.repeat(np.arange(n_individuals, dtype=np.int64), np.diff(starts))
    if np.any((np.diff(entry_database) <= 0) & (np.diff(owner) == 0)):
        raise InputError("`entry_database` must increase within each individual.")
    order = np.argsort(entry_database, kind="stable")
    firsts = np.searchsorted(entry_database[order], np.arange(n_databases + 1))
    return _Plan(starts=firsts.astype(np.int64), entries=order.astype(np.int64), individuals=owner[order])


def _next_tasks(plan: _Plan, chunks: list[Chunk], workers: int) -> list[ChunkTask]:
    """What remains to do: first everyone on each database, which shows how long calls take; then the rest."""
    n_databases = len(plan.starts) - 1
    left = _unfinished(plan, chunks)
    # On the first database with anybody in it, a function not declared randomised must give the same answer twice.
    first = int(np.argmax(np.diff(plan.starts) > 0))
    everyone = [
        ChunkTask(j, 0, np.array([-1]), plan.members(j), math.inf, twice=j == first)
        for j in range(n_databases)
        if 0 in left[j][:1]
    ]
    if everyone:
        return everyone
    call_seconds, fetch_seconds, item_bytes = _costs(chunks, n_databases)
    lengths = [len(items) for items in left]
    # Enough chunks to keep every worker busy to the end, long enough to pay for fetching the rows.
    fair = float(call_seconds @ lengths) / (4 * workers)
    tasks = []
    for j in range(n_databases):
        seconds = max(min(_CHUNK_SECONDS, fair), 5 * fetch_seconds[j], 0.05)
        size = max(1, min(int(seconds / call_seconds[j]), _CHUNK_BYTES // item_bytes))
        members = plan.members(j)
        for stretch in _stretches(left[j], size):
            whom = members[stretch.start - 1 : stretch.stop - 1]
            tasks.append(ChunkTask(j, stretch.start, whom, None, 2 * seconds))
    return tasks


def _unfinished(plan: _Plan, chunks: list[Chunk]) -> list[npt.NDArray[np.int64]]:
    finished = [np.zeros(plan.n_items(j), np.bool_) for j in range(len(plan.starts) - 1)]
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


def _costs(chunks: list[Chunk], n_databases: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Seconds for an item and for fetching, on each database; bytes of an item."""
    items, calls, fetches, fetched = (np.zeros(n_databases) for _ in range(4))
    for chunk in chunks:
        items[chunk.database] += len(chunk.values)
        calls[chunk.database] += chunk.call_seconds
        fetches[chunk.database] += 1
        fetched[chunk.database] += chunk.fetch_seconds
    widest = max((chunk.values[0].size for chunk in chunks), default=1)
    # A database without calls so far is assumed to be like the others.
    mean = max(float(calls.sum()), 1e-7) / max(float(items.sum()), 1.0)
    per_item = np.where(items > 0, np.maximum(calls, 1e-7) / np.maximum(items, 1), mean)
    return per_item, fetched / np.maximum(fetches, 1), 9 * widest


class _Crew:
    """Runs the chunks: in this process while the work is short, then with joblib's workers."""

    def __init__(self, jobs: int | None) -> None:
        from joblib import effective_n_jobs
        from joblib.parallel import get_active_backend

        jobs = jobs_or_none(jobs)
        backend, outer_jobs = get_active_backend()
        # A backend that somebody configured is the same object each time; the default is made anew each time.
        configured = outer_jobs is not None or get_active_backend()[0] is backend
        self._jobs = jobs if jobs is not None else (-1 if outer_jobs is None else outer_jobs)
        self._local_until = -math.inf if configured or jobs is not None else time.monotonic() + _LOCAL_SECONDS
        self.workers = max(1, int(effective_n_jobs(self._jobs)))

    def run(self, query: FunctionQuery, tasks: list[ChunkTask]) -> Generator[Chunk, None, None]:
        """Chunks as they are finished, in any order."""
        # Starting processes takes about a second: not worth it for work that is done by then.
        at = 0
        while at < len(tasks) and time.monotonic() < self._local_until:
            yield run_task(query, tasks[at])
            at += 1
        try:
            yield from self._run_parallel(query, tasks[at:])
        except BrokenExecutor:
            broken = (
                "A worker process ended abruptly, perhaps because it ran out of memory. Hint: ask for fewer `jobs`."
            )
        except pickle.PicklingError:
            broken = "The query's function must be one that can be sent to other processes. Hint: `jobs=1`."
        else:
            return
        raise QueryError(broken)

    def _run_parallel(self, query: FunctionQuery, tasks: list[ChunkTask]) -> Generator[Chunk, None, None]:
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=self._jobs, batch_size=1, return_as="generator_unordered")
        chunks = parallel(delayed(work_for)(os.getpid(), run_task, query, task) for task in tasks)
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
            'Rows are a dict of arrays, unless `frame` is "pandas", "polars" or "arrow".'
        )


def _assemble(chunks: list[Chunk], plan: _Plan, *, draws: int | None, **presence: Any) -> Results:
    chunks = sorted(chunks, key=lambda chunk: (chunk.database, chunk.first))
    # The first database with components sets their order, by its answer with everyone, whichever chunk finished first.
    names = next((chunk.names for chunk in chunks if chunk.names is not None), None) or SCALAR
    shape = (draws or 1, max(len(names), 1))
    n_databases = len(plan.starts) - 1
    q, entry_q = np.empty((n_databases, *shape)), np.empty((len(plan.entries), *shape))
    outcomes, entry_outcomes = np.empty(q.shape, np.int8), np.empty(entry_q.shape, np.int8)
    for chunk in chunks:
        at = places(chunk.names, names, database=chunk.database)
        skip = 1 if chunk.first == 0 else 0
        if skip:
            q[chunk.database], outcomes[chunk.database] = chunk.values[0][:, at], chunk.outcomes[0][:, at]
        base = plan.starts[chunk.database] - 1
        into = plan.entries[base + chunk.first + skip : base + chunk.stop]
        entry_q[into], entry_outcomes[into] = chunk.values[skip:, :, at], chunk.outcomes[skip:, :, at]
    index = (slice(None), 0 if draws is None else slice(None), 0 if names == SCALAR else slice(None))
    return Results(
        q=np.ascontiguousarray(q[index]),
        outcomes=np.ascontiguousarray(outcomes[index]),
        entry_q=np.ascontiguousarray(entry_q[index]),
        entry_outcomes=np.ascontiguousarray(entry_outcomes[index]),
        components=None if names == SCALAR else names,
        draws=draws,
        **presence,
    )
