"""The `openai` upstream: any server that speaks an OpenAI-compatible API over HTTP/1.1."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Coroutine
from typing import Any
from urllib.parse import unquote, urlsplit

from router import __version__
from router.config import Deployment
from router.errors import ConnectFailed
from router.seams import Call, Reply
from router.upstreams.http1 import Pool


class OpenAIUpstream:
    """Calls one OpenAI-compatible deployment; `seams.Upstream`."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._pool: Pool | None = None
        self._heads: dict[str, bytes] = {}

    async def start(self) -> None:
        self._pool = Pool(self.deployment.base_url, connect_s=self.deployment.timeouts.connect_s)

    async def wait_ready(self, timeout_s: float) -> None:
        """A remote server is not ours to wait for."""

    def open(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """Not `async` itself: the coroutine is the pool's."""
        pool = self._pool
        if pool is None:
            raise ConnectFailed("the deployment has not started")
        head = self._heads.get(call.path)
        if head is None:
            head = self._heads[call.path] = self._head(pool, call.path)
        if call.headers:
            head += "".join([f"{name}: {value}\r\n" for name, value in call.headers.items()]).encode("latin-1")
        body, length = call.body, len(call.body)
        if call.pieces:
            body, length = call.pieces, sum(map(len, call.pieces))
        return pool.request(b"%bcontent-length: %d\r\n\r\n" % (head, length), body)

    def _head(self, pool: Pool, path: str) -> bytes:
        lines = [
            f"POST {pool.prefix}{path}{pool.query} HTTP/1.1",
            f"host: {pool.authority}",
            f"user-agent: pointsman/{__version__}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "accept-encoding: identity",
        ]
        if self.deployment.api_key not in ("", "none"):
            lines += [f"{name}: {value}" for name, value in self.keys(path)]
        elif pool.basic:
            lines.append(f"authorization: Basic {b64encode(unquote(pool.basic).encode()).decode()}")
        return ("\r\n".join(lines) + "\r\n").encode("latin-1")

    def keys(self, path: str) -> list[tuple[str, str]]:
        """Anthropic's API takes its keys in `x-api-key` and a bearer only as an OAuth token; other servers of the
        messages API (vLLM, llama.cpp) look for the bearer that they look for elsewhere."""
        key = self.deployment.api_key
        bearer = ("authorization", f"Bearer {key}")
        if not path.startswith("/messages"):
            return [bearer]
        host = urlsplit(self.deployment.base_url).hostname or ""
        own = ("x-api-key", key)
        return [own] if host == "anthropic.com" or host.endswith(".anthropic.com") else [own, bearer]

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None
