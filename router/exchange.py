"""One HTTP exchange with a client over ASGI: reading its body, answering it, noticing that it left.

Knows bytes, headers and status codes; nothing of models or dialects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from router.errors import BadRequest, Cancelled, TimedOut, TooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PING = b": keep-alive\n\n"


class Exchange:
    """The client's side of one request. `started` = the head went out; `committed` = content went out."""

    __slots__ = ("_receive", "_send", "committed", "ended", "left", "sending", "started", "writes")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
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
        """An SSE comment, which keeps intermediaries from cutting a silent stream."""
        if self.ended or self.sending:
            return
        if not self.started:
            await self.start_stream(headers)
        await self._send({"type": "http.response.body", "body": PING, "more_body": True})

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


class Watch:
    """The clocks of one request, and the client's presence, behind a single timer.

    When a limit passes, or the client leaves, the request's task is cancelled and `error` says why; the code
    that is cancelled calls `reason()` to turn that back into an error. The timer is armed lazily: a byte from
    the upstream costs one assignment. The client is watched from `PRESENCE_S` on, since a quick answer is over
    before that and a task for it would cost more than the answer.
    """

    PRESENCE_S = 0.05
    PING_S = 7.0  # a stream that sent nothing for one whole period gets a comment: at least one every 14 s

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self.started = self._loop.time()
        self._limits: _Limits | None = None
        self._last: float | None = None
        self.content = False
        self.error: Exception | None = None
        self._gone: asyncio.Task[None] | None = None
        self._pings: set[asyncio.Task[None]] = set()
        self._ping_headers: Headers | None = None
        self._writes = 0
        self._look_at = self.started + self.PING_S
        self._timer = self._loop.call_later(self.PRESENCE_S, self._fire)

    def attempt(self, first_byte_s: float, idle_s: float, total_s: float, ping_headers: Headers | None) -> None:
        """A new attempt begins: its clocks start now, but `total_s` counts from the request's start."""
        now = self._loop.time()
        self._limits = _Limits(now + first_byte_s, first_byte_s, idle_s, self.started + total_s, total_s)
        self._last = None
        self.content = False
        self._ping_headers = ping_headers
        if now + min(first_byte_s, idle_s) < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(now + min(first_byte_s, idle_s), self._fire)

    def alive(self) -> None:
        """Any byte of the upstream has arrived."""
        self._last = self._loop.time()

    def rest(self) -> None:
        """Between attempts no clock runs."""
        self._limits = None

    def _fire(self) -> None:
        now = self._loop.time()
        if self._gone is None:
            self._gone = self._loop.create_task(self._exchange.gone())
            self._gone.add_done_callback(self._left)
        due = now + self.PING_S
        if now >= self._look_at:
            self._look_at = now + self.PING_S
            self._ping()
        due = min(due, self._look_at)
        if (limits := self._limits) is not None:
            clock, at = limits.soonest(self._last, self.content, self._exchange.sending)
            if at <= now:
                self._stop_with(TimedOut(clock, limits.seconds(clock)))
                return
            due = min(due, at, now + limits.idle_s)
        self._timer = self._loop.call_at(due, self._fire)

    def _ping(self) -> None:
        if self._ping_headers is not None and self._writes == self._exchange.writes:
            ping = self._loop.create_task(self._exchange.ping(self._ping_headers))
            self._pings.add(ping)
            ping.add_done_callback(self._pings.discard)
        self._writes = self._exchange.writes

    def _left(self, gone: asyncio.Task[None]) -> None:
        if not gone.cancelled() and self._exchange.left:
            self._stop_with(Cancelled("the client left"))

    def _stop_with(self, error: Exception) -> None:
        if self.error is None and self._task is not None:
            self.error = error
            self._task.cancel()

    def reason(self) -> Exception | None:
        """After a CancelledError: the watch's own reason, taken once, or None for somebody else's cancel."""
        error, self.error = self.error, None
        if error is not None and self._task is not None:
            self._task.uncancel()
        return error

    async def stop(self) -> None:
        self._timer.cancel()
        if self._gone is not None:
            self._gone.cancel()
        for ping in self._pings:
            ping.cancel()
        if self.error is not None:  # fired after the last await: let the cancel land here, harmlessly
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self.reason()


class _Limits:
    __slots__ = ("first_at", "first_s", "idle_s", "total_at", "total_s")

    def __init__(self, first_at: float, first_s: float, idle_s: float, total_at: float, total_s: float) -> None:
        self.first_at, self.first_s, self.idle_s = first_at, first_s, idle_s
        self.total_at, self.total_s = total_at, total_s

    def soonest(self, last: float | None, content: bool, sending: bool) -> tuple[str, float]:
        """The next limit and when it falls. Idleness starts with the first byte, and a client that reads slowly
        is not the upstream's silence."""
        clocks = [("total", self.total_at)]
        if not content:
            clocks.append(("first_byte", self.first_at))
        if last is not None and not sending:
            clocks.append(("idle", last + self.idle_s))
        return min(clocks, key=lambda clock: clock[1])

    def seconds(self, clock: str) -> float:
        return {"total": self.total_s, "first_byte": self.first_s, "idle": self.idle_s}[clock]
