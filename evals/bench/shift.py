"""Whether a threshold that rises with the large group's load beats a plain queue: `python -m evals.bench.shift`.

Requests with calibrated scores arrive at random, with bursts; the small group has room for all, the large one so many
slots and a queue. Ways to meet a burst: wait in the queue; go to the small group when so many are in flight at the
large one, whatever the score (`max_in_flight` with a `fallback`); let the threshold rise with what is in flight, so
that only borderline prompts go small; or both. All are held to the same mean share of the large group, so that none
wins by spending more: each way's own base threshold is searched for.
"""

from __future__ import annotations

import heapq
import json
from random import Random
from statistics import fmean
from typing import Any

import click
from msgspec import Struct

SLOTS = 16
SERVICE_S = 10.0  # mean time of a large answer, exponential
RATE = 3.0  # requests a second; at the wanted share the large group is three quarters busy
BURST_S, CALM_S, TIMES = 60.0, 540.0, 2.5  # a burst of so many times the rate, and what is between two
WANTED = 0.4  # share of the large group
PATIENCE_S = 10.0  # a later first token is no longer worth its answer
BOUND = 0.15  # how far a threshold may rise
BEGINS, ENDS = 0.8, 1.4  # requests in flight a slot at which it begins to, and has risen all the way
LARGE_FAILS = 0.3  # of what the small group fails


class Way(Struct, frozen=True, kw_only=True):
    """How load is met. `most`: in flight a slot, beyond which requests go small."""

    shifts: bool = False
    most: float | None = None


WAYS = {
    "queue": Way(),
    "spill when full": Way(most=1.0),
    "spill at 1.5": Way(most=1.5),
    "shift": Way(shifts=True),
    "shift, spill at 1.5": Way(shifts=True, most=1.5),
}


class Arrival(Struct, frozen=True, kw_only=True):
    at: float
    score: float  # the probability that the small group's answer would not do
    service_s: float


class Outcome(Struct, frozen=True, kw_only=True):
    """Means over one run; waits are of those that the large group served."""

    share: float
    quality: float
    good_in_time: float
    wait_mean_s: float
    wait_p95_s: float


def traffic(count: int, seed: int) -> list[Arrival]:
    rng = Random(seed)
    now = 0.0
    made: list[Arrival] = []
    for _ in range(count):
        bursting = now % (BURST_S + CALM_S) < BURST_S
        now += rng.expovariate(RATE * (TIMES if bursting else 1.0))
        made.append(Arrival(at=now, score=rng.betavariate(1.7, 2.3), service_s=rng.expovariate(1 / SERVICE_S)))
    return made


def run(arrivals: list[Arrival], way: Way, base: float) -> Outcome:
    """One way of meeting load with one base threshold."""
    free = [0.0] * SLOTS  # when each slot is free
    flying: list[float] = []  # ends of what the large group has, queued ones too
    waits: list[float] = []
    quality = good = 0.0
    for one in arrivals:
        while flying and flying[0] <= one.at:
            heapq.heappop(flying)
        cut = base
        if way.shifts:
            busy = len(flying) / SLOTS
            cut += BOUND * min(1.0, max(0.0, (busy - BEGINS) / (ENDS - BEGINS)))
        if one.score < cut or (way.most is not None and len(flying) >= way.most * SLOTS):
            quality += 1 - one.score
            good += 1 - one.score
            continue
        begun = max(one.at, free[0])
        heapq.heapreplace(free, begun + one.service_s)
        heapq.heappush(flying, begun + one.service_s)
        waits.append(begun - one.at)
        answer = 1 - LARGE_FAILS * one.score
        quality += answer
        good += answer if waits[-1] <= PATIENCE_S else 0.0
    ordered = sorted(waits) or [0.0]
    return Outcome(
        share=len(waits) / len(arrivals),
        quality=quality / len(arrivals),
        good_in_time=good / len(arrivals),
        wait_mean_s=fmean(ordered),
        wait_p95_s=ordered[int(0.95 * (len(ordered) - 1))],
    )


def matched(arrivals: list[Arrival], way: Way) -> Outcome:
    """The way at the base threshold with which its large share is the wanted one."""
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if run(arrivals, way, middle).share > WANTED else (low, middle)
    return run(arrivals, way, (low + high) / 2)


def measure(count: int, seeds: int) -> dict[str, Any]:
    """Each way's outcomes by seed, and their differences from the plain queue."""
    found: dict[str, list[Outcome]] = {name: [] for name in WAYS}
    for seed in range(seeds):
        arrivals = traffic(count, seed)
        for name, way in WAYS.items():
            found[name].append(matched(arrivals, way))
    fields = Outcome.__struct_fields__
    table = {name: {field: [getattr(one, field) for one in ones] for field in fields} for name, ones in found.items()}
    return {"requests": count, "seeds": seeds, "wanted": WANTED, "ways": table}


@click.command()
@click.option("--requests", type=click.IntRange(1_000), default=20_000, show_default=True, help="In each run.")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="Runs of each way.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def command(requests: int, seeds: int, as_json: bool) -> None:
    """Compare ways of meeting a large group's load at the same large share."""
    result = measure(requests, seeds)
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    click.echo(f"{seeds} runs of {requests} requests, large share {WANTED}; means, lowest and highest run in brackets")
    for name, row in result["ways"].items():
        told = (f"{field} {fmean(seen):.3g} ({min(seen):.3g} to {max(seen):.3g})" for field, seen in row.items())
        click.echo(f"{name}\n    {', '.join(told)}")


if __name__ == "__main__":
    command()
