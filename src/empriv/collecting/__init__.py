"""Rows → `Results`: a query's result on every database, with everyone and without each individual.

`sources` says where the rows are, `queries` what is asked, `rewrite` how SQL is asked once for everybody, `calls`
how a Python function is; an engine such as `duckdb` does it, and `pipeline` joins them. What results mean is for
`measuring`. Names are imported when first used, so that a worker process which only calls a function loads neither
an engine nor a parser of SQL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empriv.collecting.duckdb import DuckDBEngine
    from empriv.collecting.engine import Engine
    from empriv.collecting.pipeline import collect, explain
    from empriv.collecting.queries import Query
    from empriv.collecting.sources import Databases, databases, repeats, splits, subsamples
    from empriv.collecting.spark import SparkEngine

_HOMES = {
    "duckdb": ("DuckDBEngine",),
    "engine": ("Engine",),
    "pipeline": ("collect", "explain"),
    "queries": ("Query",),
    "spark": ("SparkEngine",),
    "sources": ("Databases", "databases", "repeats", "splits", "subsamples"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Databases",
    "DuckDBEngine",
    "Engine",
    "Query",
    "SparkEngine",
    "collect",
    "databases",
    "explain",
    "repeats",
    "splits",
    "subsamples",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"empriv.collecting.{_HOME[name]}"), name)
    raise AttributeError(f"module 'empriv.collecting' has no attribute {name!r}")
