"""Arrivals and prompts drawn for a simulation: by a Poisson process, in bursts, or as recorded. All chance is in the
seed.

What happens to the requests belongs to `simulate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.cluster.simulate import Workload
from router.cluster.values import Impossible

Floats = NDArray[np.float64]

Process = Literal["poisson", "bursty", "records"]


class Arrivals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests come. `bursty`: for a share of the time, in stretches of mean length `mean_s`, `factor` times as
    many as on average, and fewer in between; `records`: at the distances of recorded ones, scaled to the mean."""

    process: Process = "poisson"
    per_s: float = 1.0  # on average
    factor: float = 3.0
    share: float = 0.2
    mean_s: float = 60.0
    file: str = ""  # of `pointsman records export`


def drawn(arrivals: Arrivals, requests: int, prompts: int, seed: int, recorded: Sequence[float] = ()) -> Workload:
    """So many requests over so many recorded prompts. Raises Impossible."""
    if requests < 1 or prompts < 1:
        raise Impossible("a simulation needs at least one request and one recorded prompt")
    if not arrivals.per_s > 0:
        raise Impossible(f"requests come at {arrivals.per_s:g} a second; give a rate above zero")
    chance = np.random.default_rng(seed)
    rows = chance.integers(0, prompts, size=requests)
    draws = chance.random(requests)
    if arrivals.process == "poisson":
        times = np.cumsum(chance.exponential(1.0 / arrivals.per_s, size=requests))
    elif arrivals.process == "bursty":
        times = _bursty(arrivals, requests, chance)
    else:
        times = _as_recorded(arrivals, requests, recorded)
    return Workload(times=times, rows=rows, draws=draws)


def _bursty(arrivals: Arrivals, requests: int, chance: np.random.Generator) -> Floats:
    """A Poisson process whose rate changes between two values, so that the mean is kept."""
    share, factor = arrivals.share, arrivals.factor
    if not 0 < share < 1 or not 1 <= factor <= 1 / share:
        raise Impossible(
            f"bursts of {factor:g} times the mean for a share of {share:g} of the time leave no requests for the rest; "
            f"give a share in 0..1 and a factor of 1 to {1 / share if share > 0 else 1:g}"
        )
    high = arrivals.per_s * factor
    low = arrivals.per_s * (1 - share * factor) / (1 - share)
    units = np.cumsum(chance.exponential(1.0, size=requests))  # arrivals on a clock of rate one
    expected = arrivals.mean_s * (high + low * (1 - share) / share)
    cycles = int(requests / expected * 1.5) + 50
    lengths = np.empty(2 * cycles)
    lengths[0::2] = chance.exponential(arrivals.mean_s * (1 - share) / share, size=cycles)
    lengths[1::2] = chance.exponential(arrivals.mean_s, size=cycles)
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    reached = np.concatenate([[0.0], np.cumsum(lengths * np.tile([low, high], cycles))])
    while reached[-1] < units[-1]:  # rare: append the same stretches once more
        ends = np.concatenate([ends, ends[-1] + ends[1:]])
        reached = np.concatenate([reached, reached[-1] + reached[1:]])
    return np.interp(units, reached, ends)


def _as_recorded(arrivals: Arrivals, requests: int, recorded: Sequence[float]) -> Floats:
    gaps = np.diff(np.sort(np.asarray(recorded, dtype=np.float64)))
    if len(gaps) < 1 or gaps.sum() <= 0:
        raise Impossible("the records hold fewer than two different times; export more of them")
    times = np.cumsum(np.resize(gaps, requests))
    return times / (times[-1] / requests * arrivals.per_s) if times[-1] > 0 else times
