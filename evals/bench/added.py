"""What a gateway adds to the time of an answer and of each piece of a stream: `python -m evals.bench.added`.

The same request goes to the mock upstream directly, through a gateway that decides without a score, and through it
with the shipped scorer, whose every prompt is a new one; in turns, one at a time, over connections that stay open. Then
paced streams, so many at once, directly and through the gateway. Milliseconds, differences of percentiles of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from evals.bench.load import Tally, connection
from evals.bench.run import CHAT, body, free_port, process, write_config

PLAIN = "version: 1\nname: plain\nmodels: [plain]\ndefault: large\n"
PACED = 20
STREAMS = 10  # on each of the connections


def request(asked: bytes) -> bytes:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(asked)}"
    return head.encode() + b"\r\n\r\n" + asked


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[round(share * (len(values) - 1))]


class Line:
    """A connection that stays open, and the seconds of what went over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.took: list[float] = []

    async def ask(self, asked: bytes) -> None:
        begun = time.perf_counter()
        self._writer.write(request(asked))
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        await self._reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        self.took.append(time.perf_counter() - begun)
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"added: {head[:60]!r}")

    def close(self) -> None:
        self._writer.close()


async def answers(direct: int, gateway: int, count: int) -> dict[str, dict[str, float]]:
    """What is added to whole answers, without and with a score."""
    ports = {"direct": direct, "without a score": gateway, "with a score": gateway}
    lines = {name: Line(*await asyncio.open_connection("127.0.0.1", port)) for name, port in ports.items()}
    words = "Explain to a colleague, step by step, how the caching layer of service {n} decides what to drop. " * 5
    for turn in range(count + 20):
        if turn == 20:  # what the first ones load
            for line in lines.values():
                line.took.clear()
        text = [{"role": "user", "content": words.format(n=turn)}]
        for name, line in lines.items():
            await line.ask(body(messages=text, model="plain" if name != "with a score" else "auto"))
    for line in lines.values():
        line.close()
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    base = {share: percentile(lines["direct"].took, at) for share, at in shares.items()}
    return {
        name: {share: round(1e3 * (percentile(line.took, at) - base[share]), 2) for share, at in shares.items()}
        for name, line in lines.items()
        if name != "direct"
    } | {"direct": {share: round(1e3 * seconds, 2) for share, seconds in base.items()}}


async def pieces(direct: int, gateway: int) -> dict[str, float]:
    """The gaps between the pieces of paced streams, directly and through the gateway."""
    found: dict[str, float] = {}
    for name, port in (("direct_p99", direct), ("gateway_p99", gateway)):
        tally, asked = Tally(), request(body(stream=True, pace=1, model="plain"))
        until = time.monotonic() + 120
        await asyncio.gather(*[connection(port, asked, until, STREAMS, tally) for _ in range(PACED)])
        if tally.errors:
            raise SystemExit(f"added: {tally.errors} streams failed")
        found[name] = round(1e3 * percentile(tally.gaps, 0.99), 2)
    return found | {"added_p99": round(found["gateway_p99"] - found["direct_p99"], 2)}


def measure(count: int) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as temp:
        mock, ours, admin = (free_port() for _ in range(3))
        config = Path(temp, "config")
        write_config(config, f"http://127.0.0.1:{mock}")
        (config / "plain.yaml").write_text(PLAIN)
        gateway = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(ours)]
        gateway += ["--admin-port", str(admin), "--state", str(Path(temp, "state"))]
        with (
            process([sys.executable, "-m", "evals.bench.upstream", str(mock)], cores[-1], mock),
            process(gateway, cores[0], ours),
        ):
            whole = asyncio.run(answers(mock, ours, count))
            gaps = asyncio.run(pieces(mock, ours))
    plain, scored = whole["without a score"], whole["with a score"]
    targets = {
        "p50 <= 5": plain["p50"] <= 5,
        "p99 <= 20": plain["p99"] <= 20,
        "scored p95 <= 60": scored["p95"] <= 60,
        "piece p99 <= 10": gaps["added_p99"] <= 10,
    }
    return {"answers": count, "added_ms": whole, "pieces_ms": gaps, "met": targets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="answers of each kind")
    print(json.dumps(measure(parser.parse_args().count), indent=1))


if __name__ == "__main__":
    main()
