"""What has been judged: the samples of every policy, those of other workers too, and what follows from them.

Estimates are `quality`'s. Here is which samples count (those of the models that serve now), and who is told: gauges,
and the targets on quality. On the event loop's thread, but for `tell`, which may run in another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from router import record, steer
from router.config import Config, Judge, Policy
from router.metrics import Metrics
from router.quality import drift, sampling
from router.quality.estimates import DECIDED, Estimate, Sample, estimate, value_of
from router.quality.judge_error import UNCORRECTED, WORTH, Correction
from router.quality.opinions import Heard, Opinion, differences, heard
from router.records import Feedback
from router.types import Record

KEPT = 20_000  # newest samples of a policy
_NEWEST = 1000  # of which a calibration is told


class Found(Struct, frozen=True, kw_only=True):
    """What is known of one policy: estimates of all, then by route, then by domain."""

    policy: str
    estimates: tuple[Estimate, ...]
    judged: Mapping[str, Sequence[steer.Judged]]  # by route
    feedback: Heard
    calibration: float | None = None  # expected error of the scores
    fallen: drift.Fallen = drift.Fallen(reference=None, recent=None)


class Ledger:
    """One per process."""

    def __init__(self, metrics: Metrics, judged: Callable[[str, str, Sequence[steer.Judged]], None]) -> None:
        self.fresh = False  # something came since the last `take`
        self.newest = 0.0  # Unix seconds of the newest sample
        self.heard = 0.0  # the same of feedback
        self._of: dict[str, dict[str, Sample]] = {}
        self._opinions: dict[str, dict[tuple[str, str], Opinion]] = {}
        self._metrics = metrics
        self._judged = judged

    def add(self, sample: Sample) -> bool:
        """Whether the sample is new: a request is judged once."""
        held = self._of.setdefault(sample.policy, {})
        if sample.id in held:
            return False
        if len(held) >= KEPT:
            del held[next(iter(held))]
        held[sample.id] = sample
        self.newest = max(self.newest, sample.time)
        self.fresh = True
        return True

    def hear(self, opinion: Opinion) -> None:
        """Feedback; of the same tenant on the same request the newest counts."""
        held, key = self._opinions.setdefault(opinion.policy, {}), (opinion.id, opinion.tenant)
        before = held.get(key)
        if before is not None and before.time >= opinion.time:
            return
        if before is None and len(held) >= KEPT:
            del held[next(iter(held))]
        held[key] = opinion
        self.heard = max(self.heard, opinion.time)
        self.fresh = True

    def opinions(self, policy: str) -> tuple[Opinion, ...]:
        return tuple(self._opinions.get(policy, {}).values())

    def of(self, policy: str) -> tuple[Sample, ...]:
        return tuple(self._of.get(policy, {}).values())

    def rate(self, policy: str, route: str) -> float | None:
        """The mean chance as of the newest sample of a route."""
        newest = (one.rate for one in reversed(self._of.get(policy, {}).values()) if one.route == route)
        return next(newest, None)

    def since(self, policy: str, start: float) -> int:
        """Samples from `start` on, Unix seconds."""
        return sum(one.time >= start for one in self._of.get(policy, {}).values())

    def publish(self, found: Sequence[Found]) -> None:
        """Tell gauges and targets."""
        for one in found:
            for cell in one.estimates:
                if cell.route is not None and cell.n:
                    seen = cell.to_large
                    self._metrics.quality(one.policy, cell.route, seen.difference, seen.low, seen.high)
            for route, judged in one.judged.items():
                self._judged(one.policy, route, judged)


def tell(
    config: Config,
    held: Mapping[str, Sequence[Sample]],
    said: Mapping[str, Sequence[Opinion]],
    errors: Mapping[str, Correction],
) -> list[Found]:
    """What is known of every policy that is judged, or of which there is feedback."""
    known = models(config)
    return [
        _of_policy(
            policy,
            sorted(
                (one for one in held.get(name, ()) if one.models == known(one.small, one.large)),
                key=lambda one: one.time,  # those of other workers are heard of late
            ),
            said.get(name, ()),
            errors.get(name, UNCORRECTED),
        )
        for name, policy in config.policies.items()
        if policy.judge is not None or said.get(name)
    ]


def _of_policy(policy: Policy, samples: Sequence[Sample], said: Sequence[Opinion], error: Correction) -> Found:
    judge = policy.judge if policy.judge is not None else Judge(share=1.0)
    given: dict[str, Any] = {"widest": sampling.widest(judge), "precision": judge.precision, "error": error}
    routes = dict.fromkeys(one.route for one in samples)
    domains = dict.fromkeys(one.domain for one in samples)
    cells = [estimate(samples, **given)]
    cells += [estimate([s for s in samples if s.route == route], route=route, **given) for route in sorted(routes)]
    cells += [estimate([s for s in samples if s.domain == one], domain=one, **given) for one in sorted(domains)]
    return Found(
        policy=policy.name,
        estimates=tuple(cells),
        judged=_judged(samples, said, given["widest"], error),
        feedback=heard(said),
        calibration=drift.calibration(samples[-_NEWEST:], given["widest"]),
        fallen=drift.fallen([WORTH[DECIDED[one.verdict]] for one in samples if one.verdict in DECIDED]),
    )


def _judged(
    samples: Sequence[Sample], said: Sequence[Opinion], widest: float, error: Correction
) -> dict[str, list[steer.Judged]]:
    """By route what targets on quality count: compared answers, and feedback on explored requests."""
    found: dict[str, list[steer.Judged]] = {}
    for one in samples[-steer.WINDOW :]:
        if one.score is not None and one.verdict in DECIDED:
            judged = steer.Judged(score=one.score, loss=-value_of(one, error), weight=one.weight(widest))
            found.setdefault(one.route, []).append(judged)
    for opinion, difference in differences(said[-steer.WINDOW :]):
        if opinion.score is not None:
            found.setdefault(opinion.route, []).append(steer.Judged(score=opinion.score, loss=-difference))
    return found


def opinion_of(config: Config, said: Feedback, on: Record) -> Opinion | None:
    """Feedback as something to count; None where its request was not served by a policy that is in force."""
    policy, made, served = config.policies.get(on.policy), on.decision, record.group(on)
    if policy is None or made is None or served is None:
        return None
    arms = sampling.arms(policy, replace(made, group=served))
    if arms is None:
        return None
    explored = made.other is not None and {served, made.other} == {arms.small, arms.large} and served == made.group
    return Opinion(
        id=said.request_id,
        tenant=said.tenant,
        time=said.time,
        policy=policy.name,
        route=made.route,
        small=arms.small,
        large=arms.large,
        served=served,
        quality=said.score,
        propensity=made.propensity if explored else 1.0,
        score=made.score,
    )


def models(config: Config) -> Callable[[str, str], str]:
    """The digest of the models behind two groups; answers of other models are other answers."""
    known: dict[tuple[str, str], str] = {}

    def of(small: str, large: str) -> str:
        if (small, large) not in known:
            both = [sorted({_model(config, name) for name in _members(config, group)}) for group in (small, large)]
            known[small, large] = sha256(msgspec.json.encode(both)).hexdigest()[:12]
        return known[small, large]

    return of


def _members(config: Config, group: str) -> tuple[str, ...]:
    found = config.groups.get(group)
    return found.deployments if found is not None else ()


def _model(config: Config, deployment: str) -> str:
    found = config.deployments.get(deployment)
    return f"{found.upstream} {found.model or found.path}" if found is not None else ""
