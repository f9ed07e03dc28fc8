"""Figures of the gateway that need nobody beside it: memory of open streams, start-up, what a fresh prompt adds."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from evals.bench import run, scorers
from evals.bench.run import Work

_STREAMS = 400


def kb_per_stream(port: int, pid: int, core: int) -> float:
    """Resident KB that each of many open streams adds, at the worst moment."""
    work = Work(name="open", body=run.body(stream=True, pace=1), count=3 * _STREAMS, connections=_STREAMS)
    before = most = run.rss_mb(pid)
    errors: list[int] = []
    running = threading.Thread(target=lambda: errors.append(run.load(port, work, core, 30)["errors"]))
    running.start()
    while running.is_alive():
        most = max(most, run.rss_mb(pid))
        time.sleep(0.05)
    running.join()
    if errors != [0]:
        raise SystemExit(f"bench: {errors} errors while {_STREAMS} streams were open")
    return (most - before) * 1e3 / _STREAMS


def startup_s(arguments: Sequence[str], tries: int = 5) -> float:
    """CPU seconds of a command of ours, the least of several: on a machine with a core to spare, what it takes."""
    took: list[float] = []
    for _ in range(tries):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = [sys.executable, "-m", "router", *arguments]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def fresh_us(count: int = 100) -> float:
    """CPU microseconds that the lexical scorer takes for 50 words it has not seen."""
    shape = next(iter(scorers.SHAPES))
    return scorers.measure("lexical", None, count, (shape,))["rows"][shape]["cpu_ms"] * 1e3
