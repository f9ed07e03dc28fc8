"""`local` as an `Upstream`: sends each call to wherever the supervised child serves now. The HTTP itself is the
`openai` upstream's.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from msgspec.structs import replace

from router.config import Deployment
from router.errors import ConnectFailed
from router.seams import Call, Reply, Upstream
from router.upstreams.local.process import LocalChild
from router.upstreams.local.template import complete


class LocalUpstream:
    """One model served by a child process.

    `make` builds the HTTP upstream for a deployment whose `base_url` and `api_key` are the child's.
    """

    def __init__(self, deployment: Deployment, make: Callable[[Deployment], Upstream]) -> None:
        self.deployment = deployment
        self.child = LocalChild(deployment)
        self._make = make
        self._http: Upstream | None = None
        self._address: str | None = None
        self._moving = asyncio.Lock()

    async def start(self) -> None:
        """Start the child; `wait_ready` waits for the model. Raises CannotStart."""
        await self.child.start()

    async def wait_ready(self, timeout_s: float) -> None:
        await self.child.wait_ready(timeout_s)

    async def open(self, call: Call) -> Reply:
        """Raises ConnectFailed at once while the child is starting or restarting, so that another deployment serves."""
        http = await self._current()
        if not self.deployment.path and call.path == "/chat/completions":
            call = replace(call, body=complete(call.body))
        return await http.open(call)

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()
        await self.child.aclose()

    async def _current(self) -> Upstream:
        address = self.child.base_url
        if address is None:
            raise ConnectFailed(f"the local model {self.deployment.name} is not ready")
        if self._http is not None and address == self._address:
            return self._http
        async with self._moving:
            if self._http is None or address != self._address:
                http = self._make(dataclasses.replace(self.deployment, base_url=address, api_key=self.child.api_key))
                await http.start()
                gone, self._http, self._address = self._http, http, address
                if gone is not None:
                    await gone.aclose()
            return self._http
