"""Keeps the canaries that policies have: who gets which policy, what both sides have shown, and what came of it.

Sides, comparisons and verdicts are `canary`'s. Here is what they need of the world: counts of the newest requests, the
feedback on them, the state that a restart must not forget, gauges and log lines. Requests pay one look at an empty
mapping where no policy has a canary.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import msgspec

from router.canary import Comparison, Conversation, Side, State, digest, failed, judge, looks, place
from router.changes import Change, Changes
from router.config import Canary, Config, Policy
from router.metrics import Metrics
from router.types import Record

log = logging.getLogger("pointsman.trials")

MOST_CONVERSATIONS = 20_000  # of each side and measure; the oldest are forgotten
MOST_TIMES = 5_000
MOST_REQUESTS = 50_000  # that feedback may still come for
_SHARES: dict[State, float] = {"promoted": 1.0, "rolled_back": 0.0, "shadow": 0.0}


class _Sums:
    """A measure's count and sum, by conversation."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, list[float]] = OrderedDict()

    def add(self, conversation: str, value: float) -> None:
        cell = self._of.get(conversation)
        if cell is None:
            if len(self._of) >= MOST_CONVERSATIONS:
                self._of.popitem(last=False)
            cell = self._of[conversation] = [0, 0.0]
        cell[0] += 1
        cell[1] += value

    def taken(self) -> tuple[Conversation, ...]:
        return tuple(Conversation(count=int(count), total=total) for count, total in self._of.values())


class _Side:
    def __init__(self) -> None:
        self.requests = 0
        self.failures = _Sums()
        self.opinions = _Sums()
        self.times: deque[tuple[str, float]] = deque(maxlen=MOST_TIMES)

    def taken(self) -> Side:
        return Side(
            requests=self.requests,
            failures=self.failures.taken(),
            times=tuple(self.times),
            opinions=self.opinions.taken(),
        )


class Trial:
    """One policy tried in place of another."""

    def __init__(self, stable: Policy, canary: Canary, stands_for: str, state: State, reason: str) -> None:
        self.stable = stable
        self.canary = canary
        self.stands_for = stands_for
        self.state: State = state
        self.reason = reason
        self.comparisons: tuple[Comparison, ...] = ()
        self.sides = {stable.name: _Side(), canary.policy: _Side()}
        self.seen = 0  # requests of the tried policy at the last look

    def chosen(self, conversation: str) -> str:
        """The name of the policy that decides for a conversation."""
        if self.state == "running":
            return self.canary.policy if self._within(conversation) else self.stable.name
        return self.canary.policy if self.state == "promoted" else self.stable.name

    def shadowed(self, conversation: str) -> bool:
        """Whether the tried policy is to decide as well, for the record alone."""
        return self.state == "shadow" and self._within(conversation)

    @property
    def share(self) -> float:
        """Of the conversations that the tried policy decides for."""
        return _SHARES.get(self.state, self.canary.share)

    def _within(self, conversation: str) -> bool:
        return place(self.stable.name, self.canary.policy, conversation) < self.canary.share


class Trials:
    """One per process, on the event loop's thread."""

    def __init__(self, metrics: Metrics, changes: Changes, clock: Callable[[], float] = time.time) -> None:
        self.of: dict[str, Trial] = {}  # by the name of the policy that has a canary
        self._metrics = metrics
        self._changes = changes
        self._clock = clock
        self._by_side: dict[str, Trial] = {}
        self._requests: OrderedDict[str, tuple[_Side, str]] = OrderedDict()  # id -> side and conversation

    def use(self, config: Config) -> None:
        """A configuration comes into force. A trial of two policies that are as they were goes on."""
        of: dict[str, Trial] = {}
        for policy in config.policies.values():
            tried = config.policies.get(policy.canary.policy) if policy.canary is not None else None
            if policy.canary is None or tried is None:
                continue
            stands_for, old = digest(policy, tried), self.of.get(policy.name)
            same = old is not None and old.stands_for == stands_for
            of[policy.name] = old if same and old is not None else self._begun(policy, policy.canary, stands_for)
        self.of = of
        self._by_side = {name: trial for trial in of.values() for name in trial.sides}
        self._metrics.no_canaries()
        for trial in of.values():
            self._publish(trial)

    def observe(self, of: Record) -> None:
        """A request has ended."""
        trial = self._by_side.get(of.policy)
        if trial is None or trial.state != "running" or of.decision is None or of.model not in trial.stable.models:
            return
        side, conversation = trial.sides[of.policy], of.session or of.id
        side.requests += 1
        side.failures.add(conversation, float(failed(of)))
        if of.timing.ttft_s is not None:
            side.times.append((conversation, of.timing.ttft_s))
        if trial.canary.rollback_if.quality_difference is not None:
            if len(self._requests) >= MOST_REQUESTS:
                self._requests.popitem(last=False)
            self._requests[of.id] = (side, conversation)

    def opinion(self, request_id: str, score: float) -> None:
        """Feedback on a request; the first on each counts, so that nobody counts twice."""
        found = self._requests.pop(request_id, None)
        if found is not None:
            side, conversation = found
            side.opinions.add(conversation, score)

    def look(self) -> list[Change]:
        """Judge the trials that are due; the changes of state."""
        made: list[Change] = []
        for trial in self.of.values():
            tried = trial.sides[trial.canary.policy]
            if trial.state != "running" or not looks(trial.seen, tried.requests, trial.canary.until.requests):
                continue
            trial.seen = tried.requests
            verdict = judge(trial.canary, trial.sides[trial.stable.name].taken(), tried.taken())
            trial.comparisons, trial.reason = verdict.comparisons, verdict.reason
            if verdict.state != "running":
                made.append(self._end(trial, verdict.state))
            self._publish(trial)
        return made

    def view(self) -> list[dict[str, Any]]:
        """For the admin port: every canary."""
        return [
            {
                "policy": trial.stable.name,
                "tried": trial.canary.policy,
                "state": trial.state,
                "share": trial.share,
                "requests": trial.sides[trial.canary.policy].requests,
                "until": trial.canary.until.requests,
                "reason": trial.reason,
                "comparisons": [msgspec.to_builtins(one) for one in trial.comparisons],
            }
            for trial in self.of.values()
        ]

    def _begun(self, policy: Policy, canary: Canary, stands_for: str) -> Trial:
        last = self._changes.last.get(("canary", policy.name, canary.policy, stands_for))
        if canary.shadow:
            return Trial(policy, canary, stands_for, "shadow", "decides beside, and is recorded")
        if last is not None and last.now in ("promoted", "rolled_back"):
            state: State = "promoted" if last.now == "promoted" else "rolled_back"
            return Trial(policy, canary, stands_for, state, last.why)
        log.info("canary: policy %s is tried on %g of %s", canary.policy, canary.share, policy.name)
        return Trial(policy, canary, stands_for, "running", "nothing seen yet")

    def _end(self, trial: Trial, state: State) -> Change:
        trial.state = state
        name, tried = trial.stable.name, trial.canary.policy
        level = logging.WARNING if state == "rolled_back" else logging.INFO
        log.log(level, "canary: policy %s is %s in place of %s: %s", tried, state.replace("_", " "), name, trial.reason)
        change = Change(
            time=self._clock(),
            kind="canary",
            policy=name,
            of=tried,
            stands_for=trial.stands_for,
            now=state,
            before="running",
            why=trial.reason,
        )
        self._changes.note(change)
        return change

    def _publish(self, trial: Trial) -> None:
        self._metrics.canary(trial.stable.name, trial.canary.policy, trial.share)
        for one in trial.comparisons:
            if one.worse is not None and one.low is not None and one.high is not None:
                self._metrics.canary_difference(trial.stable.name, one.measure, one.worse, one.low, one.high)
