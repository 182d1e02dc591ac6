"""Who and when, of the step Data: whom a row belongs to, and what a database is; with counts and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from empriv.app.form_fields import settings_in, typed_from
from empriv.app.table import UNITS, DataReach, TableAtHand
from empriv.cli.config import Settings
from empriv.errors import InputError

COLUMN, FILES, SAMPLES, SQL = "column", "files", "samples", "sql"
FIELDS: Mapping[str, Any] = {
    "individual": (), "way": "", "time": "", "each": "", "expression": "", "subsamples": "365", "fraction": "0.5",
    "unidentified": "error", "timezone": "",
}  # fmt: skip
LABELS = {
    "individual": "Whom a row belongs to", "database": "What a database is", "time": "The column",
    "each": "The column", "expression": "The expression", "subsamples": "The number of samples",
    "fraction": "The share of people", "unidentified": "Your choice", "timezone": "The time zone",
}  # fmt: skip
_LEAST = 30  # databases, below which random samples are suggested, as `empriv init` does
_SHOWN = 6  # likely columns before the fold
_NAMES = {COLUMN: "database", FILES: "file", SAMPLES: "random sample", SQL: "database"}


def people_typed(settings: Settings, table: TableAtHand) -> dict[str, Any]:
    """What the form holds at first: what the settings say, or what is likeliest."""
    times = [column.name for column in table.times]
    typed = {
        **typed_from(settings, FIELDS),
        "individual": tuple(name for name in settings.individual if name in table.names) or table.seen.individuals[:1],
        "time": times[0] if times else "",
    }
    database = settings.database
    if settings.subsamples is not None:
        return {**typed, "way": SAMPLES}
    if database is None:
        if settings.individual and table.files > 1:
            return {**typed, "way": FILES}
        database = next((cut for cut, count in table.seen.databases if count >= _LEAST), None)
    if database is None:
        return {**typed, "way": FILES if table.files >= _LEAST else SAMPLES}
    for column in table.times:
        for unit in UNITS:
            if database == table.cut(column, unit):
                return {**typed, "way": unit, "time": column.name}
    for column in table.columns:
        if database == column.name or (database == table.cut(column) and database not in table.names):
            return {**typed, "way": COLUMN, "each": column.name}
    return {**typed, "way": SQL, "expression": database}


def people_settings(settings: Settings, typed: Mapping[str, Any], table: TableAtHand) -> Settings:
    """Settings with what was typed; an error names the field that is wrong."""
    individual = tuple(map(table.column_named, typed["individual"]))
    if not individual or any(name not in table.names for name in individual):
        raise InputError("`individual` must be a column of the data, or several that say together who it is.")
    drawn = typed["way"] == SAMPLES
    return replace(
        settings, individual=individual, database=_database(typed, individual, table),
        **(settings_in(typed, "subsamples", "fraction") if drawn else {"subsamples": None, "fraction": None}),
        **settings_in(typed, "unidentified", "timezone"),
    )  # fmt: skip


def _database(typed: Mapping[str, Any], individual: tuple[str, ...], table: TableAtHand) -> str | None:
    """The expression that cuts rows into databases; None of files and of random samples."""
    way, columns = typed["way"], {column.name: column for column in table.columns}
    if way in UNITS:
        column = columns.get(table.column_named(typed["time"]))
        if column is None or not column.is_time:
            raise InputError("`time` must be a column of dates or times.")
        if way == "hour" and not column.moments:
            raise InputError("`time` must hold times of the day, to be cut into hours.")
        return table.cut(column, way)
    if way == COLUMN:
        column = columns.get(table.column_named(typed["each"]))
        if column is None:
            raise InputError("`each` must be a column of the data.")
        if column.name in individual:
            raise InputError("`each` must not be the one that says who it is: each person would be a database.")
        return table.cut(column)
    if way == SQL:
        if not typed["expression"].strip():
            raise InputError("`expression` must be an SQL expression, such as date_trunc('hour', t).")
        return str(typed["expression"].strip())
    if way == FILES and table.files < 2:
        raise InputError("`database` must be something else: there is one file only.")
    if way not in (FILES, SAMPLES):
        raise InputError("`database` must be chosen.")
    return None


def people_content(settings: Settings, table: TableAtHand, typed: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields of the page show: columns that are likely or chosen, then the others."""
    zones: list[str] = []
    if any(column.zoned for column in table.columns):
        from zoneinfo import available_timezones

        zones = sorted(available_timezones())
    columns = {column.name: column for column in table.columns}
    shown = dict.fromkeys([*table.seen.individuals[:_SHOWN], *(n for n in columns if n in typed["individual"])])
    return {
        "who": typed, "zones": zones, "missing": [name for name in settings.individual if name not in columns],
        "likely": [columns[name] for name in shown], "others": [c for c in table.columns if c.name not in shown],
    }  # fmt: skip


def counted_in_words(
    typed: Mapping[str, Any], chosen: Settings, table: TableAtHand, reach: DataReach
) -> dict[str, Any]:
    """What the choices make, for the page to show beside them."""
    from empriv.collecting.profile import are_receipts_of
    from empriv.words.decision import presets_within
    from empriv.words.decision import reach as reach_in_words
    from empriv.words.sentences import what_samples_hide

    way, name = typed["way"], table.column_named(typed["time"])
    columns = {column.name: column for column in table.columns}
    picked = columns[chosen.individual[0]] if len(chosen.individual) == 1 else None
    better = [
        other.name for other in (columns[name] for name in table.seen.individuals)
        if picked is not None and picked.each_in and are_receipts_of(picked, other)
    ]  # fmt: skip
    return {
        "better": "" if reach.once else "".join(better[:1]),
        "reach": reach, "chosen": chosen, "samples": what_samples_hide() if way == SAMPLES else "",
        "sentence": reach_in_words(reach.databases, _NAMES.get(way, way), reach.individuals, reach.least_delta),
        "enough": reach.databases >= reach.enough, "timed": way in UNITS,
        "zoned": way in UNITS and any(column.zoned for column in table.columns if column.name == name),
        "within": presets_within(reach.least_delta),
    }  # fmt: skip
