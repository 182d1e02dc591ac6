"""One connection to DuckDB: statements sent with names that nobody can guess, in a thread that can be stopped."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, wait
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

import duckdb
import numpy as np

from empriv.collecting.engines.duckdb.sandbox import Connection
from empriv.collecting.engines.engine import BeyondLimits, Column, text_literal
from empriv.collecting.sql.printing import own_text, plain, secret
from empriv.errors import SourceError

T = TypeVar("T")


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
