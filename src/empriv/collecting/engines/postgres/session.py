"""The PostgreSQL engine: the same statements, cut so that what is added up for each individual runs on the server.

Here is DuckDB, in which the rows are known by their columns alone until somebody needs them: an empty table of the
same types tells what a statement would give. What is to be added up is sent to the server in its dialect, and comes
back as a small table. A statement that the server might understand otherwise, or fails on, has the rows read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from empriv.collecting.engines.connections.postgresql import PostgresConnection, Relation, connection_to
from empriv.collecting.engines.data_view import data_view, quoted
from empriv.collecting.engines.duckdb.session import DuckDBEngine, DuckDBSession
from empriv.collecting.engines.engine import BeyondLimits, Integers, Refused
from empriv.collecting.engines.postgres.dialect import Untranslated, in_postgres
from empriv.collecting.engines.postgres.second_look import check_sent
from empriv.collecting.engines.postgres.splitting import Splitting
from empriv.collecting.engines.zones import zone_of
from empriv.collecting.names import DATA, DATABASE, INDIVIDUAL
from empriv.collecting.sources import Connected, Databases, Table
from empriv.errors import QueryError

MUCH_LESS = 4
"""Rows for each pair of database and individual from which adding up on the server is worth it."""
FEW_ROWS = 20_000
"""Rows that are read sooner than counted."""
_SAMPLED = 64  # one in so many pairs is counted
_PART = "empriv_part0"


@dataclass(frozen=True)
class PostgresEngine(DuckDBEngine):
    """Runs queries on a PostgreSQL server where that moves much less than the rows would, else with DuckDB here.

    Parameters
    ----------
    memory_limit, threads, temp_directory, timeout, progress, views : as for `DuckDBEngine`; the server keeps to
        `timeout` too
    push_down : True adds up on the server whenever it can be done, False never; None by an estimate of what travels,
        which `explain` prints

    Examples
    --------
    Needs the extra ``postgres``.

    >>> engine = empriv.PostgresEngine(push_down=True, timeout=600)
    >>> engine.push_down
    True
    """

    push_down: bool | None = None

    @contextmanager
    def session(self, data: Databases) -> Iterator[DuckDBSession]:
        """Open the databases for querying."""
        part = data.parts[0]
        several = len(data.parts) > 1 or data.database is None or len(data.individual) != 1
        if several or self.push_down is False or not isinstance(part, Connected) or part.kind != "postgresql":
            with super().session(data) as session:
                yield session
            return
        with (
            self.connected(data) as (connection, worker),
            connection_to(part.address, timezone=zone_of(data), timeout=self.timeout) as server,
        ):
            yield PostgresSession(
                connection, data, self.threads, worker, self.timeout, self.progress,
                views=self.views, server=server, push_down=self.push_down,
            )  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """About how many rows there are, and how many pairs of database and individual; -1 if nobody counted."""

    rows: int
    pairs: int = -1


@dataclass(eq=False)
class PostgresSession(DuckDBSession):
    """A connection to DuckDB here, and a transaction on the server that has the rows."""

    server: PostgresConnection | None = None
    push_down: bool | None = None
    _there: dict[str, Relation] = field(default_factory=dict)
    _traffic: Traffic | None = None
    _answers: int = 0

    def travels(self, statement: exp.Expr) -> str | None:
        """What comes from the server for a statement, in a sentence."""
        traffic = self._traffic or Traffic(0)
        rows = f"about {traffic.rows:,} rows"
        why = ""
        if self._there:
            try:
                Splitting(frozenset(self._there), self._written).split(statement)
            except Untranslated as reason:
                why = f": PostgreSQL may understand {reason} otherwise than DuckDB"
            else:
                pairs = "" if traffic.pairs < 0 else f" of about {traffic.pairs:,}"
                each = f"a row for each{pairs} pairs of database and individual"
                return f"PostgreSQL adds up, and {each} travels, instead of {rows}."
        elif traffic.pairs >= 0:
            why = f": there are hardly fewer pairs of database and individual, about {traffic.pairs:,}"
        elif traffic.rows < FEW_ROWS:
            why = ", which are few"
        return f"DuckDB adds up, and {rows} travel{why}."

    def count_integers(self, integers: Integers) -> int:
        if not self._there:
            return super().count_integers(integers)
        return int(self._run(f"SELECT COUNT(DISTINCT {INDIVIDUAL}) FROM {DATA}")[0][0])  # the server has no such bits

    def _receive(self, table: Table, name: str) -> None:
        server = self.server
        assert server is not None
        if not isinstance(table, Connected) or table.address != server.address:
            super()._receive(table, name)
            return
        relation = self._asking(lambda: server.relation(table))
        self._make_empty(relation, name)
        self._there[name.lower()] = relation
        if name == _PART:
            self._there[DATA] = self._there.pop(_PART)
            if not self._worthwhile():
                self._read_rows()
            elif self._traffic is not None:
                # There sums of 64 bits are exact, however many rows there are.
                self.integer_bits = 62 + self._traffic.rows.bit_length()

    def _make_empty(self, relation: Relation, name: str) -> None:
        columns = ", ".join(f"{quoted(column.name)} {column.duckdb}" for column in relation.columns)
        super()._run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} ({columns})")

    def _worthwhile(self) -> bool:
        """Whether adding up on the server moves much less than the rows would."""
        server = self.server
        assert server is not None
        rows = self._asking(lambda: server.estimate(self._there[DATA].select))
        self._traffic = Traffic(rows)
        if self.push_down is None and rows < FEW_ROWS:
            return False
        try:
            given = self._given()
            if self.push_down:
                return True
            counted: Traffic = self._asking(lambda: self._counted(given, rows))
        except BeyondLimits:
            raise
        except (Untranslated, QueryError):
            return False
        self._traffic = counted
        return MUCH_LESS * counted.pairs <= counted.rows

    def _counted(self, given: str, rows: int) -> Traffic:
        """Pairs, from those that a hash chooses with all their rows: whatever the order of the rows, it is fair."""
        server = self.server
        assert server is not None
        chosen = f"hash_record(ROW({DATABASE}, {INDIVIDUAL})) % {_SAMPLED} = 0"
        of_pairs = f"SELECT count(*) AS n FROM {DATA} WHERE {chosen} GROUP BY {DATABASE}, {INDIVIDUAL}"
        with server.attempt():
            ((pairs, of_these),) = server.fetch(
                f"WITH {given} SELECT count(*), coalesce(sum(n), 0)::bigint FROM ({of_pairs}) AS empriv_pairs"
            )
        return Traffic(rows, round(rows * pairs / of_these) if of_these else min(rows, _SAMPLED))

    def _given(self) -> str:
        """The tables on the server, as named parts of a statement: ``data``, and those handed over."""
        return ", ".join(f"{quoted(name)} AS NOT MATERIALIZED ({self._rows_of(name)})" for name in self._there)

    def _rows_of(self, name: str) -> str:
        """The rows of a table, with columns in lower case; of ``data``, with database and individual."""
        relation = self._there[name]
        columns = ", ".join(f"{quoted(column.name)} AS {quoted(column.name.lower())}" for column in relation.columns)
        rows = f"SELECT {columns} FROM ({relation.select}) AS empriv_named"
        if name != DATA:
            return rows
        (view,) = data_view(self.data, [_PART], self._columns_of)
        made = cast(exp.Create, parse_one(view, dialect="duckdb"))
        select = cast(exp.Select, made.expression)
        database, individual = (in_postgres(item.unalias(), self._kinds) for item in select.expressions[1:3])
        where = select.args.get("where")
        condition = "" if where is None else f" WHERE {in_postgres(where.this, self._kinds)}"
        whose = f"{database} AS {DATABASE}, {individual} AS {INDIVIDUAL}"
        return f"SELECT *, {whose} FROM ({rows}) AS empriv_rows{condition}"

    @property
    def _kinds(self) -> dict[str, set[str]]:
        kinds: dict[str, set[str]] = {}
        for relation in self._there.values():
            for column in relation.columns:
                kind = "float8" if column.kind == "numeric" and column.digits is None else column.kind
                kinds.setdefault(column.name.lower(), set()).add(kind)
        return kinds

    def _sent(self, select: exp.Select) -> str:
        """The text of a statement for the server, looked at once more."""
        select = select.copy()
        select.set("expressions", [
            exp.alias_(item.unalias().copy(), f"c{place}") for place, item in enumerate(select.expressions)
        ])  # fmt: skip
        text = in_postgres(select, self._kinds)
        check_sent(text, self._there)
        given = self._given()
        return f"WITH {given}, {text[5:]}" if text.startswith("WITH ") else f"WITH {given} {text}"

    def _run(self, sql: str, parameters: Any = None) -> list[Any]:
        return super()._run(self._here(sql), parameters)

    def _fetch(self, sql: str) -> Any:
        return super()._fetch(self._here(sql))

    def _here(self, sql: str) -> str:
        """The statement to be run here, after what it needs of the server has come."""
        names = "|".join(re.escape(name) for name in (*self._there, _PART))
        if not self._there or not re.search(rf"\b({names})\b", sql, re.IGNORECASE):
            return sql
        if re.match(r"\s*(DESCRIBE|CREATE\s+TEMP\s+VIEW)\b", sql):
            return sql  # of columns, and not of rows
        try:
            tree = parse_one(sql, dialect="duckdb")
            if any(table.name.lower() == _PART for table in tree.find_all(exp.Table)):
                raise Untranslated("rows that are not added up")
            return str(Splitting(frozenset(self._there), self._ask).split(tree).sql(dialect="duckdb"))
        except (BeyondLimits, Refused):
            raise
        except (Untranslated, SqlglotError, QueryError):
            # What fails there may not fail here; if it does, DuckDB says so in its own way.
            self._read_rows()
            return sql

    def _ask(self, select: exp.Select) -> str:
        """Run a SELECT on the server; the name of the table that has its rows."""
        server = self.server
        assert server is not None
        described = self._describe(select.sql(dialect="duckdb"))
        if len(described) < len(select.expressions):
            raise Untranslated("two results of one name")
        text, name = self._sent(select), self._written(select)
        types = {f"c{place}": kind for place, kind in enumerate(described.values())}
        with server.attempt():
            incoming = self._asking(lambda: server.read(text, types=types))
            self._pour(incoming, name, server.cancel, names=list(described))
        return name

    def _written(self, select: exp.Select) -> str:
        """The name of a table for what a SELECT gives, if it can be sent."""
        self._sent(select)
        self._answers += 1
        return f"empriv_answer{self._answers}"

    def _asking(self, ask: Any) -> Any:
        """What the server answers, so that Ctrl-C and `timeout` can stop it."""
        assert self.server is not None
        self._stop = self.server.cancel
        try:
            return self._interruptible(ask)
        finally:
            self._stop = None

    def _read_rows(self) -> None:
        """Have the rows here, from now on."""
        server = self.server
        assert server is not None
        there = dict(self._there)
        self._there.clear()
        self.integer_bits = 126
        for name, relation in there.items():
            self._receive_from(server, relation, _PART if name == DATA else self._table_called(name))

    def _table_called(self, name: str) -> str:
        return next(table for table in self.data.tables if table.lower() == name)
