__all__ = ["DuckDBEngine"]

from .session import DuckDBEngine
