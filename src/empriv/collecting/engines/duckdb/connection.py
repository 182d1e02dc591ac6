"""One connection to DuckDB: statements sent with names that nobody can guess, in a thread that can be stopped.

What DuckDB reports of a failure is said in empriv's words: no message is passed on that may quote a row.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol, TypeVar

import duckdb
import numpy as np

from empriv.collecting.engines.engine import BeyondLimits, Column, FailedOnRows, text_literal
from empriv.collecting.sql.printing import own_text, plain, secret
from empriv.errors import QueryError, SourceError

T = TypeVar("T")


class Fetching(Protocol):
    """A statement that was run, or will be as soon as its result is fetched."""

    def fetchall(self) -> list[Any]: ...

    def fetchnumpy(self) -> dict[str, Any]: ...


class Connection(Protocol):
    """What a session asks of DuckDB's connection."""

    def execute(self, query: str, parameters: Any = None, /) -> Fetching: ...

    def register(self, name: str, table: Any, /) -> Any: ...

    def unregister(self, name: str, /) -> Any: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Statements:
    """A connection, and how statements are run on it.

    Attributes
    ----------
    connection : DuckDB's, or that of a sandbox
    worker : the thread that works on it; None for the caller's own
    timeout : seconds that all statements together may take
    nonce : what own names carry
    stops : what else is to be ended when a statement is
    """

    connection: Connection
    _: KW_ONLY
    worker: Executor | None = None
    timeout: float | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    stops: list[Callable[[], None]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def prepare(self, zone: str) -> None:
        """Set where days begin; in a notebook without ipywidgets the bar is off, and DuckDB refuses to be told so."""
        with suppress(duckdb.InvalidInputException):
            self.run("SET enable_progress_bar = false")
        try:
            self.run(f"SET TimeZone = {text_literal(zone)}")
        except duckdb.Error:
            raise SourceError(
                "The times must be in a time zone that DuckDB knows. "
                'Hint: timezone="Europe/Paris" names one (--timezone on the command line).'
            ) from None

    def register(self, name: str, table: Any) -> None:
        self.interruptible(lambda: self.connection.register(secret(name, self.nonce), table))

    def unregister(self, name: str) -> None:
        self.connection.unregister(secret(name, self.nonce))

    def run(self, sql: str, parameters: Any = None) -> list[Any]:
        """Run a statement of empriv's own, with nothing in it that an analyst wrote."""
        return self.send(own_text(sql, self.nonce), parameters)

    def send(self, text: str, parameters: Any = None) -> list[Any]:
        return self.interruptible(lambda: self.connection.execute(text, parameters).fetchall())

    def fetch_own(self, sql: str) -> dict[str, Column]:
        return self.fetch_sent(own_text(sql, self.nonce))

    def fetch_sent(self, text: str) -> dict[str, Column]:
        found = self.interruptible(lambda: self.connection.execute(text).fetchnumpy())
        return {
            plain(name, self.nonce): Column(np.ma.getdata(values), np.ma.getmaskarray(values))
            for name, values in found.items()
        }

    def interruptible(self, work: Callable[[], T]) -> T:
        """Run a statement in a thread, so that Ctrl-C, which reaches the main thread, and `timeout` can stop it."""
        if self.worker is None:
            return work()
        running = self.worker.submit(work)
        try:
            return running.result(self.seconds_left())
        except BaseException as error:
            late = isinstance(error, TimeoutError) and not running.done()
            # Again and again: an interrupt that comes before the statement has begun is lost.
            while not running.done():
                for stop in (self.connection.interrupt, *self.stops):
                    stop()
                wait([running], timeout=0.05)
            if late:
                raise BeyondLimits(
                    f"The query must end within `timeout`, {self.timeout:g} seconds, and did not. "
                    "Hint: give a larger `timeout`, or a query that reads `data` once; `empriv explain` tells how."
                ) from None
            raise

    def seconds_left(self) -> float | None:
        """Of the time that the query may take."""
        return None if self.timeout is None else max(0.0, self.started + self.timeout - time.monotonic())

    def describe(self, sql: str) -> dict[str, str]:
        return self.described(own_text(sql, self.nonce))

    def described(self, text: str) -> dict[str, str]:
        return {plain(row[0], self.nonce): str(row[1]) for row in self.send(f"DESCRIBE {text}")}

    def columns_of(self, relation: str) -> dict[str, str]:
        return self.describe(f"SELECT * FROM {relation}")


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
