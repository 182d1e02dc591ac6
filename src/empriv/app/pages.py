"""How a page of the app is made: templates, forms, and errors beside their fields."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from empriv.app.folder import Folder
from empriv.app.guard import Key
from empriv.app.jobs import changed_since
from empriv.app.workers import WorkerPool

if TYPE_CHECKING:
    from jinja2 import Environment

STEPS = {"data": "Data", "promise": "Promise", "decision": "Decision"}
"""The steps of an audit in their order: the end of the address, and the name on the page."""
ELSEWHERE = "This audit was changed elsewhere since you opened the page. Here is what it says now."
# By their place: to ask the package for them would import the report, and the first page would wait for numerics.
_OWN, _OF_THE_REPORT = (Path(__file__).parents[1] / room / "templates" for room in ("app", "report"))


def folder_of(request: Request) -> Folder:
    folder: Folder = request.app.state.folder
    return folder


def workers_of(request: Request) -> WorkerPool:
    workers: WorkerPool = request.app.state.workers
    return workers


def show(request: Request, template: str, *, status: int = 200, **content: Any) -> Response:
    """A page, or a piece of one that the script puts in its place.

    ``errors`` are sentences by the name of a field; those of "" are for the whole page.
    """
    key: Key = request.app.state.key
    name = content.pop("name", request.path_params.get("name"))
    everything = {
        "errors": {}, "step": None, "name": name, "mark": key.mark, "steps": STEPS, "folder": folder_of(request),
        "seen": "" if name is None else folder_of(request).seen(name),
        "outdated": content.get("step") == "decision" and changed_since(folder_of(request), str(name)), **content,
    }  # fmt: skip
    text = key.rooted(_environment().get_template(template).render(**everything))
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status)  # half a character may be named


def attached(content: bytes, kind: str, name: str) -> Response:
    """A file to be kept."""
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def go(request: Request, step: str, name: str | None = None) -> Response:
    """To a step of the audit, after a form was taken."""
    return RedirectResponse(f"/audits/{name or request.path_params['name']}/{step}", status_code=303)


async def form_of(request: Request) -> FormData:
    """The fields of a form that came from a page of the app; `Forged` otherwise."""
    form = await request.form(max_part_size=1 << 20)
    key: Key = request.app.state.key
    if not key.is_mark(form.get("mark")):
        raise Forged
    return form


class Forged(Exception):
    """A form without the mark of the app."""


def changed_elsewhere(request: Request, form: Mapping[str, Any]) -> bool:
    """Whether the audit's settings have changed since the page was made that this form is on."""
    return str(form.get("seen", "")) != folder_of(request).seen(request.path_params["name"])


async def forged(request: Request, error: Exception) -> Response:
    del request, error
    return PlainTextResponse("This form is not from a page of this desk, or the desk was started anew.", 403)


async def refused(request: Request, error: Exception) -> Response:
    """A page that says what went wrong."""
    return not_done(request, 400, str(error))


async def unexpected(request: Request, error: Exception) -> Response:
    """What nobody foresaw: its message may quote rows, and is shown only on request, as on the command line."""
    if os.environ.get("EMPRIV_TRACEBACK"):
        traceback.print_exception(error)
    sentence = f"Unexpected {type(error).__name__}. Nothing that was shown before is lost."
    return not_done(request, 500, sentence)


def not_done(request: Request, status: int, sentence: str) -> Response:
    """A page with a sentence; the sentence alone where the script asks for a piece of a page."""
    piece = request.headers.get("sec-fetch-dest") == "empty"
    return show(request, "problem.html" if piece else "refused.html", status=status, name=None, sentence=sentence)


@cache
def asset(name: str) -> bytes:
    """The style or the script: of the report, then of the app."""
    if name == "style.css":
        return (_OF_THE_REPORT / name).read_bytes() + (_OWN / "app.css").read_bytes()
    return (_OWN / name).read_bytes()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([_OWN, _OF_THE_REPORT]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
