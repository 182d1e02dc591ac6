"""Does an audit fit in memory? What it will take, and whether people are measured in chunks instead.

An entry is a database that an individual is in. How long an audit takes is not said: no estimate was right often
enough. `goes_in_chunks` decides, and `measured_in_chunks` measures where the rows are: the most exposed are kept, and
the others totalled.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empriv.auditing.chunked import ChunkModel, ChunkOptions, FindKnown, measure_results, measure_stream
from empriv.auditing.cluster import everyone_on_cluster, measure_on_cluster
from empriv.auditing.knowledge import infer_public_knowledge, known_values
from empriv.auditing.totals import TotalledRisk
from empriv.base.machine import free_memory
from empriv.base.progress import progress
from empriv.collecting import deletion
from empriv.collecting.engines.engine import ClusterEngine, Engine
from empriv.collecting.profile import count
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_query import Run, run_query, say_of_databases
from empriv.collecting.sources import Databases, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.decompose import decompose
from empriv.collecting.sql.execute import admit, most_entries, stream
from empriv.collecting.sql.groups import components_of
from empriv.collecting.sql.rerun import to_stderr
from empriv.errors import InputError
from empriv.measuring import GivenRisk
from empriv.measuring.densities.density import Density
from empriv.measuring.given.given_risk import measure_given
from empriv.measuring.given.reader_knowledge import Given, Said, kind_of
from empriv.results import Results, Verified
from empriv.words.message import Message

if TYPE_CHECKING:
    from empriv.collecting.engines.engine import ClusterSession

KEEP = 100
"""The most exposed people who are kept at each epsilon, unless told otherwise."""
MOST_ON_DRIVER = 10_000_000
"""Results that a cluster sends to its driver, unless told otherwise."""
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


@dataclass(frozen=True, eq=False)
class ChunkRequest:
    """What was asked of an audit that people may be measured in chunks for.

    Attributes
    ----------
    in_chunks : True always, False never, None where not all results fit in memory
    results_table : of a cluster, to which delta_i of every individual is written
    options : how people are measured
    said, known : what readers know, as it was said, and from results with everyone
    ledger : whether earlier releases are measured together with the query
    """

    in_chunks: bool | None
    results_table: str | None
    options: ChunkOptions
    said: Said
    known: FindKnown
    ledger: bool

    def needed(self, queries: Sequence[Query], run: Run) -> str | None:
        """The argument that asks for chunks, if one does."""
        resumes = run.checkpoint is not None and all(query.function is None for query in queries)
        asks = {"in_chunks": self.in_chunks, "results_table": self.results_table is not None, "checkpoint": resumes}
        return next((name for name, holds in asks.items() if holds), None)

    def hindrance(self, queries: Sequence[Query], data: Databases) -> str | None:
        """Why people cannot be measured in chunks, if they cannot."""
        query = queries[0]
        if len(queries) > 1 or (self.options.component is None and (len(query.items) > 1 or query.groups)):
            return "what several numbers tell depends on all of them at once; name one as `component`"
        if query.function is not None or query.post is not None:
            return "Python code is run once per individual, and not in SQL"
        if self.ledger:
            return "earlier releases are measured together with all results"
        if self.said.known is not None and not isinstance(self.said.known, Given):
            return _needs_everybody(self.said)
        try:
            decompose(query, data.individual)
        except NotDecomposable as why:
            return f"the query is run once per individual, because {why}"
        return None


def goes_in_chunks(asked: ChunkRequest, queries: Sequence[Query], data: Databases, engine: Engine, run: Run) -> bool:
    """Whether people are measured in chunks; on a cluster, whether its session may decide that.

    Few rows fit into any memory, and are not looked at; nor are rows that can be read once only, or are elsewhere.
    """
    needed = asked.needed(queries, run)
    if needed is not None:
        why_not = asked.hindrance(queries, data)
        if why_not is not None or asked.in_chunks is False:
            raise InputError(_refusal(needed, why_not or "`in_chunks` is False"))
        if asked.results_table is not None and not isinstance(engine, ClusterEngine):
            raise InputError("`results_table` must be None without a Spark engine.")
        return True
    if isinstance(engine, ClusterEngine):
        return asked.in_chunks is None and asked.hindrance(queries, data) is None
    limit = limit_of(engine)
    expected = expected_of(data, queries, run, limit)
    if expected is None:
        return False
    tight = not expected.fits or (limit is not None and expected.of_results > limit)
    if tight and asked.in_chunks is None and asked.hindrance(queries, data) is None:
        return True
    check_memory(expected, run)
    return False


def _refusal(name: str, why: str) -> str:
    return (
        f"`{name}` must not be given here, since people cannot be measured in chunks: {why}. "
        f"Hint: without {name}, all results are held in memory."
    )


def measured_in_chunks(
    asked: ChunkRequest, query: Query, data: Databases, engine: Engine, run: Run
) -> tuple[ChunkModel, TotalledRisk] | None:
    """What everyone was measured with, and the risk; None where all results had better be held in memory after all."""
    if run.draws is not None:
        raise InputError("`draws` must be None for an SQL query: it is for Python functions.")
    needed = asked.needed([query], run)
    verified: Verified | None
    try:
        if isinstance(engine, ClusterEngine):
            found = measure_on_cluster(
                engine, data, query, asked.options, asked.known, checkpoint=run.checkpoint, progress=run.progress,
                results_table=asked.results_table, unless=fits_on_driver if needed is None else lambda _: False,
            )  # fmt: skip
            if found is None:
                return None
            model, totals, verified = found
        else:
            with stream(engine, data, query) as streamed:
                for sentence in streamed.session.said:
                    (run.notice or to_stderr)(sentence)
                model, totals = measure_stream(
                    streamed, asked.options, asked.known,
                    query=query.text, checkpoint=run.checkpoint, progress=run.progress,
                )  # fmt: skip
                listed = totals.kept if streamed.everyone.components is None else streamed.everyone
                verified = deletion.verify(
                    engine, streamed.session, data, query, listed, rewritten=True, members=totals.members
                )
    except NotDecomposable as why:
        if needed is not None:
            raise InputError(_refusal(needed, f"the query is run once per individual, because {why}")) from None
        return None
    say_of_databases(data, totals.kept.databases, run)
    return model, model.totalled(replace(totals, kept=replace(totals.kept, verified=verified)))


def measured_results(results: Results, said: Said, options: ChunkOptions) -> tuple[ChunkModel, TotalledRisk]:
    """The same of results that are in memory already."""
    if results.postprocessed_from is not None:
        raise InputError(_refusal("in_chunks", "the results were made from others by Python code"))
    if said.known is not None and not isinstance(said.known, Given):
        raise InputError(_refusal("in_chunks", _needs_everybody(said)))
    model, totals = measure_results(results, options, known_in_chunks(said, options.density))
    return model, model.totalled(totals)


def _needs_everybody(said: Said) -> str:
    assert said.known is not None
    return f"`known` is {kind_of(said.known)}, which needs everybody at once"


def fits_on_driver(session: ClusterSession) -> bool:
    """Whether all results of one number fit in the driver's memory, however they are spread over the databases."""
    most, free = most_entries(session), free_memory()
    return most <= MOST_ON_DRIVER and (free is None or memory_of(most) <= free)


def known_in_chunks(
    said: Said, density: Density, data: Databases | None = None, engine: Engine | None = None, run: Run | None = None
) -> FindKnown:
    """What readers know, from results with everyone. SQL is asked of everyone alone: nobody's own results are needed.

    Without rows (``data`` and what they are asked with), what is known must be arrays.
    """

    def asked_of_everyone(quantity: Any) -> Results:
        assert data is not None
        assert run is not None
        query = query_of(quantity)
        if query.function is None:
            try:
                if isinstance(engine, ClusterEngine):
                    return everyone_on_cluster(engine, data, query)
                assert engine is not None
                with stream(engine, data, query) as streamed:
                    return streamed.everyone
            except NotDecomposable:
                pass
        return run_query(data, query, run.of_another_query())

    def known(everyone: Results, positive: bool) -> tuple[GivenRisk | None, Message | None]:
        if said.known is None:
            return None, None
        assert isinstance(said.known, Given)
        if said.known.only_auto:
            chosen, nothing = infer_public_knowledge(everyone, density, positive=positive)
            assert chosen is None or isinstance(chosen, GivenRisk)  # it is of one number
            return chosen, nothing
        collect = None if data is None else asked_of_everyone
        values = known_values(said.known, collect, databases=everyone.databases)
        return measure_given(everyone, said.known, values, density=density, positive=positive), None

    return known
