"""A deployment that is slow to give content, and another that is asked beside it: who answers, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Reset, Script, Send, Wait, chat, chat_answer, chat_stream, chunk, status
from tests.support.rig import POLICY, Rig, groups, running, text

HEDGED = POLICY + "hedge: {after_s: 0.1}\n"
PRICE = ", price: {input: 1000000, output: 1000000}"  # a dollar a token


@asynccontextmanager
async def rig(
    folder: Path, *scripts: Script, more: str = PRICE
) -> AsyncGenerator[tuple[Rig, Sequence[ScriptedServer]]]:
    """A gateway with a small group of servers that play these, the first of which is the first choice."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer(script)) for script in scripts]
        names = [f"s{n}" for n in range(len(servers))]
        files = groups(dict(zip(names, servers, strict=True)), {"small": names, "large": names}, more)
        one = await stack.enter_async_context(running(folder, files, HEDGED))
        for name in names[1:]:
            one.gateway.health.begin(name)  # one request is there already
        yield one, servers


async def quiet(one: Rig, servers: Sequence[ScriptedServer]) -> None:
    """Until no upstream is asked for anything, and nothing counts as in flight."""
    async with asyncio.timeout(20):
        while any(server.in_flight for server in servers):
            await asyncio.sleep(0.01)
    counts = [one.gateway.health.of(f"s{n}", 0.0)["in_flight"] for n in range(len(servers))]
    assert counts == [0, *[1] * (len(servers) - 1)]


async def test_a_stream_that_does_not_begin_is_given_by_another_deployment_and_both_are_paid_for(
    tmp_path: Path,
) -> None:
    silent = [Head(200, SSE), Send(chunk({"role": "assistant", "content": ""})), Wait(30)]
    async with rig(tmp_path, lambda _: silent, chat("good morning")) as (one, servers):
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        reply = await one.client.post("/v1/chat/completions", json=body, headers={"x-score": "0.1"})
        assert (reply.headers["x-pointsman-deployment"], reply.headers["x-pointsman-attempts"]) == ("s1", "2")
        assert reply.content.count(b'"role": "assistant"') == 1
        assert reply.content.endswith(b"data: [DONE]\n\n")
        await quiet(one, servers)
        assert servers[0].visits[0].broken
        record = (await one.records())[0]
        lost, won = record.attempts
        assert (lost.deployment, lost.error, won.deployment, won.error) == ("s0", "outrun", "s1", None)
        assert lost.usage is not None
        assert lost.usage.estimated
        assert won.usage is not None
        assert record.cost == lost.usage.input + won.usage.input + won.usage.output
        told = (await one.client.get(f"{one.admin}/metrics")).text
        assert 'pointsman_attempts_total{deployment="s0",outcome="outrun"} 1.0' in told
        assert one.gateway.health.of("s0", 0.0)["ttft_s"] >= 0.05, "it counts as slow"


async def test_an_unstreamed_answer_is_hedged_too(tmp_path: Path) -> None:
    async with rig(tmp_path, lambda _: [Wait(30)], chat("good")) as (one, servers):
        reply = await one.ask()
        assert reply.json()["choices"][0]["message"]["content"] == "good"
        assert reply.headers["x-pointsman-deployment"] == "s1"
        await quiet(one, servers)


async def test_what_begins_in_time_has_no_second_attempt_and_none_follows_content(tmp_path: Path) -> None:
    steps = chat_stream(["slow ", "but ", "steady"], gap_s=0.3)
    async with rig(tmp_path, lambda _: steps, chat("another")) as (one, servers):
        assert text(await one.events()) == "slow but steady"
        assert servers[1].visits == []
        assert len((await one.records())[0].attempts) == 1


async def test_the_first_serves_where_it_is_first_after_all_and_the_second_is_left(tmp_path: Path) -> None:
    slow = chat_stream(["here"], first_s=1.0)
    async with rig(tmp_path, lambda _: slow, lambda _: [Wait(30)]) as (one, servers):
        assert text(await one.events()) == "here"
        await quiet(one, servers)
        assert servers[1].visits[0].broken
        record = (await one.records())[0]
        assert [(a.deployment, a.error) for a in record.attempts] == [("s1", "outrun"), ("s0", None)]


async def test_a_hedge_that_fails_leaves_the_first_alone_and_two_that_fail_leave_one_more_try(tmp_path: Path) -> None:
    async with rig(tmp_path, lambda _: chat_stream(["here"], first_s=0.5), lambda _: status(500)) as (one, _):
        assert text(await one.events()) == "here"
        assert [a.deployment for a in (await one.records())[0].attempts] == ["s1", "s0"]
    folder = tmp_path / "both"
    folder.mkdir()
    late = [Wait(0.5), Reset()]
    async with rig(folder, lambda _: late, lambda _: late, chat("saved")) as (one, servers):
        one.gateway.health.begin("s2")  # it is the last choice
        assert text(await one.events()) == "saved "
        assert [len(server.visits) for server in servers] == [1, 1, 1]
        record = (await one.records())[0]
        assert [a.error is None for a in record.attempts] == [False, False, True]
        one.gateway.health.end("s2")
        await quiet(one, servers)


async def test_a_stream_that_breaks_after_it_won_ends_with_one_error(tmp_path: Path) -> None:
    broken = [Head(200, SSE), Send(chunk({"content": "half"})), Wait(0.05), Reset()]
    async with rig(tmp_path, lambda _: [Wait(30)], lambda _: broken) as (one, servers):
        events = await one.events()
        assert [("error" in e) for e in events if isinstance(e, dict)] == [False, True]
        record = (await one.records())[0]
        assert (record.outcome, record.partial) == ("upstream_truncated", True)
        await quiet(one, servers)


async def test_a_client_that_leaves_ends_both_attempts(tmp_path: Path) -> None:
    async with rig(tmp_path, lambda _: [Wait(30)], lambda _: [Wait(30)]) as (one, servers):
        asking = asyncio.create_task(one.events())
        async with asyncio.timeout(20):
            while not all(server.visits for server in servers):
                await asyncio.sleep(0.01)
        asking.cancel()
        await quiet(one, servers)
        record = (await one.records())[0]
        assert record.outcome == "cancelled"
        assert {a.error for a in record.attempts} == {"client_closed_request"}


async def test_limits_of_time_hold_for_each_attempt(tmp_path: Path) -> None:
    more = ", timeouts: {first_byte_s: 0.4}"
    async with rig(tmp_path, lambda _: [Wait(30)], lambda _: [Wait(30)], more=more) as (one, servers):
        reply = await one.ask()
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "upstream_timeout")
        assert len((await one.records())[0].attempts) == 2
        await quiet(one, servers)


async def test_hedges_are_paid_for_as_retries_are(tmp_path: Path) -> None:
    late = chat_answer("late", delay_s=0.6)
    async with rig(tmp_path, lambda _: late, lambda _: late) as (one, servers):
        begun = asyncio.get_running_loop().time()
        replies = await asyncio.gather(*[one.ask() for _ in range(100)])
        took_s = asyncio.get_running_loop().time() - begun
        assert {reply.status_code for reply in replies} == {200}
        # A tenth of the requests, twenty saved up, and one for each second that it took.
        assert 120 <= sum(len(server.visits) for server in servers) <= 131 + took_s


async def test_a_deployment_that_the_client_named_is_asked_alone(tmp_path: Path) -> None:
    policy = HEDGED + "allow_deployments: true\n"
    async with ScriptedServer(lambda _: chat_answer("ok", delay_s=0.5)) as a, ScriptedServer(chat("no")) as b:
        files = groups({"s0": a, "s1": b}, {"small": ["s0", "s1"], "large": ["s0", "s1"]})
        async with running(tmp_path, files, policy) as one:
            assert (await one.ask(model="s0")).json()["choices"][0]["message"]["content"] == "ok"
            assert b.visits == []


# --- with a limit on the group, and in a cascade -----------------------------------------------------------


@asynccontextmanager
async def pair(
    folder: Path,
    policy: str,
    one: Script,
    other: Script,
    large: Script | None = None,
    small: str = "",
    more: str = "",
) -> AsyncGenerator[tuple[Rig, Sequence[ScriptedServer]]]:
    """A small group of two servers, the first of which is the first choice, and a large one of one."""
    async with ScriptedServer(one) as a, ScriptedServer(other) as b, ScriptedServer(large or chat("large")) as c:
        files = groups({"s0": a, "s1": b, "large-a": c}, {"small": ["s0", "s1"], "large": ["large-a"]}, PRICE + more)
        async with running(folder, files.replace("[s0, s1]}", f"[s0, s1]{small}}}"), policy) as rig:
            rig.gateway.health.begin("s1")  # one request is there already
            yield rig, (a, b, c)


async def nobody(one: Rig) -> None:
    """Until no place of any group is taken."""
    async with asyncio.timeout(20):
        while any(gate.in_flight for gate in one.gateway.service.admission.gates.values()):
            await asyncio.sleep(0.01)


async def test_a_hedge_takes_a_place_in_its_group_and_gives_it_back_once_one_of_the_two_is_left(tmp_path: Path) -> None:
    steady = chat_stream(["a ", "b "], first_s=0.5, gap_s=0.8)
    limits = ", max_in_flight: 2"
    async with pair(tmp_path, HEDGED, lambda _: [Wait(30)], lambda _: steady, small=limits) as (one, servers):
        gate = one.gateway.service.admission.gates["small"]
        asking = asyncio.create_task(one.events())
        async with asyncio.timeout(20):
            while not servers[1].visits:
                await asyncio.sleep(0.005)
            most = gate.in_flight
            while servers[0].in_flight:
                await asyncio.sleep(0.005)
        assert (most, gate.in_flight) == (2, 1), "the winner alone is left"
        assert text(await asking) == "a b "
        await nobody(one)


async def test_a_group_that_is_full_is_not_asked_twice(tmp_path: Path) -> None:
    late = chat_stream(["late"], first_s=0.5)
    limits = ", max_in_flight: 1"
    async with pair(tmp_path, HEDGED, lambda _: late, chat("early"), small=limits) as (one, servers):
        assert text(await one.events()) == "late"
        assert servers[1].visits == []
        await nobody(one)


CASCADE = """\
version: 1
name: default
models: [auto]
routes: [{name: try, cascade: {first: small, then: large, verify: {logprob_at_least: -0.5}}}]
default: large
hedge: {after_s: 0.1}
"""


def sure(words: str, logprob: float) -> Script:
    """An unstreamed answer whose tokens have this log-probability."""
    told = chat_answer(words)
    said = b'"logprobs": {"content": [{"token": "x", "logprob": %f, "bytes": null, "top_logprobs": []}]}, '
    body = b"".join(step.data for step in told if isinstance(step, Send))
    assert b'"finish_reason"' in body
    with_it = body.replace(b'"finish_reason"', said % logprob + b'"finish_reason"')
    return lambda _: [Head(200, {"content-type": "application/json"}), Send(with_it)]


async def test_the_first_answer_of_a_cascade_is_hedged_and_verified_by_what_the_faster_one_said(tmp_path: Path) -> None:
    quick = sure("quick", -0.1)
    async with pair(tmp_path, CASCADE, lambda _: [Wait(30)], quick, more=", logprobs: true") as (one, servers):
        reply = await one.ask()
        assert reply.json()["choices"][0]["message"]["content"] == "quick"
        assert (reply.headers["x-pointsman-deployment"], reply.headers["x-pointsman-attempts"]) == ("s1", "2")
        assert servers[0].visits[0].broken
        record = (await one.records())[0]
        assert record.decision is not None
        assert record.decision.why == "verified"
        assert [(a.deployment, a.error) for a in record.attempts] == [("s0", "outrun"), ("s1", None)]
        assert record.checked is not None
        assert record.checked.logprob == -0.1
        assert record.cost == sum(a.cost or 0.0 for a in record.attempts)


async def test_an_escalation_after_a_hedge_streams_the_second_groups_answer(tmp_path: Path) -> None:
    policy = CASCADE.replace(", verify: {logprob_at_least: -0.5}", "")
    refused = chat("I'm sorry, but I can't help with that.")
    async with pair(tmp_path, policy, lambda _: [Wait(30)], refused) as (one, servers):
        assert text(await one.events()).strip() == "large"
        record = (await one.records())[0]
        assert record.decision is not None
        assert (record.decision.why, record.decision.check) == ("escalated", "no_refusal")
        named = [(a.deployment, a.error, a.usage is not None) for a in record.attempts]
        assert named == [("s0", "outrun", True), ("s1", None, True), ("large-a", None, True)]
        assert servers[0].visits[0].broken


async def test_scouts_count_against_their_group_and_are_silent_where_it_is_full(tmp_path: Path) -> None:
    keys = "scouts: [small, large], verify: {agreement_at_least: 0.5}"
    policy = CASCADE.replace("verify: {logprob_at_least: -0.5}", keys).replace("hedge: {after_s: 0.1}\n", "")
    async with pair(tmp_path, policy, chat("B"), chat("B"), chat("B"), small=", max_in_flight: 1") as (one, servers):
        reply = await one.ask()
        assert reply.status_code == 200
        record = (await one.records())[0]
        assert [(a.deployment, a.scout) for a in record.attempts if a.scout] == [("large-a", True)]
        assert len(servers[0].visits) + len(servers[1].visits) == 1, "the group's one place is the first answer's"
        await nobody(one)
    folder = tmp_path / "room"
    folder.mkdir()
    async with pair(folder, policy, chat("B"), chat("B"), chat("B"), small=", max_in_flight: 2") as (one, servers):
        assert (await one.ask()).status_code == 200
        assert len(servers[0].visits) + len(servers[1].visits) == 2
        await nobody(one)
