__all__ = ["SparkEngine", "driver_engine"]

from .session import SparkEngine
from .tables import driver_engine
