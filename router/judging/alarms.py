"""Alarms of drift: what is looked at once in a while, and who is told when it is no longer what it was.

Numbers and limits are `quality.drift`'s. Scorers are compared with their own first scores since the start, by what
metrics count anyway; quality by the samples, over restarts. An alarm is a gauge, a log line when it rises and one when
it falls, and a row of the admin port.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from router.metrics import Metrics
from router.quality import drift
from router.quality.drift import Limit
from router.tallies import SCORER_S

log = logging.getLogger("pointsman.alarms")

Kind = Literal["score_drift", "abstentions", "scorer_latency", "served_model", "calibration", "quality"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LIMITS: Final[Mapping[Kind, Limit]] = {
    "score_drift": Limit(rise=0.25, fall=0.1),  # PSI: the usual marks of a shift, and of none
    "abstentions": Limit(rise=0.01, fall=0.005),  # share of the questions
    "scorer_latency": Limit(rise=2.0, fall=1.5),  # p95, in multiples of the first
    "served_model": Limit(rise=0.0, fall=0.0),  # answers of another model since the last look
    "calibration": Limit(rise=0.15, fall=0.1),  # mean distance of score and share found worse
    "quality": Limit(rise=0.5, fall=0.5),  # the detector has its own memory: 1 while it is sure
}
_TOLD: Final[Mapping[Kind, str]] = {
    "score_drift": "its scores are spread otherwise than at first (population stability index {0:.2f})",
    "abstentions": "it gave no score for {0:.1%} of the newest questions",
    "scorer_latency": "its slow answers take {0:.1f} times as long as at first",
    "served_model": "{0:.0f} answers since the last look are of another model than the one asked for",
    "calibration": "its scores are off by {0:.2f} on average from the share of answers found worse",
    "quality": "the small group's answers, beside the large one's, are worse than at first",
}
REFERENCE = 2000  # first scores, which later ones are compared with
WINDOW = 1000  # newest scores that are looked at together
LOOK_S = 60.0


class Reading(Struct, frozen=True, kw_only=True):
    """What metrics have counted of one scorer since the start."""

    scores: Sequence[float]  # by tenth
    seconds: Sequence[float]  # by bucket of SCORER_S
    abstained: int


class Alarm(Struct, frozen=True, kw_only=True):
    """One that is up. `of` is the scorer, the deployment or the policy."""

    kind: Kind
    of: str
    since: float  # Unix seconds
    value: float
    why: str


class _Scorer:
    """One scorer's first counts, and those at the beginning of the newest window."""

    def __init__(self) -> None:
        self.first: Reading | None = None
        self.last = Reading(scores=(), seconds=(), abstained=0)


class Alarms:
    """One per process."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.time) -> None:
        self.up: dict[tuple[Kind, str], Alarm] = {}
        self._metrics = metrics
        self._clock = clock
        self._scorers: dict[str, _Scorer] = {}
        self._others: dict[str, int] = {}

    def scorers(self, readings: Mapping[str, Reading]) -> None:
        """Look at every scorer of which a window is full."""
        for name, now in readings.items():
            held = self._scorers.setdefault(name, _Scorer())
            window = _since(held.last, now)
            asked = sum(window.scores) + window.abstained
            if asked < WINDOW:
                continue
            self._say("abstentions", name, window.abstained / asked)
            if held.first is None:
                if sum(now.scores) >= REFERENCE:
                    held.first, held.last = now, now
                continue
            held.last = now
            if sum(window.scores):
                self._say("score_drift", name, drift.psi(held.first.scores, window.scores))
            before, after = (drift.quantile(one.seconds, SCORER_S, 0.95) for one in (held.first, window))
            if before and after:
                self._say("scorer_latency", name, after / before)

    def served(self, others: Mapping[str, int]) -> None:
        """Look at how many answers were of another model, by deployment, since the start."""
        for name, count in others.items():
            self._say("served_model", name, float(count - self._others.get(name, 0)))
        self._others = dict(others)

    def policy(self, name: str, error: float | None, fallen: drift.Fallen) -> None:
        """Look at what a policy's samples say."""
        self._say("calibration", name, error)
        if fallen.reference is not None and fallen.recent is not None:
            told = f": {fallen.recent:+.3f} over the newest {drift.RECENT}, {fallen.reference:+.3f} at first"
            self._say("quality", name, 1.0 if fallen.at is not None else 0.0, told)

    def forget(self, kinds: Sequence[Kind], names: Sequence[str]) -> None:
        """Drop alarms of things that a configuration no longer has: those not among `names`."""
        for kind, of in [key for key in self.up if key[0] in kinds and key[1] not in names]:
            del self.up[kind, of]
            self._metrics.alarm(kind, of, None)

    def view(self) -> list[dict[str, Any]]:
        """For the admin port: those that are up, oldest first."""
        return [
            {"kind": one.kind, "of": one.of, "since": one.since, "value": one.value, "why": one.why}
            for one in sorted(self.up.values(), key=lambda one: one.since)
        ]

    def _say(self, kind: Kind, of: str, value: float | None, more: str = "") -> None:
        risen = (kind, of) in self.up
        holds = LIMITS[kind].holds(value, risen)
        if value is not None or holds != risen:
            self._metrics.alarm(kind, of, holds)
        if holds == risen or value is None:
            return
        if holds:
            why = _TOLD[kind].format(value) + more
            self.up[kind, of] = Alarm(kind=kind, of=of, since=self._clock(), value=value, why=why)
            log.warning("alarm %s of %s: %s", kind, of, why)
        else:
            del self.up[kind, of]
            log.info("alarm %s of %s is over", kind, of)


def _since(before: Reading, now: Reading) -> Reading:
    if not before.scores:
        return now
    return Reading(
        scores=[b - a for a, b in zip(before.scores, now.scores, strict=True)],
        seconds=[b - a for a, b in zip(before.seconds, now.seconds, strict=True)],
        abstained=now.abstained - before.abstained,
    )
