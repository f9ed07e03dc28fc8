"""Trying a policy on a share of another one's conversations: who gets it, how the two compare, what follows. Pure.

What belongs here: which side of a trial a conversation is on, how much worse the tried policy is, with an interval, and
the verdict. What does not: keeping the counts and the state of a trial (`trials`).

Requests of one conversation fail and wait together, so every interval is widened by what their clustering costs. A
trial is looked at only after 50, 100, 200... of its requests, and each look has its part of one in twenty: a policy
that is no worse than its limits is rolled back by chance in at most 5% of trials, for each limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b, sha256
from statistics import NormalDist
from typing import Literal

import msgspec
from msgspec import Struct

from router.config import Canary, Policy
from router.types import Outcome, Record

FIRST_LOOK = 50  # requests of the tried policy; then twice as many each time, and at `until`
LOOKS = 13  # the doublings up to 100,000 requests, and `until`: all that share the chance of a mistake
CHANCE = 0.05
LEAST_CONVERSATIONS = 10  # on each side, before anything is said
LEAST_OPINIONS = 30
LEAST_TIMES = 50  # of which two or three are slow ones
SLOW = 0.95  # the percentile of the time to first token
FAILURES: frozenset[Outcome] = frozenset(("upstream_error", "upstream_truncated", "timeout", "refused"))
_Z = NormalDist().inv_cdf(1 - CHANCE / LOOKS)

State = Literal["running", "promoted", "rolled_back", "shadow"]
Measure = Literal["error_rate", "ttft_p95", "quality_difference"]


class Conversation(Struct, frozen=True, kw_only=True):
    """What one conversation adds to one measure: how many values, and their sum."""

    count: int
    total: float


class Side(Struct, frozen=True, kw_only=True):
    """What is known of one of the two policies. Times are (conversation, seconds)."""

    requests: int = 0
    failures: tuple[Conversation, ...] = ()
    times: tuple[tuple[str, float], ...] = ()
    opinions: tuple[Conversation, ...] = ()


class Comparison(Struct, frozen=True, kw_only=True):
    """How much worse the tried policy is by one measure; None where that cannot be said yet."""

    measure: Measure
    limit: float
    stable: float | None = None
    tried: float | None = None
    worse: float | None = None
    low: float | None = None
    high: float | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    state: State
    reason: str
    comparisons: tuple[Comparison, ...] = ()


def place(stable: str, tried: str, conversation: str) -> float:
    """Where in [0, 1) a conversation stands; those below the share get the tried policy, and keep it as it grows."""
    digest = blake2b(f"{stable}\0{tried}\0{conversation}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2.0**64


def digest(stable: Policy, tried: Policy) -> str:
    """What a trial's verdict holds for: these two policies as they are written, comments apart."""
    return sha256(msgspec.json.encode([stable, tried], order="deterministic")).hexdigest()[:16]


def failed(of: Record) -> bool:
    """Whether the gateway or its upstreams failed the client; what the client did wrong or gave up is no failure."""
    return of.outcome in FAILURES


def looks(before: int, now: int, until: int) -> bool:
    """Whether a look falls due as the tried policy's requests go from `before` to `now`."""
    if before < until <= now:
        return True
    due = FIRST_LOOK
    while due <= before:
        due *= 2
    return due <= now


def judge(canary: Canary, stable: Side, tried: Side) -> Verdict:
    """What follows from what both sides have shown."""
    limits = canary.rollback_if
    found: list[Comparison] = []
    if limits.error_rate is not None:
        found.append(_by_rate("error_rate", limits.error_rate, stable.failures, tried.failures))
    if limits.ttft_p95 is not None:
        found.append(_by_time(limits.ttft_p95, stable.times, tried.times))
    if limits.quality_difference is not None:
        found.append(_by_opinion(limits.quality_difference, stable.opinions, tried.opinions))
    comparisons = tuple(found)
    for one in comparisons:
        if one.low is not None and one.low > one.limit:
            return Verdict(
                state="rolled_back", reason=f"{_told(one)}, and may be by {one.limit:g}", comparisons=comparisons
            )
    if tried.requests < canary.until.requests:
        reason = f"{tried.requests} of {canary.until.requests} requests"
        return Verdict(state="running", reason=reason, comparisons=comparisons)
    for one in comparisons:
        if one.worse is None:
            reason = f"undecided: not enough evidence of {one.measure} yet"
            return Verdict(state="running", reason=reason, comparisons=comparisons)
        if one.worse > one.limit:
            reason = f"undecided: {_told(one)}, which may be chance"
            return Verdict(state="running", reason=reason, comparisons=comparisons)
    reason = f"{tried.requests} requests without evidence of being worse than its limits"
    return Verdict(state="promoted", reason=reason, comparisons=comparisons)


def _told(one: Comparison) -> str:
    return f"{one.measure} is worse by {one.worse:.4g} (at least {one.low:.4g})"


# --- intervals -------------------------------------------------------------------------------------------


def _by_rate(
    measure: Measure, limit: float, stable: Sequence[Conversation], tried: Sequence[Conversation]
) -> Comparison:
    """Newcombe's interval of a difference of shares, from Wilson's of each."""
    if min(len(stable), len(tried)) < LEAST_CONVERSATIONS:
        return Comparison(measure=measure, limit=limit)
    a, a_low, a_high = _wilson(stable)
    b, b_low, b_high = _wilson(tried)
    return Comparison(
        measure=measure,
        limit=limit,
        stable=a,
        tried=b,
        worse=b - a,
        low=b - a - math.hypot(b - b_low, a_high - a),
        high=b - a + math.hypot(b_high - b, a - a_low),
    )


def _wilson(of: Sequence[Conversation]) -> tuple[float, float, float]:
    """A share and Wilson's interval, as if only so many values had been seen as clustered ones are worth."""
    count = sum(one.count for one in of)
    share = sum(one.total for one in of) / count
    n = count / _clustering(of, share, share * (1 - share))
    middle = (share + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
    half = _Z / (1 + _Z * _Z / n) * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    return share, max(0.0, middle - half), min(1.0, middle + half)


def _clustering(of: Sequence[Conversation], mean: float, variance: float) -> float:
    """How many values of one conversation tell as much as one on its own: the design effect, at least 1."""
    count = sum(one.count for one in of)
    if variance <= 0 or len(of) < 2:
        return 1.0
    between = sum((one.total - mean * one.count) ** 2 for one in of) * len(of) / (len(of) - 1)
    return max(1.0, between / (count * variance))


def _by_time(limit: float, stable: Sequence[tuple[str, float]], tried: Sequence[tuple[str, float]]) -> Comparison:
    """The difference of the slow ends, from order statistics; they assume nothing of how times are spread."""
    a, b = _percentile(stable), _percentile(tried)
    if a is None or b is None:
        return Comparison(measure="ttft_p95", limit=limit)
    return Comparison(
        measure="ttft_p95",
        limit=limit,
        stable=a[0],
        tried=b[0],
        worse=b[0] - a[0],
        low=b[0] - a[0] - math.hypot(b[0] - b[1], a[2] - a[0]),
        high=b[0] - a[0] + math.hypot(b[2] - b[0], a[0] - a[1]),
    )


def _percentile(times: Sequence[tuple[str, float]]) -> tuple[float, float, float] | None:
    """The 95th percentile and its interval; None where so few times say nothing of their slow end."""
    ordered = sorted(seconds for _, seconds in times)
    if not ordered:
        return None
    middle = ordered[min(len(ordered) - 1, math.ceil(SLOW * len(ordered)) - 1)]
    sizes: dict[str, int] = {}
    for conversation, _ in times:
        sizes[conversation] = sizes.get(conversation, 0) + 1
    # Kish: as if all times of one conversation were one. What the slow end's clustering costs cannot be measured on it:
    # where it matters a single conversation has most of the slow times.
    n = len(ordered) ** 2 / sum(size * size for size in sizes.values())
    if n < LEAST_TIMES:
        return None
    spread = _Z * math.sqrt(SLOW * (1 - SLOW) / n)
    low = ordered[max(0, math.floor((SLOW - spread) * len(ordered)) - 1)]
    high = ordered[min(len(ordered) - 1, math.ceil((SLOW + spread) * len(ordered)))]
    return middle, low, high


def _by_opinion(limit: float, stable: Sequence[Conversation], tried: Sequence[Conversation]) -> Comparison:
    """The difference of mean scores of feedback; conversations are what was drawn, so they carry the variance."""
    few = min(len(stable), len(tried)) < LEAST_CONVERSATIONS
    if few or min(sum(one.count for one in side) for side in (stable, tried)) < LEAST_OPINIONS:
        return Comparison(measure="quality_difference", limit=limit)
    (a, a_error), (b, b_error) = _mean(stable), _mean(tried)
    half = _Z * math.hypot(a_error, b_error)
    return Comparison(
        measure="quality_difference",
        limit=limit,
        stable=a,
        tried=b,
        worse=a - b,
        low=a - b - half,
        high=a - b + half,
    )


def _mean(of: Sequence[Conversation]) -> tuple[float, float]:
    """A mean and its standard error, by conversation."""
    count = sum(one.count for one in of)
    mean = sum(one.total for one in of) / count
    between = sum((one.total - mean * one.count) ** 2 for one in of) * len(of) / (len(of) - 1)
    return mean, math.sqrt(between) / count
