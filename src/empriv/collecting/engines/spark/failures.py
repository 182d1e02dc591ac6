"""What Spark says of a failure, in one sentence that quotes neither a row nor a result.

Its messages may hold values of the rows; the names that it gives to errors hold none. `reading` and `querying` are put
around all that is asked of a Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from empriv.collecting.engines.engine import FailedOnRows
from empriv.errors import EmprivError, QueryError, SourceError

# Parts of the names of Spark's errors that a value in the rows can cause.
_ABOUT_VALUES = (
    "CAST_INVALID", "CAST_OVERFLOW", "ARITHMETIC_OVERFLOW", "DIVIDE_BY_ZERO", "INVALID_ARRAY_INDEX", "NUMBER_FORMAT",
    "CANNOT_PARSE", "NUMERIC_VALUE_OUT_OF_RANGE", "INVALID_FRACTION", "DATETIME", "NumberFormat", "Arithmetic",
)  # fmt: skip
# What is left to see of a process that was ended for want of memory, or of an allocation that failed.
_ABOUT_MEMORY = (
    "OutOfMemory", "ExecutorLostFailure", "MemoryError", "exit code 137", "Java heap space", "not enough memory",
    "Python worker exited unexpectedly", "Python worker failed to connect back", "can't start new thread",
)  # fmt: skip
NO_MEMORY = (
    "An executor has not enough memory. Hint: give SparkEngine more `partitions`, or executors more "
    "spark.executor.memory and spark.executor.memoryOverhead."
)


@contextmanager
def reading() -> Iterator[None]:
    """Say what is wrong with a source without quoting it."""
    with _said("The rows cannot be read", lambda _: SourceError):
        yield


@contextmanager
def querying() -> Iterator[None]:
    """Say what is wrong with a query without quoting rows."""
    with _said("The query cannot be run", lambda error: FailedOnRows if _about(error, _ABOUT_VALUES) else QueryError):
        yield


@contextmanager
def _said(what: str, kind_of: Callable[[Exception], type[EmprivError]]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _interrupted(error):
            raise KeyboardInterrupt from None
        if not _of_spark(error):
            raise
        without_memory = _about(error, _ABOUT_MEMORY)
        kind = kind_of(error)
        said = NO_MEMORY if without_memory else f"{what}: {_condition(error)}."
        if without_memory and kind is FailedOnRows:
            kind = QueryError
    else:
        return
    raise kind(said)


def is_missing(error: Exception) -> bool:
    """Whether a table of files is not there, or was begun and not finished."""
    return _about(error, ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")) or "PATH_NOT_FOUND" in _condition(error)


def _about(error: BaseException, parts: tuple[str, ...]) -> bool:
    said = f"{type(error).__name__} {error}"
    return any(part in said for part in parts)


def _interrupted(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C that ended the job; what Spark says of that comes after it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _of_spark(error: Exception) -> bool:
    """Whether Spark raised it, on whichever side of the bridge to Java."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def _condition(error: Any) -> str:
    """What Spark calls the error: its name only, since its message may hold more than names."""
    found = None
    for method in ("getCondition", "getErrorClass"):
        if found is None and hasattr(error, method):
            with suppress(Exception):
                found = getattr(error, method)()
    return f"Spark reports {found or type(error).__name__}"
