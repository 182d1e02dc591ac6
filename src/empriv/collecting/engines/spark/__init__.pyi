__all__ = ["SparkEngine", "driver_engine"]

from .on_driver import driver_engine
from .session import SparkEngine
