"""Goodput past the knee, and how soon what is turned away is told: `python -m evals.bench.overload`.

A server that does its best with a number of requests at a time, and the worse the more there are beyond, stands behind
a gateway. Requests come at random times, each on a connection of its own, whether or not others are answered, at shares
and multiples of what the server can do. Goodput is the answers a second that come within the client's patience. The
same once more without `max_in_flight`.

The gateway has a core of its own; the load and the server share the other (Linux). What is not the gateway's own time
stands beside it: how late the load sends, and how long a mock on the gateway's core takes, which answers at once and is
asked once for every tenth request, amid the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import uvloop
from msgspec import Struct

from evals.bench.added import percentile, request
from evals.bench.flips import POLICY
from evals.bench.line import ask
from evals.bench.run import body, cpu_s, free_port, process
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, Wait, chat_answer

SLOTS = 16  # requests that the server works on at its best
SERVICE_S = 0.2  # for one of them
KNEE = SLOTS / SERVICE_S  # requests a second
PATIENCE_S = 2.0
LOADS = (0.5, 0.8, 0.9, 1.0, 2.0, 5.0)  # of the knee
BESIDE = 10  # one request in so many is put to the mock too


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


class Answer(Struct, frozen=True):
    """Status (0: no answer in time), seconds, and how late it was asked."""

    status: int
    took_s: float
    late_s: float


async def one(port: int, asked: bytes, due: float) -> Answer:
    begun = monotonic()
    got = await ask(port, asked, PATIENCE_S)
    return Answer(got.status, monotonic() - begun, begun - due)


async def offered(gateway: Gateway, rate: float, seconds: float, chance: Random) -> dict[str, Any]:
    """What came of requests at this rate."""
    asked = request(body())
    tasks, beside = list[asyncio.Task[Answer]](), list[asyncio.Task[Answer]]()
    begun = due = monotonic()
    used = cpu_s(gateway.pid)
    while (due := due + chance.expovariate(rate)) < begun + seconds:
        await asyncio.sleep(max(0.0, due - monotonic()))
        tasks.append(asyncio.create_task(one(gateway.port, asked, due)))
        if not len(tasks) % BESIDE:
            beside.append(asyncio.create_task(one(gateway.mock, asked, due)))
    ended = monotonic()
    found, mocked = await asyncio.gather(*tasks), await asyncio.gather(*beside)
    used = cpu_s(gateway.pid) - used
    shed = [answer.took_s for answer in found if answer.status == 503]
    good = sum(answer.status == 200 for answer in found)
    return {
        "offered": round(rate / KNEE, 2),
        "requests": len(found),
        "goodput": round(good / (ended - begun), 1),
        "shed": len(shed),
        "late": sum(answer.status == 0 for answer in found),
        "other": sum(answer.status not in (0, 200, 503) for answer in found),
        "shed_ms": _times(shed),
        "mock_ms": _times([answer.took_s for answer in mocked if answer.status == 200]),
        "load_late_ms": _times([answer.late_s for answer in found]),
        "gateway_core": round(used / (monotonic() - begun), 2),
    }


def _times(seconds: Sequence[float]) -> dict[str, float] | None:
    shares = {"p50": 0.5, "p99": 0.99}
    return {k: round(1e3 * percentile(list(seconds), share), 1) for k, share in shares.items()} if seconds else None


class Gateway(Struct, frozen=True):
    """A gateway and, on the same core, a mock that answers at once: their ports, and the gateway's process."""

    port: int
    mock: int
    pid: int


@contextmanager
def gateway(limits: str, upstream: str, core: int) -> Generator[Gateway]:
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "config"
        config.mkdir()
        (config / "groups.yaml").write_text(
            f"version: 1\ngroups: {{small: {{deployments: [a]{limits}}}}}\ndeployments:\n"
            f'  a: {{upstream: openai, base_url: "{upstream}", model: scripted}}\n'
        )
        (config / "default.yaml").write_text(POLICY)
        port, admin, mock = free_port(), free_port(), free_port()
        where = ["--config", str(config), "--port", str(port), "--admin-port", str(admin), "--state", name]
        ours = [sys.executable, "-m", "router", "serve", *where]
        with (
            process([sys.executable, "-m", "evals.bench.upstream", str(mock)], core, mock),
            process(ours, core, port, {"POINTSMAN_LOG": "error"}) as pid,
        ):
            yield Gateway(port, mock, pid)


async def measure(seconds: float, loads: Sequence[float], core: int) -> dict[str, Any]:
    chance = Random(6)
    rows: list[dict[str, Any]] = []
    async with server() as upstream:
        with gateway(f", max_in_flight: {SLOTS}, queue: {SLOTS}, queue_wait_s: 1", upstream.base_url, core) as ours:
            for load in loads:
                rows.append(await offered(ours, load * KNEE, seconds, chance))
                await asyncio.sleep(PATIENCE_S)
    async with server() as upstream:
        with gateway("", upstream.base_url, core) as ours:
            without = await offered(ours, loads[-1] * KNEE, seconds, chance)
    knee = max(row["goodput"] for row in rows if row["offered"] <= 1)
    return {
        "knee": knee,
        "rows": rows,
        "of_the_knee": {f"{row['offered']:g}x": round(row["goodput"] / knee, 3) for row in rows if row["offered"] > 1},
        "without_a_limit": without,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each load")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="of the knee; one of them at most 1")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("overload: the gateway needs a core of its own beside that of the load, and there is one")
    os.sched_setaffinity(0, cores[:-1])
    print(json.dumps(uvloop.run(measure(asked.seconds, asked.loads, cores[-1])), indent=1))


if __name__ == "__main__":
    main()
