"""Rows on their way: the stream of one SELECT, read once, batch by batch, into whatever engine takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from empriv.errors import EmprivError, MissingExtraError, SourceError


@dataclass(eq=False)
class Incoming:
    """The rows of one SELECT.

    Attributes
    ----------
    reader : Arrow's batches; it can be read once
    types : DuckDB's types of those columns that come as another type, such as decimals, which come as text
    failure : what went wrong on the way; whoever reads the batches may report it in words of its own
    """

    reader: Any
    types: Mapping[str, str] = field(default_factory=dict)
    failure: EmprivError | None = None

    def columns(self) -> list[str]:
        """Names of the columns."""
        return different([str(name) for name in self.reader.schema.names])

    def batches(self) -> Any:
        """A reader of the same rows, without types that only the driver knows."""
        import pyarrow

        names = self.columns()
        kinds = [_plain_type(kind) for kind in self.reader.schema.types]
        schema = pyarrow.schema([pyarrow.field(name, kind) for name, kind in zip(names, kinds, strict=True)])

        def passing() -> Iterator[Any]:
            try:
                for batch in self.reader:
                    arrays = [getattr(column, "storage", column) for column in batch.columns]
                    yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
            except EmprivError as error:
                self.failure = error
                raise

        return pyarrow.RecordBatchReader.from_batches(schema, passing())


def different(names: list[str]) -> list[str]:
    """Names of columns, which must differ, apart from upper and lower case."""
    if len({name.lower() for name in names}) != len(names):
        raise SourceError("The columns of a table must have different names, apart from upper and lower case.")
    return names


def of_stream(stream: Any) -> Incoming:
    """The rows of any object that speaks Arrow."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    try:
        reader = pyarrow.RecordBatchReader.from_stream(stream)
    except (pyarrow.ArrowException, TypeError, ValueError):
        raise SourceError("The stream must give Arrow's batches of rows, and does not.") from None
    return Incoming(reader)


def _plain_type(kind: Any) -> Any:
    return getattr(kind, "storage_type", kind)
