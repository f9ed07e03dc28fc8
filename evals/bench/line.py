"""A client's connection to a gateway, for loads that come by the clock: what it costs the load is little, and what came
of each request is told from the bytes of its answer. An answer that ends before its time is one, too.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import cast

from msgspec import Struct

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
_ENDS = {CHAT: b"data: [DONE]", MESSAGES: b"event: message_stop", RESPONSES: b"event: response.completed"}
_ERRORS = {CHAT: b'data: {"error"', MESSAGES: b"event: error", RESPONSES: b"event: response.failed"}
_LAST = b"\r\n0\r\n\r\n"


class Answer(Struct, frozen=True):
    """When it was asked, for how long, and what came. `cut`: a stream that ended with one error event instead."""

    at: float
    took_s: float
    status: int
    whole: bool
    cut: bool
    streamed: bool
    first_s: float  # to the first byte


class Line(asyncio.Protocol):
    """One connection, which stays open where the gateway leaves it open; a request at a time."""

    def __init__(self) -> None:
        self.lost = False
        self._transport: asyncio.WriteTransport
        self._done: asyncio.Future[None]
        self._got = bytearray()
        self._size: int | None = None  # of the whole answer: None before its head is here, 0 where it does not say
        self._first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self._got:
            self._first = monotonic()
        self._got += data
        if self._size is None and (end := self._got.find(b"\r\n\r\n") + 4) >= 4:
            length = bytes(self._got[:end]).lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]
            self._size = end + int(length) if length else 0
        if self._size is not None and (len(self._got) >= self._size if self._size else self._got.endswith(_LAST)):
            self._over()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._over()

    def _over(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    async def ask(self, request: bytes, patience_s: float, path: str = CHAT) -> Answer:
        begun = monotonic()
        self._got, self._size = bytearray(), None
        self._done = asyncio.get_running_loop().create_future()
        if self.lost:
            return judged(b"", path, begun, begun)
        self._transport.write(request)
        try:
            async with asyncio.timeout(patience_s):
                await self._done
        except TimeoutError:
            self.close()
            self.lost = True
        return judged(bytes(self._got), path, begun, self._first)

    def close(self) -> None:
        self._transport.close()


def judged(got: bytes, path: str, begun: float, first: float) -> Answer:
    """What came, as an answer."""
    code = int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/1.1 ") else 0
    streamed = b"text/event-stream" in got
    errors, ends = got.count(_ERRORS[path]), got.count(_ENDS[path])
    whole = code == 200 and (ends == 1 and errors == 0 and got.endswith(_LAST) if streamed else got.endswith(b"}"))
    cut = streamed and errors == 1 and ends == 0
    return Answer(begun, monotonic() - begun, code, whole, cut, streamed, first - begun)


async def connect(port: int) -> Line:
    """Raises OSError."""
    return (await asyncio.get_running_loop().create_connection(Line, "127.0.0.1", port))[1]


async def ask(port: int, request: bytes, patience_s: float) -> Answer:
    """One request of the chat dialect on a connection of its own."""
    begun = monotonic()
    try:
        async with asyncio.timeout(patience_s):
            line = await connect(port)
    except (TimeoutError, OSError):
        return judged(b"", CHAT, begun, begun)
    try:
        return await line.ask(request, patience_s)
    finally:
        line.close()
