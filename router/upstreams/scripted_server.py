"""Plays scripts over a real socket: the upstream of fault tests and benchmarks. Never used to serve.

It records what it saw: every request, and when each connection closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from router.upstreams.scripts import Close, Head, Reset, Script, Seen, Send, Step, Wait


class Visit:
    """One request the server took: what came, and when the peer left, in monotonic seconds."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.started = time.monotonic()
        self.ended: float | None = None
        self.broken = False  # the peer closed before the script was played out


class ScriptedServer:
    """`async with ScriptedServer(script) as server:` serves on loopback; change `server.script` at will."""

    def __init__(self, script: Script, port: int = 0, host: str = "127.0.0.1") -> None:
        self.script = script
        self.visits: list[Visit] = []
        self.port = port
        self.host = host
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    @property
    def in_flight(self) -> int:
        return sum(1 for visit in self.visits if visit.ended is None)

    async def __aenter__(self) -> ScriptedServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and break every open connection, as a killed server does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            while (seen := await _read_request(reader)) is not None:
                visit = Visit(seen)
                self.visits.append(visit)
                play = asyncio.ensure_future(_play(self.script(seen), writer))
                left = asyncio.ensure_future(reader.read(1))
                try:
                    await asyncio.wait({play, left}, return_when=asyncio.FIRST_COMPLETED)
                    visit.broken = not play.done()
                finally:
                    left.cancel()
                    play.cancel()
                    await asyncio.wait({play, left})
                    visit.ended = time.monotonic()
                if visit.broken or not play.result():
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(path=first.split(" ")[1], headers=headers, body=body)


async def _play(steps: Sequence[Step], writer: asyncio.StreamWriter) -> bool:
    """Play a script; True when the connection may carry another request."""
    chunked, body = False, [step.data for step in steps if isinstance(step, Send)]
    plain = all(isinstance(step, Head | Send) for step in steps)
    for step in steps:
        match step:
            case Head():
                headers: Mapping[str, str] = dict(step.headers)
                chunked = not plain and "content-length" not in headers
                if plain and "content-length" not in headers:
                    headers = {**headers, "content-length": str(sum(map(len, body)))}
                elif chunked:
                    headers = {**headers, "transfer-encoding": "chunked"}
                lines = [f"HTTP/1.1 {step.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
                writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            case Send():
                writer.write(b"%x\r\n%b\r\n" % (len(step.data), step.data) if chunked else step.data)
                await writer.drain()
            case Wait():
                await asyncio.sleep(step.seconds)
            case Reset():
                writer.transport.abort()
                return False
            case Close():
                writer.close()
                return False
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
