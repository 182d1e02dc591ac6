"""The rows of a few databases in a connection of their own, from which people are really deleted.

One table holds all the rows that the connection has, by a name that carries the session's nonce. The queries' ``data``
is a view of it, and so whoever is deleted from the table is nowhere: no query can tell that they were ever there.
Deleting is a transaction that is taken back. `deletion` compares.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp, parse_one

from empriv.collecting.engines.duckdb.connection import ABOUT_VALUES, querying, reading
from empriv.collecting.engines.duckdb.session import DuckDBSession
from empriv.collecting.engines.engine import (
    DATA,
    DATABASE,
    EVERYONE,
    INDIVIDUAL,
    Deletion,
    Rows,
    SentRows,
    Session,
    quoted,
)
from empriv.collecting.sql.printing import own_text, printed

ROWS = "empriv_isolated"
_SENT = "empriv_sent"  # no table that is made here is called so, whatever those sent are called
# The rows that are left in another order.
_SHUFFLED = (
    f"CREATE TABLE {ROWS}_shuffled AS SELECT * FROM {ROWS} ORDER BY RANDOM()",
    f"DELETE FROM {ROWS}",
    f"INSERT INTO {ROWS} SELECT * FROM {ROWS}_shuffled",
)


def rows_of(columns: Sequence[str], chosen: Sequence[int]) -> exp.Expr:
    """The statement of the rows of some databases: these columns of ``data``, whose they are, and in which of them."""
    own = ", ".join(f"p.{quoted(column)}" for column in columns)
    places = ", ".join(map(str, chosen))
    return parse_one(
        f"SELECT {own}, p.{INDIVIDUAL}, d.code AS {DATABASE} FROM {DATA} AS p "
        f"JOIN empriv_databases AS d ON d.label = p.{DATABASE} WHERE d.code IN ({places})",
        dialect="duckdb",
    )


@dataclass(eq=False)
class IsolatedSession(DuckDBSession):
    """A connection with the rows of a few databases, and the tables that were handed over.

    Attributes
    ----------
    sent : ``data`` and the other tables
    zone : where days begin
    """

    sent: Mapping[str, SentRows] = field(default_factory=dict)
    zone: str = "UTC"

    def __post_init__(self) -> None:
        with reading():
            self.prepare(self.zone)
            for name, stream in self.sent.items():
                self._take(stream, f"{_SENT}_{name}")
                if name != DATA:
                    self.run(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {quoted(f'{_SENT}_{name}')}")
            self._deal(f"{_SENT}_{DATA}")
            self.run(f"CREATE VIEW {DATA} AS SELECT {self.own_columns()} FROM {ROWS}")
        self._close_door()

    @cached_property
    def columns(self) -> Mapping[str, Sequence[str]]:
        return {
            name: [column for column in stream.types if name != DATA or column not in (INDIVIDUAL, DATABASE)]
            for name, stream in self.sent.items()
        }

    @cached_property
    def individuals(self) -> npt.NDArray[Any]:
        return self.labels_in(f"{ROWS}_people")

    def ask(self, statement: exp.Expr, deletions: Sequence[Deletion], *, shuffled: bool = False) -> list[Rows | None]:
        sql = self._readable(printed(statement))
        before = [own_text(text, self.nonce) for text in (_SHUFFLED if shuffled else ())]
        deleting = [self._deleting(one) for one in deletions]

        def all_at_once() -> list[Rows | None]:
            return [self._asked([text, *before], sql) for text in deleting]

        with querying(), self._one_thread():
            return self.interruptible(all_at_once)  # in one piece: between threads it would take most of the time

    def _readable(self, sql: str) -> str:
        """A statement whose moments are texts: to read those of a zone, Python needs a module that may be missing."""
        with querying():
            types = [str(row[1]) for row in self.send(f"DESCRIBE {sql}")]
        if not any("TIME ZONE" in kind for kind in types):
            return sql
        columns = (f"CAST(#{k} AS VARCHAR)" if "TIME ZONE" in kind else f"#{k}" for k, kind in enumerate(types, 1))
        return f"SELECT {', '.join(columns)} FROM ({sql})"

    def _asked(self, before: Sequence[str], sql: str) -> Rows | None:
        """What a statement gives after others, which are taken back; None where it fails."""
        execute = self.connection.execute
        try:
            for text in before:
                execute(text).fetchall()
            return execute(sql).fetchall()
        except ABOUT_VALUES:
            return None
        finally:
            execute("ROLLBACK").fetchall()

    @contextmanager
    def without(self, deletion: Deletion) -> Iterator[None]:
        self.send(self._deleting(deletion))
        try:
            yield
        finally:
            self.run("ROLLBACK")

    def _deleting(self, deletion: Deletion) -> str:
        deleted = f"{ROWS}_database <> {deletion.database}"
        if deletion.draw is not None:
            deleted += f" OR {ROWS}_bits >> {deletion.draw} & 1 = {deletion.half}"
        elif deletion.individual is not None:
            deleted += f" OR {ROWS}_code = {deletion.individual}"
        return own_text(f"BEGIN; DELETE FROM {ROWS} WHERE {deleted}", self.nonce)

    @contextmanager
    def repeated(self, deletions: Sequence[Deletion]) -> Iterator[Session]:
        number = np.arange(len(deletions), dtype=np.int32)
        database, draw, individual = (
            np.array([-1 if value is None else value for value in values], np.int32)
            for values in zip(*((one.database, one.draw, one.individual) for one in deletions), strict=True)
        )
        draws = f"{ROWS}_draws"
        self.store_numbers(draws, {"number": number, "base": database, "draw": draw, "individual": individual})
        half = f"CASE WHEN d.draw >= 0 THEN r.{ROWS}_bits >> d.draw & 1 WHEN r.{ROWS}_code = d.individual THEN 0 END"
        self.run(
            f"CREATE TEMP VIEW {ROWS}_repeated AS SELECT {self.own_columns('r')}, r.{ROWS}_place, "
            f"d.number AS {DATABASE}, {half} AS {INDIVIDUAL} FROM {ROWS} AS r "
            f"JOIN {draws} AS d ON d.base = r.{ROWS}_database"
        )
        own = f"{self.own_columns()}, {DATABASE}, {INDIVIDUAL}"
        self.run(f"CREATE TEMP VIEW {EVERYONE} AS SELECT {own} FROM {ROWS}_repeated")
        try:
            repeated = HalvesSession(
                self.connection, self.data, threads=self.threads, worker=self.worker, timeout=self.timeout, closed=True,
                nonce=self.nonce, stops=self.stops, isolated=self,
            )  # fmt: skip
            repeated.__dict__["binder"] = self.binder  # the same tables
            yield repeated
        finally:
            self.run(f"DROP VIEW {EVERYONE}")
            self.run(f"DROP VIEW {ROWS}_repeated")

    def _take(self, stream: SentRows, name: str) -> None:
        """Have the rows of a stream in a table, each column of the type that it has at home."""
        self.register("empriv_incoming", stream.rows)
        try:
            named = f"empriv_incoming AS t({', '.join(map(quoted, stream.types))})"
            arrived = self.describe(f"SELECT * FROM {named}")
            columns = ", ".join(
                quoted(column)
                if kind in ("", arrived[column])
                else f"CAST({quoted(column)} AS {kind}) AS {quoted(column)}"
                for column, kind in stream.types.items()
            )
            self.run(f"CREATE TABLE {quoted(name)} AS SELECT {columns} FROM {named}")
        finally:
            self.unregister("empriv_incoming")

    def _deal(self, raw: str) -> None:
        """Number the people, and deal them into halves by chance that nobody knows beforehand."""
        people, bits = f"{ROWS}_people", f"{ROWS}_bits"
        self.run(
            f"CREATE TABLE {people} AS SELECT CAST(ROW_NUMBER() OVER (ORDER BY label) - 1 AS INTEGER) AS code, label "
            f"FROM (SELECT DISTINCT {INDIVIDUAL} AS label FROM {raw} WHERE {INDIVIDUAL} IS NOT NULL)"
        )
        ((count,),) = self.run(f"SELECT COUNT(*) FROM {people}")
        drawn = np.frombuffer(secrets.token_bytes(2 * count), np.uint16).astype(np.int32)
        self.store_numbers(bits, {"code": np.arange(count, dtype=np.int32), "bits": drawn})
        self.run(
            f"CREATE TABLE {ROWS} AS SELECT {self.own_columns('r')}, COALESCE(p.code, -1) AS {ROWS}_code, "
            f"b.bits AS {ROWS}_bits, r.{DATABASE} AS {ROWS}_database, r.{ROWS}_place "
            f"FROM (SELECT *, rowid AS {ROWS}_place FROM {quoted(raw)}) AS r "
            f"LEFT JOIN {people} AS p ON p.label = r.{INDIVIDUAL} LEFT JOIN {bits} AS b ON b.code = p.code "
            f"ORDER BY r.{ROWS}_place"
        )
        self.run(f"DROP TABLE {quoted(raw)}")


@dataclass(eq=False)
class HalvesSession(DuckDBSession):
    """The rows of each database several times, as databases in which halves of the people are the individuals."""

    isolated: IsolatedSession | None = None

    def __post_init__(self) -> None:
        assert self.isolated is not None
        numbers = f"SELECT number AS code, number AS label FROM {ROWS}_draws"
        with reading():
            for name in ("empriv_databases", "empriv_individuals", "empriv_sorted"):
                self.run(f"DROP TABLE IF EXISTS {name}")
            self.run(f"CREATE TEMP TABLE empriv_databases AS {numbers}")

    @cached_property
    def columns(self) -> Mapping[str, Sequence[str]]:
        assert self.isolated is not None
        return self.isolated.columns

    def _coded(self, condition: str) -> str:
        assert self.isolated is not None
        self.label_individuals()
        return (
            f"SELECT {self.isolated.own_columns('p')}, p.{DATABASE}, COALESCE(i.code, -1) AS empriv_code "
            f"FROM {ROWS}_repeated AS p LEFT JOIN empriv_individuals AS i ON i.label = p.{INDIVIDUAL} "
            f"WHERE {condition} ORDER BY p.{DATABASE}, p.{ROWS}_place"
        )
