"""Who and when, of the step Data: whom a row belongs to, and what a database is; with counts and warnings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import FormData

from empriv.app.form_fields import positive, whole_number
from empriv.app.source_preview import UNITS, DataReach, SourcePreview
from empriv.cli.config import Settings
from empriv.errors import InputError

COLUMN, FILES, SAMPLES, SQL = "column", "files", "samples", "sql"
LABELS = {
    "individual": "Whom a row belongs to", "database": "What a database is", "time": "The column",
    "each": "The column", "expression": "The expression", "subsamples": "The number of samples",
    "fraction": "The share of people", "unidentified": "Your choice", "timezone": "The time zone",
}  # fmt: skip
_LEAST = 30  # databases, below which random samples are suggested, as `empriv init` does
_SAMPLES = 365
_SHOWN = 6  # likely columns before the fold
_NAMES = {COLUMN: "database", FILES: "file", SAMPLES: "random sample", SQL: "database"}


@dataclass(frozen=True)
class WhoAndWhen:
    """What the form holds: as typed, whether it can be used or not."""

    individual: tuple[str, ...] = ()
    way: str = ""
    time: str = ""
    each: str = ""
    expression: str = ""
    subsamples: str = str(_SAMPLES)
    fraction: str = "0.5"
    unidentified: str = "error"
    timezone: str = ""


def counted_in_words(typed: WhoAndWhen, chosen: Settings, table: SourcePreview, reach: DataReach) -> dict[str, Any]:
    """What the choices make, for the page to show beside them."""
    from empriv.words.planning import presets_within
    from empriv.words.planning import reach as reach_in_words
    from empriv.words.what_is_known import what_samples_hide

    zoned = next((column.zoned for column in table.columns if column.name == typed.time), False)
    return {
        "reach": reach, "chosen": chosen, "samples": what_samples_hide() if typed.way == SAMPLES else "",
        "sentence": reach_in_words(
            reach.databases, _NAMES.get(typed.way, typed.way), reach.individuals, reach.least_delta
        ),
        "enough": reach.databases >= reach.enough, "timed": typed.way in UNITS,
        "zoned": zoned and typed.way in UNITS, "within": presets_within(reach.least_delta),
    }  # fmt: skip


def typed_in(form: FormData) -> WhoAndWhen:
    """What a form holds."""
    texts = {field: str(form.get(field) or "").strip() for field in WhoAndWhen.__dataclass_fields__}
    names = tuple(dict.fromkeys(str(name) for name in form.getlist("individual")))
    # names of columns are taken to the letter
    return replace(
        WhoAndWhen(**{**texts, "individual": names}),  # type: ignore[arg-type]
        time=str(form.get("time") or ""), each=str(form.get("each") or ""),
    )  # fmt: skip


def typed_from(settings: Settings, table: SourcePreview) -> WhoAndWhen:
    """What a form holds at first: what the settings say, or what is likeliest."""
    times = [column.name for column in table.times]
    typed = WhoAndWhen(
        individual=tuple(name for name in settings.individual if name in table.names) or table.individuals[:1],
        time=times[0] if times else "",
        unidentified=settings.unidentified,
        timezone=settings.timezone or "",
    )
    if settings.subsamples is not None:
        return replace(
            typed, way=SAMPLES, subsamples=str(settings.subsamples),
            fraction=f"{settings.fraction or 0.5:g}",
        )  # fmt: skip
    database = settings.database
    if database is None and settings.individual and table.files > 1:
        return replace(typed, way=FILES)
    if database is None:
        likely = next((cut for cut, count in table.databases if count >= _LEAST), None)
        if likely is None:
            return replace(typed, way=FILES if table.files >= _LEAST else SAMPLES)
        database = likely
    for column in table.times:
        if database in column.cuts:
            return replace(typed, way=UNITS[column.cuts.index(database)], time=column.name)
    for column in table.columns:
        if database == column.name or (database == column.as_database and database not in table.names):
            return replace(typed, way=COLUMN, each=column.name)
    return replace(typed, way=SQL, expression=database)


def settings_from(settings: Settings, typed: WhoAndWhen, table: SourcePreview) -> Settings:
    """Settings with what was typed; an error names the field that is wrong."""
    typed = replace(
        typed, individual=tuple(map(table.column_named, typed.individual)), time=table.column_named(typed.time),
        each=table.column_named(typed.each),
    )  # fmt: skip
    if not typed.individual or any(name not in table.names for name in typed.individual):
        raise InputError("`individual` must be a column of the data, or several that say together who it is.")
    database: str | None = None
    subsamples: int | None = None
    fraction: float | None = None
    if typed.way in UNITS:
        cuts = next((column.cuts for column in table.times if column.name == typed.time), None)
        if cuts is None:
            raise InputError("`time` must be a column of dates or times.")
        if typed.way == "hour" and not any(column.moments for column in table.times if column.name == typed.time):
            raise InputError("`time` must hold times of the day, to be cut into hours.")
        database = cuts[UNITS.index(typed.way)]
    elif typed.way == COLUMN:
        if typed.each not in table.names:
            raise InputError("`each` must be a column of the data.")
        if typed.each in typed.individual:
            raise InputError("`each` must not be the one that says who it is: each person would be a database.")
        database = next(column.as_database for column in table.columns if column.name == typed.each)
    elif typed.way == FILES:
        if table.files < 2:
            raise InputError("`database` must be something else: there is one file only.")
    elif typed.way == SAMPLES:
        subsamples, fraction = (
            whole_number("subsamples", typed.subsamples, 2, 1_000_000),
            positive("fraction", typed.fraction, below=1),
        )
    elif typed.way == SQL:
        if not typed.expression:
            raise InputError("`expression` must be an SQL expression, such as date_trunc('hour', t).")
        database = typed.expression
    else:
        raise InputError("`database` must be chosen.")
    if typed.unidentified not in ("error", "keep", "drop"):
        raise InputError("`unidentified` must be one of error, keep and drop.")
    return replace(
        settings, individual=typed.individual, database=database, subsamples=subsamples, fraction=fraction,
        unidentified=typed.unidentified, timezone=typed.timezone or None,
    )  # fmt: skip


def people_content(settings: Settings, table: SourcePreview, typed: WhoAndWhen) -> dict[str, Any]:
    zones: list[str] = []
    if any(column.zoned for column in table.columns):
        from zoneinfo import available_timezones

        zones = sorted(available_timezones())
    missing = [name for name in settings.individual if name not in table.names]
    likely = [column for name in table.individuals for column in table.columns if column.name == name]
    shown = likely[:_SHOWN]
    shown += [column for column in table.columns if column.name in typed.individual and column not in shown]
    others = [column for column in table.columns if column not in shown]
    return {
        "who": typed, "zones": zones, "missing": missing, "likely": shown,
        "others": others,
    }  # fmt: skip
