"""Rows and a text kept in a directory that executors reach, for a driver that goes on where another one ended."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any

from empriv.collecting.engines.spark.failures import is_missing


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
        if is_missing(error):
            return None
        raise
