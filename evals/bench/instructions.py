"""`python -m evals.bench.instructions`: instructions that a request takes the gateway, and the bare proxy, by thread.

Counted by valgrind's callgrind, so that other work on the machine does not change them: for comparing a change with
what was before it, where times are too noisy. They are not times: waits, caches and the kernel are not in them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

from evals.bench.load import MARK
from evals.bench.run import Work, agent_body, body, free_port, load, write_config

NUMBER = MARK.decode()
CALL = {"id": "call_1", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}
RESULT: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": NUMBER},
]
# What is asked, and how often. `step` has another tool's answer at its end every time; `fresh` has
# another system text, so that nothing of it was seen before.
WORKS = {
    "plain": Work(name="plain", body=body(), count=600),
    "stream": Work(name="stream", body=body(stream=True), count=100),
    "agent": Work(name="agent", body=agent_body(), count=100),
    "step": Work(name="step", body=agent_body(newest=RESULT), count=100),
    "fresh": Work(name="fresh", body=agent_body(begin=NUMBER), count=100),
}
WARM = 40  # requests before any is counted
_LEAST = 500  # instructions a request below which a thread is not told
_SETTLE_S = 1.5  # for the threads that write rows and lines
_START_S = 300.0  # under valgrind
_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def contender(name: str, port: int, upstream: int, folder: Path) -> list[str]:
    if name == "bare":
        return ["-m", "evals.bench.bare", str(port), f"http://127.0.0.1:{upstream}"]
    write_config(folder / "config", f"http://127.0.0.1:{upstream}")
    ports = ["--port", str(port), "--admin-port", str(free_port())]
    return ["-m", "router", "serve", "--config", str(folder / "config"), *ports, "--state", str(folder / "state")]


@contextmanager
def running(argv: list[str], url: str) -> Generator[subprocess.Popen[bytes]]:
    """A process that answers at `url` before it is handed out."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_S
        while True:
            try:
                httpx.get(url, timeout=5)
                break
            except httpx.TransportError:
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{' '.join(argv[:3])} ... did not start") from None
                time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait()


def asked(port: int, work: Work, count: int) -> int:
    seen = load(port, replace(work, count=count), 0, _START_S)
    if seen["errors"] or not seen["requests"]:
        raise SystemExit(f"{work.name}: {seen['errors']} errors in {seen['requests']} requests")
    time.sleep(_SETTLE_S)
    return int(seen["requests"])


def count(name: str, what: str) -> list[float]:
    """Thousands of instructions a request, the busiest thread first."""
    work = WORKS[what]
    with tempfile.TemporaryDirectory() as temp:
        folder, upstream, port = Path(temp), free_port(), free_port()
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]
        counted = [*valgrind, f"--callgrind-out-file={folder}/counts.%p", sys.executable]
        mock = [sys.executable, "-m", "evals.bench.upstream", str(upstream)]
        with (
            running(mock, f"http://127.0.0.1:{upstream}/"),
            running(
                [*counted, *contender(name, port, upstream, folder)], f"http://127.0.0.1:{port}/healthz"
            ) as process,
        ):

            def control(*words: str) -> None:
                subprocess.run(["callgrind_control", *words, str(process.pid)], capture_output=True, check=True)

            control("-i", "on")
            asked(port, work, WARM)
            control("-z")
            done = asked(port, work, work.count)
            control("-d")
            found = [_TOTAL.search(one.read_text(errors="replace")) for one in folder.glob("counts.*.*")]
    each = sorted((int(one[1]) / done for one in found if one is not None), reverse=True)
    return [round(one / 1000, 1) for one in each if one >= _LEAST]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=list(WORKS), action="append", help="Left out: each of them.")
    chosen = parser.parse_args().work or list(WORKS)
    if shutil.which("valgrind") is None:
        raise SystemExit("this counts with valgrind, which is not installed: apt-get install valgrind")
    told = {what: {name: count(name, what) for name in ("pointsman", "bare")} for what in chosen}
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
