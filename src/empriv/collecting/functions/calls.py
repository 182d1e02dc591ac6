"""Python queries: a function called on every database with everyone, and again without each individual.

The work is split into chunks, stretches of one database's individuals, which joblib runs in parallel and which a
`checkpoint` keeps. `sources` says where the rows come from, and `measure` what the results mean.
"""

from __future__ import annotations

import math
import os
import pickle
import time
import warnings
from collections.abc import Generator, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import jobs_or_none
from empriv.base.progress import progress as progress_bar
from empriv.base.scratch import work_for
from empriv.base.storage import open_checkpoint
from empriv.collecting.functions.chunks import SCALAR, SEEDING, Chunk, ChunkTask, Fetch, FunctionQuery, places, run_task
from empriv.collecting.functions.fingerprint import fingerprint
from empriv.errors import QueryError
from empriv.results import Outcome, Results

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
    there: Presence,
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
    there : who is in which database
    jobs : number of processes; None uses all cores
    checkpoint : a file that keeps finished work, so that a run interrupted in any way continues from there when called
        again with the same arguments. It is never deleted here: the caller does that once the results are safe. It
        records the function, seed, draws, databases and individuals, and refuses others; it does not record
        the values in the rows, so delete it when they change.
    progress : whether to show progress; None shows it if the work takes long

    Notes
    -----
    An exception raised by the function is an outcome, `Outcome.ERROR`, unless it is raised on every database. Without
    ``draws``, the function is called once more on one database, and refused if its answer differs there.
    """
    total = len(there.databases) + len(there.entry_database)
    chunks: list[Chunk] = []
    with ExitStack() as stack:
        keep = None
        if checkpoint is not None:
            drawn = None if query.draws is None else (query.draws, SEEDING)
            mark = fingerprint(
                query.function, drawn, query.seed, there.databases, there.individuals, there.starts,
                there.entry_database,
            )  # fmt: skip
            keep = stack.enter_context(open_checkpoint(checkpoint, mark, of=_MARKED))
            chunks.extend(map(Chunk.from_bytes, keep.pieces.values()))
        calls = query.draws or 1
        advance = stack.enter_context(progress_bar(total * calls, "Calls without each individual", show=progress))
        advance(sum(len(chunk.values) for chunk in chunks) * calls)
        crew = _Crew(jobs)
        names = next((chunk.names for chunk in chunks if chunk.names is not None), None)
        while tasks := _next_tasks(there, chunks, crew.workers):
            if tasks[0].first > 0:
                _refuse_if_all_failed(chunks)
            with closing(crew.run(query, fetch, tasks)) as fresh:
                for chunk in fresh:
                    names = chunk.names if names is None else names
                    # Checked here as well as in `assemble_calls`, so as not to fail after hours of work.
                    places(chunk.names, names or SCALAR, database=chunk.database)
                    if keep is not None:
                        keep.put(chunk.to_bytes())
                    chunks.append(chunk)
                    advance(len(chunk.values) * calls)
    return assemble_calls(chunks, there, query.draws)


def _next_tasks(there: Presence, chunks: list[Chunk], workers: int) -> list[ChunkTask]:
    """What remains to do: first everyone on each database, which shows how long calls take; then the rest."""
    n_databases = len(there.databases)
    left = _unfinished(there, chunks)
    # On the first database with anybody in it, a function not declared randomised must give the same answer twice.
    first = int(np.argmax(np.diff(there.firsts) > 0))
    everyone = [
        ChunkTask(j, 0, np.array([-1]), there.members(j), math.inf, twice=j == first)
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
        members = there.members(j)
        for stretch in _stretches(left[j], size):
            whom = members[stretch.start - 1 : stretch.stop - 1]
            tasks.append(ChunkTask(j, stretch.start, whom, None, 2 * seconds))
    return tasks


def _unfinished(there: Presence, chunks: list[Chunk]) -> list[npt.NDArray[np.int64]]:
    finished = [np.zeros(there.n_items(j), np.bool_) for j in range(len(there.databases))]
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


class _Crew:
    """Runs the chunks: in this process while the work is short, then with joblib's workers."""

    def __init__(self, jobs: int | None) -> None:
        from joblib import effective_n_jobs

        self._jobs = -1 if jobs is None else jobs_or_none(jobs)
        self._local_until = -math.inf if jobs is not None else time.monotonic() + _LOCAL_SECONDS
        self.workers = max(1, int(effective_n_jobs(self._jobs)))

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


def assemble_calls(chunks: list[Chunk], there: Presence, draws: int | None) -> Results:
    """Results from chunks, wherever they were run."""
    _refuse_if_all_failed(chunks)
    chunks = sorted(chunks, key=lambda chunk: (chunk.database, chunk.first))
    # The first database with components sets their order, by its answer with everyone, whichever chunk finished first.
    names = next((chunk.names for chunk in chunks if chunk.names is not None), None) or SCALAR
    shape = (draws or 1, max(len(names), 1))
    q, entry_q = np.empty((len(there.databases), *shape)), np.empty((len(there.entries), *shape))
    outcomes, entry_outcomes = np.empty(q.shape, np.int8), np.empty(entry_q.shape, np.int8)
    for chunk in chunks:
        at = places(chunk.names, names, database=chunk.database)
        skip = 1 if chunk.first == 0 else 0
        if skip:
            q[chunk.database], outcomes[chunk.database] = chunk.values[0][:, at], chunk.outcomes[0][:, at]
        base = there.firsts[chunk.database] - 1
        into = there.entries[base + chunk.first + skip : base + chunk.stop]
        entry_q[into], entry_outcomes[into] = chunk.values[skip:, :, at], chunk.outcomes[skip:, :, at]
    index = (slice(None), 0 if draws is None else slice(None), 0 if names == SCALAR else slice(None))
    return Results(
        q=np.ascontiguousarray(q[index]),
        outcomes=np.ascontiguousarray(outcomes[index]),
        entry_q=np.ascontiguousarray(entry_q[index]),
        entry_outcomes=np.ascontiguousarray(entry_outcomes[index]),
        components=None if names == SCALAR else names,
        draws=draws,
        databases=there.databases,
        individuals=there.individuals,
        starts=there.starts,
        entry_database=there.entry_database,
    )
