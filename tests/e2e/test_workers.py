"""`pointsman serve --workers`: several processes that are one gateway from outside."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_answer, chat_stream
from tests.support.redis_server import redis_server
from tests.support.rig import POLICY, groups
from tests.support.served import serving, write

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


async def soon(holds: Callable[[], Awaitable[Any]], within_s: float = 60.0) -> Any:
    async with asyncio.timeout(within_s):
        while not (found := await holds()):
            await asyncio.sleep(0.05)
    return found


async def asked(client: httpx.AsyncClient, count: int) -> None:
    """Each request on a connection of its own, so that every worker gets some."""
    for _ in range(count):
        reply = await client.post("/v1/chat/completions", json=BODY, headers={"connection": "close"})
        assert reply.status_code == 200


def total(text: str, name: str = "pointsman_requests_total") -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


@pytest.mark.slow
async def test_F22_M04_two_workers_are_one_gateway_and_one_that_is_killed_is_started_anew(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a:
        config = write(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}))
        async with (
            serving(tmp_path, config, "--workers", "2") as (process, client, admin),
            httpx.AsyncClient(base_url=admin, timeout=20) as asking,
        ):

            async def workers() -> list[Any]:
                shown = await asking.get("/admin/config")
                found = shown.json()["workers"] if shown.status_code == 200 else []
                return found if len(found) == 2 else []

            first = await soon(workers)
            await asked(client, 40)
            assert total((await asking.get("/metrics")).text) == 40
            counted = (await asking.get("/admin/requests")).json()
            assert sum(row["count"] for row in counted["requests"]) == 40

            # What is asked of one of them comes with its body, and the page with its files.
            tried = await asking.post("/admin/try", json={"request": BODY, "headers": {"x-score": "0.9"}})
            assert tried.json()["decision"]["group"] == "large"
            assert (await asking.get("/static/main.js")).headers["content-type"].startswith("text/javascript")
            assert [g["waiting"] for g in (await asking.get("/admin/groups")).json()["groups"]] == [0, 0]

            # A change of the files reaches every worker, and is told for each.
            (config / "default.yaml").write_text(POLICY + "# changed\n")
            assert (await asking.post("/admin/reload")).status_code == 200
            changed = await workers()
            assert {w["digest"] for w in changed}.isdisjoint({w["digest"] for w in first})
            assert [w["generation"] for w in changed] == [2, 2]

            # Drained in both: neither sends anything there.
            assert (await asking.post("/admin/deployments/a/drain")).json() == {"deployment": "a", "draining": True}
            refused = [await client.post("/v1/chat/completions", json=BODY) for _ in range(8)]
            assert {r.status_code for r in refused} == {503}
            assert (await asking.post("/admin/deployments/a/undrain")).status_code == 200

            # Killed: its counts stay in the sum, the other serves, and a new one comes.
            await asyncio.sleep(1.5)
            before = total((await asking.get("/metrics")).text)
            os.kill(changed[0]["pid"], signal.SIGKILL)
            begun = time.monotonic()
            after = await soon(workers)
            assert time.monotonic() - begun < 60
            assert changed[0]["pid"] not in {w["pid"] for w in after}
            await asked(client, 10)
            text = (await asking.get("/metrics")).text
            assert total(text) == before + 10
            assert total(text, "pointsman_in_flight") == 0

            ids = [r["id"] for r in (await asking.get("/admin/records?limit=100")).json()["records"]]
            assert len(ids) >= 40
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0


@pytest.mark.slow
async def test_L18_F18_a_sigterm_drains_every_worker(tmp_path: Path) -> None:
    words = [f"w{i} " for i in range(50)]
    async with ScriptedServer(
        lambda seen: chat_stream(words, gap_s=0.1) if seen.json().get("stream") else chat("hi")(seen)
    ) as a:
        config = write(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}))
        async with serving(tmp_path, config, "--workers", "2") as (process, client, admin):

            async def stream() -> bytes:
                return (await client.post("/v1/chat/completions", json=BODY | {"stream": True})).content

            streams = [asyncio.create_task(stream()) for _ in range(8)]
            await asyncio.sleep(1.0)
            process.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            await asyncio.sleep(1.0)
            for _ in range(4):
                assert (await client.get("/readyz", headers={"connection": "close"})).status_code == 503
            async with httpx.AsyncClient(base_url=admin) as asking:
                assert (await asking.get("/admin/config")).json()["draining"]
            while time.monotonic() - begun < 2.5:
                reply = await client.post("/v1/chat/completions", json=BODY, headers={"connection": "close"})
                assert reply.status_code == 200
                await asyncio.sleep(0.1)
            for content in await asyncio.gather(*streams):
                assert content.endswith(b"data: [DONE]\n\n")
                assert content.count(b'"content": "w') == 50
            assert await asyncio.to_thread(process.wait, 60) == 0


@pytest.mark.slow
async def test_workers_that_share_a_redis_keep_a_conversation_whichever_of_them_takes_it(tmp_path: Path) -> None:
    with redis_server(tmp_path, password="secret-word") as redis:
        async with ScriptedServer(chat("hi")) as a:
            config = write(tmp_path, groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]}))
            async with (
                serving(tmp_path, config, "--workers", "2", "--redis", redis.url) as (_, client, admin),
                httpx.AsyncClient(base_url=admin, timeout=20) as asking,
            ):

                async def met() -> bool:
                    shown = (await asking.get("/admin/config")).json()
                    return len(shown.get("workers", [])) == 2 and len(shown["replicas"]) == 1

                await soon(met)
                headers = {"x-session-id": "c", "connection": "close"}
                reply = await client.post("/v1/chat/completions", json=BODY, headers=headers | {"x-score": "0.9"})
                assert reply.headers["x-pointsman-group"] == "large"
                await asyncio.sleep(0.5)
                for _ in range(20):
                    reply = await client.post("/v1/chat/completions", json=BODY, headers=headers | {"x-score": "0.1"})
                    assert reply.headers["x-pointsman-group"] == "large"
            log = (tmp_path / "log").read_text()
            assert "without a shared store" not in log
            assert "secret-word" not in log


@pytest.mark.slow
async def test_workers_whose_keeper_is_gone_drain_and_end(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a:
        config = write(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}))
        async with serving(tmp_path, config, "--workers", "2") as (process, _, admin):
            async with httpx.AsyncClient(base_url=admin) as asking:

                async def workers() -> list[int]:
                    found = (await asking.get("/admin/config")).json().get("workers", [])
                    return [w["pid"] for w in found] if len(found) == 2 else []

                pids = await soon(workers)
            process.kill()

            async def ended() -> bool:
                return not any(_lives(pid) for pid in pids)

            await soon(ended)


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
async def test_two_workers_keep_a_groups_limit_together_without_a_store(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: chat_answer("hi", delay_s=0.3)) as a:
        files = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        files = files.replace("small: {deployments: [a]}", "small: {deployments: [a], max_in_flight: 3, queue: 40}")
        files = files.replace("large: {deployments: [a]}", "large: {deployments: [a], max_in_flight: 2, queue: 40}")
        async with (
            serving(tmp_path, write(tmp_path, files), "--workers", "2") as (_, client, admin),
            httpx.AsyncClient(base_url=admin, timeout=20) as asking,
        ):

            async def places() -> list[Any]:
                shown = await asking.get("/admin/groups")
                return [(g["name"], g["places"]) for g in shown.json()["groups"]] if shown.status_code == 200 else []

            await soon(lambda: _is(places, [("small", 3), ("large", 2)]))
            most = 0

            async def ask() -> int:
                headers = {"connection": "close", "x-score": "0.1"}
                return (await client.post("/v1/chat/completions", json=BODY, headers=headers)).status_code

            tasks = [asyncio.create_task(ask()) for _ in range(16)]
            while not all(task.done() for task in tasks):
                most = max(most, a.in_flight)
                await asyncio.sleep(0.005)
            codes = {await task for task in tasks}
            assert codes <= {200, 503}
            assert 200 in codes
            assert most <= 5, "three of the small group and two of its fallback"


async def _is(found: Callable[[], Awaitable[list[Any]]], wanted: list[Any]) -> bool:
    return await found() == wanted
