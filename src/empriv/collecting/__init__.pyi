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

from .engines.duckdb.session import DuckDBEngine
from .engines.engine import Engine
from .engines.spark.session import SparkEngine
from .pipeline import collect, explain
from .queries import Query
from .sources import Databases, databases, repeats, splits, subsamples
