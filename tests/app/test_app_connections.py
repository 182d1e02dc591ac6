"""Whoever opens connections and asks nothing, or asks a byte at a time, does not keep others from the desk."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import repeat
from pathlib import Path

import pytest

from app.conftest import PATIENCE, RunningDesk, as_upload, running
from empriv.app import server

pytestmark = pytest.mark.slow

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
BODY = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n"
ASKED = b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningDesk]:
    """A desk that has little patience."""
    monkeypatch.setattr(server, "SECONDS", 1.0)
    with running(tmp_path) as served:
        yield served


def opened(desk: RunningDesk) -> socket.socket:
    return socket.create_connection(("127.0.0.1", desk.port), timeout=PATIENCE)


def is_closed(connection: socket.socket, trickled: bytes = b"") -> bool:
    """Whether the desk closes a connection on which bytes arrive one at a time."""
    until, left = time.monotonic() + PATIENCE, iter(trickled)
    connection.settimeout(0.2)
    while time.monotonic() < until:
        try:
            byte = next(left, None)
            if byte is not None:
                connection.sendall(bytes([byte]))
            if not connection.recv(65536):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


@pytest.mark.parametrize("beginning", [b"", b"G", HEAD, BODY, ASKED + b"G"])
def test_the_desk_answers_while_hundreds_hold_connections(desk: RunningDesk, beginning: bytes) -> None:
    with ExitStack() as stack:
        for _ in repeat(None, 700):
            held = stack.enter_context(opened(desk))
            held.sendall(beginning)
        assert desk.visitor().get("/").status == 200
        assert desk.visitor().get("/new").status == 200


@pytest.mark.parametrize("beginning", [b"", HEAD, BODY, ASKED + HEAD])
def test_a_request_that_arrives_a_byte_at_a_time_is_ended(quick: RunningDesk, beginning: bytes) -> None:
    with opened(quick) as slow:
        slow.sendall(beginning)
        assert is_closed(slow, trickled=b"a" * 1000)
    assert quick.visitor().get("/").status == 200


def test_a_connection_that_asks_again_and_again_stays(quick: RunningDesk) -> None:
    kept = HTTPConnection("127.0.0.1", quick.port, timeout=PATIENCE)
    kept.connect()
    own, until = kept.sock, time.monotonic() + 4 * server.SECONDS
    while time.monotonic() < until:
        kept.request("GET", "/none")
        answer = kept.getresponse()
        assert answer.status == 403
        answer.read()
        assert kept.sock is own, "it was not closed"
        time.sleep(0.2)
    kept.close()


def test_an_upload_that_takes_longer_than_a_request_arrives(
    quick: RunningDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BYTES_A_SECOND", 1_000)
    visitor = quick.visitor()
    content = b"day,who,x\n" + b"1,2,3\n" * 20_000
    body, kind = as_upload(visitor.get("/new"), "a.csv", content)
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    head = (
        f"POST {visitor.root}/new HTTP/1.1\r\nHost: 127.0.0.1:{quick.port}\r\nCookie: {cookie}\r\n"
        f"Origin: http://127.0.0.1:{quick.port}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with opened(quick) as steady:
        steady.sendall(head.encode())
        for start in range(0, len(body), 6_000):
            steady.sendall(body[start : start + 6_000])
            time.sleep(0.15)  # three seconds in all
        assert steady.recv(65536).startswith(b"HTTP/1.1 303")
    assert (quick.folder / "a.csv").read_bytes() == content
