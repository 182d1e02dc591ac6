"""Dates whose day and month could be swapped: a page asks which comes first, and a copy of the file is written so."""

from __future__ import annotations

import glob
import secrets
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.aside import engine_beside
from empriv.app.pages import ELSEWHERE, aside_of, changed_elsewhere, folder_of, form_of, go
from empriv.base.storage import write_atomically
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

_CSV = (".csv", ".tsv", ".txt")
_YEAR = 4  # digits: of two, nobody can tell the century


def trouble_with(settings: Settings, error: EmprivError) -> dict[str, Any]:
    """What a page says of rows that cannot be read; ``column`` is that of dates that can be written anew."""
    from empriv.collecting.sources import AmbiguousDates

    plain = all(PurePath(text).suffix.lower() in _CSV and not glob.has_magic(text) for text in settings.files)
    mendable = plain and isinstance(error, AmbiguousDates) and error.year == _YEAR
    if not mendable:
        return {"sentence": str(error), "column": None}
    return {"sentence": str(error).partition(" Hint:")[0], "column": getattr(error, "column", None)}


async def dates(request: Request) -> Response:
    """Write copies of the files in which the day is told from the month, and use these."""
    form = await form_of(request)
    folder, name = folder_of(request), request.path_params["name"]
    settings = folder.settings(name)
    if changed_elsewhere(request, form):
        raise InputError(ELSEWHERE)
    first, column = form.get("first"), str(form.get("column") or "")
    if first not in ("day", "month"):
        raise InputError("The day must come first, or the month.")
    folder.check_sources(settings)
    files = []
    for text in settings.files:
        content = await aside_of(request).ask(rewritten, text, column, first == "day")
        copy = f"{PurePath(text).stem.removesuffix('-dates')}-dates.csv"
        if (folder.path / copy).exists():
            copy = f"{PurePath(copy).stem}-{secrets.token_hex(3)}.csv"
        write_atomically(folder.path / copy, content)
        files.append(copy)
    folder.write(name, replace(settings, files=tuple(files)))
    return go(request, "people")


def rewritten(path: str, column: str, day_first: bool) -> bytes:
    """A file with its dates told apart; called beside the server."""
    from empriv.collecting.rewritten_dates import with_dates_rewritten

    with engine_beside() as engine:
        return with_dates_rewritten(engine, path, column, day_first=day_first)


ROUTES = [Route("/audits/{name}/dates", dates, methods=["POST"])]
