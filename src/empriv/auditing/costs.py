"""What an audit will take, before it starts: rows, entries, memory and seconds, from a small sample of the individuals.

An entry is a database that an individual is in. Entries are counted on a sample, and seconds follow from them and from
how quick the machine is just now. They are meant to be right within a factor of 3.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from empriv.base.free_memory import free_memory
from empriv.base.progress import duration, progress
from empriv.collecting.engines.engine import Engine
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_options import Run
from empriv.collecting.sources import Databases, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.decomposing import decompose
from empriv.collecting.sql.reruns import expected_seconds, to_stderr
from empriv.collecting.sql.statement import admit
from empriv.collecting.sql.streaming import stream
from empriv.errors import InputError

SAMPLE_ROWS = 200_000
COLLECTING, JUDGING = "Collecting", "Judging"
# Seconds of a usual processor, which sorts 200,000 doubles so many times in `_SECONDS`; and bytes.
_SORTS, _SECONDS = 10, 0.1
_SESSION, _PER_ROW, _PER_ENTRY = 0.1, 1.5e-7, 3.2e-7
_JUDGING, _PER_PERSON = 2.5, 3e-4
_PLANE, _PLANE_PER_PERSON = 10.0, 0.016  # two numbers that are integrated over the plane
_TABLE, _PER_NUMBER = 1.5, 0.45  # more of them, times one: at least, and for each
_BYTES, _BYTES_PER_ENTRY = 350 * 2**20, 150
LARGE = 100 * 2**20  # bytes of rows: results of less fit into any memory
_BYTES_PER_ROW = 100  # of a table in memory, where every one of a million rows may be a result
_TOO_MUCH = 3.0  # times the free memory, since the estimate may be off by as much


@dataclass(frozen=True)
class Expected:
    """What an audit will take.

    Attributes
    ----------
    rows, databases, individuals, entries : of the data; entries are databases that individuals are in
    numbers : how many numbers the queries give
    memory : bytes at most
    free : bytes that are free, or None where the system does not tell
    seconds : by stage
    slowness : how much longer the machine takes just now than a usual processor
    one_by_one : queries that are run once per individual, since they cannot be rewritten
    """

    rows: int
    databases: int
    individuals: int
    entries: int
    numbers: int
    memory: int
    free: int | None
    seconds: Mapping[str, float]
    slowness: float = 1.0
    one_by_one: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is as much memory, as far as anybody knows."""
        return self.free is None or self.memory <= self.free

    @property
    def hopeless(self) -> bool:
        """Whether the memory is too little even if the estimate is too large."""
        return self.free is not None and self.memory > _TOO_MUCH * self.free

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in words."""
        numbers = "" if self.numbers == 1 else f", {self.numbers:,} numbers each"
        free = "how much is free is not known" if self.free is None else f"{_size(self.free)} are free"
        stages = ", ".join(f"{stage.lower()} {duration(seconds)}" for stage, seconds in self.seconds.items())
        return (
            f"{self.rows:,} rows of {self.individuals:,} individuals in {self.databases:,} databases: about "
            f"{_rounded(self.entries)} results without an individual{numbers}.",
            f"An audit takes about {_size(self.memory)} of memory ({free}) and {duration(sum(self.seconds.values()))} "
            f"({stages}), give or take a factor of 3.",
            *(["The query cannot be rewritten, and is run once per individual."] if self.one_by_one else []),
            *([] if self.fits else [self.advice]),
        )

    @property
    def advice(self) -> str:
        """What to do where the memory is too little."""
        return (
            "There is too little memory for that. Hint: `empriv scan` (`empriv.scan` in Python) takes the same "
            "options, and measures some individuals at a time; for tables of many machines there is Spark "
            "(docs/scale.md)."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "empriv estimate", "version": 1, "rows": self.rows, "databases": self.databases,
            "individuals": self.individuals, "entries": self.entries, "numbers": self.numbers,
            "memory": self.memory, "free": self.free, "seconds": dict(self.seconds), "slowness": self.slowness,
            "fits": self.fits,
        }  # fmt: skip


def check_memory(data: Databases, queries: Sequence[Query], run: Run) -> None:
    """Refuse an audit of many rows for which the memory will not do, and warn where it may not.

    Few rows fit into any memory, and are not looked at; nor are rows that can be read once only, or are elsewhere.
    """
    sizes = [_size_of(table) for table in (*data.parts, *data.tables.values())]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or sum(known) < LARGE or any(query.function is not None for query in queries):
        return
    with progress(1, "Looking at the data", show=run.progress) as advance:
        expected = estimate(data, queries, run)
        advance()
    if expected.hopeless:
        raise InputError(f"{expected.sentences[1]} {expected.advice}")
    if not expected.fits:
        (run.notice or to_stderr)(f"{expected.sentences[1]} {expected.advice}")


def _size_of(table: Table) -> int | None:
    """Bytes of rows that lie here, as far as they are known without reading them; None if they must not be read."""
    match table:
        case Files(paths):
            found = (file for path in paths for file in glob.glob(path, recursive=True))  # noqa: PTH207 — any pattern
            return sum(Path(file).stat().st_size for file in found if Path(file).is_file())
        case Stored(path):
            return Path(path).stat().st_size if Path(path).is_file() else 0
        case Frame(frame, None) if type(frame).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
            return _BYTES_PER_ROW * len(frame) if hasattr(frame, "__len__") else None
        case Select():
            return 0  # its rows are those of the tables beside it
    return None


def estimate(data: Databases, queries: Sequence[str | Query], run: Run) -> Expected:
    """What an audit of SQL queries on these databases will take; reads the rows, and groups those of few people."""
    questions = [query_of(text) for text in queries]
    engine, _ = run.on(data)
    with (
        stream(engine, data, query_of("count(*)"), entries=SAMPLE_ROWS, rows=SAMPLE_ROWS) as streamed,
        closing(streamed.stretches(streamed.n_stretches // 2)) as stretches,
    ):
        part = next(stretches, streamed.everyone)
    each = len(part.entry_database) / max(part.n_individuals, 1)
    entries = round(each * streamed.people)
    plans = [_numbers(engine, data, question) for question in questions]
    one_by_one = [question for question, plan in zip(questions, plans, strict=True) if plan is None]
    reruns = sum(_timed_runs(engine, data, question) for question in one_by_one)
    numbers = sum(plan or 1 for plan in plans)
    collecting = len(questions) * (_SESSION + _PER_ROW * streamed.rows + _PER_ENTRY * entries)
    speed = slowness()
    judged = judging(streamed.people, numbers, counts=any(question.counts for question in questions))
    return Expected(
        rows=streamed.rows, databases=streamed.everyone.n_databases, individuals=streamed.people, entries=entries,
        numbers=numbers, memory=_BYTES + _BYTES_PER_ENTRY * entries * numbers, free=free_memory(),
        seconds={COLLECTING: speed * collecting + reruns, JUDGING: speed * judged},
        slowness=speed, one_by_one=len(one_by_one),
    )  # fmt: skip


def judging(people: int, numbers: int = 1, *, counts: bool = False) -> float:
    """Seconds of one usual processor for figures, bounds and checks; ``counts`` says that one number is a count.

    Two numbers are integrated over the plane, unless one moves by whole numbers, which tells more than the rest.
    """
    if numbers == 2 and not counts:
        return _PLANE + _PLANE_PER_PERSON * people
    return (_JUDGING + _PER_PERSON * people) * (1.0 if numbers == 1 else _TABLE + _PER_NUMBER * numbers)


def slowness() -> float:
    """How much longer the machine takes just now than a usual processor: other work counts."""
    values = np.random.default_rng(0).random(200_000)
    began = time.perf_counter()
    for _ in range(_SORTS):
        np.sort(values)
    return (time.perf_counter() - began) / _SECONDS


def _numbers(engine: Engine, data: Databases, query: Query) -> int | None:
    """How many numbers a query gives, or None if it is run once per individual."""
    try:
        decompose(query, data.individual)
        if not query.groups:
            return len(query.items)
        with stream(engine, data, query) as streamed:
            return len(streamed.everyone.components or ("",))
    except NotDecomposable:
        return None


def _timed_runs(engine: Engine, data: Databases, query: Query) -> float:
    """Seconds of a query that is run once per individual, by a few of its runs."""
    with engine.session(data) as session:
        admit(session, query)
        database, individual = session.presence()
        return expected_seconds(session, query, database, individual)


def _rounded(count: int) -> str:
    """A count to two digits."""
    digits = max(0, len(str(count)) - 2)
    return f"{round(count, -digits):,}"


def _size(amount: float) -> str:
    """Bytes in words."""
    return f"{amount / 2**30:.1f} GB" if amount >= 2**30 else f"{amount / 2**20:.0f} MB"
