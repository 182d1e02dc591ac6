"""`collect` and `explain`: an engine opens the rows, and a query is run on them, as SQL or as a Python function."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from empriv.collecting.assemble import apply_post, presence
from empriv.collecting.engines.duckdb.session import DuckDBEngine
from empriv.collecting.engines.protocol import ClusterEngine, Engine
from empriv.collecting.queries import Query, query_of
from empriv.collecting.sources import Databases, Frame
from empriv.collecting.sql.advice import out_of_order
from empriv.collecting.sql.evaluate import evaluate
from empriv.collecting.sql.evaluate import explain as explain_sql
from empriv.collecting.sql.reruns import to_stderr
from empriv.errors import InputError, QueryError
from empriv.results import Results

if TYPE_CHECKING:
    from empriv.collecting.functions.frames import FrameKind


def collect(
    data: Databases,
    query: str | Callable[..., Any] | Query | Sequence[str | Callable[..., Any] | Query],
    *,
    draws: int | None = None,
    rng: int = 0,
    post: Callable[[Any], Any] | None = None,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
    frame: FrameKind = "dict",
) -> Results:
    """Run a query on every database, with everyone and without each individual.

    Parameters
    ----------
    data : Databases
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a list of several, which are run
        one after the other and make one vector
    draws : number of draws from a randomised function
    rng : seed of a randomised function
    post : function applied to each result that is a number
    engine : `DuckDBEngine` unless given
    memory_limit : such as ``"2GB"``; beyond it DuckDB writes to disk
    jobs : number of processes for a function
    checkpoint : file from which an interrupted run of a function resumes
    progress : False never shows progress, True always, None if the work lasts
    notice : called with a sentence before work that may last; by default it is printed to stderr
    frame : what a function receives: a ``"dict"`` of arrays, or a ``"pandas"``, ``"polars"`` or ``"arrow"`` frame

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> results = empriv.collect(data, "avg(delay)")
    >>> results.n_databases, results.n_individuals
    (365, 193)
    """
    if not isinstance(data, Databases):
        raise InputError(
            f"`data` must come from `databases`, `subsamples`, `splits` or `repeats`, got {type(data).__name__}. "
            "Hint: empriv.databases(source, database=..., individual=...)."
        )
    opened = engine_of(engine, memory_limit, data)
    options: dict[str, Any] = {"rng": rng, "engine": opened, "jobs": jobs, "progress": progress, "notice": notice}
    ask = _collect_several if isinstance(query, list | tuple) else _collect_one
    results = ask(data, query, draws=draws, post=post, checkpoint=checkpoint, frame=frame, **options)  # type: ignore[arg-type]
    told = out_of_order(results.databases, data.database)
    if told is not None:
        (notice or to_stderr)(told)
    return results


def _collect_one(
    data: Databases,
    query: str | Callable[..., Any] | Query,
    *,
    draws: int | None,
    rng: int,
    post: Callable[[Any], Any] | None,
    engine: Engine,
    jobs: int | None,
    checkpoint: str | PathLike[str] | None,
    progress: bool | None,
    notice: Callable[[str], None] | None,
    frame: FrameKind,
) -> Results:
    asked = query_of(query, post=post)
    if asked.function is not None:
        _check_arguments(asked.function, draws)
        results = _collect_calls(engine, data, asked.function, draws, rng, frame, jobs, checkpoint, progress)
    else:
        for name, value in (("draws", draws), ("checkpoint", checkpoint)):
            if value is not None:
                raise InputError(f"`{name}` must be None for an SQL query: it is for Python functions.")
        with engine.session(data) as session:
            results = evaluate(session, asked, show=progress, notice=notice)
    return results if asked.post is None else apply_post(results, asked.post)


def _check_arguments(function: Callable[..., Any], draws: int | None) -> None:
    """Refuse a function that cannot be called as it will be; one whose signature cannot be seen is tried."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    given: tuple[str, ...] = ("rows",) if draws is None else ("rows", "rng")
    try:
        signature.bind(*given)
    except TypeError:
        wanted = "the rows alone, since `draws` is None" if draws is None else "the rows and a generator, with `draws`"
        hint = "Hint: with draws=1 it is given a random generator too." if draws is None else ""
        raise InputError(f"The query's function must take {wanted}. {hint}".strip()) from None


def _collect_several(
    data: Databases,
    queries: Sequence[str | Callable[..., Any] | Query],
    *,
    draws: int | None,
    post: Callable[[Any], Any] | None,
    checkpoint: str | PathLike[str] | None,
    **options: Any,
) -> Results:
    """Results of several queries on the same databases, stacked."""
    if not queries:
        raise QueryError("`query` must hold at least one query, got none.")
    asked = [query_of(query, post=post) for query in queries]  # all are understood before any is run
    if checkpoint is not None and len(asked) > 1:
        raise InputError("`checkpoint` must be None for several queries: a file resumes one of them only.")
    if draws is not None and all(one.function is None for one in asked):
        raise InputError("`draws` must be None for SQL queries: it is for Python functions.")
    parts: dict[str, Results] = {}
    for one in asked:
        name, k = one.names[0] if len(one.names) == 1 and not one.groups else one.text, 2
        while name in parts:
            name, k = f"{name.removesuffix(f' ({k - 1})')} ({k})", k + 1
        function = one.function is not None
        parts[name] = _collect_one(
            data, one, draws=draws if function else None, post=None, checkpoint=checkpoint, **options
        )
    return Results.stack(parts)


def explain(data: Databases | None, query: str | Callable[..., Any] | Query, *, engine: Engine | None = None) -> str:
    """The statement that `collect` runs instead of an SQL query, or why it runs the query once per individual.

    Without ``data``, columns are taken for integers; sums of doubles are taken in several integers.

    Examples
    --------
    >>> "GROUP BY" in empriv.explain(None, "sum(x)")
    True
    """
    asked = query_of(query)
    if data is None:
        return explain_sql(None, asked)
    with engine_of(engine, None, data).session(data) as session:
        return explain_sql(session, asked)


def engine_of(engine: Engine | None, memory_limit: str | None, data: Databases) -> Engine:
    """The engine asked for; unless one is given, Spark for a Spark DataFrame, and DuckDB for all else."""
    if engine is None:
        for part in (*data.parts, *data.tables.values()):
            if isinstance(part, Frame) and type(part.frame).__module__.startswith("pyspark."):
                from empriv.collecting.engines.spark.session import SparkEngine

                engine = SparkEngine(part.frame.sparkSession)
        if engine is None:
            return DuckDBEngine(memory_limit=memory_limit)
    if memory_limit is not None:
        raise InputError("`memory_limit` must not be given beside `engine`. Hint: DuckDBEngine(memory_limit=...).")
    return engine


def _collect_calls(
    engine: Engine,
    data: Databases,
    function: Callable[..., Any],
    draws: int | None,
    seed: int,
    frame: FrameKind,
    jobs: int | None,
    checkpoint: str | PathLike[str] | None,
    progress: bool | None,
) -> Results:
    from empriv.collecting.functions.calls import assemble_calls, collect_calls, query_for

    if isinstance(engine, ClusterEngine):
        if checkpoint is not None or jobs is not None:
            raise InputError("`checkpoint` and `jobs` must be None with Spark, which runs the function itself.")
        with engine.session(data) as remote:
            chunks = remote.run_calls(query_for(function, frame=frame, draws=draws, seed=seed), show=progress)
            databases, individuals = remote.databases, remote.individuals
            database, individual = remote.presence()
        starts, entry_database = presence(individual, database, len(individuals), len(databases))
        return assemble_calls(
            chunks, draws=draws, databases=databases, individuals=individuals, starts=starts,
            entry_database=entry_database,
        )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="empriv-") as directory:
        with engine.session(data) as session:
            fetch = session.extract(directory)
            databases, individuals = session.databases, session.individuals
            database, individual = session.presence()
        starts, entry_database = presence(individual, database, len(individuals), len(databases))
        return collect_calls(
            function, fetch=fetch, databases=databases, individuals=individuals, starts=starts,
            entry_database=entry_database, frame=frame, draws=draws, seed=seed, jobs=jobs, checkpoint=checkpoint,
            progress=progress,
        )  # fmt: skip
