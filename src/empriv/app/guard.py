"""`Guard`: who may speak to the app. Nobody without the token, no other site's page, no other name for this machine.

The address that is printed holds a random token. Whoever opens it gets a cookie that no script reads and no other site
sends along, and the token leaves the address bar. Every form holds a mark made of the token; a request that changes
something needs both, and must come from the app's own pages. The Host is checked, so that a name that somebody else's
server answers for this machine opens nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_WRITTEN_PAGE = (
    "sandbox allow-scripts allow-modals allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
"""Of a report, whose file may come from anybody: its script belongs to no site, so that it reads and does nothing here,
and it reaches no network. What it brings along, a Content-Security-Policy of its own, holds besides."""
_CLOSED = "This desk is closed to you. Open the address that `empriv app` printed in its terminal."


@dataclass(frozen=True)
class Key:
    """The secret of one run of the app; ``port`` is where it listens."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def cookie(self) -> str:
        """Cookies do not know ports: two apps at once need two names."""
        return f"empriv-app-{self.port}"

    @property
    def address(self) -> str:
        """What to open."""
        return f"http://127.0.0.1:{self.port}/?{urlencode({'token': self.token})}"

    @property
    def hosts(self) -> tuple[str, ...]:
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    @property
    def mark(self) -> str:
        """What every form must hold."""
        return hmac.new(self.token.encode(), b"form", hashlib.sha256).hexdigest()

    def is_mark(self, text: object) -> bool:
        return isinstance(text, str) and hmac.compare_digest(text.encode(), self.mark.encode())

    @property
    def pass_(self) -> str:
        """The cookie's value, from which the token cannot be told."""
        return hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()


class Guard:
    """Lets requests through to the app, or answers them itself; a layer of ASGI."""

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self.app = app
        self.key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._answer(request)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin" if refused is None else "no-referrer"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (self.app if refused is None else refused)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """What is answered instead of the app; None if the request may pass."""
        if request.headers.get("host") not in self.key.hosts:
            return PlainTextResponse("Wrong host.", status_code=421)
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            if not hmac.compare_digest(token.encode(), self.key.token.encode()):
                return PlainTextResponse(_CLOSED, status_code=403)
            answer = RedirectResponse(request.url.path, status_code=303)
            answer.set_cookie(self.key.cookie, self.key.pass_, httponly=True, samesite="strict", path="/")
            return answer
        shown = request.cookies.get(self.key.cookie, "")
        if not hmac.compare_digest(shown.encode(), self.key.pass_.encode()):
            return PlainTextResponse(_CLOSED, status_code=403)
        if request.method not in ("GET", "HEAD") and not self._from_here(request):
            return PlainTextResponse("This came from another site's page, and was not done.", status_code=403)
        return None

    def _from_here(self, request: Request) -> bool:
        """Whether a request that changes something comes from a page of the app, by what the browser says of it."""
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        own = [f"http://{host}" for host in self.key.hosts]
        return origin in own and site in ("same-origin", "none")


def written_page(text: str) -> Response:
    """A report or another page that a command wrote, to be shown inside a page of the app."""
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": _WRITTEN_PAGE})
