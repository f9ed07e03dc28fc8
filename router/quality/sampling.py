"""Which answered requests are judged: how likely each is, whom it is compared with, and what kind of request it is.

Requests near the threshold are judged more often, because there it is decided; the chance is kept with each sample, so
that estimates can weigh it out again. Chance itself arrives as an argument, drawn from the request's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from router.config import Judge, Policy
from router.policy import leads, order
from router.types import Decision, Signals

CODE = 0.3  # share of a text from which on it counts as code
JUDGED = ("chat", "messages", "responses", "completions")  # dialects whose answers are words


class Arms(Struct, frozen=True, kw_only=True):
    """The two groups whose answers are compared, and which of them served."""

    small: str
    large: str
    served: str

    @property
    def other(self) -> str:
        return self.large if self.served == self.small else self.small


def chance(judge: Judge, made: Decision) -> float:
    """How likely a request is to be judged, once it may be."""
    near = judge.near_share if judge.near_share is not None else judge.share
    edge = made.threshold
    if made.score is not None and edge is not None and abs(made.score - edge) <= judge.within:
        return near
    return judge.share


def widest(judge: Judge) -> float:
    """The largest weight that a sample can have: the most likely kind of request over the least likely one."""
    near = judge.near_share if judge.near_share is not None else judge.share
    return max(near, judge.share) / min(near, judge.share)


def draw(request_id: str) -> float:
    """The request's chance in [0, 1), apart from the one that plans and explores with."""
    digest = blake2b(b"judge\0" + request_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2.0**64


def arms(policy: Policy, made: Decision) -> Arms | None:
    """Whom the answer of the group decided on is compared with; None where there is nobody.

    The route's own smallest and largest group, else those of the policy. What a route keeps within its groups is not
    shown to another.
    """
    route = next((one for one in policy.routes if one.name == made.route), None)
    named: Sequence[str] = leads(route) if route is not None else ()
    if len(named) < 2:
        named = order(policy)
    if made.within:
        named = [name for name in named if name in made.within]
    if len(named) < 2:
        return None
    smallest, largest = named[0], named[-1]
    small = smallest if made.group == largest else made.group
    if small == largest or made.group not in (small, largest):
        return None
    return Arms(small=small, large=largest, served=made.group)


def domain(signals: Signals) -> str:
    """What kind of request it is, as far as its signals tell."""
    if signals.side_request:
        return "side"
    if signals.tools:
        return "agent"
    if signals.code_share >= CODE:
        return "code"
    return f"language {signals.language}" if signals.language else "other"


def fields(policy: Policy, route: str, group: str) -> Mapping[str, Any]:
    """The request fields that the route overrides where it leads to this group."""
    for one in policy.routes:
        if one.name == route:
            bands = one.score.bands if one.score is not None else ()
            band = next((band for band in bands if band.group == group), None)
            return {**one.set, **(band.set if band is not None else {})}
    return {}
