"""The yardstick: the least that passes a chat request on, plain ASGI on uvicorn with aiohttp. Decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Bare:
    """Reads the body, sends it on, passes the answer back as it comes."""

    def __init__(self, base_url: str) -> None:
        self._url = base_url + "/v1/chat/completions"
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers) as reply:
            kind = reply.headers["content-type"].encode()
            if b"event-stream" not in kind:
                answer = await reply.read()
                head = [(b"content-type", kind), (b"content-length", str(len(answer)).encode())]
                await send({"type": "http.response.start", "status": reply.status, "headers": head})
                await send({"type": "http.response.body", "body": answer})
                return
            head = [(b"content-type", kind)]
            await send({"type": "http.response.start", "status": reply.status, "headers": head})
            async for data in reply.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(
        Bare(sys.argv[2]),  # pyright: ignore[reportArgumentType]
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        access_log=False,
        loop="uvloop",
        http="httptools",
        lifespan="off",
    )
