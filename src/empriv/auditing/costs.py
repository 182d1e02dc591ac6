"""What an audit will take, before it starts: rows, entries and memory.

An entry is a database that an individual is in. How long it takes is not said: no
estimate was right often enough.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from empriv.base.machine import free_memory
from empriv.base.progress import progress
from empriv.collecting.engines.engine import Engine
from empriv.collecting.profile import count
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_query import Run
from empriv.collecting.sources import Databases, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.decompose import decompose
from empriv.collecting.sql.execute import admit
from empriv.collecting.sql.groups import components_of
from empriv.collecting.sql.rerun import to_stderr
from empriv.errors import InputError

_BYTES, _BYTES_PER_ENTRY = 350 * 2**20, 150
LARGE = 100 * 2**20  # bytes of rows: results of less fit into any memory
_BYTES_PER_ROW = 100  # of a table in memory, where every one of a million rows may be a result
_TOO_MUCH = 3.0  # times the free memory, since the estimate may be off by as much
_TOO_LITTLE = (
    "There is too little memory for that. Hint: a query of one number, or one component of several, can be measured in "
    "chunks of people (docs/scale.md), in_chunks=True; for tables of many machines there is Spark."
)
_IN_CHUNKS = (
    "There is too little memory for that, so people are measured in chunks: the most exposed are kept, and the others "
    "totalled (docs/scale.md)."
)


@dataclass(frozen=True)
class Expected:
    """What an audit will take.

    Attributes
    ----------
    rows, databases, individuals, entries : of the data; entries are databases that individuals are in
    numbers : how many numbers the queries give
    memory : bytes at most
    free : bytes that are free, or None where the system does not tell
    one_by_one : queries that are run once per individual, since they cannot be rewritten
    """

    rows: int
    databases: int
    individuals: int
    entries: int
    numbers: int
    memory: int
    free: int | None
    one_by_one: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is as much memory, as far as anybody knows."""
        return self.free is None or self.memory <= self.free

    @property
    def of_results(self) -> int:
        """Bytes of the results alone, without what the program takes."""
        return self.memory - _BYTES

    @property
    def hopeless(self) -> bool:
        """Whether the memory is too little even if the estimate is too large."""
        return self.free is not None and self.memory > _TOO_MUCH * self.free

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in words."""
        numbers = "" if self.numbers == 1 else f", {self.numbers:,} numbers each"
        free = "how much is free is not known" if self.free is None else f"{_size(self.free)} are free"
        return (
            f"{self.rows:,} rows of {self.individuals:,} individuals in {self.databases:,} databases: about "
            f"{_rounded(self.entries)} results without an individual{numbers}.",
            f"An audit takes about {_size(self.memory)} of memory ({free}), give or take a factor of 3.",
            *(["The query cannot be rewritten, and is run once per individual."] if self.one_by_one else []),
            *([] if self.fits else [_TOO_LITTLE if self.numbers > 1 or self.one_by_one else _IN_CHUNKS]),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "empriv estimate", "version": 1, "rows": self.rows, "databases": self.databases,
            "individuals": self.individuals, "entries": self.entries, "numbers": self.numbers,
            "memory": self.memory, "free": self.free, "fits": self.fits,
        }  # fmt: skip


def memory_of(entries: int) -> int:
    """Bytes that an audit of so many results takes."""
    return _BYTES + _BYTES_PER_ENTRY * entries


def expected_of(data: Databases, queries: Sequence[Query], run: Run, limit: int | None) -> Expected | None:
    """What an audit will take; None where it is not worth to be looked at, or cannot be.

    Few rows fit into any memory, and within any ``limit`` on it in bytes. Rows that can be read once only, or are
    elsewhere, are not looked at.
    """
    sizes = [_size_of(table) for table in (*data.parts, *data.tables.values())]
    known = [size for size in sizes if size is not None]
    # a row takes no less than a byte, and gives no more than one result
    worth = sum(known) >= LARGE or (limit is not None and _BYTES_PER_ENTRY * sum(known) > limit)
    if len(known) < len(sizes) or not worth or any(query.function is not None for query in queries):
        return None
    with progress(1, "Looking at the data", show=run.progress) as advance:
        expected = estimate(data, queries, run)
        advance()
    return expected


def check_memory(expected: Expected, run: Run) -> None:
    """Refuse an audit for which the memory will not do, and warn where it may not."""
    if expected.hopeless:
        raise InputError(f"{expected.sentences[1]} {_TOO_LITTLE}")
    if not expected.fits:
        (run.notice or to_stderr)(f"{expected.sentences[1]} {_TOO_LITTLE}")


def limit_of(engine: Engine) -> int | None:
    """Bytes of the engine's memory limit; None if it has none, or one that is no number of bytes."""
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)(i?)b?", str(getattr(engine, "memory_limit", "")).strip().lower())
    if found is None:
        return None
    try:
        return int(float(found[1]) * (1024 if found[3] else 1000) ** " kmgt".index(found[2] or " "))
    except ValueError:
        return None


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
    """What an audit of SQL queries on these databases will take; reads the rows."""
    questions = [query_of(text) for text in queries]
    engine, _ = run.on(data)
    counted = count(engine, data)
    entries = counted.pairs
    if data.draws is not None and data.draws.of_individuals:  # on average
        entries = round(data.draws.fraction * counted.databases * counted.individuals)
    plans = [_numbers(engine, data, question) for question in questions]
    numbers = sum(plan or 1 for plan in plans)
    return Expected(
        rows=counted.rows, databases=counted.databases, individuals=counted.individuals, entries=entries,
        numbers=numbers, memory=memory_of(entries * numbers), free=free_memory(),
        one_by_one=plans.count(None),
    )  # fmt: skip


def _numbers(engine: Engine, data: Databases, query: Query) -> int | None:
    """How many numbers a query gives, or None if it is run once per individual."""
    try:
        plan = decompose(query, data.individual)
        if not query.groups or plan.chooses_groups:  # which groups there are shows when it is run
            return len(query.items)
        with engine.session(data) as session:
            admit(session, query)
            return len(components_of(session, query) or ("",))
    except NotDecomposable:
        return None


def _rounded(count: int) -> str:
    """A count to two digits."""
    digits = max(0, len(str(count)) - 2)
    return f"{round(count, -digits):,}"


def _size(amount: float) -> str:
    """Bytes in words."""
    return f"{amount / 2**30:.1f} GB" if amount >= 2**30 else f"{amount / 2**20:.0f} MB"
