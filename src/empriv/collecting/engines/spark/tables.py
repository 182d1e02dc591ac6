"""Tables as Spark DataFrames, rows kept in a directory for a later driver, and what Spark says of a failure.

Small tables are read here by DuckDB: Spark takes seconds for any statement, however few the rows. A table is small if
Spark expects it to be, by its own statistics, and it then turns out to have few rows. A table of which Spark knows
nothing stays on Spark, since even its first rows might take a whole job; and so does one with moments in time, which
the two spell differently: databases must not be called otherwise when a table grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from sqlglot import exp

from empriv.base.progress import progress as progress_bar
from empriv.collecting.engines.duckdb import DuckDBEngine
from empriv.collecting.engines.duckdb.session import DuckDBSession
from empriv.collecting.engines.engine import FailedOnRows
from empriv.collecting.sources import Connected, Databases, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.allowlist import one_select
from empriv.errors import EmprivError, QueryError, SourceError


def relation(spark: Any, table: Table, run: Callable[[exp.Expr], Any]) -> Any:
    """The DataFrame of a table; ``run`` gives that of a statement over the other tables."""
    match table:
        case Files(paths, "parquet"):
            return spark.read.parquet(*paths)
        case Files(paths, "csv"):
            separator = "\t" if all(".tsv" in path.lower() for path in paths) else ","
            return spark.read.csv(list(paths), header=True, inferSchema=True, sep=separator)
        case Files(paths, _):
            return spark.read.json(list(paths))
        case Stored():
            raise SourceError("A DuckDB file must be read with DuckDB. Hint: write its table to Parquet for Spark.")
        case Connected():
            raise SourceError(
                "A table of PostgreSQL or SQLite must be given to Spark as a DataFrame. "
                'Hint: spark.read.format("jdbc") makes one.'
            )
        case Select(sql):
            return run(one_select(sql))
        case Frame(frame, None):
            return _from_frame(spark, frame)
        case Frame():
            raise SourceError("A stream must be given to Spark as a table. Hint: pyarrow.table(stream) makes one.")


def _from_frame(spark: Any, frame: Any) -> Any:
    home = type(frame).__module__.partition(".")[0]
    if home == "pyspark":
        return frame
    import pyarrow

    if home == "pandas":
        frame = pyarrow.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    elif home == "polars":
        frame = frame.to_arrow()
    elif home != "pyarrow":
        frame = pyarrow.table(frame)  # whatever speaks Arrow
    return from_arrow(spark, frame)


def from_arrow(spark: Any, table: Any) -> Any:
    """A DataFrame of a local table."""
    import pyarrow

    plain = pyarrow.schema([pyarrow.field(field.name, _known(field.type)) for field in table.schema])
    table = table.cast(plain)
    return spark.createDataFrame(table)


def empty(frame: Any, columns: Sequence[str]) -> Any:
    """An Arrow table without rows, of these columns of a DataFrame; nothing is run."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = frame.select(*(f"`{name.replace('`', '``')}`" for name in columns)).schema
    return to_arrow_schema(schema, timezone="UTC").empty_table()


def spark_schema(schema: Any) -> Any:
    """The columns of an Arrow schema in Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def function_class(spark: Any, name: str) -> str | None:
    """The class behind a function's name, as the catalogue knows it; None if there is no such function."""
    try:
        return str(spark.catalog.getFunction(name).className)
    except Exception as error:
        if type(error).__name__ == "AnalysisException":
            return None
        raise


def _known(kind: Any) -> Any:
    """The type that Spark has for one of Arrow's: it has neither long texts nor categories nor unsigned integers."""
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        return _known(kind.value_type)
    if pyarrow.types.is_large_string(kind) or pyarrow.types.is_string_view(kind):
        return pyarrow.string()
    wider = {"uint8": pyarrow.int16(), "uint16": pyarrow.int32(), "uint32": pyarrow.int64(),
             "uint64": pyarrow.decimal128(20, 0)}  # fmt: skip
    return wider.get(str(kind), kind)


MOST_BYTES = 10 * 2**20  # as much as Spark itself sends to every executor, unless told otherwise
MOST_ROWS = 200_000  # however well they are compressed
_UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5, "EiB": 6}


@dataclass(frozen=True)
class DriverEngine(DuckDBEngine):
    """DuckDB on rows that came from Spark; ``fetched`` are the frames and their rows."""

    fetched: tuple[tuple[Any, Any], ...] = field(default=(), repr=False)

    @contextmanager
    def session(self, data: Databases) -> Iterator[DuckDBSession]:
        """Open the databases for querying."""
        here = replace(
            data,
            parts=tuple(map(self._here, data.parts)),
            tables={name: self._here(table) for name, table in data.tables.items()},
        )
        with super().session(here) as session:
            yield session

    def _here(self, table: Table) -> Table:
        rows = [rows for frame, rows in self.fetched if isinstance(table, Frame) and table.frame is frame]
        return Frame(rows[0]) if rows else table


def driver_engine(data: Databases, progress: bool | None = None) -> DriverEngine | None:
    """An engine that reads these tables here, None if one of them is not small."""
    frames = [table.frame for table in (*data.parts, *data.tables.values()) if is_spark(table)]  # type: ignore[union-attr]
    moments = any(kind.startswith("timestamp") for frame in frames for _, kind in frame.dtypes)
    if moments or sum(map(expected_bytes, frames)) > MOST_BYTES:
        return None
    fetched = []
    for frame in frames:
        saying = "Spark sends its rows, which takes some seconds for any table"
        with reading(), progress_bar(1, saying, show=progress) as advance:
            rows = frame.limit(MOST_ROWS + 1).toArrow()
            advance()
        if rows.num_rows > MOST_ROWS:
            return None
        fetched.append((frame, rows))
    return DriverEngine(progress=progress, fetched=tuple(fetched))


def is_spark(table: Table) -> bool:
    """Whether a table is a Spark DataFrame."""
    return isinstance(table, Frame) and type(table.frame).__module__.startswith("pyspark.")


def expected_bytes(frame: Any) -> float:
    """How large Spark expects a table to be before it reads it; infinite if it does not say."""
    try:
        if hasattr(frame, "_jdf"):
            return float(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
        said = re.search(r"sizeInBytes=([\d.]+) ?([KMGTPE]?i?B)", frame._explain_string(mode="cost"))
    except Exception:  # whatever Spark says, it is no reason to fail here: it will say so again
        return float("inf")
    return float("inf") if said is None else float(said[1]) * 1024.0 ** _UNITS.get(said[2], 6)


def absolute(path: str | PathLike[str]) -> str:
    """A path that executors understand as well: absolute, unless it names where it is."""
    text = fspath(path)
    return text if "://" in text or text.startswith(("dbfs:", "file:")) else str(Path(text).absolute())


def write(spark: Any, place: str, rows: Any, note: str) -> None:
    """Write the rows of a DataFrame, and a text."""
    path = absolute(place)
    rows.write.mode("overwrite").parquet(f"{path}/pairs")
    # Written last: whoever finds it finds all.
    spark.createDataFrame([(note,)], "said string").write.mode("overwrite").parquet(f"{path}/done")


def read(spark: Any, place: str) -> tuple[Any, str] | None:
    """What `write` wrote; None if it is not there, or was not written to the end."""
    path = absolute(place)
    try:
        note = spark.read.parquet(f"{path}/done").collect()[0][0]
        return spark.read.parquet(f"{path}/pairs"), str(note)
    except Exception as error:
        # Not there, or begun and not finished.
        if _about(error, ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")) or "PATH_NOT_FOUND" in _condition(error):
            return None
        raise


# What Spark says of a failure may hold values of the rows; the names that it gives to errors hold none.

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
_NO_MEMORY = (
    "An executor has not enough memory. Hint: give SparkEngine more `partitions`, or executors more "
    "spark.executor.memory and spark.executor.memoryOverhead."
)


@contextmanager
def reading() -> Iterator[None]:
    """Say what is wrong with a source without quoting it."""
    with _explained("The rows cannot be read", SourceError, SourceError):
        yield


@contextmanager
def querying() -> Iterator[None]:
    """Say what is wrong with a query without quoting rows."""
    with _explained("The query cannot be run", QueryError, FailedOnRows):
        yield


@contextmanager
def _explained(what: str, kind: type[EmprivError], about_values: type[EmprivError]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _interrupted(error):
            raise KeyboardInterrupt from None
        # Spark raised it, on whichever side of the bridge to Java.
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc"):
            raise
        if _about(error, _ABOUT_MEMORY):
            failure = kind(_NO_MEMORY)
        else:
            failure = (about_values if _about(error, _ABOUT_VALUES) else kind)(f"{what}: {_condition(error)}.")
    else:
        return
    raise failure


def _about(error: BaseException, parts: tuple[str, ...]) -> bool:
    text = f"{type(error).__name__} {error}"
    return any(part in text for part in parts)


def _interrupted(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C that ended the job; what Spark says of that comes after it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _condition(error: Any) -> str:
    """What Spark calls the error: its name only, since its message may hold more than names."""
    for method in ("getCondition", "getErrorClass"):
        with suppress(Exception):
            if found := getattr(error, method)():
                return f"Spark reports {found}"
    return f"Spark reports {type(error).__name__}"
