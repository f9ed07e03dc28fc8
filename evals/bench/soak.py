"""The long form of F30: what a gateway keeps of a load that lasts: `python -m evals.bench.soak`.

Two workers with records in SQLite stand before two groups of two scripted servers. Conversations come at random times,
each a new one, in three dialects, half of them streamed, half of them agents' with tool loops; 5% of one server's
answers fail. The time is divided into windows, and the last is held to the first steady one, which begins once
`STEADY` requests have filled what is kept of pins, words, bodies and scores; where none does, to the second. The exit
code is 1 where a bar was missed (Linux).

Every eighth request goes through a bare proxy as well. Where that took longer in the last window than in the one it is
held to, the machine was slower, and the gateway may be slower by as much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import httpx
import uvloop
from msgspec import Struct

from evals.bench.added import percentile
from evals.bench.gateway import serving
from evals.bench.line import Answer, Line, connect
from evals.bench.outages import met
from evals.bench.run import cpu_s, family, free_port, rss_mb
from evals.bench.talks import Step as Asked
from evals.bench.talks import Talks, marked
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Reset, Script, Seen, Send, Step, Wait, chunk, status
from router.upstreams.scripts import chat_answer as answer
from router.upstreams.scripts import chat_stream as stream

RATE = 40.0  # requests a second
FAULTS = 0.05  # of the calls of one server
WINDOWS = 12
STEADY = 100_000  # requests
WORKERS = 2
EVERY_S = 5.0  # the workers are looked at; at least thrice a window
BESIDE = 8  # one request in so many goes through a bare proxy too
PATIENCE_S = 30.0
NAMES = ("a", "b", "c", "d")
POLICY = """\
version: 1
name: default
models: [auto]
routes:
  - {name: stuck, when: {tool_errors: {at_least: 1}}, group: large}
  - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.85, group: small}, {group: large}]}}
default: large
pin: {scope: conversation, ttl: 2m}
fallback: {small: [large], large: [small]}
"""
SCORERS = "version: 1\nscorers: {difficulty: {kind: lexical}}\n"
WORDS = ["The ", "cache ", "is ", "dropped ", "when ", "full."]
CALL = {"id": "call_1", "type": "function", "function": {"name": "tool_0", "arguments": '{"path": "a.py"}'}}
# By whether it is streamed, and whether it calls a tool.
ANSWERS: dict[tuple[bool, bool], Sequence[Step]] = {
    (False, False): answer("".join(WORDS), delay_s=0.05),
    (False, True): answer("", delay_s=0.05, tool_calls=[CALL]),
    (True, False): stream(WORDS, first_s=0.05, gap_s=0.02),
    (True, True): [
        *[Head(200, SSE), Wait(0.05), Send(chunk({"role": "assistant", "tool_calls": [{"index": 0, **CALL}]}))],
        *[Send(chunk({}, "tool_calls")), Send(b"data: [DONE]\n\n")],
    ],
}
CUT_STREAM: Sequence[Step] = [
    *[Head(200, SSE), Wait(0.05), *[Send(chunk({"role": "assistant", "content": word})) for word in WORDS[:3]]],
    *[Wait(0.02), Reset()],
]
CUT_WHOLE: Sequence[Step] = [Wait(0.05), Head(200, JSON | {"content-length": "1000"}), Send(b'{"id": '), Reset()]


class Look(Struct, frozen=True):
    """One worker at one moment."""

    rss_mb: float
    fds: int
    sockets: int
    threads: int


def look(pid: int) -> Look:
    found: list[str] = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(str(one.readlink()))
    threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    return Look(rss_mb(pid), len(found), sum(name.startswith("socket:") for name in found), threads)


def records_mb(state: Path) -> float:
    return sum(one.stat().st_size for one in state.glob("records.sqlite3*")) / 1e6


class Window:
    """What was seen in one stretch of the time."""

    def __init__(self) -> None:
        self.whole: list[float] = []  # seconds of answers that are not streamed
        self.first: list[float] = []  # seconds to the first byte of those that are
        self.beside: list[float] = []  # of the former, through a bare proxy
        self.requests = self.planted = 0
        self.looks: list[list[Look]] = []  # of each worker
        self.records_mb = 0.0
        self.core = 0.0


class Rig:
    """The load, the servers and what is known of them."""

    def __init__(self, rate: float, seconds: float) -> None:
        self.port = 0  # of the gateway, once there is one
        self.bare = free_port()
        self.windows = [Window() for _ in range(WINDOWS)]
        self.unexplained: list[str] = []
        self.restarts = 0
        self.servers = {name: ScriptedServer(self._script(name)) for name in NAMES}
        self._rate = rate
        self._each_s = seconds / WINDOWS
        self._begun = monotonic()
        self._planted: set[int] = set()
        self._faults, self._pending = Random(5), set[asyncio.Task[None]]()

    def begin(self) -> None:
        self._begun = monotonic()

    @property
    def window(self) -> Window:
        return self.windows[min(WINDOWS - 1, int((monotonic() - self._begun) / self._each_s))]

    def _script(self, name: str) -> Script:
        def play(seen: Seen) -> Sequence[Step]:
            number, tool = marked(seen.body)
            streamed = b'"stream": true' in seen.body or b'"stream":true' in seen.body
            if name == "a" and self._faults.random() < FAULTS:
                self._planted.add(number)
                return self._faults.choice((status(503), [Reset()], CUT_STREAM if streamed else CUT_WHOLE))
            return ANSWERS[streamed, tool]

        return play

    async def load(self, seconds: float) -> None:
        """Until that long is over and what was begun has ended."""
        chance, due = Random(7), monotonic()
        talks, until = Talks(chance), due + seconds
        while (due := due + chance.expovariate(self._rate / talks.mean)) < until:
            await asyncio.sleep(max(0.0, due - monotonic()))
            task = asyncio.create_task(self._talk(talks.new()))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)
        await asyncio.gather(*self._pending)

    async def _talk(self, steps: Iterator[Asked]) -> None:
        """A conversation, on a connection that it keeps while the gateway leaves it open."""
        line: Line | None = None
        try:
            for step in steps:
                if line is None or line.lost:
                    line = await connect(self.port)
                self._note(step, await line.ask(step.request, PATIENCE_S, step.path))
                if step.number % BESIDE == 0:
                    await self._beside(step)
                await asyncio.sleep(step.think_s)
        except OSError as error:
            self.unexplained.append(f"no connection: {error}")
        finally:
            if line is not None:
                line.close()

    def _note(self, step: Asked, answer: Answer) -> None:
        window, planted = self.window, step.number in self._planted
        self._planted.discard(step.number)
        window.requests += 1
        window.planted += planted
        if answer.whole:
            (window.first if answer.streamed else window.whole).append(
                answer.first_s if answer.streamed else answer.took_s
            )
        elif not (answer.cut and planted):
            self.unexplained.append(f"request {step.number} of {step.path}: {answer}")

    async def _beside(self, step: Asked) -> None:
        line = await connect(self.bare)
        answer = await line.ask(step.request, PATIENCE_S)
        line.close()
        if not answer.streamed:
            self.window.beside.append(answer.took_s)

    async def watch(self, keeper: int, state: Path) -> None:
        """Looks at the workers until it is cancelled, and says what was seen in each window that is over."""
        workers, window, used, at = family(keeper)[1:], self.window, cpu_s(keeper), monotonic()
        while True:
            await asyncio.sleep(min(EVERY_S, self._each_s / 3))
            for server in self.servers.values():
                server.visits[:] = [visit for visit in server.visits if visit.ended is None]
            now = family(keeper)[1:]
            self.restarts += len(set(now) - set(workers))
            workers = now
            if self.window is not window:
                print(json.dumps(row(window)), file=sys.stderr, flush=True)
            window = self.window
            window.looks.append([look(pid) for pid in now])
            window.records_mb = records_mb(state)
            spent, used, before, at = cpu_s(keeper) - used, cpu_s(keeper), at, monotonic()
            window.core = max(window.core, spent / (at - before))


async def in_flight(admin: int) -> float:
    """Requests that the gateway counts as being at a deployment."""
    async with httpx.AsyncClient(timeout=20) as http:
        text = (await http.get(f"http://127.0.0.1:{admin}/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("pointsman_in_flight{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def row(window: Window) -> dict[str, Any]:
    """Of each worker the median: what is open changes with the load from moment to moment."""
    found: dict[str, Any] = {"requests": window.requests, "planted": window.planted}
    looks = [one for one in window.looks if len(one) == WORKERS]
    for name in ("rss_mb", "fds", "sockets", "threads"):
        values = [[getattr(one[worker], name) for one in looks] for worker in range(WORKERS)]
        found[name] = [round(statistics.median(of), 1) if of else 0.0 for of in values]
    for name, times in (("whole", window.whole), ("ttft", window.first), ("bare", window.beside)):
        found[f"{name}_p99_ms"] = round(1e3 * percentile(times, 0.99), 1) if times else 0.0
    return found | {"records_mb": round(window.records_mb, 1), "core": round(window.core, 2)}


def steady(rows: Sequence[dict[str, Any]]) -> int:
    """Which window the last is held to."""
    before = 0
    for at, one in enumerate(rows[:-1]):
        if before >= STEADY:
            return at
        before += one["requests"]
    return 1


def bars(rows: Sequence[dict[str, Any]], rig: Rig, left: float) -> dict[str, tuple[float, str]]:
    """The last window held to the first steady one."""
    at = steady(rows)
    first, last, named = rows[at], rows[-1], f"of window {at + 1}"
    slower = max(1.0, last["bare_p99_ms"] / max(0.1, first["bare_p99_ms"]))
    found: dict[str, tuple[float, str]] = {}
    for worker in range(WORKERS):
        before, after = (one["rss_mb"][worker] for one in (first, last))
        found[f"worker {worker}: memory, {named}"] = (after / max(0.1, before), "<= 1.05")
        found[f"worker {worker}: memory more, MB"] = (after - before, f"<= {64 * 1.048576:.1f}")
        found[f"worker {worker}: threads more"] = (last["threads"][worker] - first["threads"][worker], "<= 0")
        # As many conversations are open at a time as chance has it.
        found[f"worker {worker}: open files more"] = (last["fds"][worker] - first["fds"][worker], "<= 8")
    for name in ("whole", "ttft"):
        ratio = last[f"{name}_p99_ms"] / max(0.1, first[f"{name}_p99_ms"])
        found[f"p99 of {name}, {named}, the machine's own taken off"] = (ratio / slower, "<= 1.1")
    return found | {
        "workers restarted": (rig.restarts, "<= 0"),
        "errors that no planted fault explains": (len(rig.unexplained), "<= 0"),
        "in flight after the end": (left, "<= 0"),
    }


async def measure(minutes: float, rate: float) -> dict[str, Any]:
    rig = Rig(rate, minutes * 60)
    async with AsyncExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for server in rig.servers.values():
            await stack.enter_async_context(server)
        url = rig.servers["d"].base_url.removesuffix("/v1")
        bare = await asyncio.create_subprocess_exec(sys.executable, "-m", "evals.bench.bare", str(rig.bare), url)
        stack.callback(bare.terminate)
        config = state / "config"
        config.mkdir()
        lines = ["version: 1", "groups: {small: {deployments: [a, b]}, large: {deployments: [c, d]}}", "deployments:"]
        lines += [f'  {n}: {{upstream: openai, base_url: "{s.base_url}", model: {n}}}' for n, s in rig.servers.items()]
        (config / "groups.yaml").write_text("\n".join(lines) + "\n")
        (config / "default.yaml").write_text(POLICY)
        (config / "scorers.yaml").write_text(SCORERS)
        kept = ["--workers", str(WORKERS), "--records-gib", "0.1"]  # it is reached within the hour, and swept
        async with serving(config, state, *kept) as gateway:
            rig.port = gateway.port
            watching = asyncio.create_task(rig.watch(gateway.process.pid, state))
            rig.begin()
            await rig.load(minutes * 60)
            watching.cancel()
            await asyncio.sleep(5)
            left = await in_flight(gateway.admin)
    rows = [row(window) for window in rig.windows]
    held = {name: [round(value, 3), bar, met(value, bar)] for name, (value, bar) in bars(rows, rig, left).items()}
    return {
        "minutes": minutes,
        "requests": sum(one["requests"] for one in rows),
        "windows": rows,
        "bars": held,
        "unexplained": rig.unexplained[:20],
    }


def render(found: dict[str, Any]) -> str:
    rows: list[dict[str, Any]] = found["windows"]
    names = list(rows[0])
    table = [names, *[[_shown(one[name]) for name in names] for one in rows]]
    widths = [max(len(line[at]) for line in table) for at in range(len(names))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    lines += [
        f"{'met' if fine else 'MISSED':>6}  {name}: {value} {bar}" for name, (value, bar, fine) in found["bars"].items()
    ]
    return "\n".join([*lines, *found["unexplained"]])


def _shown(value: list[float] | float) -> str:
    return " ".join(f"{one:g}" for one in value) if isinstance(value, list) else f"{value:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second")
    parser.add_argument("--json", action="store_true", dest="as_json", help="the figures as JSON")
    asked = parser.parse_args()
    found = uvloop.run(measure(asked.minutes, asked.rate))
    print(json.dumps(found, indent=1) if asked.as_json else render(found))
    sys.exit(not all(fine for _, _, fine in found["bars"].values()))


if __name__ == "__main__":
    main()
