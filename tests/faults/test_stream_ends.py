"""Who ends a stream, and when: its upstream's answer stays open until the last byte is through, on every way, and a
gateway that has to stop ends it in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Seen, Send, Step, Wait, chat_stream, status
from tests.support.dialects import DIALECTS, ONE_GROUP, body_of, config, listed, post
from tests.support.rig import groups, parse, running, text
from tests.wire.upstreams import STREAMS


@pytest.mark.parametrize("fails", [False, True], ids=["first", "fallback"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_L16_an_upstreams_stream_stays_open_until_its_last_byte_and_is_closed_then(
    tmp_path: Path, dialect: Dialect, fails: bool
) -> None:
    whole = STREAMS[dialect]

    def slowly(seen: Seen) -> Sequence[Step]:
        pieces = [whole[at : at + 1 + len(whole) // 8] for at in range(0, len(whole), 1 + len(whole) // 8)]
        return [Head(200, SSE), *(step for piece in pieces for step in (Send(piece), Wait(0.05)))]

    async with (
        ScriptedServer(lambda seen: status(503)) as down,
        ScriptedServer(slowly) as up,
        running(
            tmp_path,
            config(*([(down, listed(dialect))] if fails else []), (up, listed(dialect))),
            ONE_GROUP + ("fallback: {small: [g1]}\n" if fails else ""),
            None,
        ) as rig,
    ):
        for _ in range(2):
            reply = await post(rig, dialect, body_of(dialect, stream=True))
            mended = whole.replace(b'"finish_reason": "stop"', b'"finish_reason": "tool_calls"')
            mended = mended.replace(b'"arguments": null', b'"arguments": ""')
            assert reply.content == mended, "the body is whole"
        async with asyncio.timeout(20):
            while up.in_flight:
                await asyncio.sleep(0.01)
        assert [visit.broken for visit in up.visits] == [False, False], "read to its end, not dropped"
        assert not any(rig.gateway.health.presence(0.0)[0].values())


async def test_L18_F18_a_stream_left_at_the_drain_limit_ends_with_an_error_event(tmp_path: Path) -> None:
    words = [f"w{i} " for i in range(100)]
    async with (
        ScriptedServer(lambda seen: chat_stream(words, gap_s=0.1)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        asking = asyncio.create_task(rig.client.post("/v1/chat/completions", json=body))
        await asyncio.sleep(0.5)
        rig.listeners[0].should_exit = True  # its drain limit is one second
        events = parse((await asking).content)
        assert text(events).startswith("w0 w1 ")
        assert "error" in events[-1], "told, and not as if it were complete"
        assert events.count("[DONE]") == 0
