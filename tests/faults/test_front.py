"""Clients that send too much of a head, or too slowly, against a running gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from router.front import BODY_S, HEAD_LIMIT, HEAD_S, Front
from router.serving import Listener
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.rig import groups, running

BODY = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hello"}]}).encode()
START = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
HEAD = START + b"content-length: %d\r\n\r\n" % len(BODY)


async def said(port: int, *pieces: bytes, gap_s: float = 0.02) -> bytes:
    """Everything that the gateway answers to these pieces until it closes, or for two seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = bytearray()
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(gap_s)
        async with asyncio.timeout(2):
            while data := await reader.read(65536):
                got += data
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    return bytes(got)


async def test_a_head_without_end_is_refused_with_431_and_the_connection_closed(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        line = b"x: " + b"a" * 40_000
        for pieces in ((START + line, line, line), (START, *[b"x-%d: a\r\n" % i * 4000 for i in range(4)])):
            answer = await said(rig.port, *pieces)
            assert answer.startswith(b"HTTP/1.1 431 "), answer[:80]
            assert b'"code":"headers_too_large"' in answer
        assert (await rig.ask()).status_code == 200
    assert HEAD_LIMIT == 65536


async def test_a_large_body_in_many_pieces_and_a_request_after_it_are_no_large_head(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        large = BODY[:-1] + b',"user":"' + b"u" * 300_000 + b'"}'
        head = START + b"content-length: %d\r\n\r\n" % len(large)
        answer = await said(rig.port, head, large[:100_000], large[100_000:] + HEAD, BODY)
        assert answer.count(b"HTTP/1.1 200 OK") == 2


def connections(listener: Listener) -> list[Front]:
    return [c for c in listener.server_state.connections if isinstance(c, Front)]


async def test_F06_a_head_that_does_not_end_is_cut_off_at_its_limit_and_an_idle_or_busy_connection_is_not(
    tmp_path: Path,
) -> None:
    words = [f"w{i} " for i in range(20)]
    script = chat("hi")
    async with (
        ScriptedServer(lambda seen: chat_stream(words, gap_s=0.05) if seen.json().get("stream") else script(seen)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        silent = await asyncio.open_connection("127.0.0.1", rig.port)
        slow = await asyncio.open_connection("127.0.0.1", rig.port)
        slow[1].write(START)
        stalled = await asyncio.open_connection("127.0.0.1", rig.port)
        stalled[1].write(HEAD + BODY[:5])
        assert (await rig.ask()).status_code == 200  # leaves an idle connection in the client's pool
        streaming = asyncio.create_task(rig.events())
        await asyncio.sleep(0.3)
        open_ = connections(rig.listeners[0])
        assert len(open_) == 4  # the stream goes over the idle one
        for connection in open_:
            connection.tick(HEAD_S)
        assert await silent[0].read() == b""
        assert await slow[0].read() == b""
        assert (await streaming)[-1] == "[DONE]"
        assert (await rig.ask()).status_code == 200
        for connection in connections(rig.listeners[0]):
            connection.tick(BODY_S)
        assert await stalled[0].read() == b""
        (record,) = [r for r in await rig.records(4) if r.outcome != "ok"]
        assert record.outcome == "cancelled"
        for _, writer in (silent, slow, stalled):
            writer.close()
