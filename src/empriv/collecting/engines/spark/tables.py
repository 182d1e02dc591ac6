"""Tables as Spark DataFrames, and DataFrames as Arrow tables.

What a source is, `sources` says; what is asked of it, `session`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlglot import exp

from empriv.collecting.sources import Connected, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.allowlist import one_select
from empriv.errors import SourceError


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
    if takes_arrow(spark):
        return spark.createDataFrame(table)
    # Spark 3.5 takes rows, or pandas, where integers that may be NULL are doubles.
    columns = [column.to_pylist() for column in table.columns]
    return spark.createDataFrame(list(zip(*columns, strict=True)), spark_schema(plain))


def to_arrow(frame: Any) -> Any:
    """The rows of a DataFrame."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    # Spark 3.5 has toPandas, where integers that may be NULL are doubles: the batches themselves, as bytes.
    import pyarrow

    parts = [bytes(row[0]) for row in frame.mapInArrow(_packed, "part binary").collect()]
    tables = [pyarrow.ipc.open_stream(part).read_all() for part in parts]
    if tables:
        return pyarrow.concat_tables(tables)
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema).empty_table()


def empty(frame: Any, columns: Sequence[str]) -> Any:
    """An Arrow table without rows, of these columns of a DataFrame; nothing is run."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = frame.select(*(f"`{name.replace('`', '``')}`" for name in columns)).schema
    try:
        return to_arrow_schema(schema, timezone="UTC").empty_table()
    except TypeError:  # before Spark 4
        return to_arrow_schema(schema).empty_table()


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


def takes_arrow(spark: Any) -> bool:
    """Whether Spark knows Arrow tables, and groups of them: since 4.0."""
    return int(str(spark.version).partition(".")[0]) >= 4


def _packed(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pyarrow.RecordBatch.from_pydict({"part": [sink.getvalue().to_pybytes()]})


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
