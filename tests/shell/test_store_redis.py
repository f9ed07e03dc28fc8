"""Sessions and presences in a real Redis, started privately for each test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.errors import ConfigError
from router.seams import Presence
from router.store import build
from router.types import Session
from tests.support.redis_server import RedisServer, line, redis_server

pytest.importorskip("redis", reason="the redis extra is not installed")

from router.store.link import Link, ended
from router.store.redis import RedisStore


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@asynccontextmanager
async def store(url: str, **given: float) -> AsyncIterator[RedisStore]:
    """Its bound is wide, since this machine may be busy; tests of the bound give their own."""
    made = RedisStore(url, **{"bound_s": 2.0, "probe_s": 0.1} | given)
    try:
        yield made
    finally:
        await made.aclose()


async def soon(holds: Callable[[], Any], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not await holds():
            await asyncio.sleep(0.02)


async def test_what_one_gateway_touched_another_knows_and_the_first_of_several_ids_wins(server: RedisServer) -> None:
    async with store(server.url) as one, store(server.url) as two:
        one.touch(Session(id="a", group="small", deployment="small-a", route="difficulty"), 60.0)
        one.touch(Session(id="b", group="large"), 60.0)
        await soon(lambda: two.session("b"))
        assert await two.session("a") == Session(id="a", group="small", deployment="small-a", route="difficulty")
        assert await two.session("unknown", "b", "a") == Session(id="b", group="large")
        assert await two.sessions("unknown", "b") == [None, Session(id="b", group="large")]
        two.touch(Session(id="b", group="small"), 60.0)
        await soon(lambda: _is_in(one, "b", "small"))


async def _is_in(store: RedisStore, id_: str, group: str) -> bool:
    found = await store.session(id_)
    return found is not None and found.group == group


async def test_a_session_is_forgotten_after_its_time(server: RedisServer) -> None:
    async with store(server.url) as one, store(server.url) as two:
        one.touch(Session(id="long"), 60.0)
        one.touch(Session(id="short"), 0.3)
        await soon(lambda: two.session("long"))
        await asyncio.sleep(0.4)
        assert await two.session("short") is None
        assert await one.session("short") is None


async def test_a_session_that_redis_refuses_holds_up_no_other(server: RedisServer) -> None:
    async with store(server.url) as one, store(server.url) as two:
        one.touch(Session(id="bad"), 1e16)  # no time that Redis can count to
        one.touch(Session(id="good"), 60.0)
        await soon(lambda: two.session("good"))
        await soon(lambda: _sent(one))
        assert await two.session("bad") is None


async def _sent(store: RedisStore) -> bool:
    return not store._waiting


async def test_F14_a_redis_that_was_killed_keeps_pins_locally_and_has_them_again_once_it_is_back_empty(
    server: RedisServer,
) -> None:
    async with store(server.url) as one, store(server.url) as two:
        await one.meet(Presence(replica="one", digest="d", generation=1))
        one.touch(Session(id="before", group="small"), 60.0)
        await soon(lambda: two.session("before"))
        server.kill()
        one.touch(Session(id="during", group="large"), 60.0)
        assert await _is_in(one, "before", "small")
        assert await _is_in(one, "during", "large")
        with pytest.raises(ConnectionError):
            await two.session("during")
        assert one.errors > 0
        server.start()

        async def met() -> bool:
            try:
                await one.meet(Presence(replica="one", digest="d", generation=1))
            except ConnectionError:
                return False
            return True

        await soon(met)

        async def resynced() -> bool:
            try:
                return await _is_in(two, "before", "small") and await _is_in(two, "during", "large")
            except ConnectionError:
                return False

        await soon(resynced)


async def test_a_redis_that_was_emptied_is_filled_again_without_overwriting_what_others_know_better(
    server: RedisServer,
) -> None:
    me = Presence(replica="one", digest="d", generation=1)
    async with store(server.url) as one, store(server.url) as two:
        await one.meet(me)
        one.touch(Session(id="mine", group="small"), 60.0)
        one.touch(Session(id="moved", group="small"), 60.0)
        await soon(lambda: two.session("moved"))
        await one._link.client.flushall()
        two.touch(Session(id="moved", group="large"), 60.0)
        await soon(lambda: one._link.client.exists("pointsman:{sessions}:moved"))
        await one.meet(me)
        await soon(lambda: two.session("mine"))
        await soon(lambda: _is_in(one, "moved", "large"))  # once it has heard that all was taken
        assert await _is_in(two, "moved", "large")


async def test_D01_D02_a_frozen_redis_costs_a_few_bounded_calls_and_then_nothing(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with store(server.url, bound_s=0.2) as one:
        one.touch(Session(id="a", group="small"), 60.0)
        await soon(lambda: _is_in(one, "a", "small"))
        await one.session("b")
        server.freeze()
        for _ in range(50):
            with pytest.raises(ConnectionError):
                await one.session("b")
        assert 3 <= one.errors <= 5, "the breaker opens after a few, and forty-five are spared"
        lines = [r for r in caplog.records if r.name == "pointsman.store"]
        assert [r.levelname for r in lines] == ["ERROR"], "one line an outage"
        server.thaw()

        async def answers() -> bool:
            try:
                return await one.session("b") is None
            except ConnectionError:
                return False

        await soon(answers)
        assert [r.levelname for r in caplog.records if r.name == "pointsman.store"] == ["ERROR", "WARNING"]


async def test_F15_a_slow_redis_is_left_alone_until_it_is_fast_again(server: RedisServer) -> None:
    async with line(server.port) as way, store(RedisServer.at(way.port), bound_s=0.2) as one:
        assert await one.session("a") is None
        way.delay_s = 0.4
        for _ in range(4):
            with pytest.raises(ConnectionError):
                await one.session("a")
        failed = one.errors
        await asyncio.sleep(1.5)
        assert one.errors > failed, "probes are answered, but too late"
        assert not one._link.is_up
        way.delay_s = 0.0
        async with asyncio.timeout(10):
            await one._link.up()
        assert await one.session("a") is None


async def test_a_wrong_password_is_a_failure_told_once_and_without_the_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, password="right-password") as server:
        wrong = server.url.replace("right", "wrong")
        async with store(wrong) as one:
            one.touch(Session(id="a", group="small"), 60.0)
            assert await _is_in(one, "a", "small")
            for _ in range(5):
                with pytest.raises(ConnectionError):
                    await one.session("b")
        async with store(server.url) as two:
            assert await two.session("b") is None
    (told,) = [r.getMessage() for r in caplog.records if r.name == "pointsman.store"]
    assert "AuthenticationError" in told
    assert "password@" not in told
    assert "wrong-password" not in told


async def test_replicas_hear_of_each_others_load_and_cooldowns_and_one_that_left_is_forgotten(
    server: RedisServer,
) -> None:
    a = Presence(replica="a", digest="d1", generation=3, in_flight={"x": 2}, cooling={"x": 30.0}, limited=("x",))
    b = Presence(replica="b", digest="d2", generation=1, in_flight={"x": 1, "y": 4}, cooling={"x": 5.0, "y": 0.0})
    async with store(server.url) as one:
        async with store(server.url) as two:
            assert (await two.meet(b)).told == ()
            heard = await one.meet(a)
            assert [(told.replica, told.digest, told.generation) for told in heard.told] == [("b", "d2", 1)]
            assert heard.in_flight == {"x": 1, "y": 4}
            assert set(heard.cooling) == {"x"}
            assert 0.0 < heard.cooling["x"] <= 5.0
            back = await two.meet(b)
            assert 20.0 < back.cooling["x"] <= 30.0
            assert back.limited == {"x"}
        assert (await one.meet(a)).told == ()


async def test_a_replica_that_died_without_goodbye_is_forgotten_with_its_calls_in_flight(server: RedisServer) -> None:
    async with store(server.url) as one, store(server.url, presence_s=0.5) as dies:
        await dies.meet(Presence(replica="dies", digest="d", generation=1, in_flight={"x": 9}))
        me = Presence(replica="one", digest="d", generation=1)
        assert (await one.meet(me)).in_flight == {"x": 9}

        async def forgotten() -> bool:
            return (await one.meet(me)).in_flight == {}

        await soon(forgotten)


async def test_the_way_to_redis_may_be_a_unix_socket_and_a_url_that_names_none_is_refused(server: RedisServer) -> None:
    async with store(f"unix://{server.socket}?db=0") as one, store(server.url) as two:
        one.touch(Session(id="a", group="small"), 60.0)
        await soon(lambda: two.session("a"))
    with pytest.raises(ConfigError, match=r"serve:1:1: --redis: Port could not be cast"):
        build("redis://127.0.0.1:many/0", file="serve", path="--redis")


async def test_a_cancel_that_the_client_takes_for_something_else_is_still_a_cancel() -> None:
    async def fails(_: object) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise RuntimeError("the connection was lost") from None

    async def goes_on(_: object) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)

    link = Link("redis://127.0.0.1:9", bound_s=20.0, probe_s=1.0)
    for swallows in (fails, goes_on):
        task = asyncio.create_task(link.call(swallows))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert link.errors == 0, "nobody has heard that Redis is unwell"
    with pytest.raises(ConnectionError):  # its own time limit is no cancel
        await link.call(fails, bound_s=0.01)
    await link.aclose()


async def test_a_task_is_cancelled_until_it_ends() -> None:
    cancels = 0

    async def stubborn() -> None:
        nonlocal cancels
        while cancels < 3:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancels += 1

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await ended(task)
    assert cancels == 3
