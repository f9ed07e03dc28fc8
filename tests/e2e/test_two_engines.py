"""Two real llama.cpp servers as two groups: requests are served by the engine that the score leads to, and what each
reports of itself at /metrics is read while it works."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from router.config import Deployment
from router.upstreams.local import LocalChild
from tests.support import rig

pytest.importorskip("xllamacpp")
pytestmark = [pytest.mark.local, pytest.mark.slow]


@pytest.fixture
async def engines(tiny_gguf: Path) -> AsyncIterator[dict[str, LocalChild]]:
    """Servers of their own, which the gateway knows by address alone, as it would know vLLM."""
    children: dict[str, LocalChild] = {}
    try:
        for name in ("small-a", "large-a"):
            deployment = Deployment(name=name, upstream="local", path=str(tiny_gguf), options={"context": 512})
            children[name] = LocalChild(deployment)
            await children[name].start()
            await children[name].wait_ready(60.0)
        yield children
    finally:
        for child in children.values():
            await child.aclose()


def files(engines: dict[str, LocalChild]) -> str:
    lines = ["version: 1", "groups:", "  small: {deployments: [small-a]}", "  large: {deployments: [large-a]}"]
    lines.append("deployments:")
    for name, child in engines.items():
        lines.append(
            f'  {name}: {{upstream: openai, base_url: "{child.base_url}", api_key: "{child.api_key}", model: {name},'
            " metrics_url: /metrics, health_url: /health}"
        )
    return "\n".join(lines) + "\n"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.05)


async def test_two_engines_serve_two_groups_and_what_they_report_is_read_while_they_work(
    engines: dict[str, LocalChild], tmp_path: Path
) -> None:
    async with rig.running(tmp_path, files(engines)) as gateway:
        for score, group in ((0.1, "small"), (0.9, "large")):
            reply = await gateway.ask("hello", score=score, max_tokens=4)
            assert reply.status_code == 200
            assert reply.headers["x-pointsman-deployment"] == f"{group}-a"
            assert reply.json()["usage"]["completion_tokens"] > 0
        health = gateway.gateway.health

        def running(name: str) -> float:
            report = health.of(name, asyncio.get_running_loop().time())["load"]
            return (report or {}).get("running") or 0.0

        async def load(score: float) -> None:
            while True:
                assert (await gateway.ask("hello", score=score, max_tokens=200)).status_code == 200

        busy = [asyncio.create_task(load(0.1)), asyncio.create_task(load(0.9))]
        try:
            await until(lambda: running("small-a") >= 1 and running("large-a") >= 1)
            text = (await gateway.client.get(f"{gateway.admin}/metrics")).text
        finally:
            for task in busy:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*busy)
    for name in engines:
        assert re.search(rf'^pointsman_queue_depth{{deployment="{name}"}} [0-9]', text, re.MULTILINE)
        assert f'pointsman_deployment_up{{deployment="{name}"}} 1' in text
