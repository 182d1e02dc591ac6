__all__ = ["PostgresEngine"]

from .session import PostgresEngine
