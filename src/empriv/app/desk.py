"""The desk for checkers: all audits of the folder and what was released; to search, to compare, to take away."""

from __future__ import annotations

import contextlib
import csv
import io
import time
import zipfile
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from empriv.app.folder import Folder
from empriv.app.guard import written_page
from empriv.app.listed_releases import ledgers_here
from empriv.app.listing import Listed, listed, look_at, strangers
from empriv.app.pages import aside_of, folder_of, form_of, show
from empriv.app.release_answer import ledger_of, whole_script
from empriv.app.work import Work, latest, start
from empriv.errors import EmprivError, InputError

EXPORTED = (".toml", ".json", ".html", ".public.html", ".noise.html", ".noise.json", ".advice.json")
"""Files of an audit that a checker takes away: none that says who is who, none that holds results."""
_MOST_BYTES = 1 << 26  # of a page
_COLUMNS = ("audit", "state", "decision", "query", "databases", "people", "delta", "latest file")


async def desk(request: Request) -> Response:
    """Every audit with how far it is, and what was released."""
    return _page(request)


async def releases(request: Request) -> Response:
    """What the ledgers say, which the page asks for once it is there."""
    search = _search(request).casefold().split()
    ledgers = await aside_of(request).ask(ledgers_here)
    shown = [
        (ledger, [one for one in ledger.releases if all(word in one.asked.casefold() for word in search)])
        for ledger in ledgers
    ]
    return show(request, "releases.html", ledgers=shown, searched=bool(search))


async def state(request: Request) -> Response:
    """How far the work on an audit is, for its row of the list."""
    folder, name = folder_of(request), request.path_params["name"]
    return show(request, "state.html", audit=look_at(folder, name))


async def as_csv(request: Request) -> Response:
    """The list as a table for other programs."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for audit in listed(folder_of(request), _search(request)):
        row = (audit.name, audit.state, audit.line, audit.asked, audit.databases, audit.people, audit.risk)
        writer.writerow([*map(_plain, row), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(audit.when))])
    return _download(out.getvalue().encode(), "text/csv; charset=utf-8", "audits.csv")


async def export(request: Request) -> Response:
    """The files of one audit in one archive."""
    folder, name = folder_of(request), request.path_params["name"]
    paths = [path for ending in EXPORTED if (path := folder.written(name, ending)) is not None]
    if not paths:
        raise InputError("The audit must have files to take away, got none.")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.writestr(path.name, path.read_bytes())
        with contextlib.suppress(EmprivError):  # settings that no script is made of
            book = ledger_of(folder, name).name
            script = await aside_of(request).ask(whole_script, name, folder.settings(name), book)
            archive.writestr(f"{name}.py", script)
    return _download(out.getvalue(), "application/zip", f"{name}.zip")


async def compare(request: Request) -> Response:
    """Two audits side by side: what their files say at once, and the comparison that `empriv compare` writes."""
    folder = folder_of(request)
    if request.method == "GET":
        return _comparison(request, *_pair(folder, request.query_params.getlist("audit")))
    form = await form_of(request)
    try:
        names = _pair(folder, [str(name) for name in form.getlist("audit")])
        if not _up_to_date(folder, *names):
            start(folder, _both(*names), f"Comparing {names[0]} and {names[1]}", _command(folder, *names))
    except EmprivError as error:
        return _page(request, errors={"": str(error)}, status=400)
    return RedirectResponse(f"/compare?{urlencode([('audit', name) for name in names])}", status_code=303)


async def progress(request: Request) -> Response:
    """How far the comparison is."""
    folder = folder_of(request)
    names = _pair(folder, request.query_params.getlist("audit"))
    return show(request, "comparing.html", work=latest(folder, _both(*names)), names=names, name=None)


async def compared(request: Request) -> Response:
    """The page that `empriv compare` wrote."""
    folder = folder_of(request)
    path = _report(folder, *_pair(folder, request.query_params.getlist("audit")))
    if not path.is_file() or path.is_symlink() or path.stat().st_size > _MOST_BYTES:
        raise InputError("The comparison must have been made before it is shown.")
    return written_page(path.read_text(encoding="utf-8", errors="replace"))


def _page(request: Request, *, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    folder, search = folder_of(request), _search(request)
    return show(
        request, "desk.html", audits=listed(folder, search), search=search, strangers=strangers(folder),
        query=urlencode({"q": search}), empty=not folder.audits(), errors=errors or {}, status=status,
    )  # fmt: skip


def _search(request: Request) -> str:
    return request.query_params.get("q", "")[:200]


def _pair(folder: Folder, names: list[str]) -> tuple[str, str]:
    """Two audits that are there."""
    chosen = sorted(set(names))
    if len(chosen) != 2:
        raise InputError("`audit` must be two audits to compare. Hint: tick two of those that are audited.")
    for name in chosen:
        if not folder.saved(name):
            raise InputError(f"`audit` must be audits that were run, got {name}, of which none is saved.")
    return chosen[0], chosen[1]


def _both(first: str, second: str) -> str:
    return f"{first} and {second}"


def _report(folder: Folder, first: str, second: str) -> Path:
    return folder.path / f"compare.{first}.{second}.html"


def _up_to_date(folder: Folder, first: str, second: str) -> bool:
    page = _report(folder, first, second)
    audited = [folder.file(name, ".empriv").stat().st_mtime for name in (first, second)]
    return page.is_file() and page.stat().st_mtime > max(audited)


def _command(folder: Folder, first: str, second: str) -> list[str]:
    """What compares them: against the target, if both have the same."""
    one, other = folder.settings(first), folder.settings(second)
    command = ["compare", f"{first}.empriv", f"{second}.empriv", "--report", _report(folder, first, second).name]
    if one.target and one.target == other.target and one.presence == other.presence:
        return [*command, *(part for text in one.target for part in ("--target", text)), "--presence", one.presence]
    return command


def _comparison(request: Request, first: str, second: str) -> Response:
    folder = folder_of(request)
    pair = [look_at(folder, name) for name in (first, second)]
    work: Work | None = latest(folder, _both(first, second))
    done = _up_to_date(folder, first, second) and not (work is not None and work.running)
    return show(
        request, "compare.html", audits=pair, work=work, done=done, rows=_side_by_side(*pair), names=(first, second),
        address=urlencode([("audit", first), ("audit", second)]),
    )  # fmt: skip


def _side_by_side(one: Listed, other: Listed) -> list[tuple[str, str, str]]:
    names = ("Decision", "Query", "Databases", "People", "Largest delta, and its epsilon", "State")
    cells = [
        (audit.line, audit.asked, audit.databases, audit.people, audit.risk, audit.state) for audit in (one, other)
    ]
    return list(zip(names, *cells, strict=True))


def _plain(text: str) -> str:
    """A cell that a spreadsheet takes for text: one that begins like a formula gets a mark before it."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _download(content: bytes, kind: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)


ROUTES = [
    Route("/", desk),
    Route("/releases", releases),
    Route("/state/{name}", state),
    Route("/audits.csv", as_csv),
    Route("/export/{name}.zip", export),
    Route("/compare", compare, methods=["GET", "POST"]),
    Route("/compare/progress", progress),
    Route("/compare/page", compared),
]
