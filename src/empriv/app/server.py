"""The server: which address shows which page, and how it starts and stops."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from empriv.app import data, decision_step, home, promise, release
from empriv.app.connections import MOST, TimedConnection
from empriv.app.folder import Folder
from empriv.app.guard import Guard, Key
from empriv.app.jobs import cancel_all
from empriv.app.pages import Forged, asset, forged, not_done, refused, unexpected
from empriv.app.workers import WorkerPool, warm_up
from empriv.base.storage import write_atomically
from empriv.errors import EmprivError, InputError

_LAST_SECONDS = 2  # requests that are being answered when the desk ends may take so long
_TYPES = {"style.css": "text/css", "app.js": "text/javascript"}
_SENTENCES = {
    404: "There is no such page.",
    405: "This page cannot be asked for in this way.",
    413: "This is more than the app takes at once.",
}
MOST_BYTES = 1 << 34
"""Of an upload."""


def application(folder: Folder, key: Key) -> Guard:
    """The app, which works in a folder, behind its guard."""

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        import asyncio

        getting_ready = asyncio.ensure_future(app.state.workers.run(warm_up))
        yield
        getting_ready.cancel()
        app.state.workers.close()
        cancel_all(folder)

    routes = [
        Route("/asset/{file}", _asset),
        *home.ROUTES,
        *data.ROUTES,
        *promise.ROUTES,
        *decision_step.ROUTES,
        *release.ROUTES,
    ]
    app = Starlette(
        routes=routes, lifespan=life, max_body_size=MOST_BYTES,
        exception_handlers={Forged: forged, EmprivError: refused, HTTPException: _missing, Exception: unexpected},
    )  # fmt: skip
    app.state.folder, app.state.key, app.state.workers = folder, key, WorkerPool(str(folder.path))
    return Guard(app, key)  # outermost: what goes wrong inside is guarded too


def serve(
    folder: Folder, port: int, *, browse: Callable[[str], object] | None, say: Callable[[str], None], page: str = "/"
) -> None:
    """Answer on this machine until Ctrl-C; ``say`` prints the address of a page, ``browse`` opens it."""
    listening = _listening(port)
    key = Key(listening.getsockname()[1])
    address = key.address_of(page)
    say(f"empriv app is at {address}")
    say(f"It works in {folder.path}; Ctrl-C stops it.")
    door = folder.own / "open.html"
    if browse is not None:
        # The address goes by a file that only this user reads: a browser's command line is for all to see.
        write_atomically(door, _door(address).encode())
        browse(door.as_uri())
    server = server_of(application(folder, key))
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()
        with contextlib.suppress(OSError):
            door.unlink()


def server_of(app: Guard) -> uvicorn.Server:
    """A server of the app, whose connections are timed; it speaks nothing but HTTP."""
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="on", server_header=False,
        http=TimedConnection, ws="none", backlog=MOST, timeout_graceful_shutdown=_LAST_SECONDS,
    )  # fmt: skip
    return uvicorn.Server(config)


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError:
        listening.close()
        raise InputError(f"`--port` must be free, got {port}, which another program uses. Hint: --port 0.") from None
    listening.listen()  # whoever opens the address before the server is ready waits for it
    return listening


def _door(address: str) -> str:
    return f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><title>empriv</title>'


async def _asset(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in _TYPES:
        raise HTTPException(404)
    return Response(asset(name), media_type=_TYPES[name], headers={"Cache-Control": "max-age=3600"})


async def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = _SENTENCES.get(error.status_code, "This could not be read: it is not what a page of the app sends.")
    return not_done(request, error.status_code, sentence)
