"""Step "Data": where the rows are (a file, a server, the demo's data), who is in them, when, and the statistic.

The audit's TOML holds the query. The choices that made it are remembered in .empriv-app; a query that was not made so,
or was changed since, is shown as SQL.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.folder import DEMO, TABLES, Folder, put_demo
from empriv.app.jobs import engine_beside
from empriv.app.pages import (
    ELSEWHERE,
    by_label,
    changed_elsewhere,
    folder_of,
    form_of,
    go,
    settings_in,
    show,
    typed_from,
    typed_in,
    workers_of,
)
from empriv.app.table import (
    FILES,
    SAMPLES,
    SQL,
    UNITS,
    DataReach,
    TablePreview,
    as_written,
    different_in_words,
    kind_in_words,
    reach_of_audit,
    table_if_known,
    table_of_audit,
    values_of_audit,
    with_parsed_copy,
)
from empriv.base.storage import write_atomically
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

if TYPE_CHECKING:
    from empriv.collecting.profile import ColumnProfile

_MANY_ROWS = 5_000_000  # of which no query is run at every key that is pressed
_CHUNK = 1 << 20
_LONGEST_NAME = 200
_SOURCES = dict.fromkeys(("files", "upload", "address", "table"), "")  # fields, whose errors say what they mean
_HOLDING_TABLES = (".duckdb", ".db", ".sqlite")  # of TABLES, files in which there may be several
BUILD, AS_SQL = "build", "sql"
FIELDS: Mapping[str, Any] = {
    "individual": (), "database": "", "expression": "", "subsamples": "365", "fraction": "0.5",
    "unidentified": "error", "timezone": "", "mode": BUILD, "measure": "mean", "column": "", "by": "", "query": "",
    "unit": "",
}  # fmt: skip
"""Of the form, with what they hold at first; beside them are conditions on rows, `holds` and `where`."""
LABELS = {
    "individual": "Whom a row belongs to", "database": "What a database is", "expression": "The expression",
    "subsamples": "The number of samples", "fraction": "The share of people", "unidentified": "Your choice",
    "timezone": "The time zone", "measure": "The statistic", "column": "The column", "by": "The column of groups",
    "holds": "What must hold", "unit": "The unit", "query": "The statistic",
}  # fmt: skip
_CHOICES = ("mode", "measure", "column", "by")  # those that are remembered, beside the conditions
MEASURES = {
    "mean": ("Mean", "the average of a column"),
    "sum": ("Sum", "a column added up"),
    "count": ("Count", "how many rows there are"),
    "rate": ("Rate", "the share of rows where something holds"),
    "median": ("Median", "the middle value of a column"),
    "people": ("People", "how many different people there are"),
}
OPERATORS = ("=", "≠", "<", "≤", ">", "≥", "is one of", "is empty", "is not empty")
NO_ROW = ("", "=", "")
"""A condition on rows, to be filled in: column, operator, value."""
_MOST_CONDITIONS = 20
_SHOWN = 6  # likely columns before the fold


# The source


def lacks_table(settings: Settings) -> bool:
    """Whether the data are a database file, and nobody said which of its tables."""
    (file,) = settings.files if len(settings.files) == 1 else ("",)
    inside = Path(file).suffix.lower() in _HOLDING_TABLES and "::" not in file and "://" not in file
    return inside and settings.table is None and settings.sql is None


def tables_of(file: str) -> tuple[str, ...]:
    """The tables of a database file; called beside the server, in the folder."""
    from empriv.collecting.run_query import tables_inside

    return tables_inside(file)


async def _with_table(request: Request, settings: Settings) -> Settings:
    """Settings that name the table of a database file, if it has only one."""
    if not lacks_table(settings):
        return settings
    try:
        tables = await workers_of(request).run(tables_of, settings.files[0])
    except EmprivError:
        return settings  # the preview says what is wrong with it
    return replace(settings, table=tables[0]) if len(tables) == 1 else settings


async def _chosen(folder: Folder, settings: Settings, form: FormData) -> Settings:
    """Settings with the source that a form names."""
    way = form.get("way")
    table = str(form.get("table") or "").strip() or None
    if way == "table":
        if table is None:
            raise InputError("`files` must be given with the table that is meant.")
        return replace(settings, table=table)
    if way == "demo":
        return replace(settings, files=(put_demo(folder),), table=None, sql=None)
    if way == "upload":
        upload = form.get("upload")
        if not isinstance(upload, UploadFile) or not upload.filename:
            raise InputError("`upload` must be a file.")
        return replace(settings, files=(await _kept(folder, upload),), table=table, sql=None)
    if way == "server":
        address = str(form.get("address") or "").strip()
        if "@" in address.partition("://")[2].partition("/")[0]:
            raise InputError(
                "`address` must not hold a user or password, which files would keep. "
                "Hint: PGUSER, PGPASSWORD or .pgpass."
            )
        from empriv.collecting.sources import is_address

        if not is_address(address):
            raise InputError("`address` must begin with postgresql://.")
        if table is None:
            raise InputError("`table` must name a table of the server.")
        folder.keep_server(address)
        return replace(settings, files=(address,), table=table, sql=None)
    chosen = [folder.check_source(str(text)) for text in form.getlist("files")]
    if not chosen:
        raise InputError("`files` must be at least one file.")
    return replace(settings, files=tuple(chosen), table=table, sql=None)


async def _kept(folder: Folder, upload: UploadFile) -> str:
    """An uploaded file in the folder, under its own name if that is free; whole, or not at all."""
    given = Path(str(upload.filename).replace("\\", "/")).name
    if Path(given).suffix.lower() not in TABLES:
        raise InputError(f"`upload` must be one of {', '.join(TABLES)}.")
    stem = "".join(letter if letter.isalnum() or letter in "-_. " else "_" for letter in Path(given).stem).strip(" .")
    name = f"{stem or 'rows'}{Path(given).suffix.lower()}"
    if len(name.encode()) > _LONGEST_NAME:
        raise InputError(f"`upload` must have a name of at most {_LONGEST_NAME} letters.")
    if (folder.path / name).exists():
        name = f"{stem or 'rows'}-{secrets.token_hex(3)}{Path(given).suffix.lower()}"
    temporary = folder.own / f"{secrets.token_hex(8)}.upload"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            while chunk := await upload.read(_CHUNK):
                file.write(chunk)
        temporary.rename(folder.path / name)
    finally:
        with suppress(OSError):
            temporary.unlink()
    return name


# The form: who and when, and the statistic


def typed_of(form: FormData, table: TablePreview) -> dict[str, Any]:
    """What a form holds, with columns called as the table calls them."""

    def rows(prefix: str) -> list[tuple[str, str, str]]:
        parts = ([str(text) for text in form.getlist(f"{prefix}_{part}")] for part in ("column", "operator", "value"))
        found = zip(*parts, strict=False)
        return [(table.column_named(column), operator, value) for column, operator, value in found]

    typed = typed_in(form, FIELDS)
    return {
        **typed,
        "individual": tuple(map(table.column_named, typed["individual"])),
        "database": as_written(typed["database"], table.choices),
        **{name: table.column_named(typed[name]) for name in ("column", "by")},
        "holds": (*rows("holds"), NO_ROW)[0],
        "where": tuple(rows("where")[:_MOST_CONDITIONS]),
    }


def typed_at_first(folder: Folder, name: str, settings: Settings, table: TablePreview) -> dict[str, Any]:
    """What the form holds at first: what the settings say, or what is likeliest."""
    database, expression = settings.database, ""
    if settings.subsamples is not None:
        database = SAMPLES
    elif database is None:
        database = FILES if settings.individual and table.files > 1 else table.likeliest
    elif database not in table.choices:
        database, expression = SQL, database
    return {
        **typed_from(settings, FIELDS),
        "individual": tuple(name for name in settings.individual if name in table.names) or table.seen.individuals[:1],
        "database": database, "expression": expression,
        **_statistic_typed(settings, table, _remembered(folder, name)),
    }  # fmt: skip


def _statistic_typed(settings: Settings, table: TablePreview, made: Mapping[str, Any]) -> dict[str, Any]:
    """The choices that made the query, its SQL, or what is likeliest; ``made`` are choices by the query they made."""
    empty = {"holds": NO_ROW, "where": ()}
    if not settings.query:
        likely = "".join(table.numbers[:1])
        return {**empty, "measure": "mean" if likely else "count", "column": likely}
    query = settings.query[0]
    as_sql = {**empty, "mode": AS_SQL, "query": query}
    try:  # a file that anybody may change
        choices: Any = made[query]
        holds, *where = [tuple(map(str, row)) for row in (choices["holds"], *choices["where"])]
        typed = {name: str(choices[name]) for name in _CHOICES}
        named = {typed["column"], typed["by"], *(column for column, _, _ in (holds, *where))} - {""}
    except (TypeError, KeyError, ValueError):
        return as_sql
    return {**typed, "query": query, "holds": holds, "where": tuple(where)} if named <= set(table.names) else as_sql


def with_people(settings: Settings, typed: Mapping[str, Any], table: TablePreview) -> Settings:
    """Settings with who and when as they were typed; an error names the field that is wrong."""
    individual = typed["individual"]
    if not individual or any(name not in table.names for name in individual):
        raise InputError("`individual` must be a column of the data, or several that say together who it is.")
    drawn = typed["database"] == SAMPLES
    return replace(
        settings, individual=individual, database=_database(typed, table),
        **(settings_in(typed, "subsamples", "fraction") if drawn else {"subsamples": None, "fraction": None}),
        **settings_in(typed, "unidentified", "timezone"),
    )  # fmt: skip


def _database(typed: Mapping[str, Any], table: TablePreview) -> str | None:
    """The expression that cuts rows into databases; None of files and of random samples."""
    database = str(typed["database"])
    if database == SQL:
        if not typed["expression"].strip():
            raise InputError("`expression` must be an SQL expression, such as date_trunc('hour', t).")
        return str(typed["expression"].strip())
    if database not in table.choices:
        raise InputError("`database` must be chosen.")
    if any(database == table.cut(column) for column in table.columns if column.name in typed["individual"]):
        raise InputError("`database` must not be the column that says who it is: each person would be a database.")
    return None if database in (FILES, SAMPLES) else database


def counted_in_words(
    typed: Mapping[str, Any], chosen: Settings, table: TablePreview, reach: DataReach
) -> dict[str, Any]:
    """What the choices make, for the page to show beside them."""
    from empriv.collecting.profile import are_receipts_of
    from empriv.words.decision import presets_within
    from empriv.words.decision import reach as reach_in_words
    from empriv.words.sentences import what_samples_hide

    columns = {column.name: column for column in table.columns}
    picked = columns[chosen.individual[0]] if len(chosen.individual) == 1 else None
    better = [
        name for name in table.seen.individuals
        if picked is not None and picked.each_in and are_receipts_of(picked, columns[name])
    ]  # fmt: skip
    database = typed["database"]
    noun = table.choices[database][1]
    return {
        "better": "" if reach.once else "".join(better[:1]),
        "reach": reach, "chosen": chosen, "samples": what_samples_hide() if database == SAMPLES else "",
        "sentence": reach_in_words(reach.databases, noun, reach.individuals, reach.least_delta),
        "enough": reach.databases >= reach.enough, "timed": noun in UNITS,
        "zoned": noun in UNITS and any(c.zoned and database == c.cut(noun) for c in table.columns),
        "within": presets_within(reach.least_delta),
    }  # fmt: skip


@dataclass(frozen=True)
class StatisticShown:
    """The SQL of what was typed, what it gives in a sentence, why it takes long, and what is wrong with which field."""

    sql: str = ""
    gives: str = ""
    slow: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)


def check_statistic(
    settings: Settings, columns: Sequence[ColumnProfile], typed: Mapping[str, Any], quick: bool = False
) -> StatisticShown:
    """The SQL of what was typed, and whether it can be audited; called beside the server.

    ``quick`` leaves the rows alone: of very many, nobody waits at every key that is pressed.
    """
    from empriv.base.arguments import unit_name
    from empriv.cli.inputs import source_of
    from empriv.cli.running import limits_of
    from empriv.collecting import explain
    from empriv.collecting.profile import gives
    from empriv.collecting.query_builder import RowCondition, Statistic, written

    places = [place for place, row in enumerate(typed["where"]) if row[0]]
    sql = ""
    try:
        unit_name(typed["unit"].strip())
        if typed["mode"] == AS_SQL:
            sql = typed["query"].strip()
            if not sql:
                raise InputError("`query` must be SQL, such as avg(amount).")
        else:
            chosen = Statistic(
                measure=typed["measure"], column=typed["column"] or None, by=typed["by"] or None,
                where=tuple(RowCondition(*typed["where"][place]) for place in places),
                holds=RowCondition(*typed["holds"]) if typed["measure"] == "rate" else None,
            )  # fmt: skip
            sql = written(chosen, columns, settings.individual)
        if quick or not settings.individual:
            explain(None, sql)
            return StatisticShown(sql, "Whether it can be audited is seen when you save it." if quick else "")
        with engine_beside(**limits_of(settings)) as engine:
            given = gives(engine, source_of(with_parsed_copy(settings)), sql)
    except EmprivError as error:
        # conditions are numbered as they are filled in, and shown as they stand
        labels = {**LABELS, **{f"where_{k}": f"Condition {place + 1}" for k, place in enumerate(places)}}
        ((about, sentence),) = by_label(error, labels).items()
        if about.startswith("where_"):
            about = f"where_{places[int(about.removeprefix('where_'))]}"
        return StatisticShown(sql, errors={about or "query": sentence})
    if given.names is None:
        return StatisticShown(sql, "This can be audited. It gives one number of each database.", given.slow or "")
    names = ", ".join(given.names[:8]) + (", …" if len(given.names) > 8 else "")
    table = f"This can be audited. It gives a table of {len(given.names):,} numbers of each database: {names}."
    return StatisticShown(sql, table, given.slow or "")


def remember(folder: Folder, name: str, typed: Mapping[str, Any], sql: str) -> None:
    """Keep the choices that made a query."""
    choices = {field: typed[field] for field in (*_CHOICES, "holds", "where")}
    path = _memory_of(folder, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_atomically(path, json.dumps({sql: choices} if typed["mode"] == BUILD else {}).encode())


def _remembered(folder: Folder, name: str) -> dict[str, Any]:
    """The choices that made the query of an audit, by its text."""
    try:
        content = json.loads(_memory_of(folder, name).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _memory_of(folder: Folder, name: str) -> Path:
    return folder.own / "built" / folder.file(name, ".json").name


# Pages


async def source(request: Request) -> Response:
    """Where the rows are: of a new audit, or other rows for one that is there."""
    folder, name = folder_of(request), request.path_params.get("name")
    settings = Settings() if name is None else folder.settings(name)
    if request.method == "GET":
        return _page(request, settings)
    form = await form_of(request)
    try:
        if name is not None and changed_elsewhere(request, form):
            return _page(request, settings, {"": ELSEWHERE}, 409)
        chosen = await _with_table(request, await _chosen(folder, settings, form))
        name = name or folder.new_name(Path(chosen.files[0].partition("://")[2] or chosen.files[0]).stem)
        folder.write(name, chosen)
    except EmprivError as error:
        return _page(request, settings, by_label(error, _SOURCES), 400)
    finally:
        await form.close()
    return go(request, "data", name)


async def data(request: Request) -> Response:
    """The rows of an audit, who is in them, when, and the statistic; a form says all of it."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if request.method == "GET":
        return await _whole(request, settings)
    form = await form_of(request)
    if changed_elsewhere(request, form):
        return await _whole(request, settings, errors={"": ELSEWHERE}, status=409)
    if len(settings.query) > 1:
        raise InputError(f"`query` must be one, to be changed here. Hint: {name}.toml has several.")
    try:
        table = await table_of_audit(request, settings)
    except EmprivError as error:
        return _page(request, settings, {"": str(error)}, 400)
    typed = typed_of(form, table)
    if form.get("do") == "more":
        return await _whole(request, settings, {**typed, "where": (*typed["where"], NO_ROW)})
    try:
        chosen = with_people(settings, typed, table)
        reach = await reach_of_audit(request, chosen)
        if reach.unidentified and chosen.unidentified == "error":
            raise InputError(
                f"`unidentified` must say what to do with {reach.unidentified:,} rows that have no person."
            )
        shown = await workers_of(request).run(check_statistic, chosen, table.columns, typed)
    except EmprivError as error:
        shown = StatisticShown(errors=by_label(error, LABELS))
    if shown.errors:
        return await _whole(request, settings, typed, shown.errors, 400)
    # the component that was audited of another query is none of this one
    component = chosen.component if (shown.sql,) == settings.query else None
    folder.write(name, replace(chosen, query=(shown.sql,), unit=typed["unit"].strip(), component=component))
    remember(folder, name, typed, shown.sql)
    return go(request, "promise")


async def data_form(request: Request) -> Response:
    """The form, which the page asks for once it is there: to fill it, the rows must be read."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    folder.check_sources(settings)
    if lacks_table(settings):
        tables = await workers_of(request).run(tables_of, settings.files[0])
        return show(request, "which_table.html", tables=tables, file=settings.files[0])
    table = await table_of_audit(request, settings)
    return show(request, "data_form.html", settings=settings, **_content(request, settings, table))


async def live(request: Request) -> Response:
    """What the choices make, while they are made: databases, people, the SQL, and what it gives."""
    form = await form_of(request)
    settings = folder_of(request).settings(request.path_params["name"])
    table = await table_of_audit(request, settings)
    typed, counted = typed_of(form, table), {}
    errors: dict[str, str] = {}
    try:
        chosen = with_people(settings, typed, table)
        counted = counted_in_words(typed, chosen, table, await reach_of_audit(request, chosen))
    except EmprivError as error:
        chosen, errors = replace(settings, individual=()), by_label(error, LABELS)
    shown = await workers_of(request).run(check_statistic, chosen, table.columns, typed, table.seen.rows > _MANY_ROWS)
    return show(request, "data_live.html", counted=counted, shown=shown, errors={**errors, **shown.errors})


async def preview(request: Request) -> Response:
    """The first rows, which the page asks for once somebody opens the fold."""
    settings = folder_of(request).settings(request.path_params["name"])
    if lacks_table(settings):
        raise InputError("`table` must be chosen first: the file may hold several.")
    table = await table_of_audit(request, settings)
    values = await values_of_audit(request, settings, table)
    return show(request, "preview.html", table=table, values=values, kind=kind_in_words)


def _page(
    request: Request, settings: Settings, errors: Mapping[str, str] | None = None, status: int = 200, **content: Any
) -> Response:
    folder = folder_of(request)
    return show(
        request, "data.html", step="data", settings=settings, endings=",".join(TABLES), errors=errors or {},
        files=[*folder.named, *(name for name in folder.tables() if name != DEMO)],
        status=status, **{"table": None, **content},
    )  # fmt: skip


async def _whole(
    request: Request, settings: Settings, typed: Mapping[str, Any] | None = None,
    errors: Mapping[str, str] | None = None, status: int = 200,
) -> Response:  # fmt: skip
    """The page with its form, if the rows were read before or somebody waits for them."""
    table = table_if_known(request, settings)
    if table is None and (errors or typed or "wait" in request.query_params):
        try:
            table = await table_of_audit(request, settings)
        except EmprivError as error:
            return _page(request, settings, {"": str(error)}, 400 if status == 200 else status)
    content = {} if table is None else _content(request, settings, table, typed)
    return _page(request, settings, errors, status, **content)


def _content(
    request: Request, settings: Settings, table: TablePreview, typed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the fields show: columns that are likely or chosen, then the others, and one condition to be filled in."""
    typed = typed or typed_at_first(folder_of(request), request.path_params["name"], settings, table)
    zones: list[str] = []
    if any(column.zoned for column in table.columns):
        from zoneinfo import available_timezones

        zones = sorted(available_timezones())
    columns = {column.name: column for column in table.columns}
    likely = dict.fromkeys([*table.seen.individuals[:_SHOWN], *(n for n in columns if n in typed["individual"])])
    blank = () if typed["where"] and not typed["where"][-1][0] else (NO_ROW,)
    return {
        "table": table, "different": different_in_words, "zones": zones,
        "choices": [(value, title) for value, (title, _) in table.choices.items()],
        "measures": MEASURES, "operators": OPERATORS,
        "missing": [name for name in settings.individual if name not in columns],
        "likely": [columns[name] for name in likely], "others": [c for c in table.columns if c.name not in likely],
        "typed": {**typed, "where": (*typed["where"], *blank)},
    }  # fmt: skip


ROUTES = [
    Route("/new", source, methods=["GET", "POST"]),
    Route("/audits/{name}/data", data, methods=["GET", "POST"]),
    Route("/audits/{name}/data/source", source, methods=["POST"]),
    Route("/audits/{name}/data/form", data_form),
    Route("/audits/{name}/data/live", live, methods=["POST"]),
    Route("/audits/{name}/data/preview", preview),
]
