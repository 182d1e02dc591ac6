"""Step "Data": where the rows are (a file, a server, the demo's data), who is in them, when, and the statistic."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app import people, statistic
from empriv.app.folder import DEMO, TABLES, Folder, put_demo
from empriv.app.form_fields import by_label, typed_in
from empriv.app.pages import ELSEWHERE, changed_elsewhere, folder_of, form_of, go, show, workers_of
from empriv.app.table import (
    TableAtHand,
    different_in_words,
    kind_in_words,
    reach_of_audit,
    table_if_known,
    table_of_audit,
    values_of_audit,
)
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

_MANY_ROWS = 5_000_000  # of which no query is run at every key that is pressed
_CHUNK = 1 << 20
_LONGEST_NAME = 200
_SOURCES = dict.fromkeys(("files", "upload", "address", "table"), "")  # fields, whose errors say what they mean
_HOLDING_TABLES = (".duckdb", ".db", ".sqlite")  # of TABLES, files in which there may be several


async def source(request: Request) -> Response:
    """Where the rows are: of a new audit, or other rows for one that is there."""
    folder, name = folder_of(request), request.path_params.get("name")
    settings = Settings() if name is None else folder.settings(name)
    if request.method == "GET":
        return _page(request, settings)
    form = await form_of(request)
    try:
        if name is not None and changed_elsewhere(request, form):
            return _page(request, settings, errors={"": ELSEWHERE}, status=409)
        chosen = await _with_table(request, await _chosen(folder, settings, form))
        name = name or folder.new_name(Path(chosen.files[0].partition("://")[2] or chosen.files[0]).stem)
        folder.write(name, chosen)
    except EmprivError as error:
        return _page(request, settings, errors=by_label(error, _SOURCES), status=400)
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
        return _page(request, settings, errors={"": str(error)}, status=400)
    who, typed = typed_in(form, people.FIELDS), statistic.statistic_in(form, table)
    if form.get("do") == "more":
        typed = {**typed, "where": (*typed["where"], statistic.NO_ROW)}
        return await _whole(request, settings, who=who, typed=typed)
    errors: Mapping[str, str] = {}
    shown = statistic.StatisticShown()
    try:
        settings = people.people_settings(settings, who, table)
        reach = await reach_of_audit(request, settings)
        if reach.unidentified and settings.unidentified == "error":
            raise InputError(
                f"`unidentified` must say what to do with {reach.unidentified:,} rows that have no person."
            )
        shown = await workers_of(request).run(statistic.look_closer, settings, table.columns, typed)
        errors = shown.errors
    except EmprivError as error:
        errors = by_label(error, people.LABELS)
    if errors:
        return await _whole(request, folder.settings(name), who=who, typed=typed, errors=errors, status=400)
    # the component that was audited of another query is none of this one
    component = settings.component if (shown.sql,) == settings.query else None
    folder.write(name, replace(settings, query=(shown.sql,), unit=typed["unit"].strip(), component=component))
    statistic.remember_built(folder, name, typed, shown.sql)
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
    return show(request, "data_form.html", settings=settings, **_content(request, settings, table, None, None))


async def live(request: Request) -> Response:
    """What the choices make, while they are made: databases, people, the SQL, and what it gives."""
    form = await form_of(request)
    settings = folder_of(request).settings(request.path_params["name"])
    table = await table_of_audit(request, settings)
    who, counted = typed_in(form, people.FIELDS), {}
    errors: dict[str, str] = {}
    try:
        chosen = people.people_settings(settings, who, table)
        counted = people.counted_in_words(who, chosen, table, await reach_of_audit(request, chosen))
    except EmprivError as error:
        chosen, errors = replace(settings, individual=()), by_label(error, people.LABELS)
    typed, quick = statistic.statistic_in(form, table), table.seen.rows > _MANY_ROWS
    shown = await workers_of(request).run(statistic.look_closer, chosen, table.columns, typed, quick)
    return show(request, "data_live.html", counted=counted, shown=shown, errors={**errors, **shown.errors})


async def preview(request: Request) -> Response:
    """The first rows, which the page asks for once somebody opens the fold."""
    settings = folder_of(request).settings(request.path_params["name"])
    if lacks_table(settings):
        raise InputError("`table` must be chosen first: the file may hold several.")
    table = await table_of_audit(request, settings)
    values = await values_of_audit(request, settings, table)
    return show(request, "preview.html", table=table, values=values, kind=kind_in_words)


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


def _page(
    request: Request, settings: Settings, *, errors: Mapping[str, str] | None = None, status: int = 200, **content: Any
) -> Response:
    folder = folder_of(request)
    shown = [name for name in folder.tables() if name != DEMO]
    return show(
        request, "data.html", step="data", settings=settings, files=[*folder.named, *shown], demo=DEMO,
        endings=",".join(TABLES), errors=errors or {}, status=status,
        **{"table": None, **content},
    )  # fmt: skip


async def _whole(
    request: Request, settings: Settings, *, who: Mapping[str, Any] | None = None,
    typed: Mapping[str, Any] | None = None, errors: Mapping[str, str] | None = None, status: int = 200,
) -> Response:  # fmt: skip
    """The page with its form, if the rows were read before or somebody waits for them."""
    table = table_if_known(request, settings)
    if table is None and (errors or who or "wait" in request.query_params):
        try:
            table = await table_of_audit(request, settings)
        except EmprivError as error:
            return _page(request, settings, errors={"": str(error)}, status=400 if status == 200 else status)
    content = {} if table is None else _content(request, settings, table, who, typed)
    return _page(request, settings, errors=errors, status=status, **content)


def _content(
    request: Request, settings: Settings, table: TableAtHand, who: Mapping[str, Any] | None,
    typed: Mapping[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    folder, name = folder_of(request), request.path_params["name"]
    return {
        "table": table, "different": different_in_words,
        **people.people_content(settings, table, who or people.people_typed(settings, table)),
        **statistic.statistic_content(folder, name, settings, table, typed),
    }  # fmt: skip


ROUTES = [
    Route("/new", source, methods=["GET", "POST"]),
    Route("/audits/{name}/data", data, methods=["GET", "POST"]),
    Route("/audits/{name}/data/source", source, methods=["POST"]),
    Route("/audits/{name}/data/form", data_form),
    Route("/audits/{name}/data/live", live, methods=["POST"]),
    Route("/audits/{name}/data/preview", preview),
]
