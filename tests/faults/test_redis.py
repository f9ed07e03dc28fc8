"""Gateways that share a Redis, and what they do without it: requests are served, whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Wait, chat, status
from tests.support.keyed import bearer, keyed
from tests.support.redis_server import RedisServer, line, redis_server
from tests.support.rig import Rig, groups, running

pytest.importorskip("redis", reason="the redis extra is not installed")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


async def say(rig: Rig, score: float, conversation: str = "c") -> httpx.Response:
    headers = {"x-score": str(score), "x-session-id": conversation}
    said = [{"role": "user", "content": "hello"}]
    return await rig.client.post("/v1/chat/completions", json={"model": "auto", "messages": said}, headers=headers)


async def metric(rig: Rig, name: str) -> float:
    async with httpx.AsyncClient(base_url=rig.admin) as asking:
        text = (await asking.get("/metrics")).text
    return float(next(row.split()[1] for row in text.splitlines() if row.startswith(name + " ")))


async def test_two_gateways_share_the_pins_of_conversations(tmp_path: Path, server: RedisServer) -> None:
    async with ScriptedServer(chat("fine")) as a:
        yaml = groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]})
        async with (
            running(folder(tmp_path, "1"), yaml, redis=server.url) as one,
            running(folder(tmp_path, "2"), yaml + f"store: {server.url}\n") as two,
        ):
            assert (await say(one, 0.9)).headers["x-pointsman-group"] == "large"
            for _ in range(100):
                reply = await say(two, 0.1)
                if reply.headers["x-pointsman-group"] == "large":
                    break
                await asyncio.sleep(0.02)
            assert reply.headers["x-pointsman-group"] == "large", "the conversation stays where the other one put it"
            assert (await say(two, 0.1, "another")).headers["x-pointsman-group"] == "small"


async def test_two_gateways_share_cooldowns_and_know_each_others_configuration(
    tmp_path: Path, server: RedisServer
) -> None:
    async with (
        ScriptedServer(lambda _: status(429, {"retry-after": "60"})) as limited,
        ScriptedServer(chat("fine")) as fine,
    ):
        yaml = groups({"a": limited, "b": fine}, {"small": ["a"], "large": ["b"]})
        async with (
            running(folder(tmp_path, "1"), yaml, redis=server.url) as one,
            running(folder(tmp_path, "2"), yaml, redis=server.url) as two,
        ):
            assert (await say(one, 0.1)).headers["x-pointsman-deployment"] == "b"
            async with asyncio.timeout(10):
                while two.gateway.health.of("a", asyncio.get_running_loop().time())["up"]:
                    await asyncio.sleep(0.02)
            asked = len(limited.visits)
            reply = await say(two, 0.1)
            assert (reply.headers["x-pointsman-deployment"], reply.headers["x-pointsman-attempts"]) == ("b", "1")
            assert len(limited.visits) == asked, "the other gateway's 429 is not asked for again"
            assert await metric(two, 'pointsman_deployment_up{deployment="a"}') == 0
            async with httpx.AsyncClient(base_url=two.admin) as asking:
                shown = (await asking.get("/admin/config")).json()
            assert [r["digest"] for r in shown["replicas"]] == [one.gateway.snapshot.config.digest]


async def test_two_gateways_hold_a_key_to_its_limits_together(tmp_path: Path, server: RedisServer) -> None:
    keys = {
        "few": "tenant: acme, requests_per_minute: 4",
        "one": "tenant: acme, concurrent: 1",
        "large": "tenant: acme, quota: {large: 2}",
    }
    async with ScriptedServer(chat("fine")) as a, ScriptedServer(chat("fine")) as b:
        yaml = groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})
        async with (
            keyed(folder(tmp_path, "1"), yaml, keys, redis=server.url) as one,
            keyed(folder(tmp_path, "2"), yaml, keys, redis=server.url) as two,
        ):

            async def ask(rig: Rig, key: str, score: float = 0.1) -> httpx.Response:
                body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
                headers = bearer(key) | {"x-score": str(score)}
                return await rig.client.post("/v1/chat/completions", json=body, headers=headers)

            codes = [(await ask(rig, "few")).status_code for rig in (one, two, one, two, one, two)]
            assert codes == [200] * 4 + [429] * 2
            served = [(await ask(rig, "large", 0.9)).headers["x-pointsman-group"] for rig in (one, two, one, two)]
            assert served == ["large", "large", "small", "small"]

            a.script = lambda _: [Wait(30)]
            before = len(a.visits)
            held = asyncio.create_task(ask(one, "one"))
            async with asyncio.timeout(20):
                while len(a.visits) == before:
                    await asyncio.sleep(0.01)
            a.script = chat("fine")
            refused = await ask(two, "one")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
            async with asyncio.timeout(20):
                while (await ask(two, "one")).status_code != 200:
                    await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["down", "frozen", "wrong password", "slow"])
async def test_F13_F15_D01_every_request_is_served_and_the_gateway_is_ready_whatever_redis_does(
    tmp_path: Path, fault: str
) -> None:
    password = "right-password" if fault == "wrong password" else ""
    with redis_server(folder(tmp_path, "r"), password) as server:
        async with ScriptedServer(chat("fine")) as a, line(server.port) as way:
            yaml = groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]})
            url = server.url.replace("right", "wrong")
            async with running(
                folder(tmp_path, "1"), yaml, redis=RedisServer.at(way.port) if not password else url
            ) as rig:
                assert (await say(rig, 0.9)).headers["x-pointsman-group"] == "large"
                match fault:
                    case "down":
                        server.kill()
                    case "frozen":
                        server.freeze()
                    case "slow":
                        way.delay_s = 0.2
                    case _:
                        pass
                for _ in range(40):
                    reply = await say(rig, 0.1)
                    assert (reply.status_code, reply.headers["x-pointsman-group"]) == (200, "large"), "pinned locally"
                    assert (await say(rig, 0.1, "new")).status_code == 200
                async with asyncio.timeout(10):
                    while await metric(rig, "pointsman_store_errors_total") < 3:
                        await asyncio.sleep(0.05)
                failed = rig.gateway.service.store.errors
                for number in range(40):
                    assert (await say(rig, 0.1, f"c{number}")).status_code == 200
                spared = 80 - (rig.gateway.service.store.errors - failed)
                assert spared > 60, "only probes are made while the breaker is open"
                assert (await rig.client.get("/readyz")).status_code == 200


async def test_F14_a_redis_that_was_killed_and_comes_back_empty_knows_the_conversations_again(
    tmp_path: Path, server: RedisServer
) -> None:
    async with ScriptedServer(chat("fine")) as a:
        yaml = groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]})
        async with running(folder(tmp_path, "1"), yaml, redis=server.url) as one:
            assert (await say(one, 0.9, "before")).status_code == 200
            server.kill()
            assert (await say(one, 0.9, "during")).status_code == 200
            assert (await say(one, 0.1, "before")).headers["x-pointsman-group"] == "large"
            server.start()
            async with running(folder(tmp_path, "2"), yaml, redis=server.url) as two:
                async with asyncio.timeout(10):
                    while not await _pinned(server, 2):
                        await asyncio.sleep(0.05)
                for conversation in ("before", "during"):
                    assert (await say(two, 0.1, conversation)).headers["x-pointsman-group"] == "large"


async def _pinned(server: RedisServer, count: int) -> bool:
    from redis.asyncio import Redis

    async with Redis(port=server.port) as client:
        return len(await client.keys("pointsman:{sessions}:*")) >= count
