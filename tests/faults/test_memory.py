"""Many conversations, some of which fail, leave nothing behind. `make test-faults` runs it a hundred times as long."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Reset, Seen, Step, chat, status
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
