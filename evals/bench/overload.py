"""Goodput past the knee: `python -m evals.bench.overload`.

A server that does its best with a number of requests at a time, and the worse the more there are beyond, stands behind
a gateway. Requests come at random times, whether or not others are answered, at shares and multiples of what the server
can do. Goodput is the answers a second that come within the client's patience. The same once more without
`max_in_flight`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from evals.bench.flips import POLICY, ready
from evals.bench.run import body, free_port
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, Wait, chat_answer

SLOTS = 16  # requests that the server works on at its best
SERVICE_S = 0.2  # for one of them
KNEE = SLOTS / SERVICE_S  # requests a second
PATIENCE_S = 2.0
LOADS = (0.5, 0.8, 0.9, 1.0, 2.0, 5.0)  # of the knee


def server() -> ScriptedServer:
    """Beyond its slots the time of each grows with the square of their number, as its memory no longer holds them."""
    ends: list[float] = []

    def script(seen: Seen) -> Sequence[Step]:
        now = asyncio.get_running_loop().time()
        ends[:] = [end for end in ends if end > now]
        over = max(1.0, (len(ends) + 1) / SLOTS)
        ends.append(now + SERVICE_S * over * over)
        return [Wait(SERVICE_S * over * over), *chat_answer("ok")]

    return ScriptedServer(script)


async def one(port: int, request: bytes) -> tuple[int, float]:
    """Status (0: no answer in time) and seconds."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    status = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                status = int((await reader.read()).split(b" ", 2)[1])
            finally:
                writer.close()
    except (TimeoutError, OSError, IndexError):
        status = 0
    return status, loop.time() - begun


async def offered(port: int, rate: float, seconds: float, chance: Random) -> dict[str, Any]:
    """What came of requests at this rate."""
    asked = body()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(asked)}"
    request = head.encode() + b"\r\ncontent-type: application/json\r\n\r\n" + asked
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[tuple[int, float]]]()
    begun = due = loop.time()
    while (due := due + chance.expovariate(rate)) < begun + seconds:
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(asyncio.create_task(one(port, request)))
    ended = loop.time()
    found = await asyncio.gather(*tasks)
    took = sorted(seconds for status, seconds in found if status == 503)
    good = sum(status == 200 for status, _ in found)
    return {
        "offered": round(rate / KNEE, 2),
        "requests": len(found),
        "goodput": round(good / (ended - begun), 1),
        "shed": len(took),
        "late": sum(status == 0 for status, _ in found),
        "other": sum(status not in (0, 200, 503) for status, _ in found),
        "shed_ms_p50": round(1000 * took[len(took) // 2], 1) if took else None,
        "shed_ms_p99": round(1000 * took[int(0.99 * (len(took) - 1))], 1) if took else None,
    }


@asynccontextmanager
async def gateway(limits: str) -> AsyncGenerator[int]:
    """The port of a gateway in front of a fresh server."""
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "config"
        config.mkdir()
        async with server() as upstream:
            (config / "groups.yaml").write_text(
                f"version: 1\ngroups: {{small: {{deployments: [a]{limits}}}}}\ndeployments:\n"
                f'  a: {{upstream: openai, base_url: "{upstream.base_url}", model: scripted}}\n'
            )
            (config / "default.yaml").write_text(POLICY)
            port, admin = free_port(), free_port()
            where = ["--config", str(config), "--port", str(port), "--admin-port", str(admin), "--state", name]
            process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "router", "serve", *where],
                env={**os.environ, "POINTSMAN_LOG": "error"},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                await ready(f"http://127.0.0.1:{port}/readyz")
                yield port
            finally:
                process.send_signal(signal.SIGTERM)
                await process.wait()


async def measure(seconds: float) -> dict[str, Any]:
    chance = Random(6)
    rows: list[dict[str, Any]] = []
    async with gateway(f", max_in_flight: {SLOTS}, queue: {SLOTS}, queue_wait_s: 1") as port:
        for load in LOADS:
            rows.append(await offered(port, load * KNEE, seconds, chance))
            await asyncio.sleep(PATIENCE_S)
    async with gateway("") as port:
        without = await offered(port, LOADS[-1] * KNEE, seconds, chance)
    knee = max(row["goodput"] for row in rows if row["offered"] <= 1)
    return {
        "knee": knee,
        "rows": rows,
        "of_the_knee": {f"{row['offered']:g}x": round(row["goodput"] / knee, 3) for row in rows if row["offered"] > 1},
        "without_a_limit": without,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each load")
    print(json.dumps(asyncio.run(measure(parser.parse_args().seconds)), indent=1))


if __name__ == "__main__":
    main()
