"""What DuckDB reports, said in empriv's words: no message is passed on that may quote a row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from empriv.collecting.engines.engine import BeyondLimits, FailedOnRows
from empriv.collecting.sql.advice import unreadable
from empriv.errors import QueryError, SourceError

_NO_MEMORY = "There is not enough memory for this query. Hint: give a larger `memory_limit`, or fewer `threads`."
# Errors that a value in the rows can cause: without the individual whose it is, the query may well succeed.
ABOUT_VALUES = (
    duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException, duckdb.ConstraintException,
)  # fmt: skip
# What these errors say is about names and syntax, not about rows.
_ABOUT_NAMES = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)


@contextmanager
def reading() -> Iterator[None]:
    """Say what is wrong with a source without quoting it."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise SourceError(_NO_MEMORY) from None
    except _ABOUT_NAMES as error:
        if "VARCHAR" in str(error) and "No function matches" in str(error):
            raise SourceError(
                "`database` must be an expression that fits its columns, got text where a date or a number is needed. "
                "Hint: strptime(t, '%d.%m.%Y') makes dates of a text column t, and CAST(t AS DOUBLE) numbers."
            ) from None
        raise SourceError(f"The rows cannot be read: {_first_line(error)}") from None
    except duckdb.Error as error:
        raise SourceError(unreadable(type(error).__name__, str(error))) from None


@contextmanager
def querying() -> Iterator[None]:
    """Say what is wrong with a query without quoting rows."""
    try:
        yield
    except _ABOUT_NAMES as error:
        raise QueryError(f"The query cannot be run: {_first_line(error)}") from None
    except duckdb.OutOfMemoryException:
        raise BeyondLimits(_NO_MEMORY) from None
    except ABOUT_VALUES as error:
        raise FailedOnRows(f"The query cannot be run: DuckDB reports a {type(error).__name__}.") from None
    except duckdb.Error as error:
        raise QueryError(f"The query cannot be run: DuckDB reports a {type(error).__name__}.") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") + "."
