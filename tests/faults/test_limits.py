"""Deployments that ask for a pause, fail or vanish: no call before its time, traffic elsewhere, and back again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from router.errors import ConnectFailed, PointsmanError, Truncated, UpstreamStatus
from router.health import Health
from router.plan import fault_of
from router.seams import Others
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, chat, chat_answer, chat_stream, status
from tests.support.rig import groups, running, text


def limit(seconds: float | None, code: int = 429) -> UpstreamStatus:
    return UpstreamStatus(code, {}, b"", retry_after_s=seconds)


def fail(health: Health, error: PointsmanError, now: float) -> None:
    health.failed("a", fault_of(error), error, now)


@pytest.mark.parametrize("error", [ConnectFailed("no"), Truncated("cut"), limit(0.5)])
def test_F08_a_later_failure_does_not_shorten_the_pause_that_a_deployment_asked_for(error: PointsmanError) -> None:
    health = Health()
    fail(health, limit(60.0), 100.0)
    fail(health, error, 101.0)
    load = health.load(102.0)
    assert load.cooling["a"] == 160.0
    assert load.limited == {"a"}


def test_F08_an_answer_that_began_before_the_limit_does_not_end_the_pause() -> None:
    health = Health()
    fail(health, limit(60.0), 100.0)
    health.succeeded("a")
    load = health.load(102.0)
    assert load.cooling == {"a": 160.0}
    assert load.limited == {"a"}
    assert health.load(160.5).cooling == {}


@pytest.mark.parametrize("asked_s", [0.0, 0.001])
def test_F08_a_deployment_that_always_asks_to_be_asked_again_at_once_is_left_alone_all_the_same(asked_s: float) -> None:
    health = Health()
    for step, now in enumerate((100.0, 101.0, 102.0)):
        fail(health, limit(asked_s), now)
        assert (health.load(now + 0.5).cooling != {}) == (step == 2)
    fail(health, limit(asked_s), 103.5)
    assert health.load(104.0).cooling == {"a": 105.5}, "for longer each time, as after other failures"
    health.succeeded("a")
    assert health.load(105.6).cooling == {}


def test_one_403_takes_nothing_out_and_three_in_a_row_do_as_a_401_does() -> None:
    """A provider's filter answers 403 to what stands in one request, and who writes that is a stranger."""
    health = Health()
    for step, now in enumerate((100.0, 101.0, 102.0)):
        fail(health, limit(None, 403), now)
        assert (health.load(now).cooling != {}) == (step == 2)
    assert health.load(103.0).cooling == {"a": 132.0}
    other = Health()
    fail(other, limit(None, 401), 100.0)
    assert other.load(101.0).cooling == {"a": 130.0}


async def test_F08_a_retry_after_of_nothing_does_not_use_up_what_a_group_may_try_again(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: status(429, {"retry-after": "0"})) as a,
        ScriptedServer(chat("fine")) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a", "b"], "large": ["a", "b"]})) as rig,
    ):
        assert {(await rig.ask()).status_code for _ in range(200)} == {200}
        assert len(a.visits) <= 20


def others(of: Health, now: float) -> Others:
    """What another replica hears of this one."""
    in_flight, cooling, limited = of.presence(now)
    return Others(in_flight=in_flight, cooling=cooling, limited=frozenset(limited))


def test_F08_replicas_ask_a_limited_deployment_one_after_the_other_once_its_time_is_over() -> None:
    first, second = Health(), Health()
    for health, later_s in ((first, 0.0), (second, 0.75)):
        health.meet(Others(), 99.0, later_s)
        fail(health, limit(5.0), 100.0)
    heard = others(first, 100.2), others(second, 100.2)
    first.meet(heard[1], 100.2, 0.0)
    second.meet(heard[0], 100.2, 0.75)
    assert (first.load(101.0).cooling["a"], second.load(101.0).cooling["a"]) == (105.0, 105.75)
    first.meet(others(second, 105.1), 105.1, 0.0)
    assert first.load(105.2).cooling == {}
    fail(first, limit(5.0), 105.2)  # it asked, and the other one hears of it before its own time
    second.meet(others(first, 105.4), 105.4, 0.75)
    assert second.load(105.8).cooling["a"] == pytest.approx(110.95)
    second.meet(Others(), 106.0, 0.75)
    assert second.load(106.0).cooling["a"] == pytest.approx(110.95), "a limit binds though it is told no more"
    second.meet(Others(limited=frozenset({"gone"})), 106.1, 0.75)
    assert second.load(111.0).cooling == {}


def test_a_success_ends_the_cooldown_of_a_failure() -> None:
    health = Health()
    fail(health, ConnectFailed("no"), 100.0)
    assert health.load(100.5).cooling == {"a": 101.0}
    health.succeeded("a")
    assert health.load(100.5).cooling == {}


def test_F11_a_hundred_calls_that_fail_at_once_cool_a_deployment_no_longer_than_one() -> None:
    health = Health()
    for i in range(100):
        fail(health, ConnectFailed("no"), 100.0 + i / 1000)
    assert health.load(100.5).cooling == {"a": 101.0}
    fail(health, ConnectFailed("no"), 101.5)
    assert health.load(102.0).cooling == {"a": 103.5}


def test_F11_failed_probes_during_an_outage_do_not_put_off_the_return() -> None:
    health = Health()
    now = 100.0
    while now < 400.0:
        fail(health, ConnectFailed("no"), now)
        now += 0.1
    assert health.load(now).cooling["a"] - now <= 10.0


def test_a_pause_outlives_a_drain() -> None:
    health = Health()
    health.drain("a")
    fail(health, limit(60.0), 100.0)
    assert health.load(101.0).cooling == {"a": float("inf")}
    health.undrain("a")
    assert health.load(101.0).cooling == {"a": 160.0}


async def test_F08_a_storm_of_429_is_passed_on_with_its_retry_after_and_none_is_tried_before_its_time(
    tmp_path: Path,
) -> None:
    calls: list[float] = []

    def limited(seen: Seen) -> Sequence[Step]:
        calls.append(time.monotonic())
        return status(429, {"retry-after": "2"})

    async with (
        ScriptedServer(limited) as a,
        ScriptedServer(limited) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a", "b"], "large": ["a", "b"]})) as rig,
    ):
        first = await rig.ask()
        assert first.status_code == 429
        for _ in range(30):
            reply = await rig.ask()
            assert reply.status_code == 429
            assert 1 <= int(reply.headers["retry-after"]) <= 2
            assert reply.json()["error"]["code"] == "rate_limited"
            await asyncio.sleep(0.02)
        assert len(calls) == 2, "each deployment was asked once"
        for server in (a, b):
            server.script = chat("back")
        await asyncio.sleep(max(0.0, calls[-1] + 2.05 - time.monotonic()))
        assert (await rig.ask()).status_code == 200


async def test_F08_a_stream_that_ends_well_does_not_send_traffic_back_to_a_limited_deployment(tmp_path: Path) -> None:
    def limited(seen: Seen) -> Sequence[Step]:
        if seen.json().get("stream"):
            return chat_stream(["one ", "two "], gap_s=0.3)
        return status(429, {"retry-after": "30"})

    async with (
        ScriptedServer(limited) as a,
        ScriptedServer(chat("b")) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})) as rig,
    ):
        streaming = asyncio.create_task(rig.events())
        while not a.visits:
            await asyncio.sleep(0.01)
        assert (await rig.ask()).status_code == 200
        assert text(await streaming) == "one two "
        before = len(a.visits)
        assert (await rig.ask()).headers["x-pointsman-deployment"] == "b"
        assert len(a.visits) == before


async def test_F12_a_burst_of_clients_mistakes_cools_nothing_and_is_never_retried(tmp_path: Path) -> None:
    def picky(seen: Seen) -> Sequence[Step]:
        return status(400) if "bad" in seen.json()["messages"][0]["content"] else chat_answer("good")

    async with (
        ScriptedServer(picky) as a,
        ScriptedServer(picky) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a", "b"], "large": ["a", "b"]})) as rig,
    ):
        replies = await asyncio.gather(*(rig.ask("bad" if i % 3 == 0 else "fine") for i in range(60)))
        assert [r.status_code for r in replies] == [400 if i % 3 == 0 else 200 for i in range(60)]
        assert len(a.visits) + len(b.visits) == 60
        assert rig.gateway.health.load(0.0).cooling == {}


async def test_F09_one_503_in_a_hundred_costs_no_client_an_error(tmp_path: Path) -> None:
    count = 0

    def flaky(seen: Seen) -> Sequence[Step]:
        nonlocal count
        count += 1
        return status(503) if count % 100 == 0 else chat_answer("good")

    async with (
        ScriptedServer(flaky) as a,
        ScriptedServer(flaky) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a", "b"], "large": ["a", "b"]})) as rig,
    ):
        for _ in range(10):
            replies = await asyncio.gather(*(rig.ask() for _ in range(50)))
            assert {r.status_code for r in replies} == {200}
        assert count <= 510, "at most 1.02 attempts a request"


async def test_F10_F11_a_dead_deployment_gets_only_probes_and_its_traffic_back_when_it_lives(tmp_path: Path) -> None:
    async with ScriptedServer(chat("a")) as a, ScriptedServer(chat("b")) as b, ScriptedServer(chat("c")) as c:
        names = ["a", "b", "c"]
        config = groups(dict(zip(names, (a, b, c), strict=True)), {"small": names, "large": names})
        async with running(tmp_path, config) as rig:
            await a.stop()
            replies = [await rig.ask() for _ in range(200)]
            assert {r.status_code for r in replies} == {200}
            attempts = sum(int(r.headers["x-pointsman-attempts"]) for r in replies)
            assert attempts <= 220, "at most 1.10 attempts a request"
            await a.start()
            async with asyncio.timeout(30):
                while (await rig.ask()).headers["x-pointsman-deployment"] != "a":
                    await asyncio.sleep(0.05)
            served = [(await rig.ask()).headers["x-pointsman-deployment"] for _ in range(60)]
            assert served.count("a") > 5


async def test_F11_after_a_total_outage_normal_service_is_back_within_seconds(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda seen: status(503)) as a,
        ScriptedServer(lambda seen: status(503)) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a", "b"], "large": ["a", "b"]})) as rig,
    ):
        for _ in range(40):
            reply = await rig.ask()
            assert reply.status_code == 503
            await asyncio.sleep(0.05)
        assert len(a.visits) + len(b.visits) <= 60, "an outage is not met with more and more attempts"
        for server in (a, b):
            server.script = chat("back")
        async with asyncio.timeout(30):
            while (await rig.ask()).status_code != 200:
                await asyncio.sleep(0.1)
        replies = await asyncio.gather(*(rig.ask() for _ in range(50)))
        assert {r.status_code for r in replies} == {200}


@pytest.mark.parametrize("code", [429, 498, 503, 529])
async def test_F08_who_is_told_to_come_back_is_told_when_though_the_upstream_did_not_say(
    tmp_path: Path, code: int
) -> None:
    async with (
        ScriptedServer(lambda _: status(code)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        for _ in range(5):  # by then it is out, and the answer is the gateway's own
            reply = await rig.ask()
            assert reply.status_code in (code, 429, 503)
            assert int(reply.headers["retry-after"]) >= 1
