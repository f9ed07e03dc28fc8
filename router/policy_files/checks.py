"""What one policy or one deployment says that cannot be meant: empty bands, dead routes, impossible conditions.

Whether a name exists is `references`' question, and whether a policy does what its examples say `examples`'.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, Final

from router.config import (
    Access,
    Allowance,
    Band,
    Canary,
    Cascade,
    Config,
    Deployment,
    Explore,
    Goal,
    Group,
    Key,
    Policy,
    ScorerSpec,
    ScoreRule,
)
from router.errors import Mistake
from router.policy import chain_of
from router.policy_files import addresses
from router.policy_files.conditions import check_when, implies
from router.policy_files.judges import check_judge, unread
from router.policy_files.options import SCORERS, UPSTREAMS, check_options
from router.policy_files.positions import Document, Path
from router.policy_files.shapes import items, mapping
from router.steer import rules

_TARGETS: Final = ("large_share", "quality_loss", "cost_per_1k")
_WORSE: Final = ("error_rate", "ttft_p95", "quality_difference")
# Fields of the APIs that policies set; a name that is nearly one of them is likely misspelt.
_SET: Final = (
    "chat_template_kwargs", "frequency_penalty", "max_completion_tokens", "max_output_tokens", "max_tokens",
    "parallel_tool_calls", "presence_penalty", "reasoning", "reasoning_effort", "response_format", "seed",
    "service_tier", "speed", "stop", "temperature", "thinking", "tool_choice", "top_k", "top_p", "user", "verbosity",
)  # fmt: skip
_LONGEST_S: Final = 365 * 86_400.0  # Redis refuses a time to live beyond its clock, and with it all that waits behind
_OWN: Final = ("model", "stream", "messages", "input")  # what a request is, not how it is answered
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_STORES: Final = ("redis://", "rediss://", "unix://")


def check_policy(document: Document, policy: Policy) -> Iterator[Mistake]:
    """Mistakes in what a well-typed policy means."""
    for index, route in enumerate(policy.routes):
        path: Path = ("routes", index)
        ways = [key for key in ("group", "score", "cascade") if getattr(route, key) is not None]
        if not ways:
            yield document.mistake(path, "the route leads nowhere; give it a group, a score with bands, or a cascade")
        for extra in ways[1:]:
            message = f"the route has a {ways[0]} too; keep one of {ways[0]} and {extra}"
            yield document.mistake((*path, extra), message, at_key=True)
        yield from _check_set(document, (*path, "set"), route.set)
        if route.score is not None:
            yield from _check_bands(document, (*path, "score"), route.score)
        if route.cascade is not None:
            yield from _check_cascade(document, (*path, "cascade"), route.cascade, policy.order)
        if route.when is not None:
            yield from check_when(document, (*path, "when"), route.when)
        if route.stay and route.cascade is not None:
            yield document.mistake(
                (*path, "stay"), "a cascade asks several groups; keep one of stay and cascade", at_key=True
            )
    yield from _check_reach(document, policy)
    yield from _check_fallback(document, policy)
    if policy.pin is not None and not 0 < policy.pin.ttl_s <= _LONGEST_S:
        yield document.mistake(("pin", "ttl"), "must be more than 0 seconds and at most 365d")
    if policy.pin is not None and not 0 <= policy.pin.move_cost <= 1:
        yield document.mistake(("pin", "move_cost"), "must be from 0 to 1: it is taken from a score")
    for index, name in enumerate(policy.order):
        if name in policy.order[:index]:
            yield document.mistake(("order", index), "this group is in the order already; remove one")
    if policy.hedge is not None and not 0 < policy.hedge.after_s <= 3600:
        yield document.mistake(("hedge", "after_s"), "must be more than 0 and at most 3600 seconds")
    if policy.target is not None:
        yield from _check_target(document, policy, policy.target)
    if policy.canary is not None:
        yield from _check_canary(document, policy.canary)
    if policy.judge is not None:
        yield from check_judge(document, policy, policy.judge)
    if policy.explore is not None:
        yield from _check_explore(document, policy, policy.explore)


def warnings(document: Document, policy: Policy) -> Iterator[Mistake]:
    """What is allowed and yet likely not what was meant."""
    if policy.target is not None and policy.target.quality_loss is not None and not (policy.judge or policy.explore):
        message = "needs judged answers: without judge, or explore and feedback, the threshold stays as written"
        yield document.mistake(("target", "quality_loss"), message, at_key=True)
    if policy.judge is not None:
        yield from unread(document, policy.judge)
    for index, route in enumerate(policy.routes):
        yield from _misspelt(document, ("routes", index, "set"), route.set)
        for number, band in enumerate(route.score.bands if route.score is not None else ()):
            yield from _misspelt(document, ("routes", index, "score", "bands", number, "set"), band.set)
    if policy.routes and not policy.examples:
        yield document.mistake((), "this policy has no examples; a few would be run at every check and reload")


def check_deployment(document: Document, deployment: Deployment) -> Iterator[Mistake]:
    """Mistakes in one deployment."""
    base: Path = ("deployments", deployment.name)
    if deployment.upstream == "openai" and not deployment.base_url:
        yield document.mistake((*base, "base_url"), "an openai deployment needs base_url, up to and including /v1")
    elif deployment.base_url and not deployment.base_url.startswith(("http://", "https://")):
        yield document.mistake((*base, "base_url"), "must begin with http:// or https://")
    elif deployment.base_url and (wrong := addresses.unusable_url(deployment.base_url)):
        yield document.mistake((*base, "base_url"), wrong)
    if deployment.upstream in ("openai", "litellm") and not deployment.model:
        yield document.mistake((*base, "model"), f"an {deployment.upstream} deployment needs the upstream's model name")
    yield from addresses.check_key(document, (*base, "api_key"), deployment.api_key)
    if not deployment.dialects:
        yield document.mistake((*base, "dialects"), "must list at least one dialect, such as chat")
    for name in ("metrics_url", "health_url"):
        url: str = getattr(deployment, name)
        if url and deployment.upstream != "openai":
            yield document.mistake((*base, name), "only an openai deployment is asked", at_key=True)
        elif url and (not url.startswith(("/", "http://", "https://")) or not url.isprintable() or " " in url):
            yield document.mistake((*base, name), "must be a path such as /metrics, or begin with http:// or https://")
    for name in ("context_window", "max_in_flight"):
        value: int | None = getattr(deployment, name)
        if value is not None and value < 1:
            yield document.mistake((*base, name), "must be at least 1; leave it out for no limit")
    for one in fields(deployment.timeouts):
        if not getattr(deployment.timeouts, one.name) > 0:
            yield document.mistake((*base, "timeouts", one.name), "must be more than 0 seconds")
    if deployment.price is not None:
        for one in fields(deployment.price):
            if (getattr(deployment.price, one.name) or 0) < 0:
                yield document.mistake((*base, "price", one.name), "a price is 0 or more US dollars per million tokens")
    yield from check_options(document, (*base, "options"), UPSTREAMS, deployment.upstream, deployment.options)
    yield from _check_set(document, (*base, "set"), deployment.set)


def check_group(document: Document, group: Group) -> Iterator[Mistake]:
    """Mistakes in one group."""
    base: Path = ("groups", group.name)
    if group.max_in_flight is not None and group.max_in_flight < 1:
        yield document.mistake((*base, "max_in_flight"), "must be at least 1; leave it out for no limit")
    if group.queue < 0:
        yield document.mistake((*base, "queue"), "must be 0 or more requests")
    elif group.queue and group.max_in_flight is None:
        yield document.mistake(
            (*base, "queue"), "nothing waits without max_in_flight; set it, or remove this", at_key=True
        )
    if not group.queue_wait_s > 0:
        yield document.mistake((*base, "queue_wait_s"), "must be more than 0 seconds")
    if group.affinity and not 1 <= group.affinity <= 100:
        yield document.mistake((*base, "affinity"), "must be a number from 1 to 100, or 0 for none")
    if not 0 <= group.max_ejected <= 1:
        yield document.mistake((*base, "max_ejected"), "must be a share from 0 to 1")


def check_allowance(document: Document, base: Path, allowed: Allowance) -> Iterator[Mistake]:
    """Limits that nothing could meet."""
    for name in ("requests_per_minute", "tokens_per_minute", "concurrent"):
        value: int | None = getattr(allowed, name)
        if value is not None and value < 1:
            yield document.mistake((*base, name), "must be at least 1; leave it out for no limit")
    if allowed.dollars_per_day is not None and not allowed.dollars_per_day > 0:
        yield document.mistake((*base, "dollars_per_day"), "must be more than 0; leave it out for no limit")
    for group, most in allowed.quota.items():
        if most < 0:
            yield document.mistake((*base, "quota", group), "must be 0 or more requests a day")
    if allowed.models == ():
        yield document.mistake((*base, "models"), "must list at least one model; leave it out for all")
    if isinstance(allowed, Key) and not _DIGEST.fullmatch(allowed.sha256):
        message = "must be the 64 hex digits of the key's sha256; `pointsman keys create` writes them"
        yield document.mistake((*base, "sha256"), message)


def uncounted_dollars(document: Document, access: Access, config: Config) -> Iterator[Mistake]:
    """Limits in dollars, where a deployment has no price: a warning."""
    free = [name for name, deployment in config.deployments.items() if deployment.price is None]
    for section, held in (("keys", access.keys), ("tenants", access.tenants)):
        for name, allowed in held.items():
            if free and allowed.dollars_per_day is not None:
                message = f"nothing is counted for deployments without a price: {', '.join(free)}"
                yield document.mistake((section, name, "dollars_per_day"), message, at_key=True)


def check_scorer(document: Document, scorer: ScorerSpec) -> Iterator[Mistake]:
    """Mistakes in one scorer."""
    yield from check_options(document, ("scorers", scorer.name), SCORERS, scorer.kind, scorer.options)
    url = scorer.options.get("url")
    if isinstance(url, str) and url.startswith(("http://", "https://")) and (wrong := addresses.unusable_url(url)):
        yield document.mistake(("scorers", scorer.name, "url"), wrong)
    key = scorer.options.get("api_key")
    if isinstance(key, str) and key:
        yield from addresses.check_key(document, ("scorers", scorer.name, "api_key"), key)


def absent(document: Document) -> Iterator[Mistake]:
    """Files that this machine does not have: a warning, because files are also checked where nothing is served."""
    for section, keys in (("deployments", ("path",)), ("scorers", ("artifact", "calibration"))):
        for name, body in (mapping(document.data.get(section)) or {}).items():
            for key in keys:
                path, value = (section, name, key), (mapping(body) or {}).get(key)
                if isinstance(value, str) and value and not FilePath(value).exists():
                    message = "is not on this machine; a gateway that does not find it refuses the configuration"
                    yield document.mistake(path, message)


def _check_set(document: Document, path: Path, fields_: Mapping[str, Any]) -> Iterator[Mistake]:
    """Fields that are not the operator's to set, and numbers that JSON does not have."""
    for name, value in fields_.items():
        if name in _OWN:
            yield document.mistake((*path, name), f"the field {name} is the gateway's own to set", at_key=True)
        elif not _is_json(value):
            yield document.mistake((*path, name), "holds a number that is not finite, which no JSON can say")


def _misspelt(document: Document, path: Path, fields_: Mapping[str, Any]) -> Iterator[Mistake]:
    """Fields that are nearly those of an API. Others may be a server's own, and go out as they are."""
    for name in fields_:
        close = get_close_matches(name, _SET, n=1, cutoff=0.85)
        if name not in _SET and close:
            message = f"is no field that an API is known to have, and is sent as it stands; did you mean '{close[0]}'?"
            yield document.mistake((*path, name), message, at_key=True)


def _is_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    inner = mapping(value)
    return all(_is_json(one) for one in (items(value) if inner is None else inner.values()))


def check_store(document: Document) -> Iterator[Mistake]:
    """`store` names a Redis, or is left out for memory."""
    store = document.data.get("store")
    if store is not None and not (isinstance(store, str) and store.startswith(_STORES)):
        yield document.mistake(
            ("store",), f"must begin with {', '.join(_STORES)}; leave it out to keep state in memory"
        )
    elif isinstance(store, str) and (wrong := addresses.unusable_store(store)):
        yield document.mistake(("store",), wrong)


def _check_bands(document: Document, path: Path, rule: ScoreRule) -> Iterator[Mistake]:
    if len(rule.bands) < 2:
        yield document.mistake((*path, "bands"), "a score needs at least two bands; for one group, write group")
    floor = 0.0
    for index, band in enumerate(rule.bands):
        here: Path = (*path, "bands", index)
        yield from _check_set(document, (*here, "set"), band.set)
        last = index == len(rule.bands) - 1
        if last and band.below is not None:
            yield document.mistake((*here, "below"), "the last band takes every higher score; remove its below")
        elif not last and band.below is None:
            yield document.mistake(here, "only the last band goes without below; the bands after this one get nothing")
        elif band.below is not None and not floor < band.below <= 1:
            yield document.mistake((*here, "below"), _band_message(band, floor))
        floor = band.below if band.below is not None and floor < band.below <= 1 else floor
    if len(rule.bands) > 1 and rule.bands[-1].below is None and floor == 1:
        yield document.mistake(
            (*path, "bands", len(rule.bands) - 1), "only a score of exactly 1 leads here; lower the below above it"
        )


def _check_cascade(document: Document, path: Path, one: Cascade, order: tuple[str, ...]) -> Iterator[Mistake]:
    """Cascades that lead back to where they began, verify nothing, or look for what nobody is asked."""
    want, verify = one.verify, (*path, "verify")
    if one.first == one.then:
        yield document.mistake((*path, "then"), "this is the first group again; name the one to escalate to")
    elif one.first in order and one.then in order and order.index(one.then) < order.index(one.first):
        yield document.mistake((*path, "then"), "stands below the first group in `order`; a cascade goes up")
    looks = want.agreement_at_least is not None or want.scorer is not None
    if not (looks or want.not_empty or want.no_refusal or want.valid_json or want.logprob_at_least is not None):
        yield document.mistake(verify, "every check is off, so nothing would be escalated; for one group, write group")
    if one.scouts and not looks:
        message = "scouts are asked and paid for, but no check looks at them; add verify: {agreement_at_least: 0.5}"
        yield document.mistake((*path, "scouts"), message, at_key=True)
    if want.agreement_at_least is not None and not one.scouts:
        message = "there is nobody to agree with; name the groups to ask in scouts"
        yield document.mistake((*verify, "agreement_at_least"), message, at_key=True)
    for name, other in (("scorer", "score_below"), ("score_below", "scorer")):
        if getattr(want, name) is not None and getattr(want, other) is None:
            yield document.mistake((*verify, name), f"says nothing without {other}; add it", at_key=True)
    for name in ("agreement_at_least", "score_below"):
        share: float | None = getattr(want, name)
        if share is not None and not 0 < share <= 1:
            yield document.mistake((*verify, name), "must be above 0 and at most 1")
    if want.logprob_at_least is not None and want.logprob_at_least > 0:
        message = "a log-probability is 0 or less; -0.5 asks for tokens that were 61% likely on average"
        yield document.mistake((*verify, "logprob_at_least"), message)
    if not one.wait_s > 0:
        yield document.mistake((*path, "wait_s"), "must be more than 0 seconds")


def blind(document: Document, policy: Policy, config: Config) -> Iterator[Mistake]:
    """Checks of cascades that can tell nothing of an answer, and scouts that there is never room for: a warning."""
    for index, route in enumerate(policy.routes):
        if route.cascade is None:
            continue
        want, path = route.cascade.verify, ("routes", index, "cascade", "verify")
        group, spec = config.groups.get(route.cascade.first), config.scorers.get(want.scorer or "")
        firsts = [config.deployments[name] for name in (group.deployments if group is not None else ())]
        if want.logprob_at_least is not None and not any(one.logprobs for one in firsts):
            message = "no deployment of the first group has logprobs: true, so this check can never tell"
            yield document.mistake((*path, "logprob_at_least"), message, at_key=True)
        for at, name in enumerate(route.cascade.scouts):
            most, asked = config.groups[name].max_in_flight, (route.cascade.first, *route.cascade.scouts[: at + 1])
            if most is not None and asked.count(name) > most:
                message = f"is never asked: group {name} has max_in_flight: {most}, and this would be one request more"
                yield document.mistake(("routes", index, "cascade", "scouts", at), message)
        if spec is not None and spec.kind in ("lexical", "encoder", "generative", "remote"):
            message = f"a {spec.kind} scorer looks at the prompt alone; one of the kind cascade sees the answers"
            yield document.mistake((*path, "scorer"), message, at_key=True)


def _band_message(band: Band, floor: float) -> str:
    if band.below is not None and 0 < band.below <= floor:
        return f"no score can fall here: the band above ends at {floor:g} already, and bands go from low to high"
    return "must be above 0 and at most 1, as scores are"


def _check_reach(document: Document, policy: Policy) -> Iterator[Mistake]:
    """A route whose requests all go to routes above it. A route with a score decides too: an abstention leads to
    the policy's default, not on to the next route."""
    for index, route in enumerate(policy.routes):
        for earlier, above in enumerate(policy.routes[:index]):
            if implies(route.when, above.when):
                why = "takes every request" if implies(None, above.when) else "takes every request that this one would"
                message = f"no request gets here: routes[{earlier}] above {why}; move this route up or narrow that one"
                yield document.mistake(("routes", index), message)
                break


def _check_fallback(document: Document, policy: Policy) -> Iterator[Mistake]:
    """Groups may fall back on each other (a plan visits each once); a group on itself is a mistake."""
    for name, others in policy.fallback.items():
        for index, other in enumerate(others):
            path: Path = ("fallback", name, index)
            if other == name:
                yield document.mistake(path, "a group cannot fall back on itself; its deployments are all tried first")
            elif other in others[:index]:
                yield document.mistake(path, "this group is in the list already; remove one")


def _check_explore(document: Document, policy: Policy, explore: Explore) -> Iterator[Mistake]:
    """A share that leaves the first group more likely than the other, and an edge that may be crossed."""
    if not 0 < explore.share <= 0.5:
        yield document.mistake(("explore", "share"), "must be more than 0 and at most 0.5")
    if not 0 < explore.within <= 1:
        yield document.mistake(("explore", "within"), "must be more than 0 and at most 1")
    edges = [pair for route in policy.routes if route.score for pair in pairwise(route.score.bands)]
    crossings = [(a.group, b.group) for one, other in edges for a, b in ((one, other), (other, one))]
    if not any(a != b and b in chain_of(policy, a) for a, b in crossings):
        yield document.mistake(
            ("explore",),
            "nothing is explored: only a group's fallback is, and no band falls back on the band beside it; "
            "add fallback, or remove explore",
            at_key=True,
        )


def _check_target(document: Document, policy: Policy, goal: Goal) -> Iterator[Mistake]:
    """One limit within its span, and bounds that hold the threshold they are for."""
    named = [name for name in _TARGETS if getattr(goal, name) is not None]
    if len(named) != 1:
        wrong = "names several targets, which may pull apart; keep one" if named else "names no target"
        yield document.mistake(("target",), f"{wrong}; known: {', '.join(_TARGETS)}")
        return
    at_most: float = getattr(goal, named[0]).at_most
    if not (at_most > 0 and (at_most < 1 or named[0] == "cost_per_1k")):
        wanted = "more than 0" if named[0] == "cost_per_1k" else "more than 0 and less than 1"
        yield document.mistake(("target", named[0], "at_most"), f"must be {wanted}")
    bounds = goal.bounds
    if bounds is not None and not (len(bounds) == 2 and 0 <= bounds[0] < bounds[1] <= 1):
        yield document.mistake(("target", "bounds"), "must be two scores from 0 to 1, the lower one first")
        return
    moved = rules(policy)
    if not moved:
        message = "moves the threshold of a score, and no route here has one between two groups; remove it"
        yield document.mistake(("target",), message, at_key=True)
    for rule in moved:
        if bounds is not None and not bounds[0] <= rule.base <= bounds[1]:
            place = next(index for index, one in enumerate(policy.routes) if one.name == rule.route)
            message = f"must hold the threshold that routes[{place}] has as written, which is where it begins"
            yield document.mistake(("target", "bounds"), message)


def _check_canary(document: Document, canary: Canary) -> Iterator[Mistake]:
    """A share, an end, and a reason to go back. Whether the policy exists is `references`' question."""
    limits = canary.rollback_if
    if not 0 < canary.share <= 1:
        yield document.mistake(("canary", "share"), "must be more than 0 and at most 1")
    if canary.until.requests < 1:
        yield document.mistake(("canary", "until", "requests"), "must be at least 1")
    given = {name: value for name in _WORSE if (value := getattr(limits, name)) is not None}
    if not given and not canary.shadow:
        message = f"would take all traffic whatever it does; add rollback_if with one of {', '.join(_WORSE)}"
        yield document.mistake(("canary",), message, at_key=True)
    for name, value in given.items():
        if value < 0 or (value >= 1 and name != "ttft_p95"):
            wanted = "0 seconds or more" if name == "ttft_p95" else "0 or more, and less than 1"
            yield document.mistake(("canary", "rollback_if", name), f"must be {wanted}")
