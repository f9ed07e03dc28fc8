"""Runs the benchmark: the gateway with everything on against the bare proxy, CPU seconds a request, as ratios.

Each contender is a process of its own pinned to one core; the load and the mock upstream share another. The
contenders take turns within one run, so that a machine whose speed drifts slows them alike. CPU time is the
kernel's own count over the whole process, recorder thread included (Linux).
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

CHAT = "/v1/chat/completions"
MODEL = "auto"


class Work(Struct, frozen=True, kw_only=True):
    """One row of the table: what is sent, how often, and the ratio to the bare proxy that is aimed for."""

    name: str
    body: bytes
    count: int
    connections: int = 16
    unit: int = 1  # events a request, where the figure is per event
    target: float | None = None


def body(**fields: Any) -> bytes:
    asked = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
    return json.dumps({"model": MODEL, "messages": asked} | fields).encode()


def agent_body(size: int = 77_000, **fields: Any) -> bytes:
    """A body of the size and make of a coding agent's: long system text, a tool catalogue, a short question."""
    line = "Follow the conventions of the files around the one you edit, and say what you did in one sentence. "
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{i}", "description": line * 8, "parameters": {"type": "object"}},
        }
        for i in range(30)
    ]
    spent = len(json.dumps(tools))
    system = {"role": "system", "content": line * ((size - spent) // len(line))}
    return body(messages=[system, {"role": "user", "content": "say hi"}], tools=tools, **fields)


def works(scale: float) -> list[Work]:
    return [
        Work(name="plain request", body=body(), count=int(12_000 * scale), target=1.0),
        Work(name="64-event stream", body=body(stream=True), count=int(3_000 * scale)),
        Work(name="77 KB agent body", body=agent_body(), count=int(3_000 * scale)),
        Work(
            name="per event, 200 paced streams",
            body=body(stream=True, pace=1),
            count=int(1_200 * scale),
            connections=200,
            unit=66,
        ),
    ]


# --- processes -------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far, all its threads, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def process(argv: list[str], core: int, port: int, env: Mapping[str, str] | None = None) -> Generator[int]:
    """A child pinned to one core, until it accepts connections; its process id."""
    said = tempfile.TemporaryFile()  # noqa: SIM115  closed below, after the child
    child = subprocess.Popen(argv, stdout=said, stderr=said, env={**os.environ, **(env or {})})
    try:
        os.sched_setaffinity(child.pid, {core})
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > until:
                    said.seek(0)
                    last = said.read()[-2000:].decode("utf-8", "replace")
                    raise SystemExit(f"bench: {argv[2:4]} did not start (exit {child.poll()})\n{last}") from None
                time.sleep(0.05)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
        said.close()


GROUPS = """\
version: 1
groups:
  small: {{deployments: [small-a]}}
  large: {{deployments: [large-a, large-b]}}
deployments:
  small-a: {{upstream: openai, base_url: "{url}/v1", model: m-small, price: {{input: 0.1, output: 0.3}}}}
  large-a: {{upstream: openai, base_url: "{url}/v1", model: m-large, price: {{input: 1.0, output: 3.0}}}}
  large-b: {{upstream: openai, base_url: "{url}/v1", model: m-large, price: {{input: 1.0, output: 3.0}}}}
"""
POLICY = """\
version: 1
name: default
models: [auto]
routes:
  - {name: stuck, when: {tool_errors: {at_least: 2}}, group: large}
  - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: large}]}}
default: large
pin: {scope: conversation, ttl: 1h}
fallback: {small: [large], large: [small]}
"""


def write_config(folder: Path, url: str) -> None:
    folder.mkdir()
    (folder / "groups.yaml").write_text(GROUPS.format(url=url))
    (folder / "default.yaml").write_text(POLICY)
    (folder / "scorers.yaml").write_text("version: 1\nscorers: {difficulty: {kind: lexical}}\n")


def load(port: int, work: Work, core: int, seconds: float) -> dict[str, Any]:
    argv = [sys.executable, "-m", "evals.bench.load", str(port), CHAT]
    argv += [str(work.connections), str(work.count), str(seconds)]
    done = subprocess.run(
        argv,
        input=work.body,
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + 60,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    return json.loads(done.stdout)


def measure(port: int, pid: int, work: Work, core: int, seconds: float) -> dict[str, Any]:
    """CPU microseconds a unit of work, with the load's own view of it."""
    before = cpu_s(pid)
    seen = load(port, work, core, seconds)
    used = cpu_s(pid) - before
    if seen["errors"] or not seen["requests"]:
        raise SystemExit(f"bench: {work.name}: {seen['errors']} errors in {seen['requests']} requests")
    return {"cpu_us": used / (seen["requests"] * work.unit) * 1e6, **seen}


# --- the whole run ---------------------------------------------------------------------------------------


def bench(scale: float = 1.0, rounds: int = 3, seconds: float = 30.0) -> dict[str, Any]:
    """Every work on every contender, in turns. Returns the medians and the ratios round by round."""
    if not Path("/proc/self/schedstat").exists():
        raise SystemExit("bench: CPU time per process is read from /proc, which this system does not have")
    if importlib.util.find_spec("aiohttp") is None:
        raise SystemExit("bench: the bare proxy needs aiohttp: pip install 'pointsman[dev]'")
    cores = sorted(os.sched_getaffinity(0))
    mine, others = cores[0], cores[-1]
    with tempfile.TemporaryDirectory() as temp:
        mock, bare, ours, admin = (free_port() for _ in range(4))
        config = Path(temp, "config")
        write_config(config, f"http://127.0.0.1:{mock}")
        gateway = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(ours)]
        gateway += ["--admin-port", str(admin), "--state", str(Path(temp, "state"))]
        proxy = [sys.executable, "-m", "evals.bench.bare", str(bare), f"http://127.0.0.1:{mock}"]
        with (
            process([sys.executable, "-m", "evals.bench.upstream", str(mock)], others, mock),
            process(proxy, mine, bare) as bare_pid,
            process(gateway, mine, ours) as our_pid,
        ):
            idle_mb = rss_mb(our_pid)
            table = [_row(work, (ours, our_pid), (bare, bare_pid), others, rounds, seconds) for work in works(scale)]
            records = _recorded(admin)
    return {"rows": table, "idle_mb": round(idle_mb, 1), "recorded": records}


def _row(
    work: Work, ours: tuple[int, int], bare: tuple[int, int], core: int, rounds: int, seconds: float
) -> dict[str, Any]:
    warm = Work(
        name="warm-up", body=work.body, count=max(work.connections, work.count // 10), connections=work.connections
    )
    for port, pid in (ours, bare):
        measure(port, pid, warm, core, seconds)
    pairs = [(measure(*ours, work, core, seconds), measure(*bare, work, core, seconds)) for _ in range(rounds)]
    ratios = [a["cpu_us"] / b["cpu_us"] for a, b in pairs]
    ratio = statistics.median(ratios)
    return {
        "work": work.name,
        "pointsman_us": round(statistics.median(a["cpu_us"] for a, _ in pairs), 1),
        "bare_us": round(statistics.median(b["cpu_us"] for _, b in pairs), 1),
        "ratio": round(ratio, 3),
        "ratios": [round(r, 3) for r in ratios],
        "target": work.target,
        "met": None if work.target is None else ratio <= work.target,
        "gap_p99_ms": [_ms(a["gap_p99_s"]) for a, _ in pairs],
        "bare_gap_p99_ms": [_ms(b["gap_p99_s"]) for _, b in pairs],
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)


def _recorded(admin: int) -> int:
    """How many requests the gateway counted, to show that nothing was switched off."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as reply:
        lines = reply.read().decode().splitlines()
    return int(sum(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith("pointsman_requests_total{")))


def render(result: Mapping[str, Any]) -> str:
    lines = [f"{'work':32}{'pointsman us':>14}{'bare us':>10}{'ratio':>8}{'target':>8}  met"]
    for row in result["rows"]:
        met = {None: "", True: "yes", False: "NO"}[row["met"]]
        target = "" if row["target"] is None else f"{row['target']:g}"
        lines.append(
            f"{row['work']:32}{row['pointsman_us']:14.1f}{row['bare_us']:10.1f}{row['ratio']:8.3f}{target:>8}  {met}"
        )
    lines.append(f"idle memory {result['idle_mb']} MB; {result['recorded']} requests recorded and counted")
    return "\n".join(lines)
