"""The CPU cost of one call to an upstream, by HTTP client: what the choice in docs/decisions/0001 rests on.

Each client makes the same calls to the same mock server, sixteen at a time, in turns within one run.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from evals.bench.run import body, free_port, process

Ask = Callable[[bytes], Awaitable[bytes]]


async def ours(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    from router.config import Deployment
    from router.seams import Call
    from router.upstreams.openai import OpenAIUpstream

    upstream = OpenAIUpstream(Deployment(name="a", upstream="openai", base_url=url + "/v1"))
    await upstream.start()

    async def ask(data: bytes) -> bytes:
        reply = await upstream.open(Call(path="/chat/completions", body=data))
        parts: list[bytes] = []
        while piece := await reply.read():
            parts.append(piece)
        await reply.aclose()
        return b"".join(parts)

    return ask, upstream.aclose


async def aiohttp(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    import aiohttp

    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def ask(data: bytes) -> bytes:
        headers = {"content-type": "application/json"}
        async with session.post(url + "/v1/chat/completions", data=data, headers=headers) as reply:
            return await reply.read()

    return ask, session.close


async def httpx(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    import httpx

    client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None))

    async def ask(data: bytes) -> bytes:
        headers = {"content-type": "application/json"}
        reply = await client.post(url + "/v1/chat/completions", content=data, headers=headers)
        return reply.content

    return ask, client.aclose


async def pyreqwest(url: str) -> tuple[Ask, Callable[[], Awaitable[None]]]:
    library: Any = importlib.import_module("pyreqwest.client")  # not among the project's dependencies
    client: Any = library.ClientBuilder().build()

    async def ask(data: bytes) -> bytes:
        request: Any = client.post(url + "/v1/chat/completions").header("content-type", "application/json")
        reply: Any = await request.body_bytes(data).build().send()
        return bytes(await reply.bytes())

    async def close() -> None:
        await client.close()

    return ask, close


CLIENTS = {"ours": ours, "aiohttp": aiohttp, "httpx": httpx, "pyreqwest": pyreqwest}


async def cost(make: Callable[[str], Awaitable[Any]], url: str, data: bytes, count: int) -> float:
    """CPU microseconds a call, the whole process counted."""
    ask, close = await make(url)

    async def worker(calls: int) -> None:
        for _ in range(calls):
            await ask(data)

    try:
        await worker(50)
        begun = time.process_time()
        await asyncio.gather(*(worker(count // 16) for _ in range(16)))
        return (time.process_time() - begun) / (count // 16 * 16) * 1e6
    finally:
        await close()


async def main(url: str, rounds: int = 5, count: int = 3200) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, data in (("plain", body()), ("64-event stream", body(stream=True))):
        found: dict[str, list[float]] = {}
        for _ in range(rounds):
            for client, make in CLIENTS.items():
                try:
                    found.setdefault(client, []).append(await cost(make, url, data, count))
                except ImportError:
                    found.pop(client, None)
        base = statistics.median(found["aiohttp"])
        table[name] = {
            client: {"cpu_us": round(statistics.median(us), 1), "to_aiohttp": round(statistics.median(us) / base, 3)}
            for client, us in found.items()
        }
    return table


if __name__ == "__main__":
    import uvloop

    port = free_port()
    with process([sys.executable, "-m", "evals.bench.upstream", str(port)], 1, port):
        print(json.dumps(uvloop.run(main(f"http://127.0.0.1:{port}")), indent=1))
