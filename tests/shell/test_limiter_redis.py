"""Limits counted in a real Redis: two gateways count together, by its clock, and alone while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.seams import Claim, Presence
from router.store import limiter
from tests.support.redis_server import RedisServer, redis_server

pytest.importorskip("redis", reason="the redis extra is not installed")

from router.store.redis import RedisStore
from router.store.redis_limits import RedisLimiter


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@asynccontextmanager
async def two(server: RedisServer) -> AsyncIterator[tuple[RedisLimiter, RedisLimiter]]:
    pair = RedisLimiter(server.url, bound_s=2.0, probe_s=0.1), RedisLimiter(server.url, bound_s=2.0, probe_s=0.1)
    try:
        yield pair
    finally:
        for one in pair:
            await one.aclose()


def rate(amount: float = 1.0, **fields: Any) -> Claim:
    given: dict[str, Any] = {"key": "r", "kind": "rate", "limit": 3.0, "period_s": 6000.0, "amount": amount}
    return Claim(**given | fields)


def sum_(amount: float = 1.0, **fields: Any) -> Claim:
    given: dict[str, Any] = {"key": "s", "kind": "sum", "limit": 10.0, "period_s": 100.0, "amount": amount}
    return Claim(**given | fields)


def slots(**fields: Any) -> Claim:
    given: dict[str, Any] = {"key": "c", "kind": "slots", "limit": 2.0, "period_s": 50.0}
    return Claim(**given | fields)


def near(*waits: float | None) -> list[Any]:
    return [None if wait is None else pytest.approx(wait, abs=20.0) for wait in waits]


async def test_two_gateways_spend_one_rate(server: RedisServer) -> None:
    async with two(server) as (one, other):
        assert [(await gate.take([rate()], "h"))[0] for gate in (one, other, one)] == [None, None, None]
        assert await other.take([rate()], "h") == near(2000.0)
        await one.settle([rate(-2.0)], "h")
        assert await other.take([rate(2.0)], "h") == [None]
        assert await one.take([rate()], "h") == near(2000.0)


async def test_a_claim_larger_than_its_rate_is_had_when_nothing_is_used(server: RedisServer) -> None:
    async with two(server) as (one, other):
        assert await one.take([rate(6.0)], "h") == [None]
        assert await other.take([rate()], "h") == near(8000.0)


async def test_two_gateways_spend_one_sum_which_ends_with_its_key_and_never_falls_below_nothing(
    server: RedisServer,
) -> None:
    async with two(server) as (one, other):
        assert await one.take([sum_(9.5)], "h") == [None]
        assert await other.take([sum_()], "h") == near(100.0)
        await one.settle([sum_(-9.0)], "h")
        assert await other.take([sum_(9.5)], "h") == [None]
        assert await one.take([sum_(0.0)], "h") == near(100.0)
        await one.settle([sum_(-50.0)], "h")
        assert await other.take([sum_(10.5)], "h") == near(100.0)
        await other.settle([sum_(-5.0, key="another")], "h")
        assert await other.take([sum_(10.0, key="another")], "h") == [None]
        assert await one.take([sum_(10.0, key="short", period_s=0.2)], "h") == [None]
        await asyncio.sleep(0.3)
        assert await other.take([sum_(10.0, key="short", period_s=0.2)], "h") == [None]


async def test_slots_are_held_together_until_they_are_given_back_or_run_out(server: RedisServer) -> None:
    async with two(server) as (one, other):
        assert await one.take([slots()], "a") == [None]
        assert await other.take([slots()], "b") == [None]
        assert await one.take([slots()], "c") == [0.0]
        await other.settle([slots(amount=-1.0)], "b")
        assert await one.take([slots()], "c") == [None]
        assert await one.take([slots(key="died", limit=1.0, period_s=0.2)], "a") == [None]
        await asyncio.sleep(0.3)
        assert await other.take([slots(key="died", limit=1.0, period_s=0.2)], "b") == [None], "the lease ran out"


async def test_all_claims_are_taken_or_none_but_for_optional_ones(server: RedisServer) -> None:
    async with two(server) as (one, other):
        await one.take([sum_(10.0)], "h")
        assert await other.take([rate(), slots(), sum_()], "h") == near(None, None, 100.0)
        assert await one.take([slots()], "a") == [None]
        assert await one.take([slots()], "b") == [None]
        assert await one.take([rate(3.0), sum_(optional=True)], "h") == near(None, 100.0)
        assert await other.take([rate()], "h") == near(2000.0)


async def test_while_redis_is_away_each_gateway_lets_its_share_of_the_limit_through(server: RedisServer) -> None:
    async with two(server) as (one, other):
        stores = [RedisStore(server.url, bound_s=2.0) for _ in range(2)]
        for number, store in enumerate(stores):
            await store.meet(Presence(replica=str(number), digest="d", generation=1))
        for gate in (one, other):
            await gate.take([rate(key="first")], "h")
        server.kill()
        share: Sequence[float | None] = [(await one.take([rate(limit=6.0)], "h"))[0] for _ in range(4)]
        assert [wait is None for wait in share] == [True, True, True, False]
        assert [(await other.take([slots(limit=2.0)], holder))[0] for holder in "ab"] == [None, 0.0]
        await other.settle([slots(limit=2.0)], "a")
        assert await other.take([slots(limit=2.0)], "b") == [None]
        assert one.errors > 0
        for store in stores:
            await store.aclose()


async def test_the_url_of_the_store_says_where_limits_are_counted(server: RedisServer) -> None:
    made = limiter(server.url)
    assert isinstance(made, RedisLimiter)
    await made.aclose()


async def test_F22_a_slot_is_kept_while_its_request_runs_and_free_soon_after_its_gateway_died(
    server: RedisServer,
) -> None:
    def gateway() -> RedisLimiter:
        return RedisLimiter(server.url, bound_s=2.0, probe_s=0.1, lease_s=3.0)

    one, other = gateway(), gateway()
    try:
        assert await one.take([slots(limit=1.0, period_s=7200.0)], "long") == [None]
        for _ in range(40):
            assert await other.take([slots(limit=1.0, period_s=7200.0)], "late") == [0.0]
            await asyncio.sleep(0.1)
        server.kill()
        server.start()  # an empty one: what runs is told to it again
        async with asyncio.timeout(20):
            while not await _full(other):
                await asyncio.sleep(0.05)
        await one.aclose()  # without giving back, as one that is killed
        async with asyncio.timeout(20):
            while await _full(other):
                await asyncio.sleep(0.05)
    finally:
        await one.aclose()
        await other.aclose()


async def _full(asked: RedisLimiter) -> bool:
    """Whether the one slot is taken; nothing is taken to find out."""
    probe = slots(limit=1.0, period_s=7200.0, amount=0.0)
    return await asked.take([probe], "probe") == [0.0]
