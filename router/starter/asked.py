"""One server that is asked something, and how it answered last. No fault of a server leaves here as an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx


class Asked:
    """`status` 0 where nothing answered; then `wrong` says why, in words that follow a name."""

    def __init__(self, client: httpx.AsyncClient, origin: str, key: str, wait_s: float) -> None:
        self._client, self._origin, self._wait_s = client, origin, wait_s
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.status = 0
        self.wrong = ""

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response | None:
        try:
            answer = await self._client.get(
                self._origin + path, headers=dict(headers or self._headers), timeout=self._wait_s
            )
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            self.status, self.wrong = 0, f"cannot be reached ({type(error).__name__})"
            return None
        self.status, self.wrong = answer.status_code, ""
        return answer

    async def json(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        """The answer where it is JSON and no error, else None."""
        answer = await self.get(path, headers)
        if answer is None or answer.status_code != 200:
            return None
        try:
            return answer.json()
        except ValueError:
            return None
