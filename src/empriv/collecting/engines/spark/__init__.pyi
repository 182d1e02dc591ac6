__all__ = ["SparkEngine"]

from .session import SparkEngine
