"""A desk that runs, somebody who visits it, and a real browser."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest

from empriv.cli.config import Settings, read_config, settings_of

pytest.importorskip("starlette", reason="install the app's packages: pip install 'empriv[app]'")
pytest.importorskip("uvicorn", reason="install the app's packages: pip install 'empriv[app]'")

_OF_DECISION = re.compile(r"^(/audits/[^/]+)/(?:run|run/stop|page|actions|release|release/[a-z-]+|review)$")
PATIENCE = 60.0
"""Seconds that a test waits for what must come; a shared machine may be slow."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: Mapping[str, str]

    def field(self, name: str) -> str:
        """The value of an input on the page."""
        tag = next(tag for tag in re.findall(r"<input[^>]*>", self.text) if f'name="{name}"' in tag)
        match = re.search(r'value="([^"]*)"', tag)
        return unescape(match[1]) if match else ""


def as_upload(page: Answer, name: str, content: bytes) -> tuple[bytes, str]:
    """What a browser sends when the form of a page uploads a file, and its type."""
    edge = secrets.token_hex(8)
    fields = {"way": "upload", "mark": page.field("mark"), "seen": page.field("seen")}
    parts = [
        f'--{edge}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    ]
    parts.append(f'--{edge}\r\nContent-Disposition: form-data; name="upload"; filename="{name}"\r\n\r\n')
    return "".join(parts).encode() + content + f"\r\n--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"


@dataclass
class Visitor:
    """Speaks HTTP with a desk, as a browser would: keeps cookies, follows redirects after a form.

    ``root`` is the path before all addresses of the desk, which tests leave away, and which answers are shown without.
    """

    port: int
    root: str = ""
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request, with exactly these headers besides Host and cookies."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = dict(headers or {})
        if self.cookies and "Cookie" not in sent:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, self.root + path, body, sent)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace").replace(f'="{self.root}/', '="/')
        for cookie in response.headers.get_all("Set-Cookie") or []:
            name, _, rest = cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        connection.close()
        received = dict(response.headers.items())
        if "location" in received:
            received["location"] = received["location"].removeprefix(self.root)
        return Answer(response.status, text, received)

    def get(self, path: str) -> Answer:
        answer = self.ask("GET", path)
        return self.get(answer.headers["location"]) if answer.status == 303 else answer

    def post(self, path: str, fields: Any, *, page: str | None = None, follow: bool = True) -> Answer:
        """Fill in a form of a page (the one that has it unless named) and send it."""
        shown = self.get(_OF_DECISION.sub(r"\1/decision", path) if page is None else page)
        given = list(fields.items()) if isinstance(fields, Mapping) else list(fields)
        for name in ("mark", "seen"):
            if all(key != name for key, _ in given):
                given.append((name, shown.field(name)))
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://127.0.0.1:{self.port}"}
        answer = self.ask("POST", path, urlencode(given), headers)
        return self.get(answer.headers["location"]) if follow and answer.status == 303 else answer

    def upload(self, path: str, name: str, content: bytes) -> Answer:
        """Upload a file on the page of data."""
        body, kind = as_upload(self.get(path), name, content)
        headers = {"Content-Type": kind, "Origin": f"http://127.0.0.1:{self.port}"}
        answer = self.ask("POST", path, body, headers)
        return self.get(answer.headers["location"]) if answer.status == 303 else answer


@dataclass(frozen=True)
class RunningDesk:
    """A desk that answers, and its folder."""

    folder: Path
    port: int
    address: str

    def visitor(self) -> Visitor:
        """Somebody who opened the address that was printed."""
        return entered(self.address)

    def at(self, path: str) -> str:
        """Where a browser finds a page."""
        return self.address.partition("/?")[0] + path


def entered(address: str) -> Visitor:
    """Somebody who opened an address that was printed."""
    parts = urlsplit(address)
    assert parts.port is not None
    visitor = Visitor(parts.port, parts.path.removesuffix("/"))
    visitor.get(f"/?{parts.query}")
    return visitor


@contextmanager
def running(folder: Path, named: tuple[str, ...] = ()) -> Iterator[RunningDesk]:
    """Serve a folder from a thread of this process."""
    from empriv.app.folder import Folder
    from empriv.app.guard import Key
    from empriv.app.server import application, server_of

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    key = Key(listening.getsockname()[1])
    server = server_of(application(Folder.opened(folder, named), key))
    patch = pytest.MonkeyPatch()
    patch.setattr("empriv.app.server.warm_up", os.getpid)  # workers import what they need when they are asked
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    assert server.started
    try:
        yield RunningDesk(folder, key.port, key.address)
    finally:
        patch.undo()
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDesk]:
    """A desk for the tests of one module."""
    with running(tmp_path_factory.mktemp("desk")) as served:
        yield served


@pytest.fixture
def visitor(desk: RunningDesk) -> Visitor:
    """Somebody who may enter."""
    return desk.visitor()


def sales(*, days: int = 60, people: int = 40, seed: int = 0) -> bytes:
    """A CSV of sales: small, and private enough to publish with little noise."""
    rng = np.random.default_rng(seed)
    first = np.datetime64("2024-01-01")
    lines = ["day,client,amount,region"]
    for day in range(days):
        for client in np.flatnonzero(rng.random(people) < 0.8):
            region = "north" if client % 2 else "south"
            lines.append(f"{first + day},client {client},{rng.gamma(4.0, 5.0):.2f},{region}")
    return ("\n".join(lines) + "\n").encode()


def wait_for(true: Any, *, seconds: float = PATIENCE) -> Any:
    """What a function gives once it is neither None nor False."""
    until = time.monotonic() + seconds
    while True:
        given = true()
        if given or time.monotonic() > until:
            return given
        time.sleep(0.1)


# Forms

FORM = {
    "individual": "client", "database": "day", "expression": "", "subsamples": "365", "fraction": "0.5",
    "unidentified": "error", "timezone": "", "mode": "build", "measure": "mean", "column": "amount", "by": "",
    "holds_column": "", "holds_operator": "=", "holds_value": "", "query": "", "unit": "", "do": "save",
}  # fmt: skip
"""Of the step Data, filled in."""


def as_read(html: str) -> str:
    """What people read of a page."""
    return unescape(re.sub(r"<[^>]+>", "", html))


def chosen(text: str, field: str) -> list[str]:
    """The values of a field that are checked or selected."""
    boxes = re.findall(rf'<input[^>]*name="{field}"[^>]*value="([^"]*)"[^>]* checked', text)
    select = re.search(rf'<select[^>]*name="{field}".*?</select>', text, re.DOTALL)
    return [unescape(v) for v in (boxes or re.findall(r'value="([^"]*)" selected', select[0] if select else ""))]


@dataclass(frozen=True)
class Step:
    """A step of an audit, and somebody who fills in its form; fields that are not given are those of `form`."""

    desk: RunningDesk
    visitor: Visitor
    name: str
    form: dict[str, str]
    step: str = "data"
    live_end: str = "live"

    @property
    def path(self) -> str:
        return f"/audits/{self.name}/{self.step}"

    @property
    def file(self) -> Path:
        return self.desk.folder / f"{self.name}.toml"

    @property
    def settings(self) -> Settings:
        return settings_of(read_config(self.file), {})

    def page(self) -> str:
        """The page with its form, once rows were looked at."""
        return self.visitor.get(f"{self.path}?wait=1").text

    def piece(self, end: str) -> str:
        return self.visitor.get(f"{self.path}/{end}").text

    def live(self, **fields: str) -> str:
        """What is shown beside the form, as people read it."""
        return as_read(self.live_html(**fields))

    def live_html(self, **fields: str) -> str:
        path = f"{self.path}/{self.live_end}"
        return self.visitor.post(path, self._whole((), fields), page=f"{self.path}?wait=1").text

    def send(self, *several: tuple[str, str], follow: bool = True, **fields: str) -> Answer:
        return self.visitor.post(self.path, self._whole(several, fields), page=f"{self.path}?wait=1", follow=follow)

    def _whole(self, several: Iterable[tuple[str, str]], fields: dict[str, str]) -> list[tuple[str, str]]:
        return [*{**self.form, **fields}.items(), *several]


Made = Callable[..., Step]


@pytest.fixture
def of(desk: RunningDesk, visitor: Visitor) -> Made:
    """Makes a new audit of some rows."""

    def made(content: bytes, **settings: Any) -> Step:
        name = f"a{len(list(desk.folder.glob('*.toml')))}"
        file = desk.folder / f"{hashlib.sha256(content).hexdigest()[:8]}.csv"
        if not file.exists():  # rows that were looked at are not looked at again
            file.write_bytes(content)
        given = {"files": [file.name], **settings}
        (desk.folder / f"{name}.toml").write_text(
            "\n".join(f"{key} = {json.dumps(value)}" for key, value in given.items())
        )
        return Step(desk, visitor, name, FORM)

    return made


@pytest.fixture
def ready(of: Made) -> Step:
    """An audit for which it is said who and when."""
    return of(sales(days=40, people=8), individual=["client"], database="day")
