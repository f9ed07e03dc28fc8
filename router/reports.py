"""What deployments report of themselves, asked for beside the traffic: the numbers of `/metrics`, and `/health`.

Only deployments whose file says so are asked, each by its own task, within a time and a size. What comes of it is told
to `health`; nothing here chooses a deployment, and nothing is ever generated to see whether one lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urljoin

import httpx

from router.config import Config, Deployment
from router.health import Health
from router.types import Report
from router.upstreams.http1 import AGE_S, trusted_here

log = logging.getLogger("pointsman.reports")

EVERY_S = 1.0  # how old a number may be: a queue moves within seconds
WITHIN_S = 1.0
MOST = 4 * 1024 * 1024  # bytes; vLLM's text has some 100 KB

# The names of each engine, new before old: what the first of a row that is there says, holds.
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
KV = (
    *("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),  # shares, for all their name; the old one until 0.9
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",  # until the middle of 2025
)


def parse(text: str) -> Report:
    """What a page of Prometheus text says of the load. None for what the engine does not tell.

    An engine of several ranks has a line for each: requests add up, and of caches the fullest counts.
    """
    running, waiting, kv = (_values(text, names) for names in (RUNNING, WAITING, KV))
    return Report(
        running=sum(running) if running else None,
        waiting=sum(waiting) if waiting else None,
        kv=min(1.0, max(kv)) if kv else None,
    )


def _values(text: str, names: tuple[str, ...]) -> list[float]:
    for name in names:
        found = [float(value) for value in _line(name).findall(text)]
        if found := [value for value in found if 0 <= value < 1e9]:
            return found
    return []


@lru_cache(32)
def _line(name: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(name)}(?:\{{[^\n]*\}})?[ \t]+([0-9.]+(?:[eE][+-]?[0-9]+)?)(?:[ \t]|$)", re.M)


class Reports:
    """Asks the deployments of the configuration in force. One per process."""

    def __init__(self, health: Health, *, age_s: float = AGE_S) -> None:
        self._health = health
        self._age_s = age_s  # of a connection, which is never idle for long: a name may get another address
        self._asking: dict[str, tuple[Deployment, asyncio.Task[None]]] = {}

    def use(self, config: Config) -> None:
        """Ask the deployments of this configuration, and no longer those that are gone."""
        for name, (deployment, task) in list(self._asking.items()):
            if config.deployments.get(name) != deployment:
                task.cancel()
                del self._asking[name]
        for name, deployment in config.deployments.items():
            if name not in self._asking and (deployment.metrics_url or deployment.health_url):
                self._asking[name] = (deployment, asyncio.create_task(self._ask(deployment)))

    async def aclose(self) -> None:
        tasks = [task for _, task in self._asking.values()]
        self._asking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, deployment: Deployment) -> None:
        """Once in a while, until cancelled."""
        told, now = "", asyncio.get_running_loop().time
        trusted = trusted_here()
        while True:
            async with _client(trusted) as client:
                until = now() + self._age_s
                while now() < until:
                    if deployment.health_url:
                        up = await _get(client, deployment, deployment.health_url) is not None
                        self._health.checked(deployment.name, up, now())
                    if deployment.metrics_url:
                        told = self._tell(deployment, await _get(client, deployment, deployment.metrics_url), told)
                    await asyncio.sleep(EVERY_S)

    def _tell(self, deployment: Deployment, text: str | None, told: str) -> str:
        """Hand the numbers on; one line in the log whenever it changes what there is and what is lacking."""
        report = None if text is None else parse(text)
        lacking = _lacking(report)
        self._health.reported(deployment.name, report, lacking)
        if lacking != told:
            level = logging.WARNING if lacking else logging.INFO
            log.log(level, "deployment %s: load numbers: %s", deployment.name, lacking or "all there")
        return lacking


def _lacking(report: Report | None) -> str:
    """What the balance between deployments has to do without, in words; "" where that is nothing."""
    if report is None:
        return "metrics_url does not answer; calls in flight from here are all that is known"
    parts = {"running": report.running, "waiting": report.waiting, "kv": report.kv}
    missing = [name for name, value in parts.items() if value is None]
    return f"the engine does not report {', '.join(missing)}" if missing else ""


def _client(trusted: ssl.SSLContext) -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=trusted, timeout=WITHIN_S, follow_redirects=False, trust_env=False)


async def _get(client: httpx.AsyncClient, deployment: Deployment, url: str) -> str | None:
    """The text at a URL, or None where there is no good answer in time. The key goes to the deployment's own origin."""
    own = url.startswith("/")
    key = deployment.api_key if own and deployment.api_key not in ("", "none") else None
    headers: Mapping[str, str] = {"authorization": f"Bearer {key}"} if key else {}
    with contextlib.suppress(httpx.HTTPError, httpx.InvalidURL, TimeoutError, UnicodeError):
        async with asyncio.timeout(WITHIN_S):
            async with client.stream("GET", urljoin(deployment.base_url, url), headers=headers) as reply:
                if reply.status_code != 200:
                    return None
                return await _text(reply)
    return None


async def _text(reply: httpx.Response) -> str | None:
    parts: list[bytes] = []
    size = 0
    async for part in reply.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > MOST:
            return None
    return b"".join(parts).decode("utf-8", "replace")
