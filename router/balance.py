"""In which order the deployments of a group are tried: the least busy first, but a conversation where its prefix is.

Pure, from what is known of their load. Which of them can take a request at all is `plan`'s to say, and so is a
deployment that the request prefers. A prefix finds its deployment by rendezvous hashing: every gateway comes to the
same one without asking, and where one is added or lost, only its own conversations move. How much busier than the
others that one may be is bounded (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b

from router.types import Load

_KV_FULL = 0.9  # share from which engines begin to preempt
TTFT_MATTERS = 4.0  # times of which the longest is less than so many of the shortest are equally good
_TTFT_FLOOR_S = 0.05  # and so are all below


def order(names: tuple[str, ...], load: Load, draw: float, bound: float) -> tuple[str, ...]:
    """Least busy first; before them the deployment that has the request's prefix, unless it is busier than `bound`
    times the mean. `bound` 0 = the prefix does not matter."""
    if not load.reports and not load.prefix:
        return _least_busy(names, load.in_flight, draw)
    ordered = _in_order(names, load, draw)
    first = home(names, load, bound) if load.prefix and bound else None
    if first is None or first == ordered[0]:
        return ordered
    return (first, *[name for name in ordered if name != first])


def home(names: tuple[str, ...], load: Load, bound: float) -> str | None:
    """The deployment with the highest claim on the prefix of those that have room for it; None where none has."""
    busy = weights(names, load)
    most = room(busy, bound)
    return max(
        (name for name in names if busy[name] <= most), key=lambda name: (claim(load.prefix, name), name), default=None
    )


def room(busy: Mapping[str, float], bound: float) -> float:
    """How busy, with one more request, a deployment may be that goes before the least busy one."""
    return math.ceil(bound * (sum(busy.values()) - len(busy) + 1) / len(busy))


def claim(prefix: str, name: str) -> float:
    """The claim of a deployment on a prefix, in [0, 1): any number, but always the same."""
    return int.from_bytes(blake2b(f"{prefix} {name}".encode(), digest_size=6).digest()) / 2**48


def _in_order(names: tuple[str, ...], load: Load, draw: float) -> tuple[str, ...]:
    """Least busy first. Where more than two are weighed by what their engines report, which is up to a second old, the
    better of two drawn by chance goes first: what was least busy then would get all requests of the next second."""
    if not load.reports or load.reports.keys().isdisjoint(names):
        return _least_busy(names, load.in_flight, draw)
    reports = [report for name in names if (report := load.reports.get(name)) is not None]
    ordered = _least_busy(names, weights(names, load), draw)
    if len(names) <= 2 or all(report.running is None and report.waiting is None for report in reports):
        return ordered
    drawn = _least_busy(names, {}, draw)[:2]
    first = min(drawn, key=ordered.index)
    return (first, *[name for name in ordered if name != first])


def weights(names: tuple[str, ...], load: Load) -> Mapping[str, float]:
    """What each deployment of a group weighs, the least first in line: `cost` against the fastest of them."""
    times = [load.reports[name].ttft_s for name in names if name in load.reports]
    fastest = min([ttft_s for ttft_s in times if ttft_s is not None], default=0.0)
    return {name: cost(name, load, fastest) for name in names}


def cost(name: str, load: Load, fastest_s: float) -> float:
    """How busy a deployment is with one more request: those in flight from here and from elsewhere, and those that
    wait once more; doubled while its KV cache is nearly full, and for every doubling past the first of its time to the
    first token over the fastest. A smaller difference of times may as well be the prompts'."""
    busy = 1.0 + max(0, load.in_flight.get(name, 0))
    report = load.reports.get(name)
    if report is None:
        return busy
    busy += report.elsewhere + (report.waiting or 0.0)
    if report.kv is not None and report.kv >= _KV_FULL:
        busy *= 2
    if report.ttft_s is not None:
        times = slower(report.ttft_s, fastest_s)
        while times >= TTFT_MATTERS:
            times /= 2
            busy *= 2
    return busy


def slower(ttft_s: float, fastest_s: float) -> float:
    """How many times as long one takes to its first token as the fastest."""
    return ttft_s / max(fastest_s, _TTFT_FLOOR_S)


def _least_busy(names: tuple[str, ...], in_flight: Mapping[str, float], draw: float) -> tuple[str, ...]:
    """Fewest in flight first. Ties stand in a random order drawn from the one number, every order equally likely."""
    if len(names) == 2:  # the common case, in a fifth of the time
        one, two = names
        first, second = in_flight.get(one, 0), in_flight.get(two, 0)
        return names if first < second or (first == second and draw < 0.5) else (two, one)
    left = list(names)
    shuffled: list[str] = []
    while left:
        draw *= len(left)
        at = min(max(int(draw), 0), len(left) - 1)
        draw -= at
        shuffled.append(left.pop(at))
    shuffled.sort(key=lambda name: max(0, in_flight.get(name, 0)))  # stable: keeps the order among equals
    return tuple(shuffled)
