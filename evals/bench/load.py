"""A closed-loop load: so many connections, each sending the next request when the last is answered. They begin one
after the other over `spread` seconds, so that what lasts long does not end, and begin again, all at once.

Prints one JSON line: requests, events, seconds, errors. Bounded by count and by time. Eight zeros in the body are the
number of the request.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import count as counting

MARK = b"00000000"  # in a body: every request has another number there


class Tally:
    """What the load saw."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.gaps: list[float] = []
        self.first: list[float] = []
        self.numbers = counting(1)


async def connection(port: int, request: bytes, until: float, count: int, tally: Tally, after: float = 0.0) -> None:
    await asyncio.sleep(after)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for _ in range(count):
            if time.monotonic() > until:
                return
            writer.write(request.replace(MARK, b"%08d" % next(tally.numbers)))
            begun = time.perf_counter()
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                tally.errors += 1
                return
            lower = head.lower()
            at = lower.find(b"content-length:")
            if at >= 0:
                await reader.readexactly(int(lower[at + 15 :].split(b"\r\n", 1)[0]))
            else:
                await _chunks(reader, begun, tally)
            tally.requests += 1
    finally:
        writer.close()


async def _chunks(reader: asyncio.StreamReader, begun: float, tally: Tally) -> None:
    last = 0.0
    while True:
        size = int(await reader.readline(), 16)
        await reader.readexactly(size + 2)
        now = time.perf_counter()
        if size == 0:
            return
        if last:
            tally.gaps.append(now - last)
        else:
            tally.first.append(now - begun)
        last = now


def _percentile(values: list[float], share: float) -> float | None:
    return sorted(values)[int(share * (len(values) - 1))] if values else None


async def main(port: int, path: str, body: bytes, connections: int, count: int, seconds: float, spread: float) -> None:
    request = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    tally, begun = Tally(), time.monotonic()
    each = -(-count // connections)
    jobs = [
        connection(port, request, begun + seconds, each, tally, spread * i / connections) for i in range(connections)
    ]
    for result in await asyncio.gather(*jobs, return_exceptions=True):
        tally.errors += isinstance(result, BaseException)
    print(
        json.dumps(
            {
                "requests": tally.requests,
                "errors": tally.errors,
                "seconds": time.monotonic() - begun,
                "gap_p50_s": _percentile(tally.gaps, 0.5),
                "gap_p99_s": _percentile(tally.gaps, 0.99),
                "first_p50_s": _percentile(tally.first, 0.5),
                "first_p99_s": _percentile(tally.first, 0.99),
            }
        )
    )


if __name__ == "__main__":
    import uvloop

    port, path, connections, count, seconds, spread = sys.argv[1:7]
    sent = sys.stdin.buffer.read()
    uvloop.run(main(int(port), path, sent, int(connections), int(count), float(seconds), float(spread)))
