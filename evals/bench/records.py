"""`python -m evals.bench.records`: how long the dashboard's questions take over a database of many made-up records, on
SQLite in a temporary folder or on an empty PostgreSQL database (`--url`).

The rows are written through the gateway's own statements, sums included, so they are what it would have written.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from msgspec.structs import replace
from sqlalchemy import select, text

from router.records import Filter, SqlReader, open_engine
from router.records.rollups import Rollups
from router.records.schema import records
from router.records.sql import insert_records, prepare, row
from router.types import Attempt, Decision, Outcome, Record, Score, Signals, Timing, Usage

DAY_S = 86_400.0
BATCH = 10_000
TARGET_MS = 200.0
POLICIES, ROUTES, TENANTS = ("default", "agents", "batch"), ("stuck", "images", "difficulty", "default"), 40
PLACES = (
    ("small", "small-a"),
    ("small", "small-b"),
    ("large", "large-a"),
    ("large", "large-b"),
    ("vision", "vision-a"),
)
OUTCOMES: tuple[Outcome, ...] = ("upstream_error", "timeout", "cancelled", "client_error", "refused")
POOL = 20_000  # different ones; the others are like them but for id and time
RARE, RARELY = "rare-a", 7  # a deployment that one request of the pool went to


def made(number: int, at: float, chance: random.Random) -> Record:
    """One record as the service writes it, with everything in it that most records have."""
    group, deployment = chance.choices(PLACES, (50, 20, 15, 10, 5))[0]
    if number == RARELY:
        deployment = RARE
    score = chance.betavariate(2, 3)
    output = chance.randint(20, 800)
    outcome: Outcome = "ok" if chance.random() < 0.98 else chance.choice(OUTCOMES)
    return Record(
        id=f"req_{number:012x}{chance.getrandbits(64):016x}",
        time=at,
        policy=chance.choice(POLICIES),
        digest="d" * 64,
        dialect="chat",
        model="auto",
        stream=True,
        signals=Signals(
            model="auto", tenant=f"tenant-{chance.randrange(TENANTS)}", turns=3, input_tokens=900, language="en"
        ),
        scores={"difficulty": Score(scorer="difficulty", value=score)},
        decision=Decision(
            policy="default",
            route=chance.choice(ROUTES),
            group=group,
            why="score",
            scorer="difficulty",
            score=score,
            threshold=0.5,
        ),
        attempts=(
            Attempt(
                deployment=deployment,
                group=group,
                status=200 if outcome == "ok" else 502,
                error=None if outcome == "ok" else "upstream_status",
                ttft_s=0.2,
            ),
        ),
        usage=Usage(input=900, output=output, cached=300),
        cost=output * 2e-6,
        cost_large=output * 9e-6,
        timing=Timing(
            ttft_s=chance.lognormvariate(-1.5, 0.6),
            tpot_s=chance.lognormvariate(-4, 0.3),
            total_s=chance.lognormvariate(1, 0.5),
            overhead_s=chance.lognormvariate(-8, 0.4),
        ),
        outcome=outcome,
        session=f"{chance.getrandbits(128):032x}",
        draw=chance.random(),
    )


def batches(count: int, end: float, days: float, seed: int = 1) -> Iterator[list[Record]]:
    """Records in order of time, the last at `end` (Unix seconds)."""
    chance = random.Random(seed)
    pool = [made(n, end, chance) for n in range(min(count, POOL))]
    step_s = days * DAY_S / count
    for begin in range(0, count, BATCH):
        batch: list[Record] = []
        for n in range(begin, min(count, begin + BATCH)):
            like = pool[n % POOL]
            at = end - (count - 1 - n) * step_s
            batch.append(replace(like, id=f"req_{n:012x}{chance.getrandbits(64):016x}", time=at))
        yield batch


def fill(url: str, count: int, end: float, days: float) -> float:
    """Writes the rows; seconds that took. The database has to be empty."""
    engine = open_engine(url, busy_s=60.0)
    prepare(engine)
    with engine.connect() as connection:
        if connection.scalar(select(records.c.id).limit(1)) is not None:
            raise SystemExit("the database has records already; give an empty one")
    insert, sums = insert_records(engine), Rollups(engine)
    begun = perf_counter()
    for batch in batches(count, end, days):
        with engine.begin() as connection:
            rows = [row(one) for one in batch]
            insert.execute(connection, rows)
            sums.add(batch, rows)
            sums.execute(connection)
            sums.done()
    took_s = perf_counter() - begun
    with engine.connect() as connection:  # as autovacuum, and SQLite's own optimize, would in time
        if engine.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))
    engine.dispose()
    return took_s


def questions(reader: SqlReader, end: float, some: str) -> Mapping[str, Callable[[], Any]]:
    """What the page asks, by name."""
    windows = {
        "15 min": 900,
        "1 hour": 3600,
        "6 hours": 21_600,
        "24 hours": 86_400,
        "7 days": 604_800,
        "30 days": 2_592_000,
    }
    filters = {
        "no filter": Filter(),
        "policy": Filter(policy="agents"),
        "group": Filter(group="vision"),
        "outcome": Filter(outcome="refused"),
        "tenant": Filter(tenant="tenant-7"),
        "a rare deployment": Filter(deployment=RARE),
        "what no record has": Filter(policy="agents", deployment="nowhere"),
    }
    return {
        **{f"window of {name}": _summary(reader, end, seconds) for name, seconds in windows.items()},
        **{f"newest 25, {name}": _newest(reader, where) for name, where in filters.items()},
        "one record": lambda: reader.get(some),
        "its feedback": lambda: reader.feedback(some),
    }


def _summary(reader: SqlReader, end: float, seconds: float) -> Callable[[], Any]:
    return lambda: reader.summary(end, seconds)


def _newest(reader: SqlReader, where: Filter) -> Callable[[], Any]:
    return lambda: reader.recent(25, where)


def ask(url: str, end: float, repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each question: the median and the longest of several, and this process's processor time (SQLite
    runs in it, PostgreSQL does not)."""
    engine = open_engine(url)
    reader = SqlReader(engine)
    newest = reader.recent(1)[0].id
    found: dict[str, dict[str, float]] = {}
    for name, question in questions(reader, end, newest).items():
        times: list[float] = []
        cpu = process_time()
        for _ in range(repeats):
            begun = perf_counter()
            question()
            times.append((perf_counter() - begun) * 1e3)
        cpu_ms = (process_time() - cpu) / repeats * 1e3
        found[name] = {"p50_ms": round(median(times), 2), "max_ms": round(max(times), 2), "cpu_ms": round(cpu_ms, 2)}
    engine.dispose()
    return found


def measure(url: str | None, count: int, days: float, repeats: int) -> dict[str, Any]:
    end = time.time()
    with tempfile.TemporaryDirectory() as folder:
        where = url if url is not None else f"sqlite:///{Path(folder) / 'records.sqlite3'}"
        filled_s = fill(where, count, end, days)
        asked = ask(where, end, repeats)
    kind = "sqlite" if url is None else "postgresql"
    return {"database": kind, "records": count, "days": days, "written_s": round(filled_s, 1), "questions": asked}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evals.bench.records", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--days", type=float, default=7.0, help="how long ago the oldest is")
    parser.add_argument("--url", help="an empty PostgreSQL database, postgresql://...; left out: SQLite")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.url, given.rows, given.days, given.repeats)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    what = f"{found['records']:,} records over {found['days']:g} days, written in {found['written_s']} s"
    print(f"{found['database']}: {what}")
    for name, one in found["questions"].items():
        missed = "" if one["max_ms"] < TARGET_MS else "   over 200"
        print(f"  {name:38} p50 {one['p50_ms']:8.2f}  max {one['max_ms']:8.2f}  CPU {one['cpu_ms']:8.2f} ms{missed}")


if __name__ == "__main__":
    main()
