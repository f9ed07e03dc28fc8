"""Configurations that change under requests in flight: nothing is dropped, nothing is counted wrongly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.rig import Rig, groups, running, text

WORDS = [f"w{i} " for i in range(20)]


async def put(rig: Rig, groups_yaml: str) -> None:
    """Put another groups.yaml in force."""
    (rig.config / "groups.yaml").write_text(groups_yaml)
    assert await rig.gateway.reload()


async def gauge(rig: Rig, line: str) -> list[str]:
    async with httpx.AsyncClient() as client:
        shown = (await client.get(f"{rig.admin}/metrics")).text
    return [found for found in shown.splitlines() if found.startswith(line)]


async def until_called(server: ScriptedServer) -> None:
    while not server.visits:
        await asyncio.sleep(0.01)


async def test_F20_a_stream_outlives_two_reloads_of_which_only_the_second_drops_its_deployment(tmp_path: Path) -> None:
    async with ScriptedServer(lambda seen: chat_stream(WORDS, gap_s=0.05)) as a, ScriptedServer(chat("other")) as b:
        before = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, before) as rig:
            streaming = asyncio.create_task(rig.events())
            await until_called(a)
            await put(rig, before + "# a comment\n")
            await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
            events = await streaming
            assert text(events) == "".join(WORDS)
            assert events[-1] == "[DONE]"
            assert (await rig.ask()).status_code == 200
            assert len(b.visits) == 1


async def test_the_connections_of_a_dropped_deployment_are_closed_once_its_streams_have_ended(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda seen: chat_stream(WORDS, gap_s=0.02)) as a,
        ScriptedServer(chat("other")) as b,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        streaming = asyncio.create_task(rig.events())
        await until_called(a)
        await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
        await streaming
        async with asyncio.timeout(2):
            while len(rig.gateway.snapshot.upstreams) > 1 or a.in_flight:
                await asyncio.sleep(0.01)


async def test_the_in_flight_gauge_never_goes_below_zero_when_a_busy_deployment_leaves_the_files(
    tmp_path: Path,
) -> None:
    async with ScriptedServer(lambda seen: chat_stream(WORDS, gap_s=0.03)) as a, ScriptedServer(chat("other")) as b:
        before = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, before) as rig:
            streaming = asyncio.create_task(rig.events())
            await until_called(a)
            await put(rig, groups({"b": b}, {"small": ["b"], "large": ["b"]}))
            await put(rig, before)
            await streaming
            shown = await gauge(rig, "pointsman_in_flight{")
            assert shown, "the gauge is shown"
            assert all(float(line.rsplit(" ", 1)[1]) == 0.0 for line in shown), shown
            assert rig.gateway.health.of("a", 0.0)["in_flight"] == 0
