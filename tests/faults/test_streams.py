"""Streams under clients that read slowly or leave at any moment, and under upstreams that are merely slow."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from router.front import Front
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Seen, Send, Step, Wait, chat_answer, chat_stream, chunk
from tests.support.rig import groups, running, text

LEAVING = 50 if "POINTSMAN_SOAK" not in os.environ else 200  # of each of six kinds


def request(kind: str) -> bytes:
    body = {"model": "auto", "stream": kind != "whole", "messages": [{"role": "user", "content": kind}]}
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)


async def test_F05_a_slow_and_steady_stream_is_not_cut_by_limits_that_each_gap_keeps(tmp_path: Path) -> None:
    words = [f"w{i} " for i in range(12)]
    limits = ", timeouts: {first_byte_s: 0.6, idle_s: 0.6, total_s: 30}"
    async with (
        ScriptedServer(lambda seen: chat_stream(words, gap_s=0.2)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}, limits)) as rig,
    ):
        events = await rig.events()
        assert text(events) == "".join(words)
        assert events[-1] == "[DONE]"


async def test_F07_a_client_that_does_not_read_holds_the_upstream_back_and_loses_nothing(tmp_path: Path) -> None:
    words = ["x" * 50_000] * 400  # 20 MB: more than sockets hold
    async with (
        ScriptedServer(lambda seen: chat_stream(words)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, limit=1024)
        writer.write(request("stream"))
        await reader.readexactly(15)
        await asyncio.sleep(0.7)
        assert a.in_flight == 1, "the upstream waits for the client"
        (connection,) = [c for c in rig.listeners[0].server_state.connections if isinstance(c, Front)]
        assert connection.transport.get_write_buffer_size() < 256 * 1024
        got, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            data = await reader.read(1 << 20)
            assert data
            got, tail = got + len(data), (tail + data)[-64:]
        assert got > 20_000_000
        assert b"[DONE]" in tail
        writer.close()


@pytest.mark.parametrize("kind", ["silent", "head", "role", "middle", "whole", "early"])
async def test_F23_clients_that_leave_at_once_free_everything(tmp_path: Path, kind: str) -> None:
    def script(seen: Seen) -> Sequence[Step]:
        match seen.json()["messages"][0]["content"]:
            case "silent":
                return [Wait(30)]
            case "head":
                return [Head(200, SSE), Wait(30)]
            case "role":
                return [Head(200, SSE), Send(chunk({"role": "assistant", "content": ""})), Wait(30)]
            case "whole":
                return chat_answer("late", delay_s=30)
            case _:
                return chat_stream(["a ", "b "] * 500, gap_s=0.05)

    async with (
        ScriptedServer(script) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        writers: list[asyncio.StreamWriter] = []
        for _ in range(LEAVING):
            _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
            writer.write(request(kind)[:-20] if kind == "early" else request(kind))
            writers.append(writer)
        async with asyncio.timeout(20):
            while kind != "early" and a.in_flight < LEAVING:
                await asyncio.sleep(0.01)
        for writer in writers:
            writer.transport.abort()
        async with asyncio.timeout(20):
            while a.in_flight or rig.listeners[0].server_state.tasks:
                await asyncio.sleep(0.01)
        assert rig.gateway.health.of("a", 0.0)["in_flight"] == 0
        assert {record.outcome for record in await rig.records(LEAVING)} == {"cancelled"}
        assert rig.gateway.health.load(0.0).cooling == {}, "a client's leave says nothing of the deployment"
