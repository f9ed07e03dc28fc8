"""A gateway in a process of its own, for what puts faults, files that change or hours to it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from msgspec import Struct

from evals.bench.run import free_port


class Gateway(Struct, frozen=True):
    """Its ports, its process, and what it says of itself on stderr."""

    port: int
    admin: int
    process: Process
    log: Path


@asynccontextmanager
async def serving(
    config: Path, state: Path, *options: str, level: str = "error", before: Sequence[str] = ()
) -> AsyncGenerator[Gateway]:
    """From when it is ready until it has ended; `before` is a command that runs it. Tells of one that ends badly."""
    port, admin, log = free_port(), free_port(), state / "log"
    where = ["--config", str(config), "--port", str(port), "--admin-port", str(admin), "--state", str(state)]
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *[*before, sys.executable, "-m", "router", "serve", *where, *options],
            env={**os.environ, "POINTSMAN_LOG": level},
            stdout=DEVNULL,
            stderr=said,
        )
    try:
        await _ready(f"http://127.0.0.1:{port}/readyz")
        yield Gateway(port, admin, process, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        if await process.wait():
            print(log.read_text()[-2000:], file=sys.stderr)


async def _ready(url: str) -> None:
    async with httpx.AsyncClient() as http, asyncio.timeout(60):
        while True:
            try:
                if (await http.get(url)).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
