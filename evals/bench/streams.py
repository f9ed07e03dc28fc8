"""What open streams take of a gateway's memory: `python -m evals.bench.streams`.

A gateway with everything on stands in front of a server that gives each stream a piece every two seconds. Its resident
memory is looked at before the streams begin, while all are open, and when they have ended (Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.bench.gateway import serving
from evals.bench.run import CHAT, agent_body, body, rss_mb, write_config
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Script, Seen, Send, Step, Wait, chunk

EVERY_S = 2.0
TARGET_MB = 150.0  # above idle, for a thousand streams


def script(pieces: int) -> Script:
    """So many pieces, which follow each other slowly."""

    def play(_: Seen) -> Sequence[Step]:
        steps: list[Step] = [Head(200, SSE), Send(chunk({"role": "assistant", "content": "."}))]
        for _piece in range(pieces):
            steps += [Send(chunk({"content": "a word or two"})), Wait(EVERY_S)]
        return [*steps, Send(chunk({}, "stop")), Send(b"data: [DONE]\n\n")]

    return play


async def read(port: int, request: bytes, opened: asyncio.Semaphore) -> bool:
    """One stream to its end; whether it ended well. `opened` is released with its first piece."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        first = await reader.read(65536)
        opened.release()
        last = first
        while data := await reader.read(65536):
            last = last[-100:] + data
        return head.startswith(b"HTTP/1.1 200") and b"[DONE]" in last
    finally:
        writer.close()


async def open_all(port: int, pid: int, asked: bytes, count: int, at_once: int, hold_s: float) -> tuple[float, int]:
    """The most memory while so many streams are open, and how many of them ended well."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(asked)}"
    request = head.encode() + b"\r\ncontent-type: application/json\r\n\r\n" + asked
    opened = asyncio.Semaphore(0)
    tasks: list[asyncio.Task[bool]] = []
    for start in range(0, count, at_once):
        some = min(at_once, count - start)
        tasks += [asyncio.create_task(read(port, request, opened)) for _ in range(some)]
        for _ in range(some):
            await opened.acquire()
    most, until = 0.0, time.monotonic() + hold_s
    while time.monotonic() < until:
        if any(task.done() for task in tasks):
            raise SystemExit("streams: some ended before all were open and measured; ask for fewer with --streams")
        most = max(most, rss_mb(pid))
        await asyncio.sleep(0.25)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    return most, sum(one is True for one in ended)


async def measure(count: int, hold_s: float, agents: bool) -> dict[str, Any]:
    asked = agent_body(stream=True) if agents else body(stream=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # this process, and the gateway after it
    opening_s = 5.0 + count / 50  # on a slow machine
    with tempfile.TemporaryDirectory() as name:
        async with ScriptedServer(script(int((opening_s + hold_s) / EVERY_S) + 1)) as upstream:
            config = Path(name) / "config"
            write_config(config, upstream.base_url.removesuffix("/v1"))
            async with serving(config, Path(name)) as gateway:
                port, pid = gateway.port, gateway.process.pid
                kept, upstream.script = upstream.script, script(0)
                await open_all(port, pid, asked, 20, 20, 0.0)  # what the first requests load, the rest share
                upstream.script = kept
                idle = rss_mb(pid)
                most, well = await open_all(port, pid, asked, count, 50, hold_s)
                await asyncio.sleep(1.0)
                after = rss_mb(pid)
    return {
        "streams": count,
        "request_bytes": len(asked),
        "ended_well": well,
        "idle_mb": round(idle, 1),
        "open_mb": round(most, 1),
        "above_idle_mb": round(most - idle, 1),
        "kb_a_stream": round((most - idle) * 1000 / count, 1),
        "after_mb": round(after, 1),
        "target_mb": round(TARGET_MB * count / 1000, 1),
        "met": most - idle <= TARGET_MB * count / 1000 and well == count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--hold", type=float, default=10.0, help="seconds for which all of them are open")
    parser.add_argument("--agents", action="store_true", help="requests of 77 KB, as a coding agent sends them")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.streams, given.hold, given.agents)), indent=1))


if __name__ == "__main__":
    main()
