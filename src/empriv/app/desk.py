"""The desk: all audits in the folder, and what was released."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app.pages import folder_of, show
from empriv.app.work import latest


async def desk(request: Request) -> Response:
    """Every audit with how far it is."""
    folder = folder_of(request)
    audits = [{"name": name, "saved": folder.saved(name), "work": latest(folder, name)} for name in folder.audits()]
    return show(request, "desk.html", audits=audits)


ROUTES = [Route("/", desk)]
