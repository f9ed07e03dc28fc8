"""Whether something is no longer what it was: scores, a judge's differences, calibration; and when to say so.

Numbers come from counts and samples; an alarm rises where its number passes a limit and falls only once it is back
under a lower one, so that it does not flicker. Quality is watched by a detector that bets, at every sample, that the
mean has fallen below what it was at first, and starts a new bet at each (Shin, Ramdas and Rinaldo 2022,
arXiv:2203.03532): while nothing changes, it is wrong once in at least `PATIENCE` samples, however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from router.quality.estimates import Sample

REFERENCE = 300  # first samples, of what quality was
TOLERANCE = 0.02  # of the difference: what may be lost before anybody is called
PATIENCE = 5000.0  # samples between two false alarms, at least, on average
RECENT = 200  # newest samples that must be as good as the first ones before the alarm falls; at most REFERENCE
_STAKES = (0.05, 0.15, 0.4)  # of the largest that cannot lose everything
_BINS = 5
_FEW = 100  # samples with a score, of which a calibration is told


def psi(reference: Sequence[float], counts: Sequence[float]) -> float:
    """Population stability index of counts in the same bins: below 0.1 is chance, over 0.25 another distribution."""
    both = [[count + 0.5 for count in side] for side in (reference, counts)]
    first, second = ([count / sum(side) for count in side] for side in both)
    return sum((b - a) * math.log(b / a) for a, b in zip(first, second, strict=True))


def quantile(counts: Sequence[float], edges: Sequence[float], share: float) -> float | None:
    """The edge of a histogram that at least `share` of the values are at or below; None where there are none."""
    total = sum(counts)
    if not total:
        return None
    so_far = 0.0
    for count, edge in zip(counts, edges, strict=False):
        so_far += count
        if so_far >= share * total:
            return edge
    return math.inf


def calibration(samples: Sequence[Sample], widest: float = 1.0) -> float | None:
    """The expected calibration error of the scores: how far off, on average, a score is from the share of small answers
    found worse among requests scored alike (bins of equal weight). None where too few are judged."""
    known = sorted(
        (one.score, one.weight(widest), float(one.verdict == "small_worse"))
        for one in samples
        if one.score is not None and one.verdict != "invalid"
    )
    if len(known) < _FEW:
        return None
    total = sum(weight for _, weight, _ in known)
    error, held, limit = 0.0, [0.0, 0.0, 0.0], total / _BINS
    for number, (score, weight, worse) in enumerate(known, 1):
        held = [held[0] + weight, held[1] + weight * score, held[2] + weight * worse]
        if held[0] >= limit or number == len(known):
            error += abs(held[1] - held[2]) / total
            held = [0.0, 0.0, 0.0]
    return error


class Fallen(Struct, frozen=True, kw_only=True):
    """Whether the mean has fallen. `at` is the number of the sample, from 1, at which that became sure; None where it
    has not, or is as at first again. `first` is the same of the first time."""

    reference: float | None  # the mean of the first samples; None where there are too few
    recent: float | None
    at: int | None = None
    first: int | None = None


def fallen(values: Sequence[float]) -> Fallen:
    """Values within [-1, 1], in the order in which they came. After it has risen an alarm falls, and watching begins
    anew, once the newest `RECENT` are no lower than the first ones."""
    if len(values) < REFERENCE:
        return Fallen(reference=None, recent=None)
    first = values[:REFERENCE]
    mean = sum(first) / REFERENCE
    spread = math.sqrt(sum((value - mean) ** 2 for value in first) / (REFERENCE - 1) / REFERENCE)
    below = max(-0.999, mean - TOLERANCE - spread)
    stakes = [share / (1 - below) for share in _STAKES]
    won = [0.0] * len(stakes)
    at: int | None = None
    ever: int | None = None
    recent = sum(first[-RECENT:])
    for number in range(REFERENCE, len(values)):
        value = values[number]
        recent += value - values[number - RECENT]
        if at is None:
            won = [(one + 1.0) * (1.0 + stake * (below - value)) for one, stake in zip(won, stakes, strict=True)]
            if sum(won) / len(won) >= PATIENCE:
                at = number + 1
                ever = ever or at
        elif number + 1 - at >= RECENT and recent / RECENT >= mean:
            at, won = None, [0.0] * len(stakes)
    return Fallen(reference=mean, recent=recent / RECENT, at=at, first=ever)


class Limit(Struct, frozen=True, kw_only=True):
    """When an alarm rises, and when it falls again."""

    rise: float
    fall: float

    def holds(self, value: float | None, risen: bool) -> bool:
        """Whether the alarm is up now; what is not known changes nothing."""
        if value is None:
            return risen
        return value > (self.fall if risen else self.rise)
