"""A group's limit that several processes keep together: never passed, lent where it is unused, kept without Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from router.admission import Admission
from router.config import Config, Group
from router.seams import Presence, Wish
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Wait, chat_answer
from tests.support.redis_server import RedisServer, redis_server
from tests.support.rig import Rig, groups, running

pytest.importorskip("redis", reason="the redis extra is not installed")
from router.store.redis import RedisStore

POLICY = "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


def admission(limit: int, of: int = 1, number: int = 0) -> Admission:
    made = Admission()
    made.divide(of, number)
    group = Group(name="g", deployments=("a",), max_in_flight=limit, queue=10)
    made.use(Config(policies={}, models={}, groups={"g": group}, deployments={}, scorers={}, digest="d"))
    return made


@pytest.mark.parametrize(("limit", "of"), [(16, 1), (16, 2), (16, 3), (5, 4), (7, 7)])
def test_workers_that_share_nothing_but_their_machine_divide_a_limit_between_them(limit: int, of: int) -> None:
    parts = [admission(limit, of, number).gates["g"].most for number in range(of)]
    assert sum(parts) == limit
    assert max(parts) - min(parts) <= 1


def test_a_worker_has_one_place_at_least() -> None:
    assert [admission(2, 3, number).gates["g"].most for number in range(3)] == [1, 1, 1]


class Replica:
    """One process's count of a group's calls, before a store."""

    def __init__(self, store: RedisStore, name: str, limit: int) -> None:
        self.store, self.name, self.limit = store, name, limit
        self.most = self.flying = 0
        self.wants = 0

    async def meet(self) -> None:
        await self.store.meet(Presence(replica=self.name, digest="d", generation=1))

    async def share(self, begins: int = 0) -> None:
        """Asks for its places; so many calls begin meanwhile."""
        has = max(self.most, self.flying)
        wish = Wish(group="g", limit=self.limit, wants=max(self.wants, self.flying), has=has)
        asking = asyncio.create_task(self.store.share(self.name, [wish]))
        await asyncio.sleep(0)
        self.begin(begins)
        self.most = (await asking)["g"]

    def begin(self, count: int) -> None:
        self.flying += max(0, min(count, self.most - self.flying))


@asynccontextmanager
async def replicas(server: RedisServer, count: int, limit: int) -> AsyncGenerator[list[Replica]]:
    stores = [RedisStore(server.url, bound_s=2.0) for _ in range(count)]
    try:
        made = [Replica(store, f"r{n}", limit) for n, store in enumerate(stores)]
        for one in made:
            await one.meet()
        yield made
    finally:
        for store in stores:
            await store.aclose()


@pytest.mark.parametrize("limit", [2, 5, 16])
async def test_the_calls_of_all_replicas_never_pass_the_limit_whatever_they_do(server: RedisServer, limit: int) -> None:
    chance = Random(limit)
    async with replicas(server, 3, limit) as all_:
        for turn in range(600):
            one = chance.choice(all_)
            match chance.randrange(3):
                case 0:
                    one.begin(chance.randrange(limit + 1))
                case 1:
                    one.flying -= chance.randrange(one.flying + 1)
                case _:
                    one.wants = chance.choice([0, 0, 1, limit // 2, limit])
                    if not turn % 50:
                        await one.meet()
                    await one.share(begins=chance.randrange(limit + 1))
            assert sum(each.flying for each in all_) <= limit


async def test_who_wants_none_lends_its_places_and_who_wants_more_than_there_are_gets_its_part(
    server: RedisServer,
) -> None:
    async with replicas(server, 3, 12) as all_:
        one, two, three = all_

        async def settle() -> list[int]:
            for _ in range(4):
                for each in all_:
                    await each.share()
            return [each.most for each in all_]

        assert await settle() == [4, 4, 4], "places of those that want none are there for a first request"
        one.wants = 12
        assert await settle() == [12, 0, 0]
        one.begin(12)
        two.wants, three.wants = 2, 12
        assert await settle() == [5, 0, 0], "what is in use is not given to another"
        one.flying = 6
        assert sum(await settle()) <= 12
        one.flying = 0
        assert await settle() == [5, 2, 5]
        await three.store.aclose()
        all_.remove(three)
        assert sorted(await settle()) == [2, 10], "one that is gone has none"


async def test_F14_after_redis_was_emptied_nobody_gets_more_before_all_have_said_what_they_have(
    server: RedisServer,
) -> None:
    async with replicas(server, 2, 10) as (one, two):
        for _ in range(3):
            for each in (one, two):
                await each.share()
        one.wants = two.wants = 10
        one.begin(5)
        two.begin(5)
        await one.store._link.client.flushall()
        for each in (one, two, one, two):
            await each.meet()
            await each.share()
            each.begin(10)
        assert (one.flying, two.flying) == (5, 5)


# --- whole gateways ----------------------------------------------------------------------------------------


@asynccontextmanager
async def two(folder: Path, redis: str, limits: str, delay_s: float) -> AsyncGenerator[tuple[Rig, Rig, ScriptedServer]]:
    async with ScriptedServer(lambda _: chat_answer("ok", delay_s=delay_s)) as a:
        files = groups({"a": a}, {"small": ["a"]}).replace("[a]}", f"[a], {limits}}}")
        for name in ("1", "2"):
            (folder / name).mkdir()
        async with (
            running(folder / "1", files, POLICY, redis=redis) as one,
            running(folder / "2", files, POLICY, redis=redis) as other,
        ):
            yield one, other, a


async def until_has(rig: Rig, most: int) -> None:
    async with asyncio.timeout(20):
        while rig.gateway.service.admission.gates["small"].most != most:
            await asyncio.sleep(0.01)


async def test_F24_two_gateways_keep_one_limit_and_either_may_use_all_of_it(
    tmp_path: Path, server: RedisServer
) -> None:
    limits = "max_in_flight: 4, queue: 40, queue_wait_s: 20"
    async with two(tmp_path, server.url, limits, 0.3) as (one, other, a):
        most = 0

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, a.in_flight)
                await asyncio.sleep(0.005)

        looking = asyncio.create_task(look())
        first = [asyncio.create_task(one.ask()) for _ in range(16)]
        await until_has(one, 4)
        replies = await asyncio.gather(*first)
        assert {reply.status_code for reply in replies} == {200}
        replies = await asyncio.gather(*[rig.ask() for rig in (one, other) for _ in range(10)])
        looking.cancel()
        assert {reply.status_code for reply in replies} == {200}, "who waits at either gets its turn"
        assert most == 4


async def test_F13_without_redis_each_gateway_goes_on_with_the_places_that_it_has(
    tmp_path: Path, server: RedisServer
) -> None:
    limits = "max_in_flight: 4, queue: 40, queue_wait_s: 20"
    async with two(tmp_path, server.url, limits, 0.05) as (one, other, a):
        await until_has(one, 2)
        await until_has(other, 2)
        server.freeze()
        most = 0
        asking = [asyncio.create_task(rig.ask()) for rig in (one, other) for _ in range(10)]
        while not all(task.done() for task in asking):
            most = max(most, a.in_flight)
            await asyncio.sleep(0.005)
        server.thaw()
        assert {(await task).status_code for task in asking} == {200}
        assert most <= 4


@pytest.mark.slow
async def test_F14_while_redis_comes_and_goes_everybody_is_served_and_the_limit_holds(
    tmp_path: Path, server: RedisServer
) -> None:
    limits = "max_in_flight: 4, queue: 40, queue_wait_s: 30"
    async with two(tmp_path, server.url, limits, 0.05) as (one, other, a):
        statuses: set[int] = set()
        most = 0
        over = asyncio.Event()

        async def client(rig: Rig) -> None:
            while not over.is_set():
                statuses.add((await rig.ask()).status_code)

        async def look() -> None:
            nonlocal most
            while not over.is_set():
                most = max(most, a.in_flight)
                await asyncio.sleep(0.002)

        # One has much to do and the other little, and then the other way round: places have to move.
        for busy, idle in ((one, other), (other, one)):
            over.clear()
            tasks = [asyncio.create_task(client(rig)) for rig in (*[busy] * 8, idle)] + [asyncio.create_task(look())]
            for _ in range(2):
                await asyncio.sleep(1.0)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(0.7)
                await asyncio.to_thread(server.start)
            await asyncio.sleep(6.0)
            over.set()
            await asyncio.gather(*tasks)
        assert statuses == {200}
        assert most <= 4


async def test_a_gateway_that_starts_without_redis_serves(tmp_path: Path, server: RedisServer) -> None:
    server.kill()
    async with two(tmp_path, server.url, "max_in_flight: 4", 0.05) as (one, other, a):
        for rig in (one, other):
            assert (await rig.ask()).status_code == 200
        a.script = lambda _: [Wait(30)]
