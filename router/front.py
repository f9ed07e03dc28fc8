"""The server's side of a client's connection: uvicorn's protocol, with limits on how large a request's head may be
and how slowly a request may come, and a short way for hot requests. What a request says is `app`'s.

uvicorn bounds neither: one connection that sends headers for ever takes memory without end, and one that sends
nothing keeps its socket for ever. Time is counted in ticks of one task, since a timer each costs more than that.

ASGI costs an inference request as much as relaying it does: a scope, a task that waits for a body which is already
there, an event, a dictionary for each piece of the answer, a search through every header. So a plain POST to one of the
application's hot paths, with its whole body at hand, is given to the application as it is, and answered on the
transport. Everything unusual (a large or compressed body, `expect`, HTTP/1.0, pipelining) goes through ASGI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, Protocol, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from router.exchange import Exchange, Headers
from router.types import Dialect

HEAD_LIMIT = 64 * 1024  # bytes; Envoy's default is 60 KiB
HEAD_S = 10.0  # from the connection, or the request's first byte, to the end of its head
BODY_S = 60.0  # from there on a body that has not ended must have come at this rate
BODY_RATE = 16 * 1024  # bytes a second: 32 MiB may take half an hour
DIRECT_LIMIT = 256 * 1024  # bytes of a body that is collected here; a longer one is read at the application's pace
TICK_S = 1.0

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b"
)
_TOO_LARGE_BODY = (
    b'{"error":{"message":"the request\'s headers are larger than the limit of %d bytes",'
    b'"type":"invalid_request_error","param":null,"code":"headers_too_large"}}' % HEAD_LIMIT
)
_UNUSUAL = frozenset((b"content-encoding", b"transfer-encoding", b"upgrade", b"expect"))


class Hot(Protocol):
    """The application, as far as hot requests need it."""

    hot: Mapping[bytes, tuple[Dialect, bytes]]  # by request target: the dialect, and what keeps its streams open

    async def direct(self, dialect: Dialect, headers: Mapping[bytes, bytes], exchange: Direct) -> None:
        """Serve one request; `exchange.body` is whole unless the client left."""
        ...


class Front(HttpToolsProtocol):
    """One connection. `waiting` says for what the gateway waits; None while it is the client that waits, or rests."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waiting: Literal["head", "body"] | None = "head"
        self.waited_s = 0.0
        self.received = 0  # bytes of what is waited for
        self.framing = 0  # bytes since the newest of the body: of chunks' heads and of trailers
        app = cast(object, self.app)  # pyright: ignore[reportUnknownMemberType]
        self.serves = cast(Hot, app)  # asked for nothing where it has no hot paths
        self._hot: Mapping[bytes, tuple[Dialect, bytes]] = self.serves.hot if hasattr(app, "hot") else {}
        self._direct: Direct | None = None  # the newest that went the short way; it may still be answered
        self._reading: Direct | None = None  # the same while its body comes in

    def data_received(self, data: bytes) -> None:
        before = self.waiting
        super().data_received(data)
        if self.waiting is None or self.waiting != before:
            return
        self.received += len(data)
        if before == "body":
            if self._reading is None:  # it may be chunked
                self.framing += len(data)
                if self.framing > HEAD_LIMIT:  # the parser keeps trailers, and counts no chunk's extensions
                    self.transport.close()
        elif self.received > HEAD_LIMIT and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._direct is not None:
            self._direct.lost()

    # --- what the parser says ---

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        if self.waiting is None:
            self.waiting, self.waited_s, self.received = "head", 0.0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.waiting, self.waited_s, self.received = "body", 0.0, 0
        spoken = self._hot.get(self.url)
        if spoken is None or (headers := self._plain_post()) is None:
            self._through_asgi()
            return
        direct: Any = Direct(self, spoken[0], spoken[1], headers)
        self._direct = self._reading = self.cycle = direct

    def _plain_post(self) -> dict[bytes, bytes] | None:
        """The headers of a request that may go the short way, else None."""
        parser: Any = self.parser
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            return None
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        headers = dict(self.headers)
        if len(headers) != len(self.headers) or not _UNUSUAL.isdisjoint(headers):
            return None
        return headers if _collected(headers.get(b"content-length", b"")) else None

    def _through_asgi(self) -> None:
        """What uvicorn would have done from the request's first byte on."""
        url, headers = self.url, self.headers
        self.framing = -DIRECT_LIMIT  # likewise of what is read with the end of the head
        super().on_message_begin()
        self.url = url
        self.headers += headers
        self.expect_100_continue = dict(headers).get(b"expect", b"").lower() == b"100-continue"
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        direct = self._reading
        if direct is None:
            self.framing = -DIRECT_LIMIT  # what is read at once with it is no more than that
            super().on_body(body)
        elif not direct.body:
            direct.body = body
        elif direct.rest is None:
            direct.rest = [body]
        else:
            direct.rest.append(body)

    def on_message_complete(self) -> None:
        self.waiting = None
        direct = self._reading
        if direct is None:
            super().on_message_complete()
        else:
            self._reading = None
            if direct.rest is not None:  # joined once: with many small reads the first would be copied as often
                direct.body, direct.rest = b"".join((direct.body, *direct.rest)), None
            direct.start()

    def on_response_complete(self) -> None:
        """As uvicorn does, but for its timer: `tick` ends connections that rest."""
        self.server_state.total_requests += 1
        self.waited_s = 0.0
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    # --- time ---

    def tick(self, seconds: float) -> None:
        """So much time has passed. Closes the connection of a client that is too slow, or that rests for long."""
        if self.flow.read_paused:  # it is the gateway that has not read on
            return
        self.waited_s += seconds
        answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        match self.waiting:
            case "head":
                late = answered and self.waited_s >= HEAD_S
            case "body":
                late = self.waited_s >= BODY_S and self.received < BODY_RATE * self.waited_s
            case None:
                late = answered and self.waited_s >= self.timeout_keep_alive
        if late:
            self.transport.close()


class Direct(Exchange):
    """One exchange on the connection itself. Stands where uvicorn keeps the cycle of an ASGI request, and has what
    uvicorn asks of it: `response_complete`, `keep_alive`, `disconnected` and `message_event`."""

    body = b""
    rest: list[bytes] | None = None  # of the body, while it comes in more than one piece
    pushes = True
    disconnected = False
    response_complete = False
    _left: Callable[[], None] | None = None
    _task: asyncio.Task[None] | None = None

    def __init__(self, front: Front, dialect: Dialect, ping: bytes, headers: Mapping[bytes, bytes]) -> None:
        self._ping = ping
        self.left = False  # here too: it is read several times, and the class's is ten times as dear
        self._front = front
        self._transport = front.transport
        self.dialect: Dialect = dialect
        self.headers = headers
        parser: Any = front.parser
        self.keep_alive: bool = parser.should_keep_alive()

    def start(self) -> None:
        """The body is whole, or the client has left."""
        front = self._front
        self._task = front.loop.create_task(front.serves.direct(self.dialect, self.headers, self))
        front.tasks.add(self._task)

    def handed_on(self) -> bytes:
        """The body, which is not kept here."""
        body, self.body = self.body, b""
        return body

    def over(self) -> None:
        """The application is done with it. An answer that did not end ends with the connection."""
        if self._task is not None:
            self._front.tasks.discard(self._task)
        if not self.ended and not self.left:
            self._transport.close()

    # --- the client leaves ---

    @property
    def message_event(self) -> Direct:
        return self

    def set(self) -> None:
        """What uvicorn calls on a lost connection; `lost` follows."""

    def lost(self) -> None:
        """The connection is gone."""
        if self.response_complete:
            return
        self.left = True
        if self._task is None:
            self.start()
        if self._left is not None:
            self._left()

    def notice(self, left: Callable[[], None]) -> None:
        self._left = left
        if self.left:
            left()

    def ignore(self) -> None:
        self._left = None

    # --- the answer ---

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        self.started = self.committed = self.ended = True
        if not self.left:
            self._transport.write(self._head(status, headers, b"content-length: %d\r\n" % len(body)) + body)
        self._complete()

    async def start_stream(self, headers: Headers) -> None:
        self.started = True
        if not self.left:
            self._transport.write(self._head(200, headers, b"transfer-encoding: chunked\r\n"))

    async def stream(self, data: bytes) -> None:
        self.committed = True
        self.writes += 1
        if self._front.flow.write_paused:
            await self._drain()
        if data and not self.left:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def push(self, data: bytes) -> bool:
        self.writes += 1
        if not self.left:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return not self._front.flow.write_paused

    async def _drain(self) -> None:
        self.sending = True
        try:
            await self._front.flow.drain()
        finally:
            self.sending = False

    async def ping(self, headers: Headers) -> None:
        if self.ended or self.sending:
            return
        if not self.started:
            await self.start_stream(headers)
        if not self.left:
            self._transport.write(b"%x\r\n%b\r\n" % (len(self._ping), self._ping))

    async def end(self, data: bytes = b"") -> None:
        self.ended = True
        if self._front.flow.write_paused:
            await self._drain()
        if not self.left:
            last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
            self._transport.write(last)
        self._complete()

    def _head(self, status: int, headers: Headers, framing: bytes) -> bytes:
        close = b"" if self.keep_alive else b"connection: close\r\n"
        return b"".join((STATUS_LINE[status], b"\r\n".join(headers), b"\r\n", framing, close, b"\r\n"))

    def _complete(self) -> None:
        self.response_complete = True
        self._left = None
        if not self.keep_alive:
            self._transport.close()
        self._front.on_response_complete()


@lru_cache(1024)
def _collected(length: bytes) -> bool:
    """Whether a body that is said to have so many bytes is collected here."""
    return length.isdigit() and len(length) < 10 and int(length) <= DIRECT_LIMIT


async def tick(connections: Iterable[object], every_s: float = TICK_S) -> None:
    """Lets time pass for the connections of a set that changes meanwhile, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        for connection in list(connections):
            if isinstance(connection, Front):
                connection.tick(every_s)
