"""From judged pairs of answers to what a policy gains and loses: against always the large group, and always the small.

A sample is one answered request whose answer was compared with the other group's. Its difference is the small group's
answer minus the large group's, -1, 0 or 1, corrected by the judge's own error. A policy differs from "always large"
by that difference where the small group served and by nothing where the large one did; from "always small" the other
way round. Samples weigh as much as the requests that they stand for. Intervals are 95%: one that holds at every look,
and a narrower one (`once`) for whoever looks a single time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Literal, get_args

from msgspec import Struct

from router.quality.intervals import LEVEL, Interval, compared, effective, needed, sequence, weighted, wilson
from router.quality.judge_error import UNCORRECTED, WORTH, Correction, Outcome

Verdict = Literal["small_worse", "same", "small_better", "invalid"]
By = Literal["judge", "checker"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
DECIDED: Mapping[Verdict, Outcome] = {"small_worse": "small_worse", "same": "same", "small_better": "small_better"}
FEW = 50  # effective samples, under which an interval for one look is not to be believed
_FOR_LABELS = 0.2  # share of the chance of a mistake that goes to the labels of the judge's error
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
_Z_LABELS = NormalDist().inv_cdf(1 - (1 - LEVEL) * _FOR_LABELS / 2)


class Sample(Struct, frozen=True, kw_only=True):
    """One judged request. `rate` is the mean chance of the requests that might have been judged, as of this one."""

    id: str  # of the request
    time: float  # Unix seconds
    policy: str
    route: str
    small: str  # group
    large: str
    served: str
    models: str  # digest of the models behind the two groups; others are other answers
    verdict: Verdict
    by: By
    propensity: float
    rate: float
    score: float | None = None
    domain: str = "other"
    cost: float | None = None  # US dollars of asking and judging

    def weight(self, widest: float) -> float:
        """Requests that it stands for, relative to the mean sample."""
        return min(widest, self.rate / self.propensity)


class Difference(Struct, frozen=True, kw_only=True):
    """Mean over all requests, and its interval; `once` is one for a single look. `needed`: samples until the
    interval is as narrow as the policy wants it, None where samples alone do not get there."""

    difference: float
    low: float
    high: float
    once: tuple[float, float] | None
    needed: int | None


class Estimate(Struct, frozen=True, kw_only=True):
    """What the samples of a policy, or of one of its routes or domains, say. None stands for all."""

    route: str | None
    domain: str | None
    n: int
    small_served: int
    verdicts: Mapping[Verdict, int]
    worse: Interval  # share of the small group's answers that are worse, uncorrected
    to_large: Difference
    to_small: Difference


def estimate(
    samples: Sequence[Sample],
    *,
    route: str | None = None,
    domain: str | None = None,
    widest: float = 1.0,
    precision: float = 0.02,
    error: Correction = UNCORRECTED,
) -> Estimate:
    """What these samples say together; all are of one pair of groups and models."""
    decided = [one for one in samples if one.verdict in DECIDED]
    verdicts = Counter(one.verdict for one in samples)
    weights = [one.weight(widest) for one in decided]
    values = [value_of(one, error) for one in decided]
    small = [float(one.served != one.large) for one in decided]
    to_large = [v * s for v, s in zip(values, small, strict=True)]
    to_small = [-v * (1.0 - s) for v, s in zip(values, small, strict=True)]
    worth = max(abs(w) for w in (*error.worth.values(), *WORTH.values()))
    made = [
        _difference(
            side,
            weights,
            worth=worth,
            widest=widest,
            precision=precision,
            doubt=error.error(_shares(decided, weights, served)) * error_share,
            tight=bool(error.labels),
        )
        for side, served, error_share in (
            (to_large, True, weighted(small, weights)),
            (to_small, False, weighted([1.0 - s for s in small], weights)),
        )
    ]
    return Estimate(
        route=route,
        domain=domain,
        n=len(decided),
        small_served=int(sum(small)),
        verdicts={verdict: verdicts.get(verdict, 0) for verdict in VERDICTS},
        worse=wilson(verdicts.get("small_worse", 0), len(decided)),
        to_large=made[0],
        to_small=made[1],
    )


def value_of(one: Sample, error: Correction) -> float:
    """The corrected difference of one sample: small minus large. Nothing is corrected of what a checker found."""
    outcome = DECIDED[one.verdict]
    return (error.worth if one.by == "judge" else WORTH)[outcome]


def _shares(decided: Iterable[Sample], weights: Sequence[float], small_served: bool) -> dict[Outcome, float]:
    """Shares of the judge's verdicts among the samples that one side of the comparison is made of."""
    sums: dict[Outcome, float] = {}
    total = 0.0
    for one, weight in zip(decided, weights, strict=True):
        if (one.served != one.large) is small_served:
            total += weight
            if one.by == "judge":
                sums[DECIDED[one.verdict]] = sums.get(DECIDED[one.verdict], 0.0) + weight
    return {outcome: value / total for outcome, value in sums.items()}


def _difference(
    values: Sequence[float],
    weights: Sequence[float],
    *,
    worth: float,
    widest: float,
    precision: float,
    doubt: float,
    tight: bool,
) -> Difference:
    """`doubt` is the standard error that the judge's labels leave; where there are any, the sequence has the less
    chance of a mistake to use up (`tight`)."""
    spread = _Z_LABELS * doubt
    alpha = (1 - LEVEL) * (1 - _FOR_LABELS) if tight else 1 - LEVEL
    bound = worth * widest
    found = sequence([v * w for v, w in zip(values, weights, strict=True)], -bound, bound, alpha)
    low, high = max(-1.0, found.low - spread), min(1.0, found.high + spread)
    mean = min(1.0, max(-1.0, found.mean)) if values else 0.0
    single = None
    if effective(weights) >= FEW:
        one = compared(values, weights)
        below, above = (math.hypot(half, _Z * doubt) for half in (one.mean - one.low, one.high - one.mean))
        single = (max(-1.0, one.mean - below), min(1.0, one.mean + above))
    return Difference(
        difference=mean,
        low=low,
        high=high,
        once=single,
        needed=needed(len(values), found.half + spread, spread, precision),
    )
