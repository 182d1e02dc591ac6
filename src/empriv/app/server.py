"""The server: which address shows which page, how it starts and stops, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from empriv.app import data, decision_step, home, promise
from empriv.app.folder import COPIES, Folder
from empriv.app.guard import Guard, Key
from empriv.app.jobs import WorkerPool, cancel_all, warm_up
from empriv.app.pages import Forged, asset, forged, not_done, refused, unexpected
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
SECONDS = 20.0
"""Until a request has arrived, or nothing has, on a new connection."""
BYTES_A_SECOND = 100_000
"""An upload takes its time: so many bytes buy a second more."""
MOST = 100
"""Connections at once; a browser opens six."""
_LOOK_SECONDS = 0.5


class TimedConnection(H11Protocol):
    """A connection to the desk: a request must arrive whole within its time, and those who only hold one make room.

    Whoever may open a socket on this machine could otherwise keep the desk busy without the token: by connections on
    which nothing is asked, or by requests that arrive a byte at a time.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.since = 0.0  # when the request that is arriving began to
        self._arrived = 0
        self._whole = False
        self._last: Any = None  # uvicorn's record of the last request that arrived whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > MOST:
            others = [other for other in self.connections if isinstance(other, TimedConnection)]
            waiting = [other for other in others if not other.is_answered()]
            min(waiting, key=lambda other: (other.is_busy(), other.since)).end()
        self.loop.call_later(_LOOK_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        if self._whole:
            self.since, self._arrived, self._whole = self.loop.time(), 0, False
        self._arrived += len(data)
        super().data_received(data)
        if self.cycle is not None and self.cycle is not self._last and not self.cycle.more_body:
            self._last, self._whole = self.cycle, True

    def is_busy(self) -> bool:
        """Whether the head of a request has arrived that has no answer yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def is_answered(self) -> bool:
        """Whether a request has arrived whole, and its answer is being made."""
        return self._whole and self.is_busy()

    def end(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.since += _LOOK_SECONDS  # the desk has yet to take what has arrived
        if not self._whole and self.loop.time() > self.since + SECONDS + self._arrived / BYTES_A_SECOND:
            self.end()
            return
        self.loop.call_later(_LOOK_SECONDS, self._look)


def application(folder: Folder, key: Key) -> Guard:
    """The app, which works in a folder, behind its guard."""

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        getting_ready = asyncio.ensure_future(app.state.workers.run(warm_up))
        yield
        getting_ready.cancel()
        app.state.workers.close()
        cancel_all(folder)
        shutil.rmtree(folder.path / COPIES, ignore_errors=True)

    routes = [
        Route("/asset/{file}", _asset),
        *home.ROUTES,
        *data.ROUTES,
        *promise.ROUTES,
        *decision_step.ROUTES,
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
