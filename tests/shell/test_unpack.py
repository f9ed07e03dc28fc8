"""Answers that come compressed although none was asked for."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Send, Wait
from router.upstreams.unpack import STEP, unpacker
from tests.support.dialects import ONE_GROUP, body_of, config, listed, post
from tests.support.rig import running
from tests.wire.upstreams import chat_stream

PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip in two files": ("GZIP", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "gzip and zeros": ("x-gzip, identity", lambda data: gzip.compress(data) + bytes(9)),
    "zlib": ("deflate", zlib.compress),
    "bare deflate": ("deflate", lambda data: zlib.compress(data, wbits=-15)),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
}
each = pytest.mark.parametrize("name", PACKERS)


def unpacked(encoding: str, data: bytes, size: int) -> tuple[bytes, bool]:
    decoder = unpacker(encoding)
    assert decoder is not None
    out = b""
    for at in range(0, len(data), size):
        out += decoder.unpack(data[at : at + size])
        while decoder.pending:
            out += decoder.unpack(b"")
    return out, decoder.whole


@each
@given(words=st.binary(min_size=1, max_size=300), size=st.integers(1, 400))
def test_any_pieces_give_the_same(name: str, words: bytes, size: int) -> None:
    encoding, pack = PACKERS[name]
    assert unpacked(encoding, pack(words * 40), size) == (words * 40, True)


def test_many_files_at_once_are_no_deeper_than_one_and_come_in_steps() -> None:
    packed = gzip.compress(b"") * 5000 + gzip.compress(b"x" * 200_000) * 9
    assert unpacked("gzip", packed, len(packed)) == (b"x" * 1_800_000, True)
    decoder = unpacker("gzip")
    assert decoder is not None
    assert len(decoder.unpack(packed)) <= STEP
    while decoder.pending:
        assert len(decoder.unpack(b"")) <= STEP


@each
def test_what_is_cut_is_not_whole_and_what_is_broken_is_an_error(name: str) -> None:
    encoding, pack = PACKERS[name]
    packed = pack(b"x" * 5_000_000)
    assert not unpacked(encoding, packed[: len(packed) // 3], 4096)[1]
    with pytest.raises(ValueError, match=r"."):
        unpacked(encoding, b"\xff\xff\xff\xff" + packed, 4096)


@pytest.mark.parametrize("encoding", ["compress", "gzip, br", "lzma"])
def test_an_encoding_that_is_not_known_is_an_error(encoding: str) -> None:
    with pytest.raises(ValueError, match=encoding):
        unpacker(encoding)
    assert unpacker("identity") is unpacker("") is None


@each
async def test_Q11_an_answer_and_a_stream_reach_the_client_plain_and_are_counted(tmp_path: Path, name: str) -> None:
    encoding, pack = PACKERS[name]
    headers = {"content-encoding": encoding}
    message = {"role": "assistant", "content": "hi"}
    usage = {"prompt_tokens": 20, "completion_tokens": 7}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    plain = chat_stream([{"content": f"w{i} "} for i in range(200)])

    def script(streamed: bool) -> list[Head | Send | Wait]:
        if not streamed:
            return [Head(200, {**JSON, **headers}), Send(pack(json.dumps(answer).encode()))]
        packed = pack(plain)
        half = len(packed) // 2
        return [Head(200, {**SSE, **headers}), Send(packed[:half]), Wait(0.01), Send(packed[half:])]

    async with (
        ScriptedServer(lambda seen: script(bool(seen.json().get("stream")))) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        whole = await post(rig, "chat", body_of("chat"))
        stream = await post(rig, "chat", body_of("chat", stream=True))
        assert (whole.json(), stream.content) == (answer, plain)
        assert not {"content-encoding"} & {*whole.headers, *stream.headers}
        assert [(r.usage.input, r.usage.output) for r in await rig.records(2)] == [(20, 7)] * 2
