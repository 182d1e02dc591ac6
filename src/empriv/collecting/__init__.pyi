__all__ = [
    "Databases",
    "DuckDBEngine",
    "Engine",
    "PostgresEngine",
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
from .engines.postgres import PostgresEngine
from .engines.spark import SparkEngine
from .pipeline import collect, explain
from .queries import Query
from .sources import Databases, databases, repeats, splits, subsamples
