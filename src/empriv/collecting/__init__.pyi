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

from .engines.duckdb import DuckDBEngine
from .engines.engine import Engine
from .engines.spark import SparkEngine
from .queries import Query
from .run_query import collect, explain
from .sources import Databases, databases, repeats, splits, subsamples
