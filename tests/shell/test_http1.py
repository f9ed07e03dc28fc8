"""The HTTP/1.1 client against a real socket that plays scripts."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.config import Deployment, Timeouts
from router.errors import BadAnswer, ConnectFailed, TimedOut, Truncated
from router.seams import Call, Reply
from router.upstreams.http1 import Pool
from router.upstreams.openai import OpenAIUpstream
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Close, Head, Reset, Send, Step, Wait, chat, chat_stream

CALL = Call(path="/chat/completions", body=b'{"model":"m"}')


async def upstream_for(server: ScriptedServer, **fields: object) -> OpenAIUpstream:
    deployment = Deployment(name="a", upstream="openai", base_url=server.base_url, **fields)  # type: ignore[arg-type]
    made = OpenAIUpstream(deployment)
    await made.start()
    return made


@asynccontextmanager
async def says(data: bytes) -> AsyncIterator[str]:
    """A server that answers every request with these bytes; its base URL."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            await reader.read()
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def read_all(reply: Reply) -> bytes:
    parts: list[bytes] = []
    while data := await reply.read():
        parts.append(data)
    await reply.aclose()
    return b"".join(parts)


def connections(upstream: OpenAIUpstream) -> int:
    assert upstream._pool is not None
    return upstream._pool.open_connections


async def test_a_connection_is_kept_for_the_next_call_when_the_answer_was_read_to_its_end() -> None:
    async with ScriptedServer(chat("hello there")) as server:
        upstream = await upstream_for(server)
        for _ in range(5):
            assert b"hello there" in await read_all(await upstream.open(CALL))
        assert connections(upstream) == 1
        await upstream.aclose()
        await asyncio.sleep(0.05)
        assert server.in_flight == 0


async def test_an_answer_that_is_not_read_to_its_end_closes_its_connection() -> None:
    async with ScriptedServer(lambda _: chat_stream(["a", "b"], gap_s=5)) as server:
        upstream = await upstream_for(server)
        reply = await upstream.open(CALL)
        await reply.read()
        await reply.aclose()
        await asyncio.sleep(0.05)
        assert connections(upstream) == 0
        assert server.in_flight == 0
        await upstream.aclose()


async def test_cancelling_a_call_before_its_head_closes_the_connection_at_once() -> None:
    async with ScriptedServer(lambda _: [Wait(30)]) as server:
        upstream = await upstream_for(server)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await upstream.open(CALL)
        await asyncio.sleep(0.05)
        assert server.in_flight == 0
        assert connections(upstream) == 0
        await upstream.aclose()


async def test_a_connection_closed_while_idle_is_replaced_without_a_failure() -> None:
    async with ScriptedServer(chat("hello")) as server:
        upstream = await upstream_for(server)
        await read_all(await upstream.open(CALL))
        port = server.port
        await server.stop()
    async with ScriptedServer(chat("again"), port) as server:
        assert b"again" in await read_all(await upstream.open(CALL))
        await upstream.aclose()


class Doors:
    """Counts the connections to a scripted server's place, and can stop taking new ones."""

    def __init__(self, server: ScriptedServer) -> None:
        self.opened = 0
        self._server = server
        self._door: asyncio.Server

    async def open(self) -> str:
        self._door = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._door.sockets[0].getsockname()[1]}/v1"

    def shut(self) -> None:
        self._door.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._server.port)
        await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n"


async def test_F29_a_busy_connection_is_replaced_when_it_is_old_and_no_call_waits_for_the_new_one() -> None:
    async with ScriptedServer(chat("hello")) as server:
        doors = Doors(server)
        pool = Pool(await doors.open(), age_s=0.0)
        async with asyncio.timeout(20):
            while doors.opened < 4:
                assert b"hello" in await read_all(await pool.request(HEAD, b"{}"))
                await asyncio.sleep(0.01)
        assert pool.open_connections <= 3, "the one in use, the one that takes its place, the next"
        await pool.aclose()
        doors.shut()


async def test_F29_while_no_new_connection_can_be_made_the_old_one_goes_on() -> None:
    async with ScriptedServer(chat("hello")) as server:
        doors = Doors(server)
        pool = Pool(await doors.open(), age_s=0.0)
        first = await pool.request(HEAD, b"{}")
        doors.shut()
        await read_all(first)
        for _ in range(5):
            assert b"hello" in await read_all(await pool.request(HEAD, b"{}"))
            await asyncio.sleep(0.02)
        assert (doors.opened, pool.open_connections) == (1, 1)
        await pool.aclose()


async def test_a_refused_connection_says_so_without_an_address() -> None:
    async with ScriptedServer(chat("hello")) as server:
        upstream = await upstream_for(server)
    with pytest.raises(ConnectFailed) as caught:
        await upstream.open(CALL)
    assert "127.0.0.1" not in str(caught.value)
    await upstream.aclose()


async def test_a_host_that_never_accepts_passes_the_connect_limit() -> None:
    deployment = Deployment(
        name="a", upstream="openai", base_url="http://127.0.0.1:1/v1", timeouts=Timeouts(connect_s=0.0)
    )
    upstream = OpenAIUpstream(deployment)
    await upstream.start()
    with pytest.raises(TimedOut) as caught:
        await upstream.open(CALL)
    assert caught.value.clock == "connect"
    await upstream.aclose()


@pytest.mark.parametrize("end", [Reset(), Close()])
async def test_S07_an_answer_cut_off_raises_truncated(end: Step) -> None:
    async with ScriptedServer(lambda _: [Head(200), Send(b"data: 1\n\n"), Wait(0.02), end]) as server:
        upstream = await upstream_for(server)
        reply = await upstream.open(CALL)
        assert await reply.read() == b"data: 1\n\n"
        with pytest.raises(Truncated):
            await reply.read()
        await reply.aclose()
        await upstream.aclose()


async def test_an_answer_that_is_not_http_is_a_bad_answer() -> None:
    async with says(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        upstream = OpenAIUpstream(Deployment(name="a", upstream="openai", base_url=url))
        await upstream.start()
        with pytest.raises(BadAnswer):
            await upstream.open(CALL)
        await upstream.aclose()


async def test_Q11_a_gzip_answer_that_was_not_asked_for_is_decoded_once() -> None:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b"x" * 100_000) + packer.flush()
    headers = {"content-encoding": "gzip"}
    async with ScriptedServer(
        lambda _: [Head(200, headers), Send(packed[:50]), Wait(0.01), Send(packed[50:])]
    ) as server:
        upstream = await upstream_for(server)
        assert await read_all(await upstream.open(CALL)) == b"x" * 100_000
        assert server.visits[0].seen.headers["accept-encoding"] == "identity"
        await upstream.aclose()


async def test_an_encoding_nobody_asked_for_is_a_bad_answer() -> None:
    async with ScriptedServer(lambda _: [Head(200, {"content-encoding": "lzma"}), Send(b"..")]) as server:
        upstream = await upstream_for(server)
        with pytest.raises(BadAnswer, match="content-encoding"):
            await upstream.open(CALL)
        await upstream.aclose()


ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "endless",
    [b"2\r\n{}\r\n0\r\n" + b"x-t: a\r\n" * 40_000, b"2\r\n{}\r\n0\r\nx-t: " + b"a" * 300_000, b"2;" + b"e" * 300_000],
    ids=["trailers", "a trailer", "an extension"],
)
async def test_what_is_no_answer_and_does_not_end_is_refused(endless: bytes) -> None:
    async with says(ANSWER + endless) as url:
        upstream = OpenAIUpstream(Deployment(name="a", upstream="openai", base_url=url))
        await upstream.start()
        with pytest.raises(BadAnswer, match="trailers"):
            await read_all(await upstream.open(CALL))
        await asyncio.sleep(0)  # what is aborted is lost one turn later
        assert connections(upstream) == 0
        await upstream.aclose()


@pytest.mark.parametrize(
    "more",
    [
        b"HTTP/1.1 404 Not Found\r\nx-of: another\r\ncontent-length: 5\r\n\r\nabcde",
        b"HTTP/1.1 404 Not Found\r\nx-of: another\r\ncontent-length: 5\r\n\r\nab",
        b"abcde",
    ],
    ids=["an answer", "a part of one", "no answer"],
)
async def test_what_follows_an_answer_is_no_part_of_it_and_its_connection_is_not_used_again(more: bytes) -> None:
    async with says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + more) as url:
        upstream = OpenAIUpstream(Deployment(name="a", upstream="openai", base_url=url))
        await upstream.start()
        reply = await upstream.open(CALL)
        assert (reply.status, dict(reply.headers)) == (200, {"content-length": "2"})
        assert await read_all(reply) == b"{}"
        await asyncio.sleep(0)
        assert connections(upstream) == 0
        await upstream.aclose()


async def test_endless_headers_are_refused() -> None:
    headers = {f"x-{i}": "v" * 1000 for i in range(100)}
    async with ScriptedServer(lambda _: [Head(200, headers), Wait(1)]) as server:
        upstream = await upstream_for(server)
        with pytest.raises(BadAnswer, match="headers"):
            await upstream.open(CALL)
        await upstream.aclose()


async def test_F07_an_answer_that_nobody_reads_is_not_buffered_without_bound() -> None:
    piece = b"z" * 65536
    async with ScriptedServer(lambda _: [Head(200), Wait(0), *[Send(piece)] * 80]) as server:
        upstream = await upstream_for(server)
        reply = await upstream.open(CALL)
        await asyncio.sleep(0.3)
        assert upstream._pool is not None
        assert max(c.buffered for c in upstream._pool._all) < 512 * 1024
        assert len(await read_all(reply)) == 80 * len(piece)
        await upstream.aclose()


async def test_the_key_goes_out_as_a_bearer_token_and_the_key_none_does_not() -> None:
    async with ScriptedServer(chat("hi")) as server:
        for key, expected in (("sk-1", "Bearer sk-1"), ("none", None)):
            upstream = await upstream_for(server, api_key=key)
            await read_all(await upstream.open(CALL))
            assert server.visits[-1].seen.headers.get("authorization") == expected
            await upstream.aclose()


async def test_an_interim_100_continue_is_not_the_answer() -> None:
    async with says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") as url:
        upstream = OpenAIUpstream(Deployment(name="a", upstream="openai", base_url=url))
        await upstream.start()
        reply = await upstream.open(CALL)
        assert reply.status == 200
        assert await read_all(reply) == b"ok"
        await upstream.aclose()


GAP = Wait(0.02)  # so that each piece comes by itself
PIECES = [Head(200, {}), Send(b"a"), GAP, Send(b"b"), GAP, Send(b"c"), GAP, Send(b"d")]


async def poured(reply: Reply, taken: list[bytes], *, until: bytes = b"") -> None:
    """What comes after the first piece, which is read, until `until` is among it."""

    def take(data: bytes) -> bool:
        taken.append(data)
        return data != until

    taken.append(await reply.read())
    pouring = reply.pour(take)
    assert pouring is not None
    await pouring


async def test_what_comes_is_poured_until_enough_was_taken_and_read_from_there_on() -> None:
    async with ScriptedServer(lambda _: PIECES) as server:
        upstream = await upstream_for(server)
        taken: list[bytes] = []
        reply = await upstream.open(CALL)
        await poured(reply, taken, until=b"b")
        assert taken == [b"a", b"b"]
        assert await read_all(reply) == b"cd"
        assert connections(upstream) == 1, "it was read to its end, so its connection is kept"
        await upstream.aclose()


async def test_pouring_ends_with_the_answer() -> None:
    async with ScriptedServer(lambda _: PIECES) as server:
        upstream = await upstream_for(server)
        taken: list[bytes] = []
        reply = await upstream.open(CALL)
        await poured(reply, taken)
        assert b"".join(taken) + await read_all(reply) == b"abcd"
        assert reply.pour(lambda _: True) is None
        await upstream.aclose()


@pytest.mark.parametrize("end", [Reset(), Close()])
async def test_S07_an_answer_cut_off_while_it_is_poured_raises_truncated_when_it_is_read(end: Step) -> None:
    async with ScriptedServer(lambda _: [*PIECES[:4], GAP, end]) as server:
        upstream = await upstream_for(server)
        taken: list[bytes] = []
        reply = await upstream.open(CALL)
        await poured(reply, taken)
        assert taken == [b"a", b"b"]
        with pytest.raises(Truncated):
            await reply.read()
        await reply.aclose()
        await upstream.aclose()


async def test_what_is_raised_by_taking_is_raised_by_pouring() -> None:
    def take(data: bytes) -> bool:
        raise BadAnswer(f"{data!r} is nothing")

    async with ScriptedServer(lambda _: PIECES) as server:
        upstream = await upstream_for(server)
        reply = await upstream.open(CALL)
        await reply.read()
        pouring = reply.pour(take)
        assert pouring is not None
        with pytest.raises(BadAnswer, match="nothing"):
            await pouring
        assert (await reply.read())[:1] == b"c"
        await reply.aclose()
        await upstream.aclose()


async def test_nothing_is_poured_once_nobody_waits_for_it() -> None:
    async with ScriptedServer(lambda _: PIECES) as server:
        upstream = await upstream_for(server)
        taken: list[bytes] = []
        reply = await upstream.open(CALL)
        pouring = asyncio.ensure_future(poured(reply, taken))
        while len(taken) < 2:
            await asyncio.sleep(0.001)
        pouring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pouring
        assert b"".join(taken) + await read_all(reply) == b"abcd"
        await upstream.aclose()
