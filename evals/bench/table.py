"""`pointsman bench`: every figure that has a target, measured in one run, with the target and whether it is met.

The gateway has everything switched on. It takes turns with a bare proxy, and with Switchyard where that is installed
(`peers`), so that a machine whose speed drifts slows all alike. What is compared between runs are the ratios: times
and bytes depend on the machine.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from evals.bench import alone, peers, run
from evals.bench.run import Work, measure

WORSE = 1.15  # times the baseline's ratio: what the noise of a shared machine leaves room for
PROCESSES = 3  # of each contender
OURS, BARE, PEER = "pointsman", "bare", "switchyard"
PACED = "per event, 200 paced streams"
Contenders = Mapping[str, tuple[int, int]]  # port and process id, by name
Turns = dict[str, list[dict[str, Any]]]  # what each contender took, turn by turn
# By work: the ratio to Switchyard and to the bare proxy that is aimed for.
AIMS: Mapping[str, tuple[float, float]] = {
    "plain request": (0.65, 0.65),
    "64-event stream": (0.35, 0.9),
    "77 KB agent body, pinned": (0.12, 0.6),
    PACED: (0.8, 0.7),
}


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table. `met` is None where it was not measured, and `measured` says why; `ratios` are what is
    compared with a baseline, less is better."""

    work: str
    target: str
    measured: str
    met: bool | None
    ratios: Mapping[str, float] = {}


def bench(scale: float = 1.0, rounds: int = 3, seconds: float = 30.0) -> dict[str, Any]:
    """The whole table. Raises SystemExit where this machine cannot run it.

    All of it is done with `PROCESSES` of each contender, one set after the other: where a process happens to have its
    memory makes it up to a fifth slower for all its life.
    """
    if not Path("/proc/self/schedstat").exists():
        raise SystemExit("bench: CPU time per process is read from /proc, which this system does not have")
    if importlib.util.find_spec("aiohttp") is None:
        raise SystemExit("bench: the bare proxy needs aiohttp: pip install 'pointsman[dev]'")
    cores = sorted(os.sched_getaffinity(0))
    mine, others = cores[0], cores[-1]
    translated = _translated(scale)
    turns: dict[str, Turns] = {}
    direct: list[dict[str, Any]] = []
    recorded = 0
    with tempfile.TemporaryDirectory() as temp:
        mock, admin = run.free_port(), run.free_port()
        config = Path(temp, "config")
        run.write_config(config, f"http://127.0.0.1:{mock}")
        with run.process([sys.executable, "-m", "evals.bench.upstream", str(mock)], others, mock):
            with _started(Path(temp, "alone"), config, mock, admin, mine, (OURS,)) as contenders:
                memory = list(_memory(contenders[OURS], others))
            for number in range(PROCESSES):
                folder = Path(temp, f"set{number}")
                with _started(folder, config, mock, admin, mine, (OURS, BARE, PEER)) as contenders:
                    for work in run.works(scale):
                        _take_turns(turns.setdefault(work.name, {}), work, contenders, others, rounds, seconds)
                        if work.connections > 100:
                            direct += [run.load(mock, work, others, seconds) for _ in range(rounds)]
                    ours = {OURS: contenders[OURS]}
                    _take_turns(turns.setdefault(translated.name, {}), translated, ours, others, rounds, seconds)
                    recorded += _recorded(admin)
            rows = [*memory, *(_ratios(work, turns[work]) for work in AIMS), *_latencies(turns[PACED][OURS], direct)]
            us = _median(turns[translated.name][OURS], "cpu_us")
            rows += [_most(translated.name, us, 60, "us"), _fresh(), *_startup(config)]
            rows.append(_workers(config, Path(temp), mine, others, scale, seconds))
    times = {work: {name: _median(seen, "cpu_us") for name, seen in of.items()} for work, of in turns.items()}
    return {"rows": [plain(row) for row in rows], "cpu_us": times, "recorded": recorded}


@contextmanager
def _started(
    folder: Path, config: Path, mock: int, admin: int, core: int, names: Sequence[str]
) -> Generator[Contenders]:
    folder.mkdir()
    url = f"http://127.0.0.1:{mock}"
    ports = {name: run.free_port() for name in names}
    with ExitStack() as stack:
        started: dict[str, tuple[int, int]] = {}
        for name, port in ports.items():
            if name == OURS:
                argv = serve(config, port, admin, folder / "state")
            elif name == BARE:
                argv = [sys.executable, "-m", "evals.bench.bare", str(port), url]
            else:
                argv = peers.command(folder, port, url)
            if argv is not None:
                pid = stack.enter_context(run.process(argv, core, port, {"RUST_LOG": "error"}))
                started[name] = (port, pid)
        yield started


def serve(config: Path, port: int, admin: int, state: Path, workers: int = 1) -> list[str]:
    """The gateway's command line."""
    argv = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(port)]
    return [*argv, "--admin-port", str(admin), "--state", str(state), "--workers", str(workers)]


# --- the rows --------------------------------------------------------------------------------------------


def _take_turns(turns: Turns, work: Work, contenders: Contenders, core: int, rounds: int, s: float) -> None:
    """What each contender takes, round by round, once it is warm."""
    warm = run.replaced(work, max(work.connections, work.count // 5))
    for port, _ in contenders.values():
        run.load(port, warm, core, s)
    for _ in range(rounds):
        for name, (port, pid) in contenders.items():
            turns.setdefault(name, []).append(measure(port, pid, work, core, s))


def _ratios(work: str, turns: Turns) -> Row:
    aims = dict(zip((PEER, BARE), AIMS[work], strict=True))
    ratios = {
        f"x {other}": statistics.median(a["cpu_us"] / b["cpu_us"] for a, b in zip(turns[OURS], seen, strict=True))
        for other, seen in turns.items()
        if other != OURS
    }
    missing = "" if PEER in turns else f"; {PEER} is not installed (--peers)"
    told = ", ".join(f"{ratio:.2f} {name}" for name, ratio in ratios.items())
    return Row(
        work=work,
        target=", ".join(f"{aim:g} x {name}" for name, aim in aims.items()),
        measured=f"{told} ({_median(turns[OURS], 'cpu_us'):.0f} us){missing}",
        met=all(ratios.get(f"x {name}", 0.0) <= aim for name, aim in aims.items()),
        ratios={name: round(ratio, 3) for name, ratio in ratios.items()},
    )


def _latencies(ours: list[dict[str, Any]], direct: list[dict[str, Any]]) -> Iterator[Row]:
    """What streams wait for: added to what the upstream called directly takes with the same load."""

    def added_ms(name: str) -> float:
        return (_median(ours, name) - _median(direct, name)) * 1e3

    half, most, gap = added_ms("first_p50_s"), added_ms("first_p99_s"), added_ms("gap_p99_s")
    yield Row(
        work="TTFT added at 200 streams, p50 / p99",
        target="0.4 / 3 ms",
        measured=f"{half:.2f} / {most:.2f} ms",
        met=half <= 0.4 and most <= 3,
    )
    yield Row(work="gap p99 at 200 streams", target="1 ms over direct", measured=f"{gap:.2f} ms over", met=gap <= 1)


def _translated(scale: float) -> Work:
    return Work(
        name="translated stream (messages in, chat out), per event",
        body=run.body(stream=True, max_tokens=100),
        count=int(1_500 * scale),
        unit=run.EVENTS,
        path="/v1/messages",
    )


def _memory(ours: tuple[int, int], core: int) -> Iterator[Row]:
    """First of all, since a process keeps what it once had."""
    yield _most("memory idle, lexical scorer", run.rss_mb(ours[1]), 120, "MB")
    yield _most("memory per open stream", alone.kb_per_stream(*ours, core), 60, "KB")


def _fresh() -> Row:
    return _most("fresh 50-word prompt, lexical: added", alone.fresh_us(), 400, "us")


def _startup(config: Path) -> Iterator[Row]:
    for name, argv in (("check", ["check", str(config)]), ("--help", ["--help"])):
        yield _most(f"start-up of {name}", alone.startup_s(argv), 0.5, "s of CPU")


def _workers(config: Path, temp: Path, mine: int, others: int, scale: float, seconds: float) -> Row:
    """By CPU time of a request, since load and upstream need cores too: what two cores give is that much more."""
    turns: Turns = {}
    with ExitStack() as stack:
        started: dict[str, tuple[int, int]] = {}
        for count in (1, 2):
            port, admin = run.free_port(), run.free_port()
            argv = serve(config, port, admin, temp / f"workers{count}", count)
            pid = stack.enter_context(run.process(argv, mine, port, cores=count if others > mine else 1))
            started[str(count)] = (port, pid)
        work = run.replaced(run.works(scale)[0], int(6_000 * scale))
        _take_turns(turns, work, started, others, 5, seconds)
    times = statistics.median(2 * one["cpu_us"] / two["cpu_us"] for one, two in zip(*turns.values(), strict=True))
    return Row(
        work="2 workers on 2 cores, by CPU a request",
        target="1.8 x one worker",
        measured=f"{times:.2f} x",
        met=times >= 1.8,
        ratios={"one worker's share": round(2 / times, 3)},
    )


def _most(work: str, value: float, most: float, unit: str) -> Row:
    return Row(work=work, target=f"at most {most:g} {unit}", measured=f"{value:.3g} {unit}", met=value <= most)


def _median(seen: list[dict[str, Any]], name: str) -> float:
    return statistics.median(one[name] for one in seen)


def _recorded(admin: int) -> int:
    """How many requests the gateway counted, to show that nothing was switched off."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as reply:
        lines = reply.read().decode().splitlines()
    return int(sum(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith("pointsman_requests_total{")))


def plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__struct_fields__}


# --- what is said of it ----------------------------------------------------------------------------------

_WORDS: Mapping[bool | None, str] = {None: "-", True: "pass", False: "FAIL"}


def render(result: Mapping[str, Any]) -> str:
    rows = [(r["work"], r["target"], r["measured"], _WORDS[r["met"]]) for r in result["rows"]]
    heads = ("work", "target", "measured", "")
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in (heads, *rows)
    ]
    return "\n".join([*lines, f"{result['recorded']} requests recorded and counted"])


def compare(result: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """The ratios that are worse than the baseline's by more than `WORSE` allows, in words."""
    before = {row["work"]: row["ratios"] for row in baseline["rows"]}
    return [
        f"{row['work']}: {now:g} {name}, was {was:g}"
        for row in result["rows"]
        for name, now in row["ratios"].items()
        if (was := before.get(row["work"], {}).get(name)) is not None and now > was * WORSE
    ]
