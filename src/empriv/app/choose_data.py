"""Step "Data": a file in the folder, one that is uploaded, a server, or the demo's data; with a preview."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.aside import engine_beside
from empriv.app.folder import TABLES, Folder
from empriv.app.pages import (
    ELSEWHERE,
    aside_of,
    by_field,
    changed_elsewhere,
    folder_of,
    form_of,
    go,
    show,
)
from empriv.app.swapped_dates import trouble_with
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

_ROWS = 8
_CHUNK = 1 << 20
_LONGEST_NAME = 200
_FIELDS = ("files", "upload", "address", "table")
_HOLDING_TABLES = (".duckdb", ".db", ".sqlite")  # of TABLES, files in which there may be several
DEMO = "demo-flights.parquet"


@dataclass(frozen=True)
class PreviewColumn:
    """A column: its type in words, rows in which it is filled, different values, and the ends of numbers and times."""

    name: str
    kind: str
    filled: int
    different: int
    is_number: bool
    smallest: str | None = None
    largest: str | None = None


@dataclass(frozen=True)
class Preview:
    """The first rows of a table, and what its columns look like."""

    rows: int
    columns: tuple[PreviewColumn, ...]
    first: tuple[tuple[str | None, ...], ...]


async def new(request: Request) -> Response:
    """The first page of a new audit."""
    if request.method == "GET":
        return _page(request, Settings())
    form = await form_of(request)
    folder = folder_of(request)
    try:
        settings = await _with_table(request, await _chosen(folder, Settings(), form))
        title = str(form.get("title") or "") or Path(settings.files[0].partition("://")[2] or settings.files[0]).stem
        name = folder.new_name(title)
        folder.write(name, settings)
    except EmprivError as error:
        return _page(request, Settings(), errors=by_field(error, *_FIELDS), status=400)
    finally:
        await form.close()
    return go(request, "data", name)


async def data(request: Request) -> Response:
    """The data of an audit: what was chosen, with a preview, and how to choose another."""
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if request.method == "GET":
        return _page(request, settings)
    form = await form_of(request)
    try:
        if changed_elsewhere(request, form):
            return _page(request, settings, errors={"": ELSEWHERE}, status=409)
        folder.write(name, await _with_table(request, await _chosen(folder, settings, form)))
    except EmprivError as error:
        return _page(request, settings, errors=by_field(error, *_FIELDS), status=400)
    finally:
        await form.close()
    return go(request, "data")


async def preview(request: Request) -> Response:
    """The first rows, which the page asks for once it is there."""
    settings = folder_of(request).settings(request.path_params["name"])
    try:
        folder_of(request).check_sources(settings)
        if lacks_table(settings):
            tables = await aside_of(request).ask(tables_of, settings.files[0])
            return show(request, "which_table.html", tables=tables, file=settings.files[0])
        seen = await aside_of(request).ask(preview_of, settings)
    except EmprivError as error:
        return show(request, "no_table.html", at_data=True, **trouble_with(settings, error))
    return show(request, "preview.html", table=seen)


def lacks_table(settings: Settings) -> bool:
    """Whether the data are a database file, and nobody said which of its tables."""
    (file,) = settings.files if len(settings.files) == 1 else ("",)
    inside = Path(file).suffix.lower() in _HOLDING_TABLES and "::" not in file and "://" not in file
    return inside and settings.table is None and settings.sql is None


def tables_of(file: str) -> tuple[str, ...]:
    """The tables of a database file; called beside the server, in the folder."""
    from empriv.collecting.engines.tables_inside import tables_inside

    return tables_inside(file)


def preview_of(settings: Settings) -> Preview:
    """What a table holds; called beside the server."""
    from empriv.cli.inputs import one_table
    from empriv.collecting.looking import first_rows, look, smallest_and_largest

    with engine_beside() as engine:
        table: Any = one_table(settings)
        seen = look(engine, table)
        _, rows = first_rows(engine, table, _ROWS)
        ordered = [column.name for column in seen.closely if column.is_number or column.is_time]
        ends = smallest_and_largest(engine, table, ordered)
    days = [column.is_time and not column.moments for column in seen.closely]

    def shown(text: str | None, is_day: bool) -> str | None:
        return text.removesuffix(" 00:00:00") if text is not None and is_day else text

    columns = tuple(
        PreviewColumn(
            c.name, kind_in_words(c.kind, c.is_time, c.moments), c.filled, c.different, c.is_number,
            *(shown(end, is_day) for end in ends.get(c.name, (None, None))),
        )
        for c, is_day in zip(seen.closely, days, strict=True)
    )  # fmt: skip
    first = tuple(tuple(map(shown, row, days)) for row in rows)
    return Preview(seen.rows, columns, first)


def kind_in_words(kind: str, is_time: bool, moments: int) -> str:
    """The type of a column for people who do not know types."""
    if is_time:
        return "time" if moments else "date"
    words = {"integer": "whole number", "decimal": "decimal number", "double": "number", "boolean": "yes or no"}
    return words.get(kind, "text")


def put_demo(folder: Folder) -> str:
    """Copy the demo's data to the folder."""
    from empriv.datasets import flights

    target = folder.path / DEMO
    if not target.exists():
        target.unlink(missing_ok=True)  # a link to nothing would be written through
        shutil.copyfile(flights(), target)
    return DEMO


async def _with_table(request: Request, settings: Settings) -> Settings:
    """Settings that name the table of a database file, if it has only one."""
    if not lacks_table(settings):
        return settings
    try:
        tables = await aside_of(request).ask(tables_of, settings.files[0])
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


def _page(request: Request, settings: Settings, *, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    folder = folder_of(request)
    shown = [name for name in folder.tables() if name != DEMO]
    return show(
        request, "data.html", step="data", settings=settings, files=[*folder.named, *shown], demo=DEMO,
        endings=",".join(TABLES), errors=errors or {}, status=status,
    )  # fmt: skip


ROUTES = [
    Route("/new", new, methods=["GET", "POST"]),
    Route("/audits/{name}/data", data, methods=["GET", "POST"]),
    Route("/audits/{name}/data/preview", preview),
]
