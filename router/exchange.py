"""One HTTP exchange with a client: reading its body, answering it, noticing that it left.

Knows bytes, headers and status codes; nothing of models or dialects. `AsgiExchange` goes through an ASGI server; how
the data port's hot requests go without one is in `front`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from router.errors import BadRequest, Cancelled, TooLarge
from router.turns import aside

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# Lines of an answer's head, each "name: value"; several that belong together may stand in one, with CRLF between.
Headers = list[bytes]

_ONCE = (b"content-length", b"host", b"transfer-encoding", b"authorization", b"x-api-key")
PING = b": keep-alive\n\n"  # a comment: no client sees an event


class Exchange(ABC):
    """The client's side of one request. `started` = the head went out; `committed` = content went out."""

    started = False
    committed = False  # the commit point has passed: no other attempt may serve
    ended = False
    sending = False  # waiting for a client that reads slowly
    left = False
    writes = 0  # pieces of a stream sent so far
    pushes = False  # there is `push`

    def __init__(self, ping: bytes = PING) -> None:
        self._ping = ping

    @abstractmethod
    def notice(self, left: Callable[[], None]) -> None:
        """Calls `left` once the client has left, until `ignore`. Call after the body was read."""

    @abstractmethod
    def ignore(self) -> None:
        """Whether the client leaves is of no interest any more."""

    @abstractmethod
    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer at once."""

    @abstractmethod
    async def start_stream(self, headers: Headers) -> None:
        """The head of a streamed answer."""

    @abstractmethod
    async def stream(self, data: bytes) -> None:
        """Whole events. Waits while the client reads slowly."""

    def push(self, data: bytes) -> bool:
        """`stream` of somebody who cannot wait; whether the client reads fast enough for more of that."""
        raise NotImplementedError

    @abstractmethod
    async def end(self, data: bytes = b"") -> None:
        """The last events, and the end of the stream."""

    @abstractmethod
    async def ping(self, headers: Headers) -> None:
        """An event that says nothing, which keeps intermediaries from cutting a silent stream."""


class AsgiExchange(Exchange):
    """One exchange over ASGI."""

    def __init__(self, receive: Receive, send: Send, ping: bytes = PING) -> None:
        super().__init__(ping)
        self._receive = receive
        self._send = send
        self._noticing: asyncio.Task[None] | None = None

    async def body(self, headers: Mapping[bytes, bytes], limit: int) -> bytes:
        """The whole body. Raises TooLarge before reading what content-length already says is too much."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise TooLarge(f"the body is larger than the limit of {limit} bytes")
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.left = True
                raise Cancelled("the client left while sending its body")
            part: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size > limit:
                raise TooLarge(f"the body is larger than the limit of {limit} bytes")
            parts.append(part)
        return parts[0] if len(parts) == 1 else await aside(size, b"".join, parts)

    def notice(self, left: Callable[[], None]) -> None:
        self._noticing = asyncio.ensure_future(self._gone(left))

    async def _gone(self, left: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        left()

    def ignore(self) -> None:
        if self._noticing is not None:
            self._noticing.cancel()

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        self.started = self.committed = self.ended = True
        head = [*pairs(headers), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    async def start_stream(self, headers: Headers) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": pairs(headers)})

    async def stream(self, data: bytes) -> None:
        self.committed = True
        self.writes += 1
        self.sending = True
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self.sending = False

    async def ping(self, headers: Headers) -> None:
        if self.ended or self.sending:
            return
        if not self.started:
            await self.start_stream(headers)
        await self._send({"type": "http.response.body", "body": self._ping, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        self.ended = True
        await self._send({"type": "http.response.body", "body": data})


def pairs(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The same by name and value, as ASGI has them."""
    lines = [line.partition(b": ") for some in headers for line in some.split(b"\r\n")]
    return [(name, value) for name, _, value in lines]


def single_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Request headers by lower-case name. Repeated lengths, hosts and keys are refused: who stands before us may have
    gone by the other one."""
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in headers and name in _ONCE:
            raise BadRequest(f"the header {name.decode('latin-1')} is given twice")
        headers[name] = value
    return headers
