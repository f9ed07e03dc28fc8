"""What the benchmark runs on: the works, the contenders' processes, and the CPU time that a work takes them.

Each contender is a process of its own pinned to one core; the load and the mock upstream share another. CPU time is
the kernel's own count over the whole process and its children, recorder thread included (Linux). What is made of it
is `table`'s.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

CHAT = "/v1/chat/completions"
EVENTS = 66  # of a stream: 64 with content, the end of the answer, the end of the stream
PACE_S = 0.01  # between events, where a work asks for a pace
SETTLE_S = 0.5  # after a load; until then its last rows and lines are written
MODEL = "auto"


class Work(Struct, frozen=True, kw_only=True):
    """What is sent, how often, and to which path."""

    name: str
    body: bytes
    count: int
    connections: int = 16
    unit: int = 1  # events a request, where the figure is per event
    path: str = CHAT
    spread: float = 0.0  # seconds over which the connections begin


def body(**fields: Any) -> bytes:
    asked = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
    return json.dumps({"model": MODEL, "messages": asked} | fields).encode()


AGAIN: list[dict[str, Any]] = [{"role": "user", "content": "and again"}]


def agent_body(size: int = 77_000, *, begin: str = "", newest: list[dict[str, Any]] = AGAIN, **fields: Any) -> bytes:
    """A coding agent's second request: long system text, a tool catalogue, short words. Its conversation is pinned.

    `begin` stands before its system text; `newest` are its last messages.
    """
    line = "Follow the conventions of the files around the one you edit, and say what you did in one sentence. "
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{i}", "description": line * 8, "parameters": {"type": "object"}},
        }
        for i in range(30)
    ]
    spent = len(json.dumps(tools))
    system = {"role": "system", "content": begin + line * ((size - spent) // len(line))}
    said = [{"role": "user", "content": "say hi"}, {"role": "assistant", "content": "Hi."}]
    return body(messages=[system, *said, *newest], tools=tools, **fields)


def works(scale: float) -> list[Work]:
    return [
        Work(name="plain request", body=body(), count=int(12_000 * scale)),
        Work(name="64-event stream", body=body(stream=True), count=int(3_000 * scale)),
        Work(name="77 KB agent body, pinned", body=agent_body(), count=int(3_000 * scale)),
        Work(
            name="per event, 200 paced streams",
            body=body(stream=True, pace=1),
            count=int(1_200 * scale),
            connections=200,
            unit=EVENTS,
            spread=EVENTS * PACE_S,
        ),
    ]


def replaced(work: Work, count: int) -> Work:
    """The same so many times."""
    return replace(work, count=count)


# --- processes -------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    """A process and its children."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return [pid, *(int(child) for task in tasks for child in (task / "children").read_text().split())]


def cpu_s(pid: int) -> float:
    """CPU seconds that a process and its children have used so far, all their threads, to the nanosecond."""
    total = 0
    for one in family(pid):
        for task in Path(f"/proc/{one}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def process(
    argv: list[str], core: int, port: int, env: Mapping[str, str] | None = None, *, cores: int = 1
) -> Generator[int]:
    """A child pinned to `cores` cores from `core` on, until it accepts connections; its process id."""
    said = tempfile.TemporaryFile()  # noqa: SIM115  closed below, after the child
    child = subprocess.Popen(argv, stdout=said, stderr=said, env={**os.environ, **(env or {})})
    try:
        os.sched_setaffinity(child.pid, set(range(core, core + cores)))
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
  small-a: {{upstream: openai, base_url: "{url}/v1", model: mock, price: {{input: 0.1, output: 0.3}}}}
  large-a: {{upstream: openai, base_url: "{url}/v1", model: mock, price: {{input: 1.0, output: 3.0}}}}
  large-b: {{upstream: openai, base_url: "{url}/v1", model: mock, price: {{input: 1.0, output: 3.0}}}}
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
    argv = [sys.executable, "-m", "evals.bench.load", str(port), work.path]
    argv += [str(work.connections), str(work.count), str(seconds), str(work.spread)]
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
    """CPU microseconds a unit of work, with what is left to do after the answers, and the load's own view of it."""
    before = cpu_s(pid)
    seen = load(port, work, core, seconds)
    time.sleep(SETTLE_S)
    used = cpu_s(pid) - before
    if seen["errors"] or not seen["requests"]:
        raise SystemExit(f"bench: {work.name}: {seen['errors']} errors in {seen['requests']} requests")
    return {"cpu_us": used / (seen["requests"] * work.unit) * 1e6, **seen}
