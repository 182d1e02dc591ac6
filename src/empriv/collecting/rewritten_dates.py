"""Dates of a CSV file written anew as 2026-01-31, once somebody has said whether the day or the month comes first."""

from __future__ import annotations

import csv
import io
import re
from datetime import date

from empriv.collecting.engines.data_view import text_literal
from empriv.collecting.engines.engine import Engine
from empriv.collecting.looking import first_rows
from empriv.collecting.sources import Select
from empriv.errors import SourceError

MOST_ROWS = 5_000_000
_WRITTEN = re.compile(r"\s*(\d{1,2})\s*[-/. ]\s*(\d{1,2})\s*[-/. ]\s*(\d{4})(?!\d)(.*)", re.DOTALL)


def with_dates_rewritten(engine: Engine, path: str, column: str, *, day_first: bool) -> bytes:
    """The content of a CSV file in which the dates of a column tell the day from the month; all else stays as it is."""
    source = Select(f"SELECT * FROM read_csv({text_literal(path)}, all_varchar = true)")
    names, rows = first_rows(engine, source, MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise SourceError(f"The file must have at most {MOST_ROWS:,} rows for its dates to be written anew.")
    if column not in names:
        raise SourceError("The column of dates must be in the file.")
    place = names.index(column)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([*row[:place], _rewritten(row[place], day_first=day_first), *row[place + 1 :]])
    return text.getvalue().encode()


def _rewritten(value: str | None, *, day_first: bool) -> str | None:
    match = None if value is None else _WRITTEN.fullmatch(value)
    if match is None:
        return value
    first, second, year, rest = match.groups()
    day, month = (first, second) if day_first else (second, first)
    try:
        return f"{date(int(year), int(month), int(day)).isoformat()}{rest}"
    except ValueError:
        raise SourceError("The dates must exist in the order that was chosen, and one does not.") from None
