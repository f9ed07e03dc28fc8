"""One HTTP exchange with a client over ASGI: reading its body, answering it, noticing that it left.

Knows bytes, headers and status codes; nothing of models or dialects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from router.errors import BadRequest, Cancelled, TooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PING = b": keep-alive\n\n"  # a comment: no client sees an event


class Exchange:
    """The client's side of one request. `started` = the head went out; `committed` = content went out."""

    __slots__ = ("_ping", "_receive", "_send", "committed", "ended", "left", "sending", "started", "writes")

    def __init__(self, receive: Receive, send: Send, ping: bytes = PING) -> None:
        self._receive = receive
        self._send = send
        self._ping = ping
        self.started = False
        self.committed = False  # the commit point has passed: no other attempt may serve
        self.ended = False
        self.sending = False
        self.left = False
        self.writes = 0  # pieces of a stream sent so far

    async def body(self, headers: Mapping[bytes, bytes], limit: int) -> bytes:
        """The whole body. Raises TooLarge before reading what content-length already says is too much."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length) > limit):
            raise TooLarge(f"the body is larger than the limit of {limit} bytes")
        message = await self._receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            self._check(message)
            return body
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await self._receive()
            self._check(message)
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise TooLarge(f"the body is larger than the limit of {limit} bytes")
            parts.append(part)
        return b"".join(parts)

    def _check(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self.left = True
            raise Cancelled("the client left while sending its body")

    async def gone(self) -> None:
        """Returns when the client has left. Call after the body was read."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.left = True
                return

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer at once."""
        self.started = self.committed = self.ended = True
        head = [*headers, (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    async def start_stream(self, headers: Headers) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def stream(self, data: bytes) -> None:
        """Whole events. Waits while the client reads slowly."""
        self.committed = True
        self.writes += 1
        self.sending = True
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self.sending = False

    async def ping(self, headers: Headers) -> None:
        """An event that says nothing, which keeps intermediaries from cutting a silent stream."""
        if self.ended or self.sending:
            return
        if not self.started:
            await self.start_stream(headers)
        await self._send({"type": "http.response.body", "body": self._ping, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        self.ended = True
        await self._send({"type": "http.response.body", "body": data})


def single_headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Request headers by lower-case name. A repeated content-length or host is refused (request smuggling)."""
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in headers and name in (b"content-length", b"host", b"transfer-encoding", b"authorization"):
            raise BadRequest(f"the header {name.decode('latin-1')} is given twice")
        headers[name] = value
    return headers
