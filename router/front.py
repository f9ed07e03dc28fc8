"""The server's side of a client's connection: uvicorn's protocol, with limits on how large a request's head may be
and how slowly a request may come. What a request says is `app`'s.

uvicorn bounds neither: one connection that sends headers for ever takes memory without end, and one that sends
nothing keeps its socket for ever. Time is counted in ticks of one task, since a timer each costs more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT = 64 * 1024  # bytes; Envoy's default is 60 KiB
HEAD_S = 10.0  # from the connection, or the request's first byte, to the end of its head
BODY_S = 60.0  # from there on a body that has not ended must have come at this rate
BODY_RATE = 16 * 1024  # bytes a second: 32 MiB may take half an hour
TICK_S = 1.0

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b"
)
_TOO_LARGE_BODY = (
    b'{"error":{"message":"the request\'s headers are larger than the limit of %d bytes",'
    b'"type":"invalid_request_error","param":null,"code":"headers_too_large"}}' % HEAD_LIMIT
)


class Front(HttpToolsProtocol):
    """One connection. `waiting` says for what the gateway waits; None while it is the client that waits."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waiting: Literal["head", "body"] | None = "head"
        self.waited_s = 0.0
        self.received = 0  # bytes of what is waited for

    def data_received(self, data: bytes) -> None:
        before = self.waiting
        super().data_received(data)
        if self.waiting is None or self.waiting != before:
            return
        self.received += len(data)
        if before == "head" and self.received > HEAD_LIMIT and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY))
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.waiting is None:
            self._wait_for("head")

    def on_headers_complete(self) -> None:
        self._wait_for("body")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.waiting = None
        super().on_message_complete()

    def _wait_for(self, what: Literal["head", "body"]) -> None:
        self.waiting = what
        self.waited_s = 0.0
        self.received = 0

    def tick(self, seconds: float) -> None:
        """So much time has passed. Closes the connection of a client that is too slow."""
        if self.waiting is None or self.flow.read_paused:  # paused: it is the gateway that has not read on
            return
        self.waited_s += seconds
        if self.waiting == "head":
            answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
            if answered and self.waited_s >= HEAD_S:
                self.transport.close()
        elif self.waited_s >= BODY_S and self.received < BODY_RATE * self.waited_s:
            self.transport.close()


async def tick(connections: Iterable[object], every_s: float = TICK_S) -> None:
    """Lets time pass for the connections of a set that changes meanwhile, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        for connection in list(connections):
            if isinstance(connection, Front):
                connection.tick(every_s)
