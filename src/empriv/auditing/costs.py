"""What an audit will take, before it starts: rows, entries, memory and seconds, from a small sample of the individuals.

An entry is a database that an individual is in. Entries are counted on a sample, and seconds follow from them and from
how quick the machine is just now. They are meant to be right within a factor of 3.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from empriv.base.free_memory import free_memory
from empriv.base.progress import duration
from empriv.collecting.engines.engine import Engine
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_options import Run
from empriv.collecting.sources import Databases
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.decomposing import decompose
from empriv.collecting.sql.reruns import expected_seconds
from empriv.collecting.sql.statement import admit
from empriv.collecting.sql.streaming import stream

SAMPLE_ROWS = 200_000
COLLECTING, JUDGING = "Collecting", "Judging"
# Seconds of a usual processor, which sorts 200,000 doubles so many times in `_SECONDS`; and bytes.
_SORTS, _SECONDS = 10, 0.1
_SESSION, _PER_ROW, _PER_ENTRY = 0.1, 1.5e-7, 3.2e-7
_JUDGING, _PER_PERSON = 2.5, 3e-4
_TABLE, _PER_NUMBER = 3.0, 0.3  # several numbers, times one: at least, and for each of them
_BYTES, _BYTES_PER_ENTRY = 350 * 2**20, 150
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
            "There is too little memory for that. Hint: `empriv scan` takes the same options, and measures some "
            "individuals at a time; for tables of many machines there is Spark (docs/scale.md)."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "empriv estimate", "version": 1, "rows": self.rows, "databases": self.databases,
            "individuals": self.individuals, "entries": self.entries, "numbers": self.numbers,
            "memory": self.memory, "free": self.free, "seconds": dict(self.seconds), "fits": self.fits,
        }  # fmt: skip


def estimate(data: Databases, queries: Sequence[str], run: Run) -> Expected:
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
    return Expected(
        rows=streamed.rows, databases=streamed.everyone.n_databases, individuals=streamed.people, entries=entries,
        numbers=numbers, memory=_BYTES + _BYTES_PER_ENTRY * entries * numbers, free=free_memory(),
        seconds={COLLECTING: speed * collecting + reruns, JUDGING: speed * judging(streamed.people, numbers)},
        one_by_one=len(one_by_one),
    )  # fmt: skip


def judging(people: int, numbers: int = 1) -> float:
    """Seconds of one usual processor for figures, bounds and checks."""
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
