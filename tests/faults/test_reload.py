"""Configurations that change under requests in flight: nothing is dropped, nothing is counted wrongly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

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


BAD = {
    "empty": "",
    "half written": "version: 1\ngroups:\n  small: {deplo",
    "an unknown key": "version: 1\ngroups: {}\ndeployments: {}\ncolour: red\n",
    "an unset variable": 'version: 1\nstore: "${NO_SUCH_VARIABLE_HERE}"\ngroups: {}\ndeployments: {}\n',
    "a tag": "version: !!python/object/apply:os.getcwd []\n",
    "an alias bomb": "version: 1\na: &a [x, x]\n"
    + "".join(f"b{i}: &b{i} [*{n}, *{n}]\n" for i, n in enumerate(["a", *[f"b{k}" for k in range(24)]])),
    "a directory": None,
}


@pytest.mark.parametrize("name", BAD)
async def test_F21_a_refused_file_changes_nothing_and_the_next_good_one_is_taken(tmp_path: Path, name: str) -> None:
    async with ScriptedServer(chat("hi")) as a:
        good = groups({"a": a}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, good) as rig:
            digest = rig.gateway.snapshot.config.digest
            file, bad = rig.config / "groups.yaml", BAD[name]
            file.unlink()
            if bad is None:
                file.mkdir()
            else:
                file.write_text(bad)
            assert not await rig.gateway.reload()
            assert rig.gateway.last_error is not None
            assert "groups.yaml:" in rig.gateway.last_error
            assert await gauge(rig, "pointsman_config_reload_ok") == ["pointsman_config_reload_ok 0.0"]
            assert (await rig.ask()).headers["x-pointsman-policy"] == f"default@{digest[:12]}"
            if bad is None:
                file.rmdir()
            await put(rig, good + "# mended\n")
            assert (await rig.ask()).headers["x-pointsman-policy"] != f"default@{digest[:12]}"
            assert await gauge(rig, "pointsman_config_reload_ok") == ["pointsman_config_reload_ok 1.0"]
