"""What the admin port shows, as plain values. No credential is in any of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from router import __version__, explain
from router.admin.state import AdminState
from router.config import Config, Deployment, Policy, Price
from router.errors import PointsmanError
from router.judging.ledger import Found
from router.judging.shadow import DROPPED
from router.policy import select
from router.types import Load, Record

ASSUMPTION = (
    "Saved is what the same tokens would have cost at the dearest group of the policy, less what they did cost. It "
    "takes for granted that the dearest group would have written as much. Requests whose prices are not known are left "
    "out."
)


def config(state: AdminState) -> dict[str, Any]:
    snapshot = state.snapshot
    current = snapshot.config
    return {
        "version": __version__,
        "digest": current.digest,
        "generation": snapshot.generation,
        "reload_ok": state.config_ok,
        "reload_error": state.last_error,
        "draining": state.draining,
        "started": state.started,
        "policies": {name: _policy(p) for name, p in current.policies.items()},
        "groups": list(current.groups),
        "scorers": {name: spec.kind for name, spec in current.scorers.items()},
        "thresholds": state.steering.view(),
        "canaries": state.trials.view(),
        "workers": [{"pid": os.getpid(), "digest": current.digest, "generation": snapshot.generation}],
        "replicas": [{"replica": of.replica, "digest": of.digest, "generation": of.generation} for of in state.others],
    }


def _policy(of: Policy) -> dict[str, Any]:
    loss = of.target.quality_loss if of.target is not None else None
    return {
        "models": list(of.models),
        "default": of.default,
        "quality_loss": loss.at_most if loss is not None else None,
    }


def groups(state: AdminState, now: float) -> dict[str, Any]:
    """Every group with its deployments, and the deployments that no group uses. `now` is monotonic seconds."""
    current = state.snapshot.config
    shown = {
        name: {"name": name, **_deployment(d), **state.health.of(name, now)} for name, d in current.deployments.items()
    }
    waiting, places = state.waiting(), state.places()
    used = {name for group in current.groups.values() for name in group.deployments}
    return {
        "groups": [
            {
                "name": group.name,
                "waiting": waiting.get(group.name, 0),
                "max_in_flight": group.max_in_flight,
                "places": places.get(group.name),
                "deployments": [shown[name] for name in group.deployments if name in shown],
            }
            for group in current.groups.values()
        ],
        "unused": [deployment for name, deployment in shown.items() if name not in used],
    }


def _deployment(of: Deployment) -> dict[str, Any]:
    return {
        "upstream": of.upstream,
        "model": of.model,
        "base_url": _place(of.base_url),
        "dialects": list(of.dialects),
        "context_window": of.context_window,
        "max_in_flight": of.max_in_flight,
        "price": _price(of.price),
        "nodes": list(of.partition.nodes) if of.partition is not None else [],
    }


def _place(url: str) -> str:
    """A URL without its user, password and query, which may be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if url else ""


def _price(of: Price | None) -> dict[str, float | None] | None:
    return {"input": of.input, "output": of.output, "cached": of.cached} if of is not None else None


def requests(state: AdminState) -> dict[str, Any]:
    """Requests of this process since it started, by policy, route, group and outcome; and their cost."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for (policy, route, group, _, outcome), count in state.metrics.requests().items():
        key = (policy, route, group, outcome)
        counts[key] = counts.get(key, 0) + count
    cost, savings = state.metrics.dollars()
    return {
        "since": state.started,
        "requests": _rows(("policy", "route", "group", "outcome"), counts),
        "cost": cost,
        "savings": savings,
        "records": {"written": state.recorder.written, "dropped": state.recorder.dropped},
    }


def _rows(names: Sequence[str], counts: Mapping[tuple[str, ...], int]) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in sorted(counts.items())]


def summary(state: AdminState, found: Mapping[str, Any]) -> dict[str, Any]:
    """What the records of a stretch of time came to, with the thresholds in force on the scores."""
    current, cuts = state.snapshot.config, state.metrics.thresholds()
    marks = [
        {"policy": policy.name, "route": route.name, "scorer": route.score.scorer, "at": cuts[policy.name, route.name]}
        for policy in current.policies.values()
        for route in policy.routes
        if route.score is not None and (policy.name, route.name) in cuts
    ]
    return {**found, "thresholds": marks, "assumption": ASSUMPTION}


def explained(current: Config, of: Record) -> dict[str, Any] | None:
    """A record's decision made again by the configuration in force and told in words; None where it cannot be."""
    if of.signals is None or of.decision is None:
        return None
    try:
        chosen = current.policies.get(of.policy) or select(current, of.model)
    except PointsmanError:
        return None
    told = explain.explain(current, chosen, of.signals, of.scores, of.pinned, of.load or Load(), of.draw, of.checked)
    return {
        "in_words": explain.render(told),
        "same_configuration": of.digest == current.digest,
        "same_decision": told.decision == of.decision,
    }


def quality(state: AdminState, found: Sequence[Found]) -> dict[str, Any]:
    """What the judged answers of each policy say. Nothing is claimed without evidence."""
    note = None
    if not found:
        note = "No policy has `judge`: no answers of the small groups are compared with those of the large ones."
    elif not any(one.estimates[0].n for one in found):
        note = "No samples yet: answers are compared after they were given, a share of them."
    return {
        "samples": sum(one.estimates[0].n for one in found),
        "policies": [_judged(state, one) for one in found],
        "alarms": state.judging.alarms.view(),
        "note": note,
    }


def _judged(state: AdminState, found: Found) -> dict[str, Any]:
    policy = state.snapshot.config.policies[found.policy]
    count, measured = state.judging.count(found.policy), state.judging.measured.get(found.policy)
    judge = policy.judge
    error = measured.correction if measured is not None else None
    return {
        "policy": found.policy,
        "precision": judge.precision if judge is not None else None,
        "judge": {
            "group": judge.group if judge is not None else None,
            "checker": judge.checker if judge is not None else None,
            "labelled_pairs": measured.pairs if measured is not None else 0,
            "agreement": error.agreement if error is not None else None,
            "worth": dict(error.worth) if error is not None else None,
            "why_uncorrected": measured.why if measured is not None else None,
        },
        "sampling": {
            "share": judge.share if judge is not None else None,
            "budget_per_day": judge.budget_per_day if judge is not None else None,
            "today": count.spent,
            "might": count.might,
            "judged": count.judged,
            "dropped": {why: count.dropped[why] for why in DROPPED},
            "cost": count.cost,
        },
        "calibration": found.calibration,
        "feedback": msgspec.to_builtins(found.feedback),
        "estimates": [msgspec.to_builtins(one) for one in found.estimates],
    }
