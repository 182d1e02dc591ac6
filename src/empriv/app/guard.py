"""`Guard`: who may speak to the app. Nobody without the token, no other site's page, no other name for this machine.

The address that is printed holds a random token. Whoever opens it gets a cookie that no script reads and no other site
sends along, and the token leaves the address bar. Every form holds a mark made of the token; a request that changes
something needs both, and must come from the app's own pages. The Host is checked, so that a name that somebody else's
server answers for this machine opens nothing.

Cookies know no ports: a browser sends them to whatever listens on this machine, such as another user's program. So all
addresses of the app begin with a path that nobody else knows, and the cookie is for that path alone. A page that a
command wrote may come from anybody, and its script can tell its own address: it has another path, which opens that page
and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from html import unescape
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
_LINK = re.compile(r"""( (?:href|src|action|data-(?:load|poll|live))=")(/[^"]*)""")
_WRITTEN = re.compile(r"/audits/[^/]+/written/")
"""Addresses of pages that commands wrote."""
_CLOSED = "This desk is closed to you. Open the address that `empriv app` printed in its terminal."


@dataclass(frozen=True)
class Key:
    """The secret of one run of the app; ``port`` is where it listens."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def cookie(self) -> str:
        """Its name: two apps at once need two, and nobody else can set it beforehand."""
        return f"empriv-app-{self._made_for('name')[:16]}"

    @property
    def root(self) -> str:
        """The path before all addresses of the app."""
        return f"/{self._made_for('path')[:32]}"

    @property
    def address(self) -> str:
        """What to open."""
        return self.address_of("/")

    def address_of(self, page: str) -> str:
        """What to open to see a page first."""
        return f"http://127.0.0.1:{self.port}{self.root}{page}?{urlencode({'token': self.token})}"

    @property
    def hosts(self) -> tuple[str, ...]:
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    @property
    def mark(self) -> str:
        """What every form must hold."""
        return self._made_for("form")

    def is_mark(self, text: object) -> bool:
        return isinstance(text, str) and _same(text, self.mark)

    @property
    def pass_(self) -> str:
        """The cookie's value, from which the token cannot be told."""
        return self._made_for("cookie")

    def root_of_page(self, address: str) -> str:
        """The path before the address of a page that a command wrote: it opens this page alone, without a cookie."""
        return f"/{self._made_for(f'page {address}')[:32]}"

    def rooted(self, html: str) -> str:
        """A page of the app with the path before each of its links.

        Text from data has no quotation mark that is not escaped, so that none of it is taken for a link.
        """

        def with_root(link: re.Match[str]) -> str:
            address = unescape(link[2])
            return f"{link[1]}{self.root_of_page(address) if _WRITTEN.match(address) else self.root}{link[2]}"

        return _LINK.sub(with_root, html)

    def _made_for(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


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
        root, path = _split(scope["path"])
        address = f"{path}?{query}" if (query := scope["query_string"].decode("latin-1")) else path
        alone = _WRITTEN.match(path) is not None and _same(root, self.key.root_of_page(address))
        refused = self._answer(Request(scope), root, path, alone=alone)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                # Pages of the app tell each other where a form comes from, and never the path.
                headers["Referrer-Policy"] = "origin" if refused is None and not alone else "no-referrer"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers.setdefault("Cache-Control", "no-store")
                if headers.get("location", "").startswith("/"):
                    headers["location"] = self.key.root + headers["location"]
            await send(message)

        await (self.app if refused is None else refused)({**scope, "root_path": root}, receive, send_guarded)

    def _answer(self, request: Request, root: str, path: str, *, alone: bool) -> Response | None:
        """What is answered instead of the app; None if the request may pass."""
        if request.headers.get("host") not in self.key.hosts:
            return PlainTextResponse("Wrong host.", status_code=421)
        if alone and request.method in ("GET", "HEAD"):
            return None
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            if not (_same(token, self.key.token) and _same(root, self.key.root)):
                return PlainTextResponse(_CLOSED, status_code=403)
            answer = RedirectResponse(path, status_code=303)
            answer.set_cookie(self.key.cookie, self.key.pass_, httponly=True, samesite="strict", path=self.key.root)
            return answer
        if not (_same(root, self.key.root) and _same(request.cookies.get(self.key.cookie, ""), self.key.pass_)):
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


def _split(path: str) -> tuple[str, str]:
    """The first part of a path, and the rest."""
    first, slash, rest = path[1:].partition("/")
    return f"/{first}", f"{slash}{rest}" or "/"


def _same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def written_page(text: str) -> Response:
    """A report or another page that a command wrote, to be shown inside a page of the app."""
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": _WRITTEN_PAGE})
