"""Keeps the thresholds that policies let move: what was seen of each policy, the cuts in force, and their moves.

The arithmetic is `steer`'s. Here is what it needs of the world: a window of the newest records, a look once a second
when enough has come, the gauge, the log line, and the note in `changes` of every move. Requests pay one look-up where
no policy has a target.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from router import steer
from router.changes import Change, Changes
from router.config import Config
from router.metrics import Metrics
from router.types import Cut, Record

log = logging.getLogger("pointsman.steering")

EVERY = 100  # records of a policy between two looks: a tenth of the window
NO_CUTS: Mapping[str, Cut] = {}


class _Watched:
    """One policy with a target."""

    def __init__(self, rules: tuple[steer.Rule, ...], large: frozenset[str]) -> None:
        self.rules = rules
        self.large = large
        self.seen: deque[steer.Seen] = deque(maxlen=steer.WINDOW)
        self.judged: dict[str, tuple[steer.Judged, ...]] = {rule.route: () for rule in rules}
        self.fresh = 0  # records since the last look


class Standing(Struct, kw_only=True):
    """Where one threshold stands."""

    rule: steer.Rule
    at: float
    how: str = "frozen"
    reason: str = "nothing seen yet"
    moves: int = 0


class Steering:
    """One per process, on the event loop's thread."""

    def __init__(self, metrics: Metrics, changes: Changes, clock: Callable[[], float] = time.time) -> None:
        self.cuts: dict[str, Mapping[str, Cut]] = {}  # by policy, then route; only what moved
        self._metrics = metrics
        self._changes = changes
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._standing: dict[tuple[str, str], Standing] = {}

    def use(self, config: Config) -> None:
        """A configuration comes into force. A threshold whose rule is as it was stays where it stands."""
        watched: dict[str, _Watched] = {}
        standing: dict[tuple[str, str], Standing] = {}
        for policy in config.policies.values():
            rules = steer.rules(policy)
            if not rules:
                continue
            large, old = steer.largest(policy), self._watched.get(policy.name)
            same = old is not None and (old.rules, old.large) == (rules, large)
            watched[policy.name] = old if same and old is not None else _Watched(rules, large)
            for rule in rules:
                here = self._standing.get((rule.policy, rule.route))
                kept = here if here is not None and here.rule == rule else self._remembered(rule)
                standing[rule.policy, rule.route] = kept
        self._watched, self._standing = watched, standing
        for one in standing.values():
            self._metrics.threshold(one.rule.policy, one.rule.route, one.at)
        self._publish()

    def observe(self, of: Record) -> None:
        """A request has ended. Costs one look-up where its policy has no target."""
        watched = self._watched.get(of.policy)
        if watched is not None and (one := steer.seen(of, watched.large)) is not None:
            watched.seen.append(one)
            watched.fresh += 1

    def judged(self, policy: str, route: str, judged: Sequence[steer.Judged]) -> None:
        """All that is known of the route's answers beside the large group's, oldest first."""
        watched = self._watched.get(policy)
        if watched is not None and route in watched.judged:
            watched.judged[route] = tuple(judged[-steer.WINDOW :])

    def look(self) -> list[Change]:
        """Move what should move; the moves made."""
        made: list[Change] = []
        for watched in self._watched.values():
            if watched.fresh < EVERY:
                continue
            watched.fresh = 0
            window = tuple(watched.seen)
            for rule in watched.rules:
                here = self._standing[rule.policy, rule.route]
                step = steer.step(rule, here.at, window, watched.judged[rule.route])
                here.how, here.reason = step.how, step.reason
                if step.how == "moves":
                    made.append(self._move(here, step))
        if made:
            self._publish()
        return made

    def view(self) -> list[dict[str, Any]]:
        """For the admin port: every threshold with a target."""
        return [
            {
                "policy": one.rule.policy,
                "route": one.rule.route,
                "base": one.rule.base,
                "at": round(one.at, 4),
                "bounds": [round(one.rule.low, 4), round(one.rule.high, 4)],
                "state": one.how,
                "reason": one.reason,
                "moves": one.moves,
            }
            for one in self._standing.values()
        ]

    def _move(self, here: Standing, step: steer.Step) -> Change:
        rule, before = here.rule, here.at
        here.at = step.at
        here.moves += 1
        self._metrics.threshold(rule.policy, rule.route, step.at)
        log.info(
            "threshold of %s/%s moved from %.4f to %.4f: %s", rule.policy, rule.route, before, step.at, step.reason
        )
        change = Change(
            time=self._clock(),
            kind="threshold",
            policy=rule.policy,
            of=rule.route,
            stands_for=_stands_for(rule),
            now=step.at,
            before=before,
            why=step.reason,
        )
        self._changes.note(change)
        return change

    def _remembered(self, rule: steer.Rule) -> Standing:
        last = self._changes.last.get(("threshold", rule.policy, rule.route, _stands_for(rule)))
        if last is None or not isinstance(last.now, float):
            return Standing(rule=rule, at=rule.base)
        return Standing(rule=rule, at=min(rule.high, max(rule.low, last.now)), reason="as before the restart")

    def _publish(self) -> None:
        cuts: dict[str, dict[str, Cut]] = {}
        for one in self._standing.values():
            if one.at != one.rule.base:
                cuts.setdefault(one.rule.policy, {})[one.rule.route] = Cut(base=one.rule.base, at=one.at)
        self.cuts = {**cuts}


def _stands_for(rule: steer.Rule) -> str:
    """What a threshold was moved for; another target, base or bound begins anew."""
    goal = rule.goal
    limits = (("large_share", goal.large_share), ("quality_loss", goal.quality_loss), ("cost_per_1k", goal.cost_per_1k))
    named = " ".join(f"{name}<={limit.at_most:g}" for name, limit in limits if limit is not None)
    return f"{rule.base:g} in {rule.low:g}..{rule.high:g} {named}"
