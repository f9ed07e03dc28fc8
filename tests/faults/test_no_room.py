"""A gateway that has no file descriptor left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Close, Head, Send, chat_answer
from tests.support.rig import groups, running


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, hard))
    with contextlib.suppress(OSError):
        while True:
            held.append(os.dup(held[0]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            os.close(one)


async def test_a_gateway_without_descriptors_says_so_and_takes_no_deployment_out_for_it(tmp_path: Path) -> None:
    (_, _, body) = chat_answer("hi")
    assert isinstance(body, Send)
    once = [Head(200, JSON | {"content-length": str(len(body.data))}), body, Close()]
    async with (
        ScriptedServer(lambda _: once) as a,
        ScriptedServer(lambda _: once) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})) as rig,
    ):
        assert (await rig.ask()).status_code == 200
        with no_descriptors():
            refused = [await rig.ask() for _ in range(4)]
        assert [(r.status_code, r.headers["retry-after"]) for r in refused] == [(503, "1")] * 4
        assert {r.headers["x-pointsman-attempts"] for r in refused} == {"1"}, "no other is reached either"
        now = asyncio.get_running_loop().time()
        assert [rig.gateway.health.of(name, now)["failures"] for name in ("a", "b")] == [0, 0]
        reply = await rig.ask()
        assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "a")
