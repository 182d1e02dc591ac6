"""Dates in text files: refused where day and month could be swapped, and said how they are read where not.

DuckDB settles on one way to read 03/01/2026, and says nothing. A day above 12 anywhere in the column shows which one is
right; where there is none, nobody can tell. Nor can anybody tell which of three numbers of two digits is the year.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from empriv.collecting.engines.data_view import quoted, text_literal
from empriv.collecting.sources import AmbiguousDates, Files

_YEAR_LAST = re.compile(r"\s*\d{1,2}\s*([-/. ])\s*\d{1,2}\s*[-/. ]\s*(\d{4}|\d{2})(?!\d)")
_MONTHS = 12
Run = Callable[[str], list[tuple[Any, ...]]]


def check_dates(files: Files, name: str, columns: Mapping[str, str], run: Run) -> list[str]:
    """Refuse a table read from text, by name, if one of its dates fits both orders of day and month.

    Of dates that fit one order only, it is said which.
    """
    said = []
    for column, kind in columns.items():
        if not (kind == "DATE" or kind.startswith("TIMESTAMP")):
            continue
        written = _YEAR_LAST.match(_first_text(files, column, run))
        if written is None:
            continue
        between, year = written.groups()
        at = quoted(column)
        largest, differ = run(f"SELECT max(day({at})), bool_or(day({at}) <> month({at})) FROM {name}")[0]
        # of three numbers of two digits, DuckDB may take any for the year
        if len(year) == 2 or (differ and largest <= _MONTHS):
            raise AmbiguousDates.of(_could_be_swapped(files, column, between, year), column, len(year))
        if differ:
            said.append(
                f"Dates of {column!r} are read with the {_first_of(files, column, run)} first: no other order fits."
            )
    return said


def _first_of(files: Files, column: str, run: Run) -> str:
    """Whether the day or the month comes first in dates that fit one order."""
    source, value = _as_text(files, column)
    first = f"TRY_CAST(regexp_extract({value}, '^\\s*(\\d+)', 1) AS INTEGER)"
    ((largest,),) = run(f"SELECT max({first}) FROM {source}")
    return "day" if largest is not None and largest > _MONTHS else "month"


def _first_text(files: Files, column: str, run: Run) -> str:
    """One date as the file writes it."""
    source, value = _as_text(files, column)
    rows = run(f"SELECT {value} FROM {source} WHERE {value} IS NOT NULL LIMIT 1")
    return str(rows[0][0]) if rows else ""


def _as_text(files: Files, column: str) -> tuple[str, str]:
    """A column of files as they write it: what is read, and the value."""
    paths = f"[{', '.join(map(text_literal, files.paths))}]"
    if files.kind == "csv":
        return f"read_csv({paths}, all_varchar=true)", quoted(column)
    place = text_literal(f'$."{column}"')
    return f"read_json_objects({paths}, format='auto')", f"json_extract_string(json, {place})"


def _could_be_swapped(files: Files, column: str, between: str, year: str) -> str:
    name, read = PurePath(files.paths[0]).name, "read_csv" if files.kind == "csv" else "read_json"
    form = between.join(("%d", "%m", "%Y" if len(year) == 4 else "%y"))
    return (
        f"Dates must tell the day from the month, got the column {column!r} of {name!r}, where both orders fit every "
        f"date. Hint: write them as 2026-01-31; or say how they are written, and read the file by SQL: "
        f"\"SELECT * FROM {read}('{name}', dateformat='{form}')\", with %m first if the month comes first."
    )
