"""`collect` and `explain`: an engine opens the rows and runs a query on them, as SQL or as a Python function.

`Run` has the options that `audit`, `collect`, `compare` and protocols hand on, checked once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, TypeAlias

import numpy.typing as npt

from empriv.base.arguments import draws_or_none, jobs_or_none, progress_or_none, whole_number
from empriv.base.progress import progress as progress_bar
from empriv.base.row_sketches import RowSketches
from empriv.base.scratch import scratch_directory
from empriv.collecting.assemble import apply_post
from empriv.collecting.deletion import verify
from empriv.collecting.engines.engine import ClusterEngine, Engine, Session
from empriv.collecting.origins import sketch_rows
from empriv.collecting.profile import missing_days, out_of_order
from empriv.collecting.queries import Query, query_of
from empriv.collecting.sources import Databases, Frame, is_sqlite
from empriv.collecting.sql.execute import answered
from empriv.collecting.sql.execute import explain as explain_sql
from empriv.collecting.sql.rerun import to_stderr
from empriv.errors import InputError, QueryError
from empriv.results import Results


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a query is run: the options of `collect`, and two more.

    Attributes
    ----------
    sketch : whether rows are sketched, by which a ledger knows them again
    verified_on : label of the database on which people are deleted to verify the query; None draws some at random
    """

    draws: int | None = None
    rng: int = 0
    engine: Engine | None = None
    memory_limit: str | None = None
    timeout: float | None = None
    jobs: int | None = None
    checkpoint: str | PathLike[str] | None = None
    progress: bool | None = None
    notice: Callable[[str], None] | None = None
    sketch: bool = False
    verified_on: Any = None

    def __post_init__(self) -> None:
        # As Python's own integers: a checkpoint knows a run again by them.
        object.__setattr__(self, "draws", draws_or_none(self.draws))
        object.__setattr__(self, "rng", whole_number("rng", self.rng, least=0))
        jobs_or_none(self.jobs)
        progress_or_none(self.progress)
        for name in self._limits if self.engine is not None else ():
            raise InputError(f"`{name}` must not be given beside `engine`. Hint: DuckDBEngine({name}=...).")

    @property
    def _limits(self) -> list[str]:
        """Names of the limits that are given."""
        return [name for name in ("memory_limit", "timeout") if getattr(self, name) is not None]

    def on(self, data: Databases, *, cluster: bool = False) -> tuple[Engine, Run]:
        """The engine that reads these rows, and this run with it; with ``cluster``, Spark even if they are few."""
        from empriv.collecting.sql.allowlist import check_sources

        check_sources(data)
        engine = self.engine or self._engine_for(data, cluster or self.checkpoint is not None)
        return engine, replace(self, engine=engine, memory_limit=None, timeout=None)

    def of_another_query(self) -> Run:
        """The same engine and limits for a query beside the one asked: no draws, and nothing to resume from."""
        return replace(self, draws=None, rng=0, jobs=None, checkpoint=None, sketch=False)

    def _engine_for(self, data: Databases, cluster: bool) -> Engine:
        """Spark for a Spark DataFrame unless it is small, DuckDB for all else."""
        for part in (*data.parts, *data.tables.values()):
            if isinstance(part, Frame) and type(part.frame).__module__.startswith("pyspark."):
                for name in self._limits:
                    raise InputError(f"`{name}` must not be given with Spark, which has limits of its own.")
                from empriv.collecting.engines.spark import SparkEngine, driver_engine

                here = None if cluster else driver_engine(data, self.progress)
                return here or SparkEngine(part.frame.sparkSession)
        limits: dict[str, Any] = {
            "memory_limit": self.memory_limit, "timeout": self.timeout, "progress": self.progress
        }  # fmt: skip
        from empriv.collecting.engines.duckdb import DuckDBEngine

        return DuckDBEngine(**limits)


SingleQuery: TypeAlias = str | Callable[..., Any] | Query
QueryLike: TypeAlias = SingleQuery | Sequence[SingleQuery]
"""What `collect` and `audit` take as a query: one, or several that are released together."""


def collect(
    data: Databases,
    query: QueryLike,
    *,
    draws: int | None = None,
    rng: int = 0,
    post: Callable[[Any], Any] | None = None,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
) -> Results:
    """Run a query on every database, with everyone and without each individual.

    Parameters
    ----------
    data : Databases
    query : SQL text, an SQL expression of aggregates, or a function of the rows, which are a dict of arrays; or a list
        of several, which are run one after the other and make one vector
    draws : number of draws from a randomised function
    rng : seed of a randomised function
    post : function applied to each result that is a number
    engine : default: `DuckDBEngine`
    memory_limit : such as ``"2GB"``; beyond it DuckDB writes to disk
    timeout : seconds that an SQL query may take, including reading its rows; functions have no limit
    jobs : number of processes for a function
    checkpoint : file from which an interrupted run of a function resumes
    progress : False never shows progress, True always, None if the work takes long
    notice : called with a sentence before work that may take long; by default it is printed to stderr

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> results = empriv.collect(data, "avg(delay)")
    >>> results.n_databases, results.n_individuals
    (365, 193)
    """
    run = Run(
        draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, jobs=jobs,
        checkpoint=checkpoint, progress=progress, notice=notice,
    )  # fmt: skip
    return run_query(data, query, run, post=post)


def run_query(data: Databases, query: QueryLike, run: Run, *, post: Callable[[Any], Any] | None = None) -> Results:
    """`collect`, with the options of the run together."""
    if not isinstance(data, Databases):
        raise InputError(
            f"`data` must come from `databases`, `subsamples`, `splits` or `repeats`, got {type(data).__name__}. "
            "Hint: empriv.databases(source, database=..., individual=...)."
        )
    if isinstance(query, list | tuple):
        results = _run_several(data, query, run, post)
    else:
        results = _run_one(data, query_of(query, post=post), run)
    say_of_databases(data, results.databases, run)
    return results


def say_of_databases(data: Databases, labels: npt.NDArray[Any], run: Run) -> None:
    """Say that databases are not in the order of their dates, or that days are missing, if so."""
    for said in (out_of_order(labels, data.database), missing_days(labels)):
        if said is not None and data.database is not None:
            (run.notice or to_stderr)(said)


def _run_one(data: Databases, query: Query, run: Run) -> Results:
    engine, run = run.on(data)
    if query.function is not None:
        _check_arguments(query.function, run.draws)
        results = _run_function(engine, data, query.function, run)
    else:
        for name, value in (("draws", run.draws), ("checkpoint", run.checkpoint)):
            if value is not None:
                raise InputError(f"`{name}` must be None for an SQL query: it is for Python functions.")
        waiting = "Spark runs the query, which takes some seconds for any table"
        # Elsewhere what takes long has a bar of its own, which one that shows nothing would hide.
        cluster = isinstance(engine, ClusterEngine)
        bar = progress_bar(1, waiting, show=run.progress) if cluster else nullcontext()
        with bar as advance, engine.session(data) as session:
            for sentence in session.said:
                (run.notice or to_stderr)(sentence)
            results, rewritten = answered(session, query, show=run.progress, notice=run.notice)
            verified = verify(engine, session, data, query, results, rewritten=rewritten, on=run.verified_on)
            results = replace(
                results,
                verified=verified,
                rows=_sketches(engine, session, data, run),
            )
            if advance is not None:
                advance()
    return results if query.post is None else apply_post(results, query.post)


def _sketches(engine: Engine, session: Session, data: Databases, run: Run) -> RowSketches | None:
    return sketch_rows(session, data) if run.sketch and not isinstance(engine, ClusterEngine) else None


def _check_arguments(function: Callable[..., Any], draws: int | None) -> None:
    """Refuse a function that does not take the arguments it will get; without a known signature it is tried."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    arguments: tuple[str, ...] = ("rows",) if draws is None else ("rows", "rng")
    try:
        signature.bind(*arguments)
    except TypeError:
        wanted = "only the rows, since `draws` is None" if draws is None else "the rows and a generator, with `draws`"
        hint = "Hint: with draws=1 it is given a random generator too." if draws is None else ""
        raise InputError(f"The query's function must take {wanted}. {hint}".strip()) from None


def _run_several(
    data: Databases, questions: Sequence[SingleQuery], run: Run, post: Callable[[Any], Any] | None
) -> Results:
    """Results of several queries on the same databases, stacked."""
    if not questions:
        raise QueryError("`query` must hold at least one query, got none.")
    queries = [query_of(query, post=post) for query in questions]  # parse all of them before any is run
    if run.checkpoint is not None and len(queries) > 1:
        raise InputError("`checkpoint` must be None for several queries: a file can resume only one of them.")
    if run.draws is not None and all(query.function is None for query in queries):
        raise InputError("`draws` must be None for SQL queries: it is for Python functions.")
    _, run = run.on(data)
    parts: dict[str, Results] = {}
    for place, query in enumerate(queries):
        # Numbers drawn by one query must not be those drawn by another: noise of the two would cancel.
        run = replace(run, sketch=run.sketch and not place)  # the rows are the same for all of them
        seeded = replace(run, rng=_seed_of(run.rng, place))
        name, k = query.names[0] if len(query.names) == 1 and not query.groups else query.text, 2
        while name in parts:
            name, k = f"{name.removesuffix(f' ({k - 1})')} ({k})", k + 1
        parts[name] = _run_one(data, query, seeded if query.function is not None else replace(run, draws=None))
    return Results.stack(parts)


def _seed_of(seed: int, place: int) -> int:
    """The seed of one of several queries; the first has that of a query alone."""
    from numpy.random import SeedSequence

    return int(SeedSequence(seed, spawn_key=(place,)).generate_state(1)[0]) if place else seed


def explain(
    data: Databases | None,
    query: SingleQuery,
    *,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
) -> str:
    """The statement that `collect` runs instead of an SQL query, or why it runs the query once per individual.

    Without ``data``, columns are assumed to be integers; doubles are summed as several integers.

    Examples
    --------
    >>> "GROUP BY" in explain(None, "sum(x)")
    True
    """
    question = query_of(query)
    if data is None:
        return explain_sql(None, question)
    opened, _ = Run(engine=engine, memory_limit=memory_limit, timeout=timeout).on(data)
    with opened.session(data) as session:
        return explain_sql(session, question)


def _run_function(engine: Engine, data: Databases, function: Callable[..., Any], run: Run) -> Results:
    from empriv.collecting.function_calls import FunctionQuery
    from empriv.collecting.function_runs import assemble_calls, collect_calls, copier, presence_of, verify_calls

    query = FunctionQuery(function, run.draws, run.rng)
    if isinstance(engine, ClusterEngine):
        if run.checkpoint is not None or run.jobs is not None:
            raise InputError("`checkpoint` and `jobs` must be None with Spark, which runs the function itself.")
        with engine.session(data) as remote:
            chunks = remote.run_calls(query, show=run.progress)
            presence = presence_of(remote.databases, remote.individuals, remote.presence())
        return assemble_calls(chunks, presence, run.draws)
    with scratch_directory() as directory:
        with engine.session(data) as session:
            fetch = session.extract(directory)
            presence = presence_of(session.databases, session.individuals, session.presence())
            sketches = _sketches(engine, session, data, run)
        fresh = copier(function)
        results = collect_calls(
            query, fetch, presence, jobs=run.jobs, checkpoint=run.checkpoint, progress=run.progress
        )  # fmt: skip
        return replace(results, verified=verify_calls(query, fetch, results, fresh), rows=sketches)


def tables_inside(path: str) -> tuple[str, ...]:
    """Tables of an SQLite or DuckDB file, by name, for a person who chooses one."""
    from empriv.collecting.engines.connections import sqlite_tables
    from empriv.collecting.engines.duckdb.tables import table_names

    return sqlite_tables(path) if is_sqlite(path) else table_names(path)
