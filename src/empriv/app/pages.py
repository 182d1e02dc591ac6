"""How a page of the app is made: templates, forms with their fields as settings, and errors beside their fields."""

from __future__ import annotations

import math
import os
import re
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from empriv.app.folder import Folder
from empriv.app.guard import Key
from empriv.app.jobs import WorkerPool, changed_since
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

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
        "seen": "" if name is None else folder_of(request).settings_mark(name),
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
    return str(form.get("seen", "")) != folder_of(request).settings_mark(request.path_params["name"])


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


# Fields of forms


def typed_in(form: FormData, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a form holds of some fields, whether it can be used or not; those that begin with several may have several.

    Text is taken to the letter: the name of a column may begin with a space.
    """
    return {
        name: tuple(dict.fromkeys(map(str, form.getlist(name)))) if first == () else str(form.get(name) or "")
        for name, first in fields.items()
    }


def typed_from(settings: Settings, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a form holds at first: its own beginning, and settings of the same name."""
    given = {name: getattr(settings, name) for name in fields if name in _SETTINGS}
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in given.items() if value}
    return {**fields, **texts}


def settings_in(typed: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Settings of the same name as these fields; an error names the field that is wrong."""
    return {name: _SETTINGS[name](name, typed[name]) for name in names}


def by_label(error: EmprivError, labels: Mapping[str, str]) -> dict[str, str]:
    """An error's sentence beside the field that it names, with the label that people read; else for the whole page."""
    sentence = str(error)
    named = [name for name in re.findall(r"`(?:--)?(\w+)`", sentence) if name in labels]
    shown = re.sub(r"`(\w+)`", lambda name: labels.get(name[1]) or name[0], sentence)
    return {named[0] if named else "": shown}


def number(field: str, text: str, rule: str, allowed: Callable[[float], bool]) -> float:
    """A finite number that is allowed; else an error with the rule."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and allowed(value)):
        raise InputError(f"`{field}` must be a {rule}.")
    return value + 0.0  # no negative zero


def positive(field: str, text: str) -> float:
    return number(field, text, "number above 0", lambda value: value > 0)


def whole_number(field: str, text: str, least: int, most: int = 1_000_000) -> int:
    rule = f"whole number from {least} to {most:,}"
    return int(number(field, text, rule, lambda value: least <= value <= most and value == int(value)))


def one_of(field: str, text: str, *among: str) -> str:
    if text not in among:
        raise InputError(f"`{field}` must be one of {', '.join(among[:-1])} and {among[-1]}.")
    return text


_SETTINGS: Mapping[str, Callable[[str, str], Any]] = {
    "unidentified": lambda field, text: one_of(field, text, "error", "keep", "drop"),
    "timezone": lambda _, text: text.strip() or None,
    "unit": lambda _, text: text.strip(),
    "subsamples": lambda field, text: whole_number(field, text, 2),
    "fraction": lambda field, text: number(field, text, "number between 0 and 1, such as 0.5", lambda x: 0 < x < 1),
    "times": lambda field, text: None if (times := whole_number(field, text, 1)) == 1 else times,
    "presence": lambda field, text: one_of(field, text, "both", "random"),
    "ledger": lambda _, text: text.strip() or None,
}
"""Fields that are a setting of the same name, and how it is read."""
