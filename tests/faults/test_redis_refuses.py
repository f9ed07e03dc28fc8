"""A Redis that answers and takes nothing: a replica, a full one, a user without rights, an address that moved on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.errors import ConfigError
from router.seams import Presence
from router.store import build
from router.types import Session
from tests.support.redis_server import RedisServer, line, redis_server

pytest.importorskip("redis", reason="the redis extra is not installed")

from redis.asyncio import Redis

from router.store.redis import RedisStore

ME = Presence(replica="me", digest="d", generation=1, in_flight={}, cooling={}, limited=())
REFUSALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "it is a replica": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    "it is full": (("CONFIG", "SET", "maxmemory", "1mb"), ("CONFIG", "SET", "maxmemory", "0")),
    "the keys are not ours": (("ACL", "SETUSER", "default", "resetkeys"), ("ACL", "SETUSER", "default", "allkeys")),
    "scripts are forbidden": (
        ("ACL", "SETUSER", "default", "-@scripting"),
        ("ACL", "SETUSER", "default", "+@all"),
    ),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


async def say(server: RedisServer, *command: str) -> Any:
    async with Redis(port=server.port) as client:
        return await client.execute_command(*command)


async def meets(one: RedisStore) -> bool:
    try:
        await one.meet(ME)
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("why", REFUSALS)
async def test_D02_a_redis_that_takes_nothing_is_left_alone_until_it_does_and_fills_no_log(
    server: RedisServer, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    refuse, take = REFUSALS[why]
    one = RedisStore(server.url, bound_s=2.0, probe_s=0.05)
    try:
        one.touch(Session(id="before", group="large"), 60.0)
        assert await meets(one)
        await say(server, *refuse)
        for number in range(60):  # as a gateway does: reads go between the calls that change something
            one.touch(Session(id=f"s{number}", group="small"), 60.0)
            assert not await meets(one)
            with contextlib.suppress(ConnectionError):  # the breaker is open
                await one.session("before")
            await asyncio.sleep(0.01)
        assert one._link.is_up == (why == "scripts are forbidden"), "sessions need none"
        lines = [r.getMessage() for r in caplog.records if r.name == "pointsman.store"]
        assert len(lines) == 1, "it says so once, and does not say that it is well again"
        assert "refuses a call" in lines[0]
        await say(server, *take)
        async with asyncio.timeout(10):
            while not await meets(one):
                await asyncio.sleep(0.02)
            two = RedisStore(server.url, bound_s=2.0)
            while await two.session("s59") is None:
                await asyncio.sleep(0.02)
            await two.aclose()
    finally:
        await one.aclose()


async def test_F14_after_a_failover_the_address_is_looked_up_anew(tmp_path: Path, server: RedisServer) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    with redis_server(folder) as second:
        async with line(server.port) as way:
            one = RedisStore(RedisServer.at(way.port), bound_s=2.0, probe_s=0.05)
            try:
                assert await meets(one)
                await say(server, "REPLICAOF", "127.0.0.1", str(second.port))
                way.to = second.port  # the old connections go on to the server that is a replica now
                async with asyncio.timeout(10):
                    while await meets(one):
                        await asyncio.sleep(0.01)
                    while not await meets(one):
                        await asyncio.sleep(0.02)
                assert await say(second, "HKEYS", "pointsman:{replicas}:told") == [b"me"]
            finally:
                await one.aclose()


@pytest.mark.parametrize("option", ["foo=1", "socket_timout=1"])
async def test_D01_a_url_with_an_option_that_there_is_not_is_refused_at_the_start(option: str) -> None:
    with pytest.raises(ConfigError, match=r"serve:1:1: --redis: .* does not know"):
        build(f"redis://127.0.0.1:6379/0?{option}", file="serve", path="--redis")


@pytest.mark.parametrize("option", ["decode_responses=true", "protocol=3", "socket_timeout=5"])
async def test_D01_no_option_of_the_url_changes_what_is_read(server: RedisServer, option: str) -> None:
    one = RedisStore(f"{server.url}?{option}", bound_s=2.0)
    try:
        one.touch(Session(id="a", group="small"), 60.0)
        assert await meets(one)
        two = RedisStore(server.url, bound_s=2.0)
        async with asyncio.timeout(10):
            while await two.session("a") is None:
                await asyncio.sleep(0.02)
        await two.aclose()
        assert (await one.meet(ME)).told == ()
    finally:
        await one.aclose()
