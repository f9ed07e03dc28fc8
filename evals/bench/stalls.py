"""How long others wait while a scorer is saturated or a hostile body is read: `python -m evals.bench.stalls`.

Paced streams run through a gateway, and a prober asks it for /healthz every 10 ms on a connection of its own: at rest,
and while something stands in the way. F17: a hundred prompts of 30,000 characters at once, no two alike, for each
scorer. F25: large and hostile bodies, one by one and several at once. Of each: the p99 of the streams' gaps that fall
into the time from the first byte sent to the last answer, and the longest gap and the longest answer of /healthz from
there to a little later.

The gateway has one core, everything else the other (Linux): two mocks, one for the streams alone, this process, which
measures, and threads that send. `lag` is how late this process itself was, which is no fault of the gateway's. Each
case is measured in every round, the rounds in turn, and its bars are held to the median round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import httpx
import uvloop
from msgspec import Struct

from evals.bench import hostile, scorers
from evals.bench.added import percentile, request
from evals.bench.run import body, free_port, process
from router.scorers import encoder

STREAMS, PACE_S = 20, 0.02
PROBE_S = 0.01
PROMPTS, CHARACTERS = 100, 30_000
REST_S = 3.0  # measured at rest in each round
QUIET_S = 0.5  # between cases
BREAKER_S = 4.0  # after scorers: what timed out in a burst opens their breaker
GAP_MS, HEALTH_MS = 50.0, 100.0  # F17
STALL_MS = 100.0  # F25
SETTLED_S = 0.3  # after the last answer: what is done then, such as letting go of a body, can stall others too

GROUPS = """\
version: 1
groups:
  live: {{deployments: [live-a]}}
  direct: {{deployments: [direct-a]}}
  translated: {{deployments: [translated-a]}}
deployments:
  live-a: {{upstream: openai, base_url: "{paced}/v1", model: mock}}
  direct-a: {{upstream: openai, base_url: "{mock}/v1", model: mock, dialects: [chat, messages, responses]}}
  translated-a: {{upstream: openai, base_url: "{mock}/v1", model: mock}}
"""
SCORED = """\
version: 1
name: {name}
models: [to-{name}]
routes: [{{name: difficulty, score: {{scorer: {scorer}, bands: [{{below: 0.5, group: {group}}}, {{group: {group}}}]}}}}]
default: {group}
"""
PATIENT_S = 8.0
SCORERS: Mapping[str, str] = {
    "lexical": "{kind: lexical}",
    "encoder": "{kind: encoder}",
    "patient": f"{{kind: encoder, deadline_s: {PATIENT_S}}}",  # so that it is busy until its queue is empty
}


# --- what is measured ------------------------------------------------------------------------------------


class Stream(asyncio.Protocol):
    """One paced stream after another on one connection. `gaps` are (seconds, when it ended)."""

    def __init__(self, asked: bytes) -> None:
        self._asked = asked
        self._last = 0.0
        self.gaps: list[tuple[float, float]] = []
        self.failed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._asked)

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        if self._last:
            self.gaps.append((now - self._last, now))
            self.gaps += [(0.0, now)] * (data.count(b"data: ") - 1)
            self._last = now
        elif data.startswith(b"HTTP/1.1 200"):
            self._last = now
        else:
            self.failed = True
        if data.endswith(b"0\r\n\r\n"):
            self._last = 0.0
            self._transport.write(self._asked)

    def connection_lost(self, exc: Exception | None) -> None:
        self.failed = True


class Prober(asyncio.Protocol):
    """Asks for /healthz again and again. `took` are (seconds, when it ended)."""

    def __init__(self, port: int) -> None:
        self._asked = f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()
        self._answered: asyncio.Future[None] | None = None
        self.took: list[tuple[float, float]] = []
        self.lag: list[tuple[float, float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answered is not None and b"alive" in data:
            self._answered.set_result(None)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._answered = loop.create_future()
            begun = perf_counter()
            self._transport.write(self._asked)
            await self._answered
            ended = perf_counter()
            self.took.append((ended - begun, ended))
            await asyncio.sleep(PROBE_S)
            self.lag.append((perf_counter() - ended - PROBE_S, perf_counter()))


class Row(Struct, frozen=True, kw_only=True):
    """One case once: milliseconds, and what came of the requests."""

    gap_p99: float
    gap_max: float
    health_max: float
    lag_max: float
    took_ms: float
    came: dict[str, int]


class Rig:
    """The gateway, its streams and the prober."""

    def __init__(self, port: int, admin: int, prober: Prober, streams: Sequence[Stream], pool: ThreadPoolExecutor):
        self.port = port
        self._admin = admin
        self._prober = prober
        self._streams = streams
        self._pool = pool

    def row(self, begun: float, ended: float, came: dict[str, int]) -> Row:
        if any(stream.failed for stream in self._streams):
            raise SystemExit("stalls: a stream that should have gone on ended")
        gaps, settled = [gap for stream in self._streams for gap in stream.gaps], ended + SETTLED_S
        return Row(
            gap_p99=percentile(_within(gaps, begun, ended), 0.99),
            gap_max=max(_within(gaps, begun, settled)),
            health_max=max(_within(self._prober.took, begun, settled)),
            lag_max=max(_within(self._prober.lag, begun, settled)),
            took_ms=(ended - begun) * 1e3,
            came=came,
        )

    async def rest(self) -> Row:
        await asyncio.sleep(QUIET_S)
        begun = perf_counter()
        await asyncio.sleep(REST_S)
        return self.row(begun, perf_counter() - SETTLED_S, {})

    async def prompts(self, scorer: str, texts: Sequence[str]) -> Row:
        """The prompts at once, and what became of their scores."""
        asked = [request(body(model=f"to-{scorer}", messages=[{"role": "user", "content": text}])) for text in texts]
        lines = [await asyncio.open_connection("127.0.0.1", self.port) for _ in asked]
        before = await self._scores(scorer)
        begun = perf_counter()
        for (_, writer), one in zip(lines, asked, strict=True):
            writer.write(one)
        heads = await asyncio.gather(*[reader.readuntil(b"\r\n\r\n") for reader, _ in lines])
        ended = perf_counter()
        await asyncio.sleep(SETTLED_S)
        for _, writer in lines:
            writer.close()
        statuses = Counter(head[9:12].decode() for head in heads)
        row = self.row(begun, ended, {**statuses, **(await self._scores(scorer) - before)})
        await asyncio.sleep(BREAKER_S)
        return row

    async def _scores(self, scorer: str) -> Counter[str]:
        """How many it gave, and how many it did not give by reason."""
        async with httpx.AsyncClient() as client:
            said = (await client.get(f"http://127.0.0.1:{self._admin}/metrics")).text
        found = Counter[str]()
        for name, labels, value in re.findall(r"^pointsman_(score_count|abstain_total)\{(.*)\} (\S+)$", said, re.M):
            if f'scorer="{scorer}"' in labels:
                reason = re.search(r'reason="(\w+)"', labels)
                found["scored" if name == "score_count" or reason is None else reason[1]] += int(float(value))
        return found

    async def bodies(self, asked: Sequence[hostile.Hostile]) -> Row:
        """These at once."""
        loop = asyncio.get_running_loop()
        begun = perf_counter()
        sent = [loop.run_in_executor(self._pool, hostile.send, self.port, one) for one in asked]
        statuses = await asyncio.gather(*sent)
        ended = perf_counter()
        await asyncio.sleep(SETTLED_S)
        wrong = sum(status not in one.right for one, status in zip(asked, statuses, strict=True))
        row = self.row(begun, ended, {**Counter(map(str, statuses)), **({"wrong": wrong} if wrong else {})})
        await asyncio.sleep(QUIET_S)
        return row


def _within(timed: Iterable[tuple[float, float]], begun: float, ended: float) -> list[float]:
    """Milliseconds of those of which a part falls into this time."""
    return [took * 1e3 for took, at in timed if at >= begun and at - took <= ended] or [0.0]


# --- the cases -------------------------------------------------------------------------------------------


def texts(turn: int) -> list[str]:
    """The prompts of a round: words, Chinese and code, none of them like another one."""
    shapes = [scorers.SHAPES[name][0] for name in ("50 words", "12,000 Chinese characters", "40 KB of code")]
    made: list[str] = []
    for i in range(PROMPTS):
        shape, number = shapes[i % len(shapes)], turn * PROMPTS + i
        times = 1 + CHARACTERS // len(shape)
        made.append("".join(shape.format(number + k, 7001 + number * times + k) for k in range(times))[:CHARACTERS])
    return made


async def measure(
    rig: Rig, prompts: Sequence[Sequence[str]], names: Sequence[str], asked: Sequence[hostile.Hostile]
) -> dict[str, list[Row]]:
    """A round for each of the `prompts`."""
    found: dict[str, list[Row]] = {}
    several = [one for one in asked if one.name.startswith(("31 MB,", "zstd bomb"))]
    for some in prompts:
        found.setdefault("at rest", []).append(await rig.rest())
        for name in names:
            found.setdefault(f"F17 {name}", []).append(await rig.prompts(name, some))
        for one in asked:
            found.setdefault(f"F25 {one.name}", []).append(await rig.bodies([one]))
        if len(several) > 1:
            found.setdefault(f"F25 {len(several)} at once", []).append(await rig.bodies(several))
    return found


def bars(name: str) -> dict[str, float]:
    """What each figure may be at most, in milliseconds."""
    if name.startswith("F17"):
        return {"gap_p99": GAP_MS, "health_max": HEALTH_MS}
    return {"gap_max": STALL_MS + 1e3 * PACE_S, "health_max": STALL_MS} if name.startswith("F25") else {}


def judged(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The median and the least of each figure over the rounds, and whether the median is within its bar."""
    figures = {
        what: {"median": round(statistics.median(values), 1), "least": round(min(values), 1)}
        for what in ("gap_p99", "gap_max", "health_max", "lag_max", "took_ms")
        if (values := [getattr(row, what) for row in rows])
    }
    came = [row.came for row in rows]
    right = not any("wrong" in one or any(key[:1] == "5" or key == "0" for key in one) for one in came)
    met = {what: figures[what]["median"] <= most for what, most in bars(name).items()}
    return {**figures, "came": came[-1], "right": right, "met": right and all(met.values())}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"{'':30}{'gap p99':>14}{'gap max':>14}{'/healthz':>14}{'lag':>7}{'took':>8}  met  came"]
    for name, row in found.items():
        cells = [
            f"{row[what]['median']:.0f} ({row[what]['least']:.0f})" for what in ("gap_p99", "gap_max", "health_max")
        ]
        came = ", ".join(f"{key} x{count}" for key, count in row["came"].items())
        lines.append(
            f"{name:30}{''.join(f'{cell:>14}' for cell in cells)}{row['lag_max']['median']:>7.0f}"
            f"{row['took_ms']['median']:>8.0f}  {'yes' if row['met'] else 'NO':4} {came}"
        )
    return "\n".join([*lines, "milliseconds: the median of the rounds, and the least in brackets"])


# --- the gateway -----------------------------------------------------------------------------------------


def write_config(folder: Path, paced: int, mock: int, names: Sequence[str]) -> None:
    folder.mkdir()
    urls = {"paced": f"http://127.0.0.1:{paced}", "mock": f"http://127.0.0.1:{mock}"}
    (folder / "groups.yaml").write_text(GROUPS.format(**urls))
    policies = {name: (name, "direct") for name in names} | {g: ("lexical", g) for g in ("direct", "translated")}
    for name, (scorer, group) in policies.items():
        (folder / f"{name}.yaml").write_text(SCORED.format(name=name, scorer=scorer, group=group))
    kinds = ", ".join(f"{name}: {SCORERS[name]}" for name in names)
    (folder / "scorers.yaml").write_text(f"version: 1\nscorers: {{{kinds}}}\n")


async def run(rounds: int, faults: Sequence[str], only: str) -> dict[str, list[Row]]:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    names = [name for name in SCORERS if name == "lexical" or find_spec(encoder.PACKAGE)]
    # Made before anything is measured, as that takes seconds.
    prompts = [texts(turn) for turn in range(rounds + 1)]
    bodies = hostile.bodies("to-direct", "to-translated") if "F25" in faults else ()
    hostiles = [one for one in bodies if only in one.name]
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as temp, ThreadPoolExecutor(8) as pool:
        paced, mock, port, admin = (free_port() for _ in range(4))
        config = Path(temp, "config")
        write_config(config, paced, mock, names)
        ours = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(port)]
        ours += ["--admin-port", str(admin), "--state", str(Path(temp, "state"))]
        upstream = [sys.executable, "-m", "evals.bench.upstream"]
        with (
            process([*upstream, str(paced), str(PACE_S)], cores[-1], paced),
            process([*upstream, str(mock)], cores[-1], mock),
            process(ours, cores[0], port),
        ):
            asked = request(body(model="live", stream=True, pace=1))
            streams = [
                (await loop.create_connection(lambda: Stream(asked), "127.0.0.1", port))[1] for _ in range(STREAMS)
            ]
            _, prober = await loop.create_connection(lambda: Prober(port), "127.0.0.1", port)
            probing = asyncio.create_task(prober.run())
            rig = Rig(port, admin, prober, streams, pool)
            for name in names:  # what the first request loads, and the time that a model takes to load
                await asyncio.sleep(1.0)
                await rig.prompts(name, prompts[-1][:1])
            try:
                return await measure(rig, prompts[:-1], names if "F17" in faults else (), hostiles)
            finally:
                probing.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--faults", nargs="+", default=["F17", "F25"], choices=["F17", "F25"])
    parser.add_argument("--only", default="", metavar="WORDS", help="bodies whose name has these")
    parser.add_argument("--json", action="store_true", help="the figures, and those of each round")
    asked = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("stalls: the gateway needs a core of its own beside that of the load, and there is one")
    rows = uvloop.run(run(asked.rounds, asked.faults, asked.only))
    found = {name: judged(name, of) for name, of in rows.items()}
    if asked.json:
        told = {name: {**of, "rounds": [r.came | _figures(r) for r in rows[name]]} for name, of in found.items()}
        print(json.dumps(told, indent=1))
    else:
        print(table(found))
    sys.exit(not all(row["met"] for row in found.values()))


def _figures(row: Row) -> dict[str, Any]:
    return {what: round(getattr(row, what), 1) for what in row.__struct_fields__ if what != "came"}


if __name__ == "__main__":
    main()
