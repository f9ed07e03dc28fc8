"""A mock inference server for benchmarks: canned chat answers at the least cost Python allows.

Answers a whole answer, or a stream of `EVENTS` events, at once or at a pace. Speaks just enough HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

EVENTS = 64
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"mock","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Paris is the capital of France."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":14,"completion_tokens":8,"total_tokens":22}}'
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: bytes, finish: bytes = b"null") -> bytes:
    return _chunk(
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"mock","choices":[{"index":0,'
        b'"delta":%b,"finish_reason":%b}]}\n\n' % (delta, finish)
    )


DELTAS = [_event(b'{"content":"token%d "}' % i) for i in range(EVENTS)]
TAIL = _event(b"{}", b'"stop"') + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
STREAM = HEAD + b"".join(DELTAS) + TAIL


class Mock(asyncio.Protocol):
    """One connection. `"pace"` in the body asks for an event every `pace_s` seconds."""

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = bytes(self._buffer[end + 4 : end + 4 + length])
            del self._buffer[: end + 4 + length]
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        if b'"stream":true' not in body and b'"stream": true' not in body:
            self._transport.write(WHOLE)
        elif b'"pace"' in body:
            self._transport.write(HEAD)
            self._paced(0)
        else:
            self._transport.write(STREAM)

    def _paced(self, index: int) -> None:
        if self._transport.is_closing():
            return
        if index == len(DELTAS):
            self._transport.write(TAIL)
            return
        self._transport.write(DELTAS[index])
        asyncio.get_running_loop().call_later(self._pace_s, self._paced, index + 1)


async def main(port: int, pace_s: float = 0.01) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Mock(pace_s), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), *map(float, sys.argv[2:3])))
