"""Clients that send too much of a head, or too slowly, against a running gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from router.front import BODY_S, HEAD_LIMIT, HEAD_S, Front
from router.serving import Listener
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.rig import groups, running

BODY = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hello"}]}).encode()
START = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
HEAD = START + b"content-length: %d\r\n\r\n" % len(BODY)
LAST = HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


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


async def test_what_is_no_http_is_refused_and_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        for sent in (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
            b"GET / HTTP/1.1\r\na\x00: b\r\n\r\n",
        ):
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
                writer.write(sent)
                assert (await reader.read(12)) == b"HTTP/1.1 400"
                writer.close()
        assert (await rig.ask()).status_code == 200
    assert not [line for line in caplog.records if line.name.startswith("uvicorn")]


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
        answer = await said(rig.port, head, large[:100_000], large[100_000:] + LAST, BODY)
        assert answer.count(b"HTTP/1.1 200 OK") == 2


CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"
ENDING = START + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
TRAILER = b"x-t: " + b"t" * 8000 + b"\r\n"


@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        (CHUNKED + b"2\r\n{}\r\n0\r\n", TRAILER),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx-t: ", b"t" * 8000),
        (CHUNKED + b"2;", b"e" * 8000),
        (CHUNKED, b"0" * 8000),
    ],
    ids=["trailers", "a trailer", "an extension", "a size"],
)
async def test_what_is_no_body_and_does_not_end_is_cut_off(tmp_path: Path, begin: bytes, endless: bytes) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(begin)
        sent = 0
        async with asyncio.timeout(20):
            try:
                while not reader.at_eof():
                    writer.write(endless)
                    await writer.drain()
                    sent += len(endless)
                    await asyncio.sleep(0.001)
            except ConnectionError:
                pass
        assert sent < 5_000_000, "cut off long before that"
        assert await _rest(reader) == b""
        writer.close()
        few = ENDING + b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY) + TRAILER * 3 + b"\r\n"
        assert b" 200 OK" in await said(rig.port, few)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


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


@pytest.mark.slow
async def test_F06_five_hundred_clients_that_send_a_byte_a_second_are_cut_off_and_cost_nobody_an_answer(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        slow = [await asyncio.open_connection("127.0.0.1", rig.port) for _ in range(500)]

        async def drip() -> None:
            for byte in START * 10:
                for _, writer in slow:
                    if not writer.is_closing():
                        writer.write(bytes((byte,)))
                await asyncio.sleep(1.0)

        dripping = asyncio.create_task(drip())
        statuses: list[int] = []
        async with asyncio.timeout(60):
            while any(isinstance(c, Front) and c.cycle is None for c in connections(rig.listeners[0])):
                statuses.append((await rig.ask()).status_code)
                await asyncio.sleep(0.1)
        dripping.cancel()
        assert len(statuses) > 10
        assert set(statuses) == {200}
        assert {await reader.read() for reader, _ in slow} == {b""}, "closed without a word: there was no request"
        assert (await rig.ask()).status_code == 200
        for _, writer in slow:
            writer.close()


async def test_a_hot_request_reads_the_same_in_pieces_chunked_from_http_1_0_and_behind_another(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        chunked = START + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
        old = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0")
        ways = (
            ((HEAD, BODY[:7], BODY[7:]), 1),
            ((HEAD + BODY + HEAD + BODY + HEAD + BODY,), 3),  # pipelined
            ((chunked,), 1),
            ((HEAD.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"), BODY), 1),
            ((old, BODY), 1),
            ((LAST, BODY), 1),
        )
        answers = await asyncio.gather(*(said(rig.port, *pieces) for pieces, _ in ways))
        for (pieces, count), answer in zip(ways, answers, strict=True):
            assert answer.count(b" 200 OK\r\n") == count, answer
            assert answer.count(b'"content": "hi"') == count, answer
            assert answer.count(b"x-pointsman-group: large") == count
            assert (b"connection: close" in answer) == (pieces[0] in (old, LAST))


async def test_F06_a_connection_that_rests_is_closed_in_time_and_one_that_is_served_is_not(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda seen: chat_stream([f"w{i} " for i in range(20)], gap_s=0.05)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        streaming = asyncio.create_task(rig.events())
        await asyncio.sleep(0.3)
        (connection,) = connections(rig.listeners[0])
        connection.tick(connection.timeout_keep_alive)
        assert (await streaming)[-1] == "[DONE]"
        connection.tick(connection.timeout_keep_alive - 1)
        assert not connection.transport.is_closing()
        connection.tick(1)
        assert connection.transport.is_closing()


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_a_record(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(HEAD + BODY[:9])
        await asyncio.sleep(0.1)
        writer.transport.abort()
        (record,) = await rig.records()
        assert record.outcome == "cancelled"
        assert a.visits == []


async def test_F23_a_second_request_behind_a_stream_does_not_hide_that_its_client_left(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda seen: chat_stream([f"w{i} " for i in range(200)], gap_s=0.05)) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        streamed = BODY[:-1] + b',"stream":true}'
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(START + b"content-length: %d\r\n\r\n" % len(streamed) + streamed)
        await reader.readuntil(b"w0 ")
        writer.write(HEAD + BODY)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        records = await rig.records()
        assert {record.outcome for record in records} == {"cancelled"}
        assert records[-1].stream
