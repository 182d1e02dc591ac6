"""`TimedConnection`: a request must arrive whole within its time, and those who only hold a connection make room.

Whoever may open a socket on this machine could otherwise keep the desk busy without the token: by connections on which
nothing is asked, or by requests that arrive a byte at a time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 20.0
"""Until a request has arrived, or nothing has, on a new connection."""
BYTES_A_SECOND = 100_000
"""An upload takes its time: so many bytes buy a second more."""
MOST = 100
"""Connections at once; a browser opens six."""
_LOOK_SECONDS = 0.5


class TimedConnection(H11Protocol):
    """A connection to the desk, as uvicorn serves it."""

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
