"""Many conversations, some of which fail, leave nothing behind. `make test-faults` runs it a hundred times as long."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Reset, Seen, Send, Step, Wait, chat, chunk, status
from tests.support.rig import Rig, groups, running

COUNT = int(os.environ.get("POINTSMAN_SOAK", "800"))
AT_ONCE = 20
GROWTH = 24 * 1024 * 1024  # bytes; the test's own servers and client grow in the same process


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def talk(rig: Rig, first: int, count: int, servers: Sequence[ScriptedServer]) -> set[int]:
    """So many conversations, each new, every other one streamed; the statuses they got."""
    found: set[int] = set()
    for at in range(first, first + count, AT_ONCE):
        asks = [rig.ask(f"question {i}", stream=i % 2 == 0, user=f"user-{i}") for i in range(at, at + AT_ONCE)]
        found |= {reply.status_code for reply in await asyncio.gather(*asks)}
        for server in servers:
            server.visits[:] = [visit for visit in server.visits if visit.ended is None]
    return found


async def test_F30_conversations_leave_no_task_no_socket_and_no_memory(tmp_path: Path) -> None:
    turn, fine = itertools.count(), chat("a short answer")

    def often_fine(seen: Seen) -> Sequence[Step]:
        match next(turn) % 40:
            case 7:
                return status(503)
            case 19:
                return [Reset()]
            case _:
                return fine(seen)

    async with (
        ScriptedServer(often_fine) as a,
        ScriptedServer(fine) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a", "b"], "large": ["b"]})) as rig,
    ):
        await talk(rig, 0, COUNT // 2, (a, b))
        tasks, files, before = len(asyncio.all_tasks()), sockets(), resident()
        statuses = await talk(rig, COUNT, COUNT, (a, b))
        assert statuses == {200}, "5% of one deployment's calls fail, and none of the requests"
        assert resident() - before < GROWTH
        assert len(asyncio.all_tasks()) <= tasks + AT_ONCE
        assert sockets() <= files + AT_ONCE
        view = rig.gateway.health.view(asyncio.get_running_loop().time())
        assert {name: one["in_flight"] for name, one in view.items()} == {"a": 0, "b": 0}


def frames(name: str) -> list[FrameType]:
    """The frames of a task that is in the function of this name, from the outermost on."""
    for task in asyncio.all_tasks():
        found: list[FrameType] = []
        coroutine = task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            found.append(frame)
            coroutine = getattr(coroutine, "cr_await", None)
        if any(frame.f_code.co_name == name for frame in found):
            return found
    return []


async def test_an_open_stream_holds_nothing_of_a_large_request_once_its_answer_has_begun(tmp_path: Path) -> None:
    begun = [Head(200, SSE), Send(chunk({"content": "a word"})), Wait(30)]
    async with (
        ScriptedServer(lambda _: begun) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        for size in (100_000, 400_000):  # on the connection itself, and through ASGI
            body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "x" * size}]}
            async with rig.client.stream(
                "POST", "/v1/chat/completions", json=body, headers={"x-score": "0.1"}
            ) as reply:
                await anext(reply.aiter_bytes())
                async with asyncio.timeout(20):
                    while not (held := frames("_stream")):
                        await asyncio.sleep(0.01)
                flight = held[-1].f_locals.get("flight") or next(
                    frame.f_locals["flight"] for frame in held if "flight" in frame.f_locals
                )
                assert (flight.request.model, flight.request.body, flight.request.turns) == ("auto", b"", ())
                assert flight.call.body == b""
                kept = [value for frame in held for value in frame.f_locals.values() if isinstance(value, bytes)]
                assert sum(map(len, kept)) < 1000
