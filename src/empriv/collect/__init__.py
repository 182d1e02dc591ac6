"""Rows → `Results`: a query's result on every database, with everyone and without each individual.

`sources` says where the rows are, `queries` what is asked, `rewrite` how SQL is asked once for everybody, `calls`
how a Python function is; an engine such as `duckdb` does it. This module joins them, and what results mean is for
`measure`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from empriv.collect.assemble import apply_post
from empriv.collect.duckdb import DuckDBEngine
from empriv.collect.engine import Engine
from empriv.collect.evaluate import evaluate
from empriv.collect.queries import Query, query_of
from empriv.collect.sources import Databases, databases, splits, subsamples
from empriv.errors import InputError
from empriv.results import Results

__all__ = ["Databases", "DuckDBEngine", "Engine", "Query", "collect", "databases", "splits", "subsamples"]


def collect(
    data: Databases,
    query: str | Callable[..., Any] | Query,
    *,
    draws: int | None = None,
    rng: int = 0,
    post: Callable[[Any], Any] | None = None,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> Results:
    """Run a query on every database, with everyone and without each individual."""
    if not isinstance(data, Databases):
        raise InputError("`data` must come from `databases`, `subsamples` or `splits`.")
    asked = query_of(query, post=post)
    if engine is None:
        engine = DuckDBEngine(memory_limit=memory_limit)
    elif memory_limit is not None:
        raise InputError("`memory_limit` must not be given beside `engine`. Hint: DuckDBEngine(memory_limit=...).")
    with engine.session(data) as session:
        results = evaluate(session, asked)
    return results if asked.post is None else apply_post(results, asked.post)
