"""How far a share or a mean may be from what was seen: for one look at finished data, Wilson's interval, one like it
for weighted differences, and a bootstrap; and a confidence sequence for data that is looked at again and again. Pure: a
bootstrap's chance comes from its seed.

A 95% interval for one look is wrong far more often than one time in twenty for somebody who looks after every sample
and acts on the first that pleases. A confidence sequence holds at all looks together. The one here bets against every
value that the mean could have, for and against, with a mixture of stakes; a value on which more than 1/alpha would have
been won is out (Waudby-Smith and Ramdas 2024, arXiv:2010.09686; a mixture of stakes is a martingale as each of them
is). What is won does not depend on the order of the samples, so those of several workers are simply put together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
# Stakes as shares of the largest that cannot lose everything. The least suits 100,000 samples, the largest a dozen.
_STAKES: Floats = np.geomspace(0.002, 0.98, 20)
_COARSE = 161  # values of the mean that are tried first
_FINE = 33  # between two of these, at each end
_UNSEEN_SPREAD = 0.25  # variance that is assumed where nothing was seen
_LOOKS = 12.0  # (half width / standard error)^2 of the sequence at the sizes that are met; one look's is 3.8
_MOST_DRAWN = 1000  # values; of more a bootstrap tells nothing that the normal interval does not


class Interval(Struct, frozen=True, kw_only=True):
    """An estimate and how far it may be off to either side."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def wilson(successes: float, n: float, z: float = _Z) -> Interval:
    """A share. `n` may be an effective number."""
    if n <= 0:
        return Interval(mean=0.5, low=0.0, high=1.0)
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(mean=share, low=max(0.0, middle - half), high=min(1.0, middle + half))


def weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    """The mean of values that were drawn with unequal chances; weights are their inverses, on any scale."""
    total = math.fsum(weights)
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total if total else 0.0


def once(values: Sequence[float], weights: Sequence[float], seed: int) -> Interval:
    """A weighted mean and its interval for one look: by bootstrap, or normal where there are many."""
    if len(values) <= _MOST_DRAWN:
        return bootstrap(values, weights, seed)
    return _normal(np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64))


def effective(weights: Sequence[float]) -> float:
    """How many samples of equal weight tell as much as these."""
    square = math.fsum(w * w for w in weights)
    return math.fsum(weights) ** 2 / square if square else 0.0


def compared(values: Sequence[float], weights: Sequence[float]) -> Interval:
    """The weighted mean of differences, most of them 0, and its interval for one look. Ask for 50 effective samples.

    As if two more had been seen, one of each sign, each with the weight of one effective sample: what Wilson's interval
    does for a share (Bonett and Price 2012, of paired shares). Without them, fifty equal pairs would be a proof.
    """
    n = effective(weights)
    if not n:
        return Interval(mean=0.0, low=-1.0, high=1.0)
    weigh = np.append(np.asarray(weights, dtype=np.float64), [math.fsum(weights) / n] * 2)
    found = _normal(np.append(np.asarray(values, dtype=np.float64), [-1.0, 1.0]), weigh)
    return Interval(mean=weighted(values, weights), low=found.low, high=found.high)


def _normal(values: Floats, weights: Floats) -> Interval:
    total = float(weights.sum())
    mean = float((values * weights).sum()) / total
    half = _Z * math.sqrt(float((weights**2 * (values - mean) ** 2).sum())) / total
    return Interval(mean=mean, low=mean - half, high=mean + half)


def bootstrap(values: Sequence[float], weights: Sequence[float], seed: int, draws: int = 1000) -> Interval:
    """A weighted mean and its percentile interval, for one look. Few or equal values give no width: ask for 30."""
    held, weigh = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if not held.size:
        return Interval(mean=0.0, low=-1.0, high=1.0)
    picked = np.random.default_rng(seed).integers(0, held.size, size=(draws, held.size))
    means = (held * weigh)[picked].sum(axis=1) / weigh[picked].sum(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean=weighted(values, weights), low=float(low), high=float(high))


def sequence(values: Sequence[float], low: float, high: float, alpha: float = 1 - LEVEL) -> Interval:
    """The mean of values within [low, high], with an interval that holds at every look with chance 1 - alpha."""
    if not len(values) or high <= low:
        return Interval(mean=(low + high) / 2, low=low, high=high)
    held = np.clip(np.asarray(values, dtype=np.float64), low, high)
    mean = float(held.mean())
    seen, counts = np.unique(np.round(held, 6), return_counts=True)
    ends: list[float] = []
    for end in (low, high):
        kept, out = mean, end  # the mean itself is never out; beyond `end` there is nothing
        for points in (_COARSE, _FINE):
            tried: Floats = np.linspace(kept, out, points)[1:]
            lost = np.flatnonzero(_won(seen, counts, tried, low, high) >= math.log(1 / alpha))
            if not lost.size:
                break
            first = int(lost[0])
            out = float(tried[first])
            kept = float(tried[first - 1]) if first else kept
        ends.append(out)
    return Interval(mean=mean, low=ends[0], high=ends[1])


def _won(seen: Floats, counts: NDArray[np.int64], tried: Floats, low: float, high: float) -> Floats:
    """Log of what the bets against each tried mean have come to."""
    off = seen[None, None, :] - tried[:, None, None]
    room = np.maximum(np.stack([tried - low, high - tried]), 1e-12)
    sides: list[Floats] = []
    for side, sign in ((0, 1.0), (1, -1.0)):
        stakes = sign * _STAKES[None, :, None] / room[side][:, None, None]
        sides.append((np.log1p(np.maximum(stakes * off, -1 + 1e-12)) * counts).sum(axis=2))
    bets = np.concatenate(sides, axis=1)
    best = bets.max(axis=1)
    return best + np.log(np.exp(bets - best[:, None]).mean(axis=1))


def needed(n: int, half: float, fixed: float, precision: float) -> int | None:
    """Samples still needed until the half width is `precision`; `fixed` is the part that samples do not shrink.

    None where they never get there. The width is taken to shrink with the root of their number.
    """
    room = precision - fixed
    if room <= 0:
        return None
    if n < 1:
        return math.ceil(_LOOKS * _UNSEEN_SPREAD / room**2)
    return max(0, math.ceil(n * ((half - fixed) / room) ** 2) - n)
