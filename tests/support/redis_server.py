"""A private Redis on a free port, which can be killed, frozen, emptied and put behind a slow line."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port


class RedisServer:
    """Keeps nothing on disk: a restart is an empty one."""

    def __init__(self, program: str, folder: Path, password: str = "") -> None:
        self.password = password
        self._program, self._folder = program, folder
        self.socket = folder / "redis.sock"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0" if self.password else self.at(self.port)

    @staticmethod
    def at(port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def start(self) -> None:
        argv = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        argv += ["--dir", str(self._folder), "--unixsocket", str(self.socket)]
        argv += ["--daemonize", "no", *(["--requirepass", self.password] if self.password else [])]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.sendall(b"PING\r\n")
                if sock.recv(64):
                    return
            time.sleep(0.01)
        raise AssertionError("redis-server did not start")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def redis_server(folder: Path, password: str = "") -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="the redis extra is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server (apt package redis-server)")
    server = RedisServer(program, folder, password)
    try:
        yield server
    finally:
        server.kill()


class Line:
    """What lies between a client and a server: bytes arrive `delay_s` later, in order. `to` may change as
    the address of a name may."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self.port = 0
        self.to = port  # where connections made from now on lead
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, RuntimeError, asyncio.CancelledError):
                there, back = await asyncio.open_connection("127.0.0.1", self.to)
                try:
                    await asyncio.gather(self._carry(reader, back, self), self._carry(there, writer, None))
                finally:
                    back.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    @staticmethod
    async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slow: Line | None) -> None:
        while data := await reader.read(65536):
            if slow is not None:
                await asyncio.sleep(slow.delay_s)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def line(port: int) -> AsyncIterator[Line]:
    """A way to the server at `port` that can be made slow."""
    way = Line(port)
    server = await asyncio.start_server(way.accept, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        await way.close()
