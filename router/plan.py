"""From a decision to the deployments to try, and after a failure to the next one or to giving up.

Everything that may be retried, everything that ends a request, and whose fault an error is stands here once, so
that there is one retry owner and one attempt budget. Opening calls, cooldowns and counting belong to the shell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from router.balance import order
from router.config import Config, Deployment, Policy
from router.errors import (
    AccountRefused,
    BadAnswer,
    BadRequest,
    ContextTooLong,
    NoRoom,
    Overloaded,
    PointsmanError,
    RateLimited,
    TimedOut,
    UpstreamError,
    UpstreamStatus,
)
from router.overflow import STATUSES, is_overflow, overflows
from router.policy import Selection, chain_of, first_groups
from router.types import Attempt, Decision, Dialect, Load, Plan, Signals, Target

MAX_ATTEMPTS = 3  # per request, over all groups: Google SRE's figure
# Where everything is cooling, the soonest is probed if its time is this near. A deployment that failed may be
# back early; one that named its own time (429) is not called before it, but for the clocks' difference.
PROBE_FAILED_S = 5.0
PROBE_LIMITED_S = 0.5
_BUSY_RETRY_S = 1.0  # Retry-After where all are at their limit: a slot frees with any answer that ends
_OVERESTIMATE = 2  # the token estimate may be this much too high

# These APIs are translated into one another; the others are served where they are spoken.
_TRANSLATED: frozenset[Dialect] = frozenset(("chat", "messages", "responses"))

Bar = Literal["missing", "dialect", "images", "window", "drained", "limited", "cooling", "probing", "full", "quota"]


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a deployment cannot take a request now. `wait_s`: seconds until that may end, None = it will not."""

    deployment: str
    group: str
    bar: Bar
    reason: str
    wait_s: float | None = None


class Survey(Struct, frozen=True, kw_only=True):
    """Every deployment of the groups in line: those that can serve, by group and unordered, and those that cannot."""

    able: tuple[tuple[str, tuple[str, ...]], ...]
    refusals: tuple[Refusal, ...]


# --- before the first attempt ----------------------------------------------------------------------------


def plan(decision: Decision, policy: Selection, config: Config, load: Load, signals: Signals, draw: float) -> Plan:
    """The deployments to try, in order: group by group along the fallbacks, least busy first within a group.

    `draw` in [0, 1) settles ties, evenly. A preferred deployment comes first where it can serve, else the one that
    other requests with this beginning go to. Where none can serve, `targets` is empty (see `refused_as`), but for a
    probe of one that is about to return.
    """
    seen = _standing(decision, policy, config, load, signals) or survey(decision, policy, config, load, signals)
    targets: tuple[Target, ...] = ()
    for group, names in seen.able:
        if len(names) > 1:
            preferred = decision.deployment
            ordered = order(names, load, draw, config.groups[group].affinity)
            if preferred is not None and group == decision.group and preferred in names:
                ordered = (preferred, *(name for name in ordered if name != preferred))
            names = ordered
        targets += _targets(names, group)
    if targets:
        refused = tuple((r.deployment, r.reason) for r in seen.refusals) if seen.refusals else ()
        return Plan(targets, refused)
    return _without_targets(seen, config, signals)


@lru_cache(4096)  # of a small group every order comes again; of a large one few do
def _targets(deployments: tuple[str, ...], group: str) -> tuple[Target, ...]:
    return tuple([Target(deployment=name, group=group) for name in deployments])


def survey(decision: Decision, policy: Selection, config: Config, load: Load, signals: Signals) -> Survey:
    """Which deployments along the fallbacks can take the request, each looked at once, and why others cannot."""
    able: list[tuple[str, tuple[str, ...]]] = []
    refusals: list[Refusal] = []
    seen: set[str] = set()
    for group in _line(policy, decision):
        known = config.groups.get(group)
        names: tuple[str, ...] = known.deployments if known is not None else ()
        if decision.only:
            names = tuple(n for n in names if n == decision.deployment)
        can: list[str] = []
        for name in names:
            if name in seen:
                continue
            if group not in load.spent:  # else it may serve for another group that holds it too
                seen.add(name)
            deployment = config.deployments.get(name)
            bar = _bar(name, deployment, load, signals) or ("quota" if group in load.spent else None)
            if bar is None:
                can.append(name)
            else:
                refusals.append(_refusal(bar, name, group, deployment, load, signals))
        if can:
            able.append((group, tuple(can)))
    return Survey(able=tuple(able), refusals=tuple(refusals))


def _line(policy: Selection, decision: Decision) -> tuple[str, ...]:
    """The groups to try in order. A cascade's second group stands in for the first where none of that can answer."""
    if decision.within:
        return tuple(group for group in chain_of(policy, decision.group) if group in decision.within)
    if decision.then is None:
        return chain_of(policy, decision.group)
    firsts = first_groups(policy, decision.group, decision.then)
    return tuple(dict.fromkeys((*firsts, *chain_of(policy, decision.then))))


class _Standing(Struct, frozen=True, kw_only=True):
    """A survey that holds as long as nothing cools and the request fits `window` tokens."""

    config: Config
    policy: Selection
    survey: Survey
    window: float


_standings: dict[tuple[int, int, str, str, bool], _Standing] = {}
_REMEMBERED = 512  # a configuration has a few dozen; each holds the values that its key is the identity of


def _standing(decision: Decision, policy: Selection, config: Config, load: Load, signals: Signals) -> Survey | None:
    """The survey of a calm moment, made once for a configuration; None where this request or moment is special."""
    if (
        load.cooling
        or load.probing
        or load.spent
        or decision.only
        or decision.then is not None
        or decision.within
        or not isinstance(policy, Policy)
    ):
        return None
    key = (id(config), id(policy), decision.group, signals.dialect, signals.has_images)
    held = _standings.get(key)
    if held is None:
        if len(_standings) >= _REMEMBERED:
            _standings.clear()
        groups = [config.groups[group] for group in chain_of(policy, decision.group) if group in config.groups]
        chain = [
            config.deployments[name] for group in groups for name in group.deployments if name in config.deployments
        ]
        windows = [d.context_window for d in chain if d.context_window is not None]
        capped = any(d.max_in_flight is not None for d in chain)  # then it depends on the moment
        small = replace(signals, input_tokens=0, max_output_tokens=0)
        held = _standings[key] = _Standing(
            config=config,
            policy=policy,
            survey=survey(decision, policy, config, load, small),
            window=-1.0 if capped else float(min(windows, default=math.inf)),
        )
    return held.survey if signals.input_tokens + signals.max_output_tokens <= held.window else None


def _bar(name: str, deployment: Deployment | None, load: Load, signals: Signals) -> Bar | None:
    """What keeps a deployment from serving. Lasting bars first: a wait is no use where it can never serve."""
    if deployment is None:
        return "missing"
    if signals.dialect not in deployment.dialects and not _can_be_asked(deployment, signals.dialect):
        return "dialect"
    if signals.has_images and not deployment.images:
        return "images"
    window = deployment.context_window
    if window is not None and signals.input_tokens + signals.max_output_tokens > window:
        return "window"
    until = load.cooling.get(name)
    if until is not None and until > load.now:
        if math.isinf(until):
            return "drained"
        if name in load.limited:
            return "limited"
        return "probing" if name in load.probing else "cooling"
    if name in load.probing:
        return "probing"
    most = deployment.max_in_flight
    if most is not None and load.in_flight.get(name, 0) >= most:
        return "full"
    return None


def _can_be_asked(deployment: Deployment, dialect: str) -> bool:
    """Whether a deployment serves a dialect that it does not list: by translation, or because servers of OpenAI's chat
    API have the older ones at the same address. litellm calls chat alone; the embedded engine keeps no embeddings."""
    if dialect in _TRANSLATED:
        return not _TRANSLATED.isdisjoint(deployment.dialects)
    if deployment.upstream == "litellm" or (deployment.upstream == "local" and dialect == "embeddings"):
        return False
    return "chat" in deployment.dialects


def _refusal(bar: Bar, name: str, group: str, deployment: Deployment | None, load: Load, signals: Signals) -> Refusal:
    wait_s: float | None = None
    match bar:
        case "missing":
            reason = "it is not in the configuration"
        case "dialect":
            reason = f"it does not serve the {signals.dialect} API"
        case "images":
            reason = "the request has images and it cannot read them"
        case "window":
            window = deployment.context_window if deployment is not None else None
            needed = signals.input_tokens + signals.max_output_tokens
            reason = f"its context window of {window} is smaller than the {needed} tokens needed (estimated)"
        case "drained":
            reason = "it is drained"
        case "limited" | "cooling":
            wait_s = load.cooling[name] - load.now
            what = "is rate-limited" if bar == "limited" else "failed and is cooling"
            reason = f"it {what} for another {wait_s:.1f} s"
        case "probing":
            wait_s = max(0.0, load.probing[name] - load.now)
            reason = "it failed, and one request is finding out whether it can serve again"
        case "full":
            wait_s = _BUSY_RETRY_S
            most = deployment.max_in_flight if deployment is not None else None
            reason = f"it is full: {load.in_flight.get(name, 0)} of {most} requests in flight"
        case "quota":
            wait_s = load.spent[group]
            reason = f"the caller's quota of group {group} is used up for today"
    return Refusal(deployment=name, group=group, bar=bar, reason=reason, wait_s=wait_s)


def _without_targets(seen: Survey, config: Config, signals: Signals) -> Plan:
    """Nothing can serve: probe the one that returns soonest, or let the widest window judge, or say when to return."""
    refused = tuple((r.deployment, r.reason) for r in seen.refusals)
    waits = sorted((r.wait_s, i, r) for i, r in enumerate(seen.refusals) if r.wait_s is not None)
    for wait_s, _, refusal in waits:
        if (
            (refusal.bar == "cooling" and wait_s <= PROBE_FAILED_S)
            or (refusal.bar == "limited" and wait_s <= PROBE_LIMITED_S)
            or (refusal.bar == "probing" and wait_s <= 0)
        ):
            return Plan(targets=(Target(deployment=refusal.deployment, group=refusal.group),), refused=refused)
    if waits:
        return Plan(targets=(), refused=refused, retry_after_s=waits[0][0])
    # Only windows are in the way. The estimate is rough, and an upstream may shorten the answer to what is left:
    # where the prompt alone could fit, the widest gets one try and its answer is the true one.
    narrow = [r for r in seen.refusals if r.bar == "window"]
    if narrow:
        widest = max(narrow, key=lambda r: config.deployments[r.deployment].context_window or 0)
        if signals.input_tokens <= _OVERESTIMATE * (config.deployments[widest.deployment].context_window or 0):
            return Plan(targets=(Target(deployment=widest.deployment, group=widest.group),), refused=refused)
    return Plan(targets=(), refused=refused)


def refused_as(
    decision: Decision, policy: Selection, config: Config, load: Load, signals: Signals, plan_: Plan
) -> PointsmanError:
    """What to tell the client when `plan_` has no target: 429, 503 or 400, with Retry-After where waiting helps."""
    bars = {r.bar for r in survey(decision, policy, config, load, signals).refusals}
    if bars == {"dialect"}:
        return BadRequest(f"no deployment that may serve this request has the {signals.dialect} API", param="model")
    bars -= {"dialect"}
    if bars and bars <= {"window", "images"}:
        if "images" in bars:
            return BadRequest("no deployment that may serve this request can read images and hold its prompt")
        return ContextTooLong(
            f"the request needs about {signals.input_tokens + signals.max_output_tokens} tokens, more than the "
            "context window of any deployment that may serve it"
        )
    wait_s = plan_.retry_after_s
    if "quota" in bars and not bars & {"limited", "cooling", "probing", "full"}:
        return RateLimited(f"the quota of group {decision.group} is used up for today", retry_after_s=wait_s)
    if "limited" in bars and not bars & {"cooling", "probing", "full"}:
        return RateLimited(f"group {decision.group} is rate-limited", retry_after_s=wait_s)
    return Overloaded(f"no deployment of group {decision.group} can serve now", retry_after_s=wait_s)


# --- after a failed attempt ------------------------------------------------------------------------------

Fault = Literal["client", "overflow", "key", "limit", "deployment", "deadline", "other"]
# client: the request is wrong and would be anywhere. overflow: the prompt passed this deployment's window.
# key: our credential or account there. limit: it asks for a pause. deployment: it failed. deadline: our total limit.

RETRIED: frozenset[Fault] = frozenset(("key", "limit", "deployment"))
COUNTED: frozenset[Fault] = frozenset(("key", "limit", "deployment", "deadline"))  # held against the deployment

_BY_STATUS: dict[int, Fault] = {
    401: "key",
    402: "key",
    403: "key",
    407: "key",  # of a proxy on the way there
    501: "client",  # not implemented: llama.cpp's word for an endpoint that it was started without
    408: "deployment",
    421: "deployment",  # a balancer led us to another server than it meant
    424: "deployment",  # TGI and Bedrock: the model failed while it answered
    425: "deployment",
    499: "deployment",  # something between us and it left
    429: "limit",
    498: "limit",  # Groq: flex capacity exceeded
    529: "limit",  # Anthropic: overloaded
}


def after(plan_: Plan, attempts: Sequence[Attempt], error: PointsmanError, config: Config) -> Target | None:
    """The target to try after `error` ended the last of `attempts`, or None: the request ends with that error.

    Only for failures before the commit point. An overflow goes once to a window that is larger. Of a cascade's calls
    those that failed count: scouts are no attempts to answer, and a first answer that was rejected has not failed.
    """
    attempts = [a for a in attempts if a.error is not None and not a.scout]
    if not attempts or len(attempts) >= MAX_ATTEMPTS:
        return None
    fault = fault_of(error)
    tried = {attempt.deployment for attempt in attempts}
    left = (target for target in plan_.targets if target.deployment not in tried)
    if fault in RETRIED:
        return next(left, None)
    if fault == "overflow" and not any(a.status in STATUSES for a in attempts[:-1]):
        return next((t for t in left if _wider(t, attempts[-1], config)), None)
    return None


def _wider(target: Target, failed: Attempt, config: Config) -> bool:
    """An unstated window is worth a try only in another group: within one the deployments serve the same model."""
    was = config.deployments[failed.deployment].context_window
    is_ = config.deployments[target.deployment].context_window
    if was is None or is_ is None:
        return target.group != failed.group
    return is_ > was


def fault_of(error: PointsmanError) -> Fault:
    """Whose fault an attempt's error is; decides about retries, and about what a breaker may count."""
    match error:
        case ContextTooLong():
            return "overflow"
        case AccountRefused():
            return "key"
        case UpstreamStatus():
            if is_overflow(error.status, error.body):
                return "overflow"
            return _BY_STATUS.get(error.status, "client" if 400 <= error.status < 500 else "deployment")
        case TimedOut():
            return "deadline" if error.clock == "total" else "deployment"
        case BadAnswer() if overflows(error.message):
            return "overflow"
        case NoRoom():
            return "other"
        case UpstreamError():
            return "deployment"
        case _:
            return "client" if 400 <= error.status < 499 else "other"
