"""Step "Who and when": whom a row belongs to, and what a database is; with counts and warnings meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.pages import ELSEWHERE, by_label, changed_elsewhere, folder_of, form_of, go, show
from empriv.app.swapped_dates import trouble_with
from empriv.app.table_at_hand import UNITS, TableAtHand, reach_of_audit, table_if_known, table_of_audit
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

COLUMN, FILES, SAMPLES, SQL = "column", "files", "samples", "sql"
LABELS = {
    "individual": "Whom a row belongs to", "database": "What a database is", "time": "The column",
    "column": "The column", "expression": "The expression", "subsamples": "The number of samples",
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
    column: str = ""
    expression: str = ""
    subsamples: str = str(_SAMPLES)
    fraction: str = "0.5"
    unidentified: str = "error"
    timezone: str = ""


async def people(request: Request) -> Response:
    """Who the individuals are, and what a database is."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if request.method == "GET":
        table = table_if_known(request, settings)
        if table is None and "wait" not in request.query_params:
            return show(request, "people.html", step="people", settings=settings, table=None)
        return await _whole(request, settings)
    form = await form_of(request)
    if changed_elsewhere(request, form):
        return await _whole(request, settings, errors={"": ELSEWHERE}, status=409)
    typed = typed_in(form)
    try:
        chosen = settings_from(settings, typed, await table_of_audit(request, settings))
        reach = await reach_of_audit(request, chosen)
        if reach.unidentified and chosen.unidentified == "error":
            raise InputError(
                f"`unidentified` must say what to do with {reach.unidentified:,} rows that have no person."
            )
        folder.write(name, chosen)
    except EmprivError as error:
        return await _whole(request, settings, typed=typed, errors=by_label(error, LABELS), status=400)
    return go(request, "statistic")


async def people_form(request: Request) -> Response:
    """The form, which the page asks for once it is there: to fill it, the rows must be looked at."""
    settings = folder_of(request).settings(request.path_params["name"])
    try:
        table = await table_of_audit(request, settings)
    except EmprivError as error:
        return show(request, "no_table.html", **trouble_with(settings, error))
    return show(request, "people_form.html", **_content(settings, table, typed_from(settings, table)))


async def counts(request: Request) -> Response:
    """What the choices make, while they are made."""
    form = await form_of(request)
    settings = folder_of(request).settings(request.path_params["name"])
    typed = typed_in(form)
    try:
        table = await table_of_audit(request, settings)
        chosen = settings_from(settings, typed, table)
        reach = await reach_of_audit(request, chosen)
    except EmprivError as error:
        return show(request, "live_problem.html", errors=by_label(error, LABELS))
    from empriv.words.planning import presets_within
    from empriv.words.planning import reach as reach_in_words
    from empriv.words.sentences import floor

    zoned = next((column.zoned for column in table.columns if column.name == typed.time), False)
    sentence = reach_in_words(reach.databases, _NAMES.get(typed.way, typed.way), reach.individuals, reach.least_delta)
    samples = ""
    if typed.way == SAMPLES:
        from empriv.words.what_is_known import what_samples_hide

        samples = what_samples_hide()
    return show(
        request, "people_counts.html", sentence=sentence, reach=reach, chosen=chosen, samples=samples,
        floor=floor(reach.databases, reach.least_delta), enough=reach.databases >= reach.enough,
        zoned=zoned and typed.way in UNITS, timed=typed.way in UNITS, within=presets_within(reach.least_delta),
    )  # fmt: skip


def typed_in(form: FormData) -> WhoAndWhen:
    """What a form holds."""
    texts = {field: str(form.get(field) or "").strip() for field in WhoAndWhen.__dataclass_fields__}
    names = tuple(dict.fromkeys(str(name) for name in form.getlist("individual")))
    # names of columns are taken to the letter
    return replace(
        WhoAndWhen(**{**texts, "individual": names}),  # type: ignore[arg-type]
        time=str(form.get("time") or ""), column=str(form.get("column") or ""),
    )  # fmt: skip


def typed_from(settings: Settings, table: TableAtHand) -> WhoAndWhen:
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
            return replace(typed, way=COLUMN, column=column.name)
    return replace(typed, way=SQL, expression=database)


def settings_from(settings: Settings, typed: WhoAndWhen, table: TableAtHand) -> Settings:
    """Settings with what was typed; an error names the field that is wrong."""
    typed = replace(
        typed, individual=tuple(map(table.column_named, typed.individual)), time=table.column_named(typed.time),
        column=table.column_named(typed.column),
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
        if typed.column not in table.names:
            raise InputError("`column` must be a column of the data.")
        if typed.column in typed.individual:
            raise InputError("`column` must not be the one that says who it is: each person would be a database.")
        database = next(column.as_database for column in table.columns if column.name == typed.column)
    elif typed.way == FILES:
        if table.files < 2:
            raise InputError("`database` must be something else: there is one file only.")
    elif typed.way == SAMPLES:
        subsamples, fraction = _count(typed.subsamples), _share(typed.fraction)
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


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 2 <= count <= 1_000_000:
        raise InputError("`subsamples` must be a whole number from 2 to 1,000,000.")
    return count


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise InputError("`fraction` must be a number between 0 and 1, such as 0.5.")
    return share


async def _whole(
    request: Request, settings: Settings, *, typed: WhoAndWhen | None = None, errors: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:  # fmt: skip
    """The page with its form."""
    try:
        table = await table_of_audit(request, settings)
    except EmprivError as error:
        trouble = trouble_with(settings, error)
        return show(
            request, "people.html", step="people", settings=settings, table=None, **trouble,
            status=400 if status == 200 else status, errors={"": trouble["sentence"]},
        )  # fmt: skip
    content = _content(settings, table, typed or typed_from(settings, table))
    return show(request, "people.html", step="people", status=status, errors=errors or {}, **content)


def _content(settings: Settings, table: TableAtHand, typed: WhoAndWhen) -> dict[str, Any]:
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
        "settings": settings, "table": table, "typed": typed, "zones": zones, "missing": missing, "likely": shown,
        "others": others,
    }  # fmt: skip


ROUTES = [
    Route("/audits/{name}/people", people, methods=["GET", "POST"]),
    Route("/audits/{name}/people/form", people_form),
    Route("/audits/{name}/people/counts", counts, methods=["POST"]),
]
