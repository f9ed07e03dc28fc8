"""More requests than a group may have: who begins, who waits, who is turned away, and in what order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from router.admission import RANKS, Admission, Gate
from router.config import Config, Group
from router.errors import Overloaded
from router.policy import Asked
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Wait, chat, chat_answer, status
from tests.support.rig import Rig, groups, running

SMALL_ONLY = "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"
NORMAL, HIGH, LOW = RANKS["normal"], RANKS["high"], RANKS["low"]


def gate(most: int = 1, queue: int = 10, wait_s: float = 5.0) -> Gate:
    return Gate(Group(name="g", deployments=("a",), max_in_flight=most, queue=queue, queue_wait_s=wait_s))


async def served(of: Gate, asks: list[tuple[int, str]]) -> list[str]:
    """The order in which these get their turn, one after the other; "-" before those that were turned away."""
    order: list[str] = []

    async def one(rank: int, name: str) -> None:
        try:
            await of.enter(rank, name.rstrip("0123456789"))
        except Overloaded:
            order.append(f"-{name}")
        else:
            order.append(name)
            await asyncio.sleep(0.001)
            of.leave()

    assert not await of.enter(NORMAL, "first")
    tasks: list[asyncio.Task[None]] = []
    for rank, name in asks:
        tasks.append(asyncio.create_task(one(rank, name)))
        await asyncio.sleep(0)
    of.leave()
    await asyncio.gather(*tasks)
    assert (of.in_flight, of.line) == (0, [])
    return order


async def test_the_line_goes_by_priority_then_in_turns_between_tenants_then_by_arrival() -> None:
    asks = [(LOW, "l1"), (NORMAL, "a1"), (NORMAL, "a2"), (NORMAL, "a3"), (NORMAL, "b1"), (HIGH, "h1")]
    assert await served(gate(), asks) == ["h1", "a1", "b1", "a2", "a3", "l1"]


async def test_a_full_line_turns_away_the_last_in_it_and_a_newcomer_only_where_that_is_last() -> None:
    asks = [(NORMAL, "a1"), (NORMAL, "a2"), (NORMAL, "a3"), (NORMAL, "b1"), (HIGH, "h1"), (LOW, "l1")]
    assert await served(gate(queue=2), asks) == ["-a3", "-a2", "-b1", "-l1", "h1", "a1"]


async def test_who_would_wait_too_long_is_turned_away_at_once_and_told_when_to_return() -> None:
    one = gate(queue=100, wait_s=0.2)
    await one.enter(NORMAL, "")
    tasks = [asyncio.create_task(one.enter(NORMAL, "")) for _ in range(5)]
    for _ in range(3):
        await asyncio.sleep(0.05)
        one.leave()
    late = [asyncio.create_task(one.enter(NORMAL, "")) for _ in range(20)]
    await asyncio.sleep(0.01)
    refused = [task for task in late if task.done()]
    assert len(refused) >= 15
    error = refused[-1].exception()
    assert isinstance(error, Overloaded)
    assert error.retry_after_s is not None
    assert error.retry_after_s >= 1
    for task in (*tasks, *late):
        task.cancel()
    await asyncio.gather(*tasks, *late, return_exceptions=True)


async def test_a_line_that_was_slow_once_is_used_again_when_it_is_fast() -> None:
    one = gate(queue=10, wait_s=0.3)
    await one.enter(NORMAL, "")

    async def slowly() -> list[BaseException | bool]:
        """Two wait while one ends after the other, a second apart."""
        one.group = replace(one.group, queue_wait_s=5.0)
        tasks = [asyncio.create_task(one.enter(NORMAL, "")) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0.5)
            one.leave()
        one.group = replace(one.group, queue_wait_s=0.3)
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert await slowly() == [True, True, True]
    first = asyncio.create_task(one.enter(NORMAL, ""))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await one.enter(NORMAL, "")  # as far as anybody knows, it would wait for a second
    await asyncio.sleep(0.01)
    one.leave()
    assert await first
    waiting = [asyncio.create_task(one.enter(NORMAL, "")) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in waiting), "now it is known to be fast"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_waits_past_the_limit_or_leaves_gives_its_place_up() -> None:
    one = gate(wait_s=0.05)
    await one.enter(NORMAL, "")
    with pytest.raises(Overloaded):
        await one.enter(NORMAL, "")
    leaving = asyncio.create_task(one.enter(NORMAL, ""))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert one.line == []
    one.leave()
    assert one.in_flight == 0


async def test_one_that_leaves_as_its_turn_comes_does_not_keep_the_place() -> None:
    one = gate()
    await one.enter(NORMAL, "")
    leaving = asyncio.create_task(one.enter(NORMAL, ""))
    await asyncio.sleep(0)
    one.leave()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert one.in_flight == 0


async def test_a_limit_that_a_reload_raises_or_removes_lets_the_line_in() -> None:
    admission = Admission()

    def use(**keys: int) -> None:
        group = Group(name="g", deployments=("a",), **keys)
        admission.use(Config(policies={}, models={}, groups={"g": group}, deployments={}, scorers={}, digest="d"))

    use(max_in_flight=1, queue=5)
    of = admission.gates["g"]
    await of.enter(NORMAL, "")
    waiting = [asyncio.create_task(of.enter(NORMAL, "")) for _ in range(3)]
    await asyncio.sleep(0)
    use(max_in_flight=2, queue=5)
    await asyncio.sleep(0)
    assert (admission.gates["g"] is of, admission.waiting()) == (True, {"g": 2})
    use()
    await asyncio.gather(*waiting)
    assert admission.gates == {}


async def test_F24_past_its_capacity_a_group_works_on_no_more_than_it_may_and_the_rest_is_told_to_return(
    tmp_path: Path,
) -> None:
    async with ScriptedServer(lambda _: chat_answer("ok", delay_s=0.05)) as a:
        files = groups({"a": a}, {"small": ["a"]}).replace("[a]}", "[a], max_in_flight: 4, queue: 8}")
        async with running(tmp_path, files, SMALL_ONLY) as rig:
            most = 0

            async def look() -> None:
                nonlocal most
                while True:
                    most = max(most, a.in_flight)
                    await asyncio.sleep(0.005)

            looking = asyncio.create_task(look())
            replies = await asyncio.gather(*[rig.ask() for _ in range(40)])
            looking.cancel()
            codes = Counter(reply.status_code for reply in replies)
            assert codes[200] >= 12
            assert codes[200] + codes[503] == 40
            assert most <= 4
            refused = next(reply for reply in replies if reply.status_code == 503)
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == "overloaded"
            assert (await rig.ask()).status_code == 200, "afterwards there is room again"
            assert len(a.visits) == codes[200] + 1


async def test_a_client_that_leaves_while_it_waits_never_reaches_an_upstream(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: [Wait(30)]) as a:
        files = groups({"a": a}, {"small": ["a"]}).replace("[a]}", "[a], max_in_flight: 1, queue: 8}")
        async with running(tmp_path, files, SMALL_ONLY) as rig:
            working = asyncio.create_task(rig.ask())
            while not a.visits:
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(rig.ask())
            while rig.gateway.waiting() != {"small": 1}:
                await asyncio.sleep(0.01)
            assert 'pointsman_waiting{group="small"} 1.0' in (await rig.client.get(f"{rig.admin}/metrics")).text
            await asyncio.sleep(0.1)
            waiting.cancel()
            while rig.gateway.waiting() != {"small": 0}:
                await asyncio.sleep(0.01)
            a.script = chat("ok")
            working.cancel()
            await asyncio.gather(working, waiting, return_exceptions=True)
            assert (await rig.ask()).status_code == 200
            assert len(a.visits) == 2


# --- several groups ----------------------------------------------------------------------------------------


@asynccontextmanager
async def full(
    folder: Path, small: str, large: str, policy: str | None = None
) -> AsyncIterator[tuple[Rig, ScriptedServer, ScriptedServer]]:
    """A gateway whose groups have these limits, and the servers behind them, which answer after a tenth of a second."""
    slow = ScriptedServer(lambda _: chat_answer("ok", delay_s=0.1))
    other = ScriptedServer(lambda _: chat_answer("ok", delay_s=0.1))
    async with slow as a, other as b:
        files = groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})
        files = files.replace("[a]}", f"[a]{small}}}").replace("[b]}", f"[b]{large}}}")
        async with running(folder, files, *([] if policy is None else [policy])) as rig:
            yield rig, a, b


async def busy(rig: Rig, server: ScriptedServer, score: float, count: int = 1) -> list[asyncio.Task[object]]:
    """So many requests that never end, once they are with the server."""
    script, server.script = server.script, lambda _: [Wait(30)]
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(rig.ask(score=score)) for _ in range(count)]
    while server.in_flight < count:
        await asyncio.sleep(0.01)
    server.script = script
    return tasks


async def end(tasks: list[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_group_that_turns_a_request_away_leaves_it_to_its_fallback(tmp_path: Path) -> None:
    async with full(tmp_path, ", max_in_flight: 1", "") as (rig, a, _):
        tasks = await busy(rig, a, 0.1)
        reply = await rig.ask(score=0.1)
        assert (reply.status_code, reply.headers["x-pointsman-group"]) == (200, "large")
        await end(tasks)


async def test_a_fallback_counts_against_the_limit_of_the_group_that_it_leads_to(tmp_path: Path) -> None:
    async with full(tmp_path, "", ", max_in_flight: 2") as (rig, a, b):
        tasks = await busy(rig, b, 0.9, 2)
        a.script = lambda _: status(500)
        replies = await asyncio.gather(*[rig.ask(score=0.1) for _ in range(4)])
        assert {reply.status_code for reply in replies} == {500}, "the error of the first group, and no third request"
        assert len(b.visits) == 2
        await end(tasks)
        while rig.gateway.service.admission.gates["large"].in_flight:
            await asyncio.sleep(0.01)
        reply = await rig.ask(score=0.1)
        assert (reply.status_code, reply.headers["x-pointsman-group"]) == (200, "large")
        assert rig.gateway.service.admission.gates["large"].in_flight == 0


async def test_where_every_group_is_full_a_request_is_refused_before_its_body_has_come(tmp_path: Path) -> None:
    async with full(tmp_path, ", max_in_flight: 1", ", max_in_flight: 1") as (rig, a, b):
        tasks = [*await busy(rig, a, 0.1), *await busy(rig, b, 0.9)]
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5000000\r\n\r\n{")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in head
        writer.close()
        refused = await rig.client.post("/v1/chat/completions", content=b"this is not JSON")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        messages = await rig.client.post("/v1/messages", json={"model": "auto"})
        assert (messages.status_code, messages.json()["error"]["type"]) == (503, "overloaded_error")
        await end(tasks)
        assert (await rig.records(3))[0].outcome in ("refused", "cancelled")


async def test_where_every_group_of_its_policy_is_full_a_request_is_not_scored(tmp_path: Path) -> None:
    policy = """\
version: 1
name: default
models: [auto]
routes:
  - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: small}]}}
default: small
"""
    async with full(tmp_path, ", max_in_flight: 1", "", policy) as (rig, a, _):
        tasks = await busy(rig, a, 0.1)
        reply = await rig.ask()
        assert reply.status_code == 503
        assert "x-pointsman-score" not in reply.headers
        told = await rig.client.post(
            "/v1/decision", json={"model": "auto", "messages": [{"role": "user", "content": "x"}]}
        )
        assert told.status_code == 200, "a question costs nothing"
        named = await rig.ask(model="large")
        assert named.status_code == 200
        await end(tasks)


def test_a_tenant_with_less_in_line_is_not_refused_unread() -> None:
    admission = Admission()
    group = Group(name="g", deployments=("a",), max_in_flight=1, queue=2, queue_wait_s=60)
    admission.use(Config(policies={}, models={}, groups={"g": group}, deployments={}, scorers={}, digest="d"))

    async def lines() -> None:
        gate = admission.gates["g"]
        await gate.enter(NORMAL, "first")
        waiting = [asyncio.create_task(gate.enter(NORMAL, "a")) for _ in range(2)]
        await asyncio.sleep(0)
        admission.refuse_any("b")
        with pytest.raises(Overloaded):
            admission.refuse_any("a")
        with pytest.raises(Overloaded):
            admission.refuse(Asked(model="g", group="g"), "a")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(lines())


async def test_a_thousand_requests_turned_away_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    one = gate(queue=0)
    await one.enter(NORMAL, "")
    with caplog.at_level(logging.WARNING, "pointsman.admission"):
        for _ in range(1000):
            with pytest.raises(Overloaded):
                await one.enter(NORMAL, "")
    assert [record.getMessage() for record in caplog.records] == [
        "group g has 1 requests in flight and 0 waiting; 1 were turned away since the last such line"
    ]


async def test_a_cascade_whose_first_group_is_full_is_answered_by_its_second(tmp_path: Path) -> None:
    policy = """\
version: 1
name: default
models: [auto]
routes: [{name: try, cascade: {first: small, then: large}}]
default: large
"""
    async with full(tmp_path, ", max_in_flight: 1", ", max_in_flight: 2", policy) as (rig, a, b):
        tasks = await busy(rig, a, 0.1)
        reply = await rig.ask()
        assert (reply.status_code, reply.headers["x-pointsman-group"]) == (200, "large")
        assert len(b.visits) == 1
        await end(tasks)
