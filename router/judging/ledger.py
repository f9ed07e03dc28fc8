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

from router import steer
from router.config import Config, Policy
from router.metrics import Metrics
from router.quality import sampling
from router.quality.estimates import DECIDED, Estimate, Sample, estimate, value_of
from router.quality.judge_error import UNCORRECTED, Correction

KEPT = 20_000  # newest samples of a policy


class Found(Struct, frozen=True, kw_only=True):
    """What is known of one policy: estimates of all, then by route, then by domain."""

    policy: str
    estimates: tuple[Estimate, ...]
    judged: Mapping[str, Sequence[steer.Judged]]  # by route


class Ledger:
    """One per process."""

    def __init__(self, metrics: Metrics, judged: Callable[[str, str, Sequence[steer.Judged]], None]) -> None:
        self.fresh = False  # something came since the last `take`
        self.newest = 0.0  # Unix seconds of the newest sample
        self._of: dict[str, dict[str, Sample]] = {}
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


def tell(config: Config, held: Mapping[str, Sequence[Sample]], errors: Mapping[str, Correction]) -> list[Found]:
    """What the samples say of every policy that is judged."""
    known = models(config)
    return [
        _of_policy(policy, [s for s in held.get(name, ()) if s.models == known(s.small, s.large)], errors.get(name))
        for name, policy in config.policies.items()
        if policy.judge is not None
    ]


def _of_policy(policy: Policy, samples: Sequence[Sample], error: Correction | None) -> Found:
    judge = policy.judge
    if judge is None:
        raise RuntimeError("only policies with `judge` have samples")
    error = error if error is not None else UNCORRECTED
    given: dict[str, Any] = {"widest": sampling.widest(judge), "precision": judge.precision, "error": error}
    routes = dict.fromkeys(one.route for one in samples)
    domains = dict.fromkeys(one.domain for one in samples)
    cells = [estimate(samples, **given)]
    cells += [estimate([s for s in samples if s.route == route], route=route, **given) for route in sorted(routes)]
    cells += [estimate([s for s in samples if s.domain == one], domain=one, **given) for one in sorted(domains)]
    return Found(
        policy=policy.name,
        estimates=tuple(cells),
        judged={route: _compared(samples, route, given["widest"], error) for route in routes},
    )


def _compared(samples: Sequence[Sample], route: str, widest: float, error: Correction) -> tuple[steer.Judged, ...]:
    """A route's samples as targets on quality count them."""
    return tuple(
        steer.Judged(score=one.score, loss=-value_of(one, error), weight=one.weight(widest))
        for one in samples[-steer.WINDOW :]
        if one.route == route and one.score is not None and one.verdict in DECIDED
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
