"""A small HTTP/1.1 client for one origin: keep-alive pool, plain or TLS, httptools as the parser.

It carries POSTs of JSON to inference servers and nothing else: no redirects, cookies, proxies or HTTP/2. A
general client costs several times the CPU of everything else the gateway does (docs/performance.md).
Errors leave as `router.errors`; timeouts are the caller's, who cancels the awaiting task.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache, lru_cache
from random import uniform
from typing import Any, cast
from urllib.parse import urlsplit

import httptools  # pyright: ignore[reportMissingTypeStubs]

from router.errors import BadAnswer, ConnectFailed, NoRoom, TimedOut, Truncated, UpstreamError
from router.upstreams.unpack import Unpacker, unpacker

IDLE_S = 4.0  # uvicorn and vLLM close idle connections after 5 s; leave before them
# A busy connection is replaced after so long at most: one to an address that the name no longer has may be answered for
# ever. With what it is idle for and what a new one takes, a new address is used within a minute.
AGE_S = 45.0
AGAIN_S = 5.0  # after a failed replacement
READ = 64 * 1024  # bytes read from a socket at once
HIGH_WATER = 64 * 1024  # unread bytes at which the socket is no longer read
HEAD_LIMIT = 64 * 1024  # Envoy's default cap on response headers is 60 KiB
ANSWER_LIMIT = 256 * 1024 * 1024  # decoded bytes of one answer; guards against gzip bombs
TOGETHER = 16 * 1024  # bytes of a body that are joined to their head; a longer copy costs more than a second buffer
# What this process or machine has none left of. No deployment is at fault, and none is reached.
_NO_ROOM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

_buffer = bytearray(READ)  # filled and parsed without a break in between, so one serves every connection
_view = memoryview(_buffer)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection and the parser state of the answer on it.

    It reads into a small buffer that all connections share: uvloop would read up to 256 KB at once for each, which a
    slow client would then have us hold.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.chunks: list[bytes] = []  # of the body, as they came; always the same list
        self.on_body = self.chunks.append  # what the parser calls for each, which a stream has many of
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None  # done once something happens on the connection
        self._take: Callable[[bytes], bool] | None = None  # is handed what comes, in place of somebody who reads
        self._reading = True
        self.status = 0
        self.keep_alive = False
        self.idle_since = 0.0
        self.until = 0.0  # then it is replaced; 0 once it has been
        self.lost = False
        self.begin()

    def begin(self) -> None:
        """Before an answer; the parser goes on with the next one by itself."""
        self.head_done = self.complete = self.touched = False  # touched: any byte of the answer has arrived
        self.headers: dict[str, str] = {}
        self.chunks.clear()
        self.buffered = 0
        self._framing = 0  # bytes since the newest of the body: of the head, of chunks' heads, of trailers
        self.failure: Exception | None = None

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.complete:  # bytes after the answer belong to nobody, and the connection cannot be trusted again
            self.keep_alive = False
            return
        self.touched = True
        self._framing += nbytes
        chunks = self.chunks
        before = len(chunks)
        try:
            self._parser.feed_data(_view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep_alive = False
            if not self.complete:
                self._fail(BadAnswer(f"the upstream's answer is not HTTP/1.1 ({type(error).__name__})"))
        if len(chunks) > before:
            self._framing = 0
            if self._take is not None and self._poured(self._take):
                return
            self.buffered += nbytes
            if self.buffered > HIGH_WATER and self._reading:
                self._reading = False
                self._transport.pause_reading()
        elif self._framing > HEAD_LIMIT + READ:
            self._fail(_head_too_large())
        self._wake()

    def _poured(self, take: Callable[[bytes], bool]) -> bool:
        """Whether that was all; else whoever waits has something to see to."""
        chunks = self.chunks
        try:
            data = chunks.pop() if len(chunks) == 1 else self._joined()
            if take(data) and not self.complete and self.failure is None:
                return True
        except Exception as error:  # noqa: BLE001  whoever waits is told
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
        self._take = None
        return False

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.complete and self.failure is None:
            if self.head_done and self._ends_at_eof():
                self.complete = True
            elif self.touched:
                self.failure = Truncated("the upstream closed the connection before the end of its answer")
            else:
                self.failure = ConnectFailed("the upstream closed the connection without an answer")
        self._pool.forget(self)
        self._wake()

    def _ends_at_eof(self) -> bool:
        return "content-length" not in self.headers and "transfer-encoding" not in self.headers

    # --- httptools callbacks ---

    def on_message_begin(self) -> None:
        if self.complete:
            raise BadAnswer("the upstream sent another answer")  # which ends the parsing, and nothing else

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[_lower(name)] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = {}
        elif self._framing > HEAD_LIMIT and sum(len(n) + len(v) for n, v in self.headers.items()) > HEAD_LIMIT:
            self._fail(_head_too_large())
        else:
            self.head_done = True

    def on_message_complete(self) -> None:
        if self.status < 200:
            return
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()  # only valid inside this callback

    # --- for Http1Reply ---

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
        self.close()

    def wait(self) -> asyncio.Future[None]:
        """Done once something happens on the connection."""
        waiter = self._waiter = self._pool.loop.create_future()
        return waiter

    async def pour(self, take: Callable[[bytes], bool]) -> None:
        self._take = take
        try:
            await self.wait()
        finally:
            self._take = None

    def send(self, head: bytes, body: bytes | Sequence[bytes | memoryview]) -> None:
        if not isinstance(body, bytes):
            self._transport.writelines((head, *body))
        elif len(body) < TOGETHER:
            self._transport.write(b"".join((head, body)))
        else:
            self._transport.writelines((head, body))

    def take(self) -> bytes:
        data = self._joined()
        self.buffered = 0
        if not self._reading and not self.lost:
            self._reading = True
            self._transport.resume_reading()
        return data

    def _joined(self) -> bytes:
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        return data

    def close(self) -> None:
        self._transport.abort()


@lru_cache(512)  # the names that servers use
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def _head_too_large() -> BadAnswer:
    return BadAnswer(f"the upstream's headers or trailers are larger than {HEAD_LIMIT} bytes")


class Http1Reply:
    """`seams.Reply` over one connection; decodes what the upstream insists on compressing."""

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        encoding = connection.headers.get("content-encoding")
        self._packed = None if encoding is None else _unpacker(encoding)
        self._decoded = 0

    @property
    def ended(self) -> bool:
        connection = self._connection
        if connection is None or self._packed is not None:
            return False
        return connection.complete and not connection.chunks and connection.failure is None

    def whole(self) -> bytes | None:
        connection = self._connection
        if connection is None or not connection.complete or self._packed is not None or connection.failure is not None:
            return None
        return connection.take() if connection.chunks else None

    async def read(self) -> bytes:
        connection = self._connection
        if connection is None:
            return b""
        packed = self._packed
        while True:
            if connection.chunks or (packed is not None and packed.pending):
                if packed is None:
                    return connection.take()
                if data := self._decode(packed, b"" if packed.pending else connection.take()):
                    return data
                continue
            if connection.failure is not None:
                raise connection.failure
            if connection.complete:
                if packed is not None and not packed.whole:
                    raise Truncated("the upstream's compressed answer ends early")
                return b""
            await connection.wait()

    def pour(self, take: Callable[[bytes], bool]) -> Coroutine[Any, Any, None] | None:
        connection = self._connection
        if connection is None or self._packed is not None or connection.chunks or connection.complete:
            return None
        return connection.pour(take) if connection.failure is None else None

    def _decode(self, packed: Unpacker, data: bytes) -> bytes:
        try:
            out = packed.unpack(data)
        except ValueError as error:
            raise BadAnswer("the upstream's compressed answer cannot be decoded") from error
        self._decoded += len(out)
        if self._decoded > ANSWER_LIMIT:
            raise BadAnswer(f"the upstream's answer is larger than {ANSWER_LIMIT} bytes when decoded")
        return out

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection)


def _unpacker(encoding: str) -> Unpacker | None:
    try:
        return unpacker(encoding)
    except ValueError as error:
        raise BadAnswer(
            f"the upstream answered with content-encoding {str(error)!r}, which was not asked for"
        ) from None


class Pool:
    """Keep-alive connections to one origin. Not bounded here: `max_in_flight` bounds deployments."""

    def __init__(
        self, base_url: str, *, connect_s: float = 5.0, age_s: float = AGE_S, trusted: ssl.SSLContext | None = None
    ) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"base_url must be http(s)://host[:port]/path, not {base_url!r}")
        self.host, self.tls = url.hostname, url.scheme == "https"
        self.port = url.port or (443 if self.tls else 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = host if url.port is None else f"{host}:{url.port}"
        self.prefix, self.query = url.path.rstrip("/"), f"?{url.query}" if url.query else ""
        self.basic = url.netloc.rpartition("@")[0]  # USER:PASSWORD, quoted as in a URL
        self._ssl = (trusted or trusted_here()) if self.tls else None
        self._connect_s = connect_s
        self._age_s = age_s
        self._renewing: asyncio.Task[None] | None = None
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()
        self.loop = asyncio.get_running_loop()

    @property
    def open_connections(self) -> int:
        return len(self._all)

    async def request(self, head: bytes, body: bytes | Sequence[bytes | memoryview]) -> Http1Reply:
        """Send one request and wait for the answer's head.

        `head` is everything up to the blank line, content-length included. A reused connection that the
        server closed before a single byte of the answer is replaced by a fresh one, once: the server closed
        it while idle.
        """
        connection = self._take_idle()
        again = connection is not None
        while True:
            if connection is None:
                connection = await self._connect()
            connection.send(head, body)
            try:
                while not connection.head_done:
                    if connection.failure is not None:
                        raise connection.failure
                    await connection.wait()
                return Http1Reply(self, connection)
            except BaseException as error:
                connection.close()
                if not again or not isinstance(error, ConnectFailed):
                    raise
            connection, again = None, False  # it was closed while idle

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await self.loop.create_connection(
                    lambda: Connection(self),
                    self.host,
                    self.port,
                    ssl=self._ssl,
                    server_hostname=self.host if self.tls else None,
                )
        except TimeoutError as error:
            raise TimedOut("connect", self._connect_s) from error
        except ssl.SSLError as error:
            raise ConnectFailed(f"no TLS connection to the upstream ({error.reason or 'TLS failure'})") from error
        except (OSError, UnicodeError) as error:
            raise _unreachable(error) from error
        self._all.add(connection)
        # Not all at once, where many were made at once.
        connection.until = self.loop.time() + self._age_s * uniform(0.5, 1.0)  # noqa: S311
        return connection

    def _take_idle(self) -> Connection | None:
        idle = self._idle
        while idle:
            connection = idle.pop()  # newest first, so that surplus connections age out
            if connection.lost:
                continue
            # What came unasked answers no request of ours.
            if connection.touched or connection.idle_since < self.loop.time() - IDLE_S:
                connection.close()
                continue
            return connection
        return None

    def give_back(self, connection: Connection) -> None:
        if connection.lost or not connection.complete or not connection.keep_alive or connection.failure is not None:
            connection.close()
            return
        now = self.loop.time()
        if now > connection.until and self._outlived(connection):
            connection.close()
            return
        connection.begin()
        connection.idle_since = now
        self._idle.append(connection)
        while self._idle[0].lost or self._idle[0].idle_since < now - IDLE_S:
            self._idle.popleft().close()

    def _outlived(self, connection: Connection) -> bool:
        """Whether there is another in its place; if not, one is made, while no other is. No request waits for it, and
        while names do not resolve the old ones go on."""
        if not connection.until:
            return True
        if self._renewing is None or self._renewing.done():
            self._renewing = self.loop.create_task(self._renew(connection))
        return False

    async def _renew(self, old: Connection) -> None:
        try:
            new = await self._connect()
        except UpstreamError:
            await asyncio.sleep(AGAIN_S)
            return
        old.until = 0.0
        new.idle_since = self.loop.time()
        self._idle.append(new)
        if old in self._idle:
            self._idle.remove(old)
            old.close()

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)

    async def aclose(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        for connection in list(self._all):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # let the transports call connection_lost


@cache
def trusted_here() -> ssl.SSLContext:
    """One for all: to read the certificates that this machine trusts holds up the event loop, and they take memory."""
    return ssl.create_default_context()


def _unreachable(error: OSError | UnicodeError) -> UpstreamError:
    """The kind of failure, without addresses: they are the operator's, not the client's."""
    number = error.errno if isinstance(error, OSError) else None
    if number in _NO_ROOM:
        return NoRoom("the gateway has no room for another connection", retry_after_s=1.0)
    kind = type(error).__name__ if number is None else os.strerror(number)
    return ConnectFailed(f"no connection to the upstream ({kind})")
