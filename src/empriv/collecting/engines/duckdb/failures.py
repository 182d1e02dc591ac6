"""What DuckDB reports, said in empriv's words: no message is passed on that may quote a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from empriv.collecting.engines.engine import BeyondLimits, FailedOnRows
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
        raise SourceError(_unreadable(type(error).__name__, str(error))) from None


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


def _unreadable(kind: str, message: str) -> str:
    """Why rows cannot be read, from the kind of an engine's error and its message, which is not passed on."""
    # a CSV file that no dialect fits gets a list of things to try, encodings among them, whatever is wrong with it
    said = message.lower().partition("the search space used was")[0]
    if re.search(r"utf-?8|unicode|encod", said):
        return (
            "The rows cannot be read: a file holds text that is not UTF-8. Hint: save it as UTF-8, or read it by SQL, "
            "\"SELECT * FROM read_csv('file.csv', encoding='latin-1')\"."
        )
    if kind == "IOException" or re.search(r"magic bytes|parquet file|valid duckdb", said):
        return "The rows cannot be read: a file is missing, or not what its name says."
    if kind == "ConversionException":
        return (
            "The rows cannot be read: a value does not fit the type that its column has elsewhere. Hint: all files "
            "must write dates and numbers alike; \"SELECT * FROM read_csv('*.csv', all_varchar=true)\" reads text."
        )
    if "sniffing" in said:
        return (
            "The rows cannot be read: the lines of a CSV file are not alike. Hint: see whether every line has as many "
            "fields, and ends in the same way."
        )
    hint = " Hint: see whether every line has as many fields." if kind == "InvalidInputException" else ""
    return f"The rows cannot be read: DuckDB reports a problem of kind {kind}.{hint}"
