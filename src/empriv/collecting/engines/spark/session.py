"""The Spark engine: the same statements in Spark's SQL, run on a cluster.

Nothing but DataFrames and SQL is asked of Spark, so that Spark Connect serves as well; pyspark is imported when an
engine is used. Statements are put into Spark's words by `dialect`, tables are read and kept by `tables`, and
`failures` keeps rows out of messages. Temporary views have names of their own, and go when the session does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy.typing as npt
from sqlglot import exp, parse_one

from empriv.base.progress import progress as progress_bar
from empriv.collecting.engines.connections import different
from empriv.collecting.engines.data_view import DataView, data_view, labels, zone_of
from empriv.collecting.engines.duckdb.recheck import Binder, binder_of_arrow
from empriv.collecting.engines.engine import (
    DATA,
    DATABASE,
    EVERYONE,
    WHERE,
    WHO,
    Batches,
    Column,
    IsolatedRows,
    Rows,
    SentRows,
    Session,
    columns_of,
    labels_of,
)
from empriv.collecting.engines.spark.statements import (
    check_calls,
    check_tables,
    in_spark,
    kept_parts,
    plain_ranges,
    to_spark,
    written,
)
from empriv.collecting.engines.spark.tables import (
    empty,
    from_arrow,
    function_class,
    querying,
    read,
    reading,
    relation,
    spark_schema,
    write,
)
from empriv.collecting.function_calls import CODE, Chunk, FunctionQuery, called_batches
from empriv.collecting.sources import Databases, databases
from empriv.collecting.sql.aggregates import Type
from empriv.collecting.sql.printing import OWN_NAMES, Names, plain, secret
from empriv.errors import InputError, MissingExtraError, QueryError

# Digits of Spark's integers; sums of the longest may need more than 64 bits.
_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MOST_TASKS = 10_000
_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class SparkEngine:
    """Runs queries on a Spark cluster.

    Parameters
    ----------
    spark : a SparkSession, also one of Spark Connect
    partitions : into how many parts individuals are dealt for measuring; Spark's shuffle partitions unless given

    Examples
    --------
    Needs the extra ``spark``; ``spark`` is your session.

    >>> rows = spark.sql("SELECT id % 30 AS day, id % 7 AS who, id * 1.5 AS x FROM range(600)")
    >>> data = empriv.databases(rows, database="day", individual="who")
    >>> audit = empriv.audit(data, "avg(x)", epsilon=0.1, engine=empriv.SparkEngine(spark))
    >>> audit.n_individuals
    7
    """

    spark: Any
    partitions: int | None = None

    def __post_init__(self) -> None:
        try:
            import pyarrow  # noqa: F401
            import pyspark  # noqa: F401
        except ImportError:
            raise MissingExtraError("pyspark", "spark") from None
        if not hasattr(self.spark, "sql") or not hasattr(self.spark, "createDataFrame"):
            raise InputError(f"`spark` must be a SparkSession, got {type(self.spark).__name__}.")
        if self.partitions is not None and (not isinstance(self.partitions, int) or self.partitions < 1):
            raise InputError(f"`partitions` must be a whole number of 1 or more, got {self.partitions!r}.")
        if str(self.spark.conf.get("spark.sql.ansi.enabled")).lower() != "true":
            raise InputError(
                "`spark` must run with spark.sql.ansi.enabled, since sums overflow in silence otherwise. "
                'Hint: spark.conf.set("spark.sql.ansi.enabled", "true").'
            )
        if str(self.spark.conf.get("spark.sql.parser.escapedStringLiterals", "false")).lower() == "true":
            raise InputError(
                "`spark` must run without spark.sql.parser.escapedStringLiterals, since texts in a query could end "
                'elsewhere otherwise. Hint: spark.conf.set("spark.sql.parser.escapedStringLiterals", "false").'
            )

    @contextmanager
    def session(self, data: Databases) -> Iterator[SparkFrames]:
        """Open the databases for querying."""
        opened = SparkFrames(self.spark, data, self.parts())
        before = self.spark.conf.get(_ZONE)
        self.spark.conf.set(_ZONE, zone_of(data))
        try:
            with cancellable(self.spark, opened.token):
                opened.prepare()
                yield opened
        finally:
            opened.close()
            with suppress(Exception):
                self.spark.conf.set(_ZONE, before)

    @contextmanager
    def isolated(self, session: Session, data: Databases, chosen: Sequence[int]) -> Iterator[IsolatedRows]:
        """The rows of these databases of a session, here: DuckDB asks them what was asked of Spark."""
        from empriv.collecting.engines.duckdb import DuckDBEngine

        with DuckDBEngine().isolated(session, data, chosen) as rows:
            yield rows

    def parts(self) -> int:
        """Into how many parts individuals are dealt."""
        return self.partitions or int(self.spark.conf.get("spark.sql.shuffle.partitions"))


@contextmanager
def cancellable(spark: Any, tag: str) -> Iterator[None]:
    """Mark the jobs of the body, and end those that still run when it is left by an exception."""
    add, remove, end = _tagging(spark)
    add(tag)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            end(tag)
        raise
    finally:
        with suppress(Exception):
            remove(tag)


def _tagging(spark: Any) -> tuple[Callable[[str], Any], Callable[[str], Any], Callable[[str], Any]]:
    if ".connect." in type(spark).__module__:
        return spark.addTag, spark.removeTag, spark.interruptTag
    context = spark.sparkContext
    return context.addJobTag, context.removeJobTag, context.cancelJobsWithTag


def _token() -> str:
    """A name that nobody can guess."""
    return f"{OWN_NAMES}{secrets.token_hex(16)}"


@dataclass(eq=False)
class SparkFrames(DataView):
    """Temporary views in a Spark session: ``data``, the other tables, labels, and what is kept between statements."""

    spark: Any
    data: Databases
    parts: int
    token: str = field(default_factory=_token)
    integer_bits: int = 62
    _views: dict[str, str] = field(default_factory=dict)
    _parts: dict[str, str] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    _classes: dict[str, str | None] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the views; called once."""
        with reading():
            for name, table in self.data.tables.items():
                self._view(name, relation(self.spark, table, self._unchecked))
            relations = []
            for number, part in enumerate(self.data.parts):
                frame = relation(self.spark, part, self._unchecked)
                different(frame.columns)
                self._view(f"empriv_part{number}", frame)
                relations.append(f"empriv_part{number}")
            for sql in data_view(self.data, relations, self.columns_of):
                made = parse_one(plain_ranges(sql), dialect="duckdb")
                assert isinstance(made, exp.Create)
                frame = self._unchecked(cast(exp.Expr, made.expression))
                self._view(made.this.name, self.keep(frame) if made.kind == "TABLE" else frame)
            for name in relations:  # from here on, rows are read as `data` alone
                self._parts[name] = self._views.pop(name)
        self.check_nulls()
        self.make_labels("empriv_databases", DATABASE)

    def close(self) -> None:
        """Free what was kept, then drop all views: Spark Connect knows a frame by the views that it reads."""
        for frame in reversed(self._kept):
            with suppress(Exception):
                frame.unpersist()
        for name in (*self._views.values(), *self._parts.values()):
            with suppress(Exception):
                self.spark.catalog.dropTempView(name)
        if "binder" in self.__dict__:
            self.binder.close()
        self._kept.clear()
        self._views.clear()
        self._parts.clear()

    @property
    def said(self) -> Sequence[str]:
        return ()

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        """Refuse a query that DuckDB, whose language it is, refuses on empty tables, or Spark does; nothing is run."""
        self.binder.admit(select, written)
        self._admitted(select, {name.lower(): self._views[name.lower()] for name in (DATA, *self.data.tables)})

    @cached_property
    def binder(self) -> Binder:
        """Empty tables like those that a query may read, in DuckDB."""
        return binder_of_arrow(
            {name: empty(self.spark.table(self._views[name.lower()]), own) for name, own in self.columns.items()}
        )

    def types(self, statement: exp.Expr) -> dict[str, Type]:
        with querying():
            return {name: _type(kind) for name, kind in self._shown(statement).dtypes}

    def fetch(self, statement: exp.Expr) -> dict[str, Column]:
        with querying():
            return columns_of(self._shown(statement).toArrow())

    def store(self, name: str, statement: exp.Expr) -> None:
        with querying():
            self._view(name, self.keep(self.frame(statement)))

    def store_numbers(self, name: str, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        import pyarrow

        own = {secret(name, self.nonce) if name.startswith(OWN_NAMES) else name: columns[name] for name in columns}
        self._view(name, from_arrow(self.spark, pyarrow.table(own)))

    def frame(self, statement: exp.Expr) -> Any:
        """The Spark DataFrame of a statement, not run yet; what it names MATERIALIZED is kept for the next ones."""
        parts, rest = kept_parts(statement)
        names = dict(self._views)
        for name, part in parts:
            text = self._admitted(part, names)
            if text not in self._parts:
                self._parts[text] = f"{self.token}_{name}_{len(self._parts)}"
                self.keep(self.spark.sql(text)).createOrReplaceTempView(self._parts[text])
            names[name] = self._parts[text]
        return self.spark.sql(self._admitted(rest, names))

    def _shown(self, statement: exp.Expr) -> Any:
        """The DataFrame of a statement, with columns called as we know them."""
        frame = self.frame(statement)
        return frame.toDF(*(plain(name, self.nonce) for name in frame.columns))

    @property
    def nonce(self) -> str:
        """What names of empriv's own carry in this session."""
        return self.token.removeprefix(OWN_NAMES)

    def _admitted(self, statement: exp.Expr, names: Mapping[str, str]) -> str:
        """The text of a statement that may be run, by what a query may read and call."""
        tree = in_spark(statement, names, self.nonce)
        check_tables(tree, names.values())
        text = written(tree)
        check_calls(text, self._named_columns, self._class_of)
        return text

    @cached_property
    def _named_columns(self) -> frozenset[str]:
        return frozenset(name for columns in self.columns.values() for name in columns)

    def _class_of(self, function: str) -> str | None:
        """The class behind a function's name in the Spark session; None if there is none."""
        if function not in self._classes:
            self._classes[function] = function_class(self.spark, function)
        return self._classes[function]

    def _unchecked(self, statement: exp.Expr) -> Any:
        """The DataFrame of a statement of whoever sees the rows: it may read and call anything."""
        return self.spark.sql(to_spark(statement, self._views, self.nonce))

    def stream(self, statement: exp.Expr) -> SentRows:
        with reading():
            rows = self.frame(statement).toArrow()
        names = rows.column_names
        # Spark's rows have no order of their own.
        ordered = rows.sort_by([(name, "ascending") for name in names])
        return SentRows(ordered, dict.fromkeys([plain(name, self.nonce) for name in names], ""))

    @contextmanager
    def rerun(self, statement: exp.Expr, database: int) -> Iterator[Callable[[int], Rows | None]]:
        # One database is fetched, and queried here: a Spark job for each individual would take seconds each.
        from empriv.collecting.engines.duckdb import DuckDBEngine

        with reading():
            rows = self._shown(
                parse_one(self.coded(EVERYONE, CODE, f"d.code = {database}"), dialect="duckdb")
            ).toArrow()
            rows = rows.drop([DATABASE]).sort_by([(name, "ascending") for name in rows.drop([DATABASE]).column_names])
            codes = rows[CODE].to_numpy()
            tables = {name: self._shown(exp.select("*").from_(name)).toArrow() for name in self.data.tables}
        import pyarrow

        place = rows.column_names.index(CODE)
        rows = rows.set_column(place, CODE, pyarrow.array(codes, mask=codes < 0))
        here = databases([rows], individual=CODE, tables=tables, unidentified="keep")
        with DuckDBEngine(threads=1).session(here) as local:
            local.admit(statement, None)
            known = local.individuals.tolist()
            with local.rerun(statement, 0) as run:
                yield lambda individual: run(-1 if individual < 0 else known.index(individual))

    def extract(self, directory: str) -> Callable[[int], Any]:  # noqa: ARG002 — the protocol's
        raise QueryError("Rows are not extracted from Spark: functions are called in its executors.")

    def run_calls(self, query: FunctionQuery, *, show: bool | None = None) -> list[Chunk]:
        """A function called on every database with everyone, and without each individual, in the executors."""
        coded = self._shown(parse_one(self.coded(EVERYONE, CODE, "TRUE"), dialect="duckdb"))
        own = tuple(self.columns[DATA])

        def call(batches: Iterator[Any]) -> Iterator[Any]:
            return called_batches(query, own, batches)

        # As many partitions as databases, unless there are more than a driver can watch.
        count = min(len(self.databases), _MOST_TASKS)
        with (
            progress_bar(1, "Calls without each individual", show=show) as advance,
            querying(),
        ):
            dealt = coded.repartition(count, DATABASE).sortWithinPartitions(DATABASE)
            found = dealt.mapInArrow(call, "chunk binary").collect()
            advance()
        return [Chunk.from_bytes(bytes(row[0])) for row in found]

    def run_batches(
        self, entries: exp.Expr, work: Callable[[Batches], Batches], schema: Any, table: str | None = None
    ) -> list[bytes]:
        """Deal entries out to the executors by individual, have each do its work, and return what it says in bytes.

        Dealt by a hash of the label, after the rows have been added up: neither an individual nor a database with
        most of the rows burdens one executor.
        """
        said = schema.names[-1]
        with querying():
            frame = self._shown(entries)
            if _as_text(dict(frame.dtypes)[WHO]):
                frame = frame.withColumn(WHO, frame[WHO].cast("string"))
            dealt = frame.repartition(self.parts, WHO).sortWithinPartitions(WHO, WHERE)
            done = dealt.mapInArrow(work, spark_schema(schema))
            if table is not None:
                done = self.keep(done)
                done.where(f"{said} IS NULL").drop(said).write.mode("overwrite").saveAsTable(table)
            rows = done.where(f"{said} IS NOT NULL").select(said).collect()
        # In one order, whichever executor was first: sums of doubles come out alike.
        return sorted(bytes(row[0]) for row in rows)

    def save(self, place: str, statement: exp.Expr, note: str) -> None:
        with querying():
            write(self.spark, place, self._shown(statement), note)

    def load(self, place: str) -> tuple[exp.Expr, str] | None:
        with querying():
            saved = read(self.spark, place)
        if saved is None:
            return None
        rows, note = saved
        self._view("empriv_saved", rows)
        return exp.select("*").from_("empriv_saved"), note

    def fingerprint(self) -> str:
        """The rows in one text: their columns, their number, and the sum of hashes of them, table by table."""
        said = []
        for name in (DATA, *self.data.tables):
            view = self._views[name.lower()]
            with querying():
                total = "CAST(SUM(CAST(XXHASH64(*) AS DECIMAL(38, 0))) AS STRING)"
                rows = self.spark.sql(f"SELECT COUNT(*), {total} FROM {view}").collect()
            said.append(f"{name} {self.columns_of(name)} {tuple(rows[0])}")
        return "; ".join(said)

    def _view(self, name: str, frame: Any) -> None:
        own = f"{self.token}_{name.lower()}"
        frame.createOrReplaceTempView(own)
        self._views[name.lower()] = own
        if name == EVERYONE:
            self._views[DATA] = own

    def keep(self, frame: Any) -> Any:
        """Have a DataFrame computed once only, for as long as the session lasts."""
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def about_rows(self, sql: str) -> dict[str, Column]:
        with reading():
            return columns_of(self._shown(parse_one(sql, dialect="duckdb")).toArrow())

    def columns_of(self, relation: str) -> dict[str, str]:
        found = self.spark.table(self._views[relation.strip('"').replace('""', '"').lower()]).dtypes
        return {plain(name, self.nonce): kind for name, kind in found}

    def make_labels(self, name: str, column: str) -> None:
        with reading():
            statement = parse_one(plain_ranges(labels(self.data, column)), dialect="duckdb")
            self._view(name, self.keep(self.frame(statement)))

    def labels_in(self, name: str) -> npt.NDArray[Any]:
        kind = dict(self.spark.table(self._views[name]).dtypes)["label"]
        text = "CAST(label AS TEXT) AS label" if _as_text(kind) else "label"
        with reading():
            found = self.frame(parse_one(f"SELECT {text}, code FROM {name} ORDER BY code", dialect="duckdb")).toArrow()
        return labels_of(found["label"])


def _as_text(kind: str) -> bool:
    """Whether labels of this type are given as texts: all but integers and those of several columns."""
    return kind not in _INTEGERS and not kind.startswith("struct")


def _type(kind: str) -> Type:
    if kind in _INTEGERS:
        return Type("integer", _INTEGERS[kind])
    if kind.startswith("decimal"):
        digits, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
        return Type("decimal", int(digits), int(scale))
    if kind in {"double", "float"}:
        return Type("double")
    return Type("boolean" if kind == "boolean" else "other")
