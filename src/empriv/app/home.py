"""The first page: all audits of the folder and what was released; to filter, to take away, to delete."""

from __future__ import annotations

import io
import zipfile
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from empriv.app.folder import IMPACT, PUBLIC
from empriv.app.jobs import forget, latest
from empriv.app.ledgers import ledgers_here
from empriv.app.listing import KINDS_SHOWN, Listed, listed, look_at, strangers
from empriv.app.pages import attached, folder_of, form_of, show, workers_of
from empriv.errors import InputError

EXPORTED = (".toml", ".json", ".html", ".noise.html", ".noise.json", ".advice.json", ".review.json", IMPACT, PUBLIC)
"""Files of an audit that a checker takes away: none that says who is who, none that holds results."""


async def home(request: Request) -> Response:
    """Every audit with how far it is, and what was released."""
    return _page(request)


async def releases(request: Request) -> Response:
    """What the ledgers say, which the page asks for once it is there."""
    search = _search(request).casefold().split()
    ledgers = await workers_of(request).run(ledgers_here)
    shown = [
        (ledger, [one for one in ledger.releases if all(word in one.asked.casefold() for word in search)])
        for ledger in ledgers
    ]
    return show(request, "releases.html", ledgers=shown, searched=bool(search))


async def state(request: Request) -> Response:
    """How far the work on an audit is, for its row of the list."""
    folder, name = folder_of(request), request.path_params["name"]
    return show(request, "state.html", audit=look_at(folder, name))


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
    return attached(out.getvalue(), "application/zip", f"{name}.zip")


async def delete(request: Request) -> Response:
    """Which files of an audit go, and after a confirmation, that they are gone; rows and ledgers stay."""
    folder, name = folder_of(request), request.path_params["name"]
    if request.method == "POST":
        form = await form_of(request)
        job = latest(folder, name)
        if job is not None and job.running:
            raise InputError(f"Work on this audit is under way: {job.title}. Wait for it, or cancel it.")
        if form.get("confirm") == "yes":
            forget(folder, name)
            for path in folder.made_files(name):
                path.unlink(missing_ok=True)
            return RedirectResponse("/", status_code=303)
    files = [path.name for path in folder.made_files(name)]
    if not files:
        raise InputError("The audit must be there to be deleted.")
    return show(request, "delete.html", files=files, rows=folder.settings(name).files)


def _page(request: Request, *, errors: dict[str, str] | None = None, status: int = 200) -> Response:
    folder, search = folder_of(request), _search(request)
    return show(
        request, "home.html", audits=_filtered(request), search=search, strangers=strangers(folder),
        kinds=KINDS_SHOWN, kind=request.query_params.get("kind", ""),
        query=urlencode({"q": search, "kind": request.query_params.get("kind", "")}),
        empty=not folder.audits(), errors=errors or {}, status=status,
    )  # fmt: skip


def _filtered(request: Request) -> tuple[Listed, ...]:
    """Audits that have the words, and the decision, that somebody asks for."""
    kind = request.query_params.get("kind", "")
    every = listed(folder_of(request), _search(request))
    return tuple(audit for audit in every if kind in ("", audit.kind))


def _search(request: Request) -> str:
    return request.query_params.get("q", "")[:200]


ROUTES = [
    Route("/", home),
    Route("/releases", releases),
    Route("/state/{name}", state),
    Route("/export/{name}.zip", export),
    Route("/audits/{name}/delete", delete, methods=["GET", "POST"]),
]
