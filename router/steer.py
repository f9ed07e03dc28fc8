"""Where the threshold of a score should stand, so that a policy keeps to its target: pure arithmetic on what was seen.

What belongs here: which thresholds of a policy may move, what a target counts of a record, and the next threshold with
the reason for it. What does not: keeping the window of what was seen, timing and telling (`steering`), and applying a
threshold (`decide`, from `Load.cuts`).

A threshold moves only on evidence, only when the target is missed by more than a margin, by at most `STEP` at a time,
and only inside the operator's bounds. Everything else is "stays" or "frozen", with the reason in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from router.config import Band, Goal, Policy
from router.policy import largest_edge, leads
from router.types import Record

WINDOW = 2000  # newest requests of a policy that a target looks at; `evals.bench.drift` compares sizes
LEAST_SCORES = 200  # decisions by the threshold; the share of fewer is known to no better than 7 points
LEAST_PRICED = 30  # requests of each kind whose mean cost is believed
LEAST_JUDGED = 30  # comparisons of answers below the threshold
MARGIN = 0.01  # of the share: half of the two points that a target is to be held within
STEP = 0.05  # of the score, at a time
RISE = 0.02  # of the score, where only comparisons of answers say that it may rise
REPAID = 1.0  # of what the window spent beyond the limit, or left; with half, blocks miss by half as much again
AROUND = 0.2  # of the score: the bounds where the operator gives none
_GAP = 1e-3  # a band keeps at least this much of the score
_MISTAKEN = 0.05  # chance that the loss is above what is called its most, at any look


class Rule(Struct, frozen=True, kw_only=True):
    """One threshold that may move: the route's edge below the largest group, and how far it may go."""

    policy: str
    route: str
    base: float  # as the file has it
    low: float
    high: float
    goal: Goal


class Seen(Struct, frozen=True, kw_only=True):
    """What a target counts of one decided request. `score` is None where the threshold had no say."""

    route: str
    large: bool  # decided for the largest group
    score: float | None = None
    cost: float | None = None  # US dollars


class Judged(Struct, frozen=True, kw_only=True):
    """One answer of the smaller group compared with the large group's to the same request, by a judge."""

    score: float  # the difficulty that the scorer gave
    loss: float  # quality of the large group's answer minus that of the one compared, -1 to 1
    weight: float = 1.0  # requests that it stands for, relative to the mean


class Step(Struct, frozen=True, kw_only=True):
    """The threshold from now on, and why."""

    at: float
    how: Literal["moves", "stays", "frozen"]
    reason: str


def reach(bands: Sequence[Band], index: int, bounds: tuple[float, ...] | None) -> tuple[float, float]:
    """How far the edge of a band may move: the bounds, but never past the edges beside it."""
    base = bands[index].below or 0.0
    low, high = bounds if bounds is not None else (base - AROUND, base + AROUND)
    below = bands[index - 1].below or 0.0 if index else 0.0
    above = bands[index + 1].below or 1.0
    return max(low, below + _GAP), min(high, above - _GAP)


def rules(policy: Policy) -> tuple[Rule, ...]:
    """Every threshold that the policy's target may move, in the order of its routes."""
    if policy.target is None:
        return ()
    found: list[Rule] = []
    for route in policy.routes:
        index = largest_edge(route.score) if route.score is not None else None
        if route.score is None or index is None:
            continue
        bands = route.score.bands
        low, high = reach(bands, index, policy.target.bounds)
        base = bands[index].below or 0.0
        found.append(Rule(policy=policy.name, route=route.name, base=base, low=low, high=high, goal=policy.target))
    return tuple(found)


def largest(policy: Policy) -> frozenset[str]:
    """The groups that the policy's last bands lead to: what a target calls large."""
    return frozenset(
        leads(route)[-1] for route in policy.routes if route.score is not None and largest_edge(route.score) is not None
    )


def seen(of: Record, large: frozenset[str]) -> Seen | None:
    """What a target counts of a record; None where nothing was decided."""
    decision = of.decision
    if decision is None:
        return None
    return Seen(
        route=decision.route,
        large=decision.group in large,
        score=decision.score if decision.why in ("score", "explore") else None,
        cost=of.cost,
    )


def step(rule: Rule, at: float, window: Sequence[Seen], judged: Sequence[Judged] = ()) -> Step:
    """The next threshold of a route, now `at`. `window`: the policy's newest requests; `judged`: the route's."""
    goal = rule.goal
    if goal.quality_loss is not None:
        return _by_quality(rule, at, window, judged, goal.quality_loss.at_most)
    if goal.cost_per_1k is not None:
        share = _affordable(window, goal.cost_per_1k.at_most / 1000)
        return _frozen(at, share) if isinstance(share, str) else _by_share(rule, at, window, share)
    limit = goal.large_share.at_most if goal.large_share is not None else 1.0
    return _by_share(rule, at, window, limit)


# --- share and cost --------------------------------------------------------------------------------------


def _by_share(rule: Rule, at: float, window: Sequence[Seen], limit: float) -> Step:
    """Hold the large group's share of all requests at `limit`, by the share of those that the threshold decides.

    What it cannot decide (a signal, a pin, an abstention) counts too. All routes of a policy let the same share of
    their scored requests through.
    """
    everywhere = sum(1 for one in window if one.score is not None)
    scores = sorted((one.score for one in window if one.score is not None and one.route == rule.route), reverse=True)
    if len(scores) < LEAST_SCORES:
        return _frozen(at, f"{len(scores)} of the {LEAST_SCORES} scored requests that it takes")
    fixed = sum(1 for one in window if one.large and one.score is None)
    spent = sum(1 for one in window if one.large) / len(window)
    aim = limit + REPAID * (limit - spent)
    wanted = min(1.0, max(0.0, (aim * len(window) - fixed) / everywhere))
    share = sum(1 for score in scores if score >= at) / len(scores)
    told = f"large share {spent:.3f} of the last {len(window)} requests, wanted {limit:.3f}"
    if abs(share - wanted) <= MARGIN * len(window) / everywhere:
        return Step(at=at, how="stays", reason=told)
    return _towards(rule, at, _cut_for(scores, wanted), told)


def _cut_for(scores: Sequence[float], share: float) -> float:
    """The threshold that at most `share` of the scores, highest first, are at or above."""
    count = math.floor(share * len(scores) + 1e-9)
    if count <= 0:
        return 1.0
    if count >= len(scores):
        return 0.0
    last, after = scores[count - 1], scores[count]
    if last > after:
        return (last + after) / 2
    above = [score for score in scores[:count] if score > last]  # a tie goes down as one
    return (above[-1] + last) / 2 if above else (1.0 + last) / 2


def _affordable(window: Sequence[Seen], limit: float) -> float | str:
    """The large share at which a request costs `limit` dollars on average, or why that cannot be said."""
    large = [one.cost for one in window if one.cost is not None and one.large]
    other = [one.cost for one in window if one.cost is not None and not one.large]
    if min(len(large), len(other)) < LEAST_PRICED:
        return f"{len(large)} large and {len(other)} other requests with a cost, of {LEAST_PRICED} that it takes"
    dear, cheap = fmean(large), fmean(other)
    if dear <= cheap:
        return "the large group's requests cost no more than the others'"
    return min(1.0, max(0.0, (limit - cheap) / (dear - cheap)))


# --- quality ---------------------------------------------------------------------------------------------


def _by_quality(rule: Rule, at: float, window: Sequence[Seen], judged: Sequence[Judged], limit: float) -> Step:
    """Keep what is lost to the large group, averaged over all scored requests, at `limit`.

    Down as soon as the estimate passes the limit; up by `RISE` only where the upper end of its interval is within.
    """
    scores = sorted(one.score for one in window if one.score is not None and one.route == rule.route)
    if len(scores) < LEAST_SCORES:
        return _frozen(at, f"{len(scores)} of the {LEAST_SCORES} scored requests that it takes")
    below = sum(1 for one in judged if one.score < at)
    if below < LEAST_JUDGED:
        return _frozen(at, f"{below} of the {LEAST_JUDGED} judged answers that it takes")
    mean, high = _loss(at, scores, judged)
    told = f"quality loss {mean:.4f}, at most {high:.4f}, limit {limit:.4f}"
    if mean > limit:
        allowed = (one.score for one in sorted(judged, key=lambda one: one.score, reverse=True) if one.score < at)
        return _towards(rule, at, next((s for s in allowed if _loss(s, scores, judged)[0] <= limit), 0.0), told)
    if high <= limit:
        return _towards(rule, at, at + RISE, told)
    return Step(at=at, how="stays", reason=told)


def _loss(at: float, scores: Sequence[float], judged: Sequence[Judged]) -> tuple[float, float]:
    """Mean loss over all requests with the threshold there, and what it is at most: 95%, however often one looks."""
    from router.quality.intervals import sequence  # numpy, which `check` does without

    below = [one for one in judged if one.score < at]
    share = sum(1 for score in scores if score < at) / len(scores)
    if not below:
        return 0.0, share
    scale = len(below) / sum(one.weight for one in below)  # to a mean of 1 among these
    losses = [one.loss * one.weight * scale for one in below]
    bound = max(1.0, *(abs(loss) for loss in losses))
    high = sequence(losses, -bound, bound, 2 * _MISTAKEN).high
    return share * fmean(losses), share * min(1.0, high)


# --- the move --------------------------------------------------------------------------------------------


def _towards(rule: Rule, at: float, wanted: float, told: str) -> Step:
    stepped = min(at + STEP, max(at - STEP, wanted))
    bounded = min(rule.high, max(rule.low, stepped))
    if abs(bounded - at) < 1e-6:
        end = "upper" if wanted > at else "lower"
        return Step(at=at, how="stays", reason=f"{told}; the {end} bound is reached")
    return Step(at=bounded, how="moves", reason=told)


def _frozen(at: float, why: str) -> Step:
    return Step(at=at, how="frozen", reason=f"not enough evidence: {why}")
