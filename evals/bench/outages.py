"""The long form of the faults that take their time, under a steady load: `python -m evals.bench.outages`.

Two workers with a Redis of their own stand before two groups of two servers; half of the requests are streams. One
fault comes after the other, with quiet seconds between them, while streams of a token a second run from the first to
the last (F05). What came of each stands beside its bar; the exit code is 1 where one was missed. Needs redis-server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import httpx
import uvloop

from evals.bench.added import percentile, request
from evals.bench.gateway import serving
from evals.bench.line import Answer, ask
from evals.bench.run import body, free_port
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Reset, Script, Seen, Send, Step, Wait, chat_answer, chat_stream, chunk
from router.upstreams.scripts import status as refusal

RATE = 50.0  # requests a second
PATIENCE_S = 30.0
SLOW_STREAMS = 10
QUIET_S = 4.0  # between two faults
PAUSE_S = 5.0  # what a 429 asks for
NAMES = ("a", "b", "c", "d")
POLICY = """\
version: 1
name: default
models: [auto]
routes: [{name: easy, score: {scorer: chance, bands: [{below: 0.5, group: small}, {group: large}]}}]
default: large
fallback: {small: [large], large: [small]}
"""
SCORERS = "version: 1\nscorers: {chance: {kind: header, header: x-score}}\n"


def fine(seen: Seen) -> Sequence[Step]:
    return chat_stream(["a ", "b ", "c ", "d "], gap_s=0.02) if b'"stream": true' in seen.body else chat_answer("fine")


def now_and_then(share: float, steps: Callable[[Seen], Sequence[Step] | None]) -> Script:
    """These steps for so large a share of the calls that they are for."""
    chance = Random(5)

    def script(seen: Seen) -> Sequence[Step]:
        hit = steps(seen) if chance.random() < share else None
        return fine(seen) if hit is None else hit

    return script


def cut(seen: Seen) -> Sequence[Step] | None:
    if b'"stream": true' not in seen.body:
        return None
    return [Head(200, SSE), *[Send(chunk({"content": f"w{n} "})) for n in range(3)], Reset()]


class Rig:
    """The load, the servers and what is known of them."""

    def __init__(
        self, port: int, admin: int, servers: dict[str, ScriptedServer], redis: subprocess.Popen[bytes], log: Path
    ) -> None:
        self.port = port
        self.admin = admin
        self.servers = servers
        self.redis = redis
        self.log = log
        self.answers: list[Answer] = []
        self._pending: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Until it is cancelled."""
        chance, due = Random(7), monotonic()
        for number in count():
            due += chance.expovariate(RATE)
            await asyncio.sleep(max(0.0, due - monotonic()))
            asked = request(body(stream=number % 2 == 0))
            scored = asked.replace(b"\r\nhost:", b"\r\nx-score: %.3f\r\nhost:" % chance.random(), 1)
            task = asyncio.create_task(self._one(scored))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    async def _one(self, asked: bytes) -> None:
        self.answers.append(await ask(self.port, asked, PATIENCE_S))

    def play(self, script: Script, names: Sequence[str] = NAMES) -> None:
        for name in names:
            self.servers[name].script = script

    def forget(self) -> None:
        """What is over."""
        del self.answers[:-1000]
        for server in self.servers.values():
            server.visits[:] = [visit for visit in server.visits if visit.ended is None]

    def calls(self, since: float, until: float, names: Sequence[str] = NAMES) -> list[float]:
        """When these servers were called."""
        return [v.started for name in names for v in self.servers[name].visits if since <= v.started < until]

    def asked(self, since: float, until: float) -> list[Answer]:
        return [answer for answer in self.answers if since <= answer.at < until]


Bars = dict[str, tuple[float, str]]  # what was found, and what it has to be: "<= 1.1"


def served(answers: Sequence[Answer]) -> float:
    return sum(answer.whole for answer in answers) / max(1, len(answers))


def p99_ms(answers: Sequence[Answer]) -> float:
    """Of whole answers that were not streamed: those take their time."""
    took = [answer.took_s for answer in answers if answer.whole and answer.took_s < 1.0]
    return 1e3 * percentile(took, 0.99) if took else float("inf")


async def f01(rig: Rig, seconds: float) -> Bars:
    begun = monotonic()
    rig.play(now_and_then(0.2, cut))
    await asyncio.sleep(seconds)
    rig.play(fine)
    await asyncio.sleep(QUIET_S)
    answers = rig.asked(begun, monotonic() - QUIET_S)
    broken = [answer for answer in answers if not answer.whole]
    return {
        "streams cut": (len(broken), ">= 1"),
        "of them with one error event and no end": (sum(a.cut for a in broken) / max(1, len(broken)), ">= 1"),
        "longest of them, s": (max((a.took_s for a in broken), default=0.0), "<= 1"),
    }


async def lasting(rig: Rig, script: Script, seconds: float, names: Sequence[str] = NAMES) -> tuple[float, float]:
    """From when to when the servers, or those named, played `script`; they play as usual again."""
    begun = monotonic()
    rig.play(script, names)
    await asyncio.sleep(seconds)
    ended = monotonic()
    rig.play(fine)
    return begun, ended


async def f03(rig: Rig, seconds: float) -> Bars:
    begun, ended = await lasting(rig, lambda _: [Wait(600)], seconds, ["a"])
    share = len(rig.calls(begun + 10, ended, ["a"])) / max(1, len(rig.calls(begun + 10, ended)))
    await asyncio.sleep(QUIET_S)
    return {
        "served": (served(rig.asked(begun, ended)), ">= 0.999"),
        "share of calls to it after 10 s": (share, "<= 0.01"),
    }


async def f08(rig: Rig, seconds: float) -> Bars:
    begun = monotonic()
    rig.play(lambda _: refusal(429, {"retry-after": f"{PAUSE_S:.0f}"}), ["a", "b"])
    await asyncio.sleep(seconds)
    ended = monotonic()
    early = 0
    for name in ("a", "b"):
        told: list[float] = []
        for at in sorted(rig.calls(begun, ended, [name])):
            early += any(t + 0.5 < at < t + PAUSE_S - 0.5 for t in told)
            told.append(at)
    rig.play(fine)
    after = (begun + 5, ended)
    await asyncio.sleep(PAUSE_S + QUIET_S)
    return {
        "served by the fallback": (served(rig.asked(begun, ended)), ">= 1"),
        "calls before their time": (early, "<= 0"),
        "calls a request after 5 s": (len(rig.calls(*after)) / max(1, len(rig.asked(*after))), "<= 1.01"),
    }


async def f09(rig: Rig, seconds: float) -> Bars:
    begun, ended = await lasting(rig, now_and_then(0.01, lambda _: refusal(503)), seconds)
    await asyncio.sleep(QUIET_S)
    return {
        "served": (served(rig.asked(begun, ended)), ">= 0.9999"),
        "calls a request": (len(rig.calls(begun, ended)) / max(1, len(rig.asked(begun, ended))), "<= 1.02"),
    }


async def f10(rig: Rig, seconds: float) -> Bars:
    """Five times as long. What is refused is no call that a server sees: it is told by the answers."""
    begun = monotonic()
    tried = await totals(rig)
    await rig.servers["a"].stop()
    await asyncio.sleep(10)
    later = await totals(rig)
    await asyncio.sleep(5 * seconds - 10)
    ended = await totals(rig)
    until = monotonic()
    await rig.servers["a"].start()
    await asyncio.sleep(14)
    return {
        "served": (served(rig.asked(begun, until)), ">= 0.999"),
        "calls a request": (ratio(tried, ended), "<= 1.1"),
        "calls a request after 10 s": (ratio(later, ended), "<= 1.01"),
        "calls a second to it once it is back": (len(rig.calls(until + 11, until + 14, ["a"])) / 3, ">= 5"),
    }


async def f11(rig: Rig, seconds: float) -> Bars:
    begun, ended = await lasting(rig, lambda _: refusal(503), seconds)
    await asyncio.sleep(15)
    calls = sorted(rig.calls(ended, ended + 10))
    spike = max((sum(at <= one < at + 1 for one in calls) for at in calls), default=0)
    return {
        "calls a request": (len(rig.calls(begun, ended)) / max(1, len(rig.asked(begun, ended))), "<= 1.1"),
        "served after 10 s": (served(rig.asked(ended + 10, ended + 14)), ">= 0.95"),
        "most calls in a second of the return, of the rate": (spike / RATE, "<= 2"),
    }


async def f12(rig: Rig, seconds: float) -> Bars:
    begun, ended = await lasting(rig, now_and_then(0.3, lambda _: refusal(400)), seconds)
    await asyncio.sleep(QUIET_S)
    answers = rig.asked(begun, ended)
    return {
        "answers other than 200 and 400": (sum(a.status not in (200, 400) for a in answers), "<= 0"),
        "calls a request": (len(rig.calls(begun, ended)) / max(1, len(answers)), "<= 1.002"),
    }


async def f13(rig: Rig, seconds: float) -> Bars:
    lines = rig.log.read_bytes().count(b"\n")
    await asyncio.sleep(20)  # what it is compared with
    begun = monotonic()
    base = p99_ms(rig.asked(begun - 20, begun))
    rig.redis.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    ended = monotonic()
    rig.redis.send_signal(signal.SIGCONT)
    await asyncio.sleep(QUIET_S)
    return {
        "served": (served(rig.asked(begun, ended)), ">= 1"),
        "added p99 in the first 2 s, ms": (p99_ms(rig.asked(begun, begun + 2)) - base, "<= 100"),
        "added p99 after 3 s, ms": (p99_ms(rig.asked(begun + 3, ended)) - base, "<= 5"),
        "lines in the log": (rig.log.read_bytes().count(b"\n") - lines, "<= 20"),
    }


FAULTS: dict[str, Callable[[Rig, float], Awaitable[Bars]]] = {
    "F01 a fifth of the streams cut after three events": f01,
    "F03 one of four takes requests and never answers": f03,
    "F08 all of a group answer 429": f08,
    "F09 one answer in a hundred is 503": f09,
    "F10 one of four refuses connections": f10,
    "F11 all answer 503, and then no more": f11,
    "F12 a third of the requests are wrong": f12,
    "F13 Redis stands still": f13,
}


async def totals(rig: Rig) -> tuple[float, float]:
    """Calls and requests so far, as the gateway counts them."""
    async with httpx.AsyncClient(timeout=20) as http:
        text = (await http.get(f"http://127.0.0.1:{rig.admin}/metrics")).text
    sums = dict.fromkeys(("pointsman_attempts_total", "pointsman_requests_total"), 0.0)
    for line in text.splitlines():
        name = line.partition("{")[0]
        if name in sums:
            sums[name] += float(line.rsplit(" ", 1)[1])
    calls, requests = sums.values()
    return calls, requests


def ratio(before: tuple[float, float], after: tuple[float, float]) -> float:
    return (after[0] - before[0]) / max(1.0, after[1] - before[1])


def met(found: float, bar: str) -> bool:
    sign, wanted = bar.split()
    return found <= float(wanted) if sign == "<=" else found >= float(wanted)


async def slow_stream(port: int, seconds: float) -> Answer:
    """A stream of a word a second for so long (F05)."""
    asked = request(
        json.dumps({"model": "slow", "stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
    )
    return await ask(port, asked, seconds + 60)


@contextmanager
def redis(folder: Path) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("outages: there is no redis-server here (apt package redis-server)")
    port = free_port()
    argv = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(folder),
    ]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield child, f"redis://127.0.0.1:{port}/0"
    finally:
        child.kill()
        child.wait()


async def measure(seconds: float, names: Sequence[str]) -> dict[str, Any]:
    length = sum((5 if name == "F10" else 1) * seconds + 25 for name in names)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {name: await stack.enter_async_context(ScriptedServer(fine)) for name in NAMES}
        words = [f"w{n} " for n in range(int(length))]
        slow = await stack.enter_async_context(ScriptedServer(lambda _: chat_stream(words, gap_s=1.0)))
        child, url = stack.enter_context(redis(folder))
        config = folder / "config"
        config.mkdir()
        lines = ["version: 1", "groups:", "  small: {deployments: [a, b]}", "  large: {deployments: [c, d]}"]
        lines += ["  slow: {deployments: [slow-a]}", "deployments:"]
        limits = "timeouts: {first_byte_s: 2, total_s: 7200}"
        for name, server in {**servers, "slow-a": slow}.items():
            lines.append(f'  {name}: {{upstream: openai, base_url: "{server.base_url}", model: scripted, {limits}}}')
        (config / "groups.yaml").write_text("\n".join(lines) + "\n")
        (config / "default.yaml").write_text(POLICY)
        (config / "scorers.yaml").write_text(SCORERS)
        async with serving(config, folder, "--workers", "2", "--redis", url, level="warning") as gateway:
            port = gateway.port
            rig = Rig(port, gateway.admin, servers, child, gateway.log)
            loading = asyncio.create_task(rig.load())
            slowly = [asyncio.create_task(slow_stream(port, length)) for _ in range(SLOW_STREAMS)]
            await asyncio.sleep(10)
            found: dict[str, Any] = {}
            for name, fault in FAULTS.items():
                if name[:3] not in names:
                    continue
                bars = await fault(rig, seconds)
                found[name] = {what: [round(value, 4), bar, met(value, bar)] for what, (value, bar) in bars.items()}
                print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
                rig.forget()
                await asyncio.sleep(QUIET_S)
            loading.cancel()
            ended = await asyncio.gather(*slowly)
            cuts = sum(not answer.whole for answer in ended)
            longest = min(answer.took_s for answer in ended)
            found["F05 streams of a token a second"] = {
                "cut": [cuts, "<= 0", not cuts],
                "seconds": [longest, ">= 0", True],
            }
            return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each fault; F10 takes five times as long")
    parser.add_argument("--faults", nargs="+", default=[name[:3] for name in FAULTS], metavar="F01")
    asked = parser.parse_args()
    found = uvloop.run(measure(asked.seconds, asked.faults))
    print(json.dumps(found, indent=1))
    sys.exit(not all(fine for bars in found.values() for _, _, fine in bars.values()))


if __name__ == "__main__":
    main()
