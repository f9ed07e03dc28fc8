"""What an operator's policy says, asked as pure questions: which one serves a model name, whether a condition
holds, in which order groups stand, what falls back on what. Reading YAML belongs to `policy_files`, choosing a
group to `decide`, choosing deployments to `plan`.

Conditions are turned into closures once and remembered by identity of the value they came from, so that a check
on the hot path costs an attribute and a comparison. The memory is bounded, holds the value it is keyed by (an id
is never reused while it is in there) and never changes an answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, takewhile
from typing import Any, Literal, cast

from msgspec import Struct

from router.config import Cascade, Config, Hedge, Pin, Policy, Range, Route, ScoreRule, When
from router.errors import UnknownModel
from router.types import Signals

Test = Callable[[Signals], bool]

NUMBERS = (
    "input_tokens",
    "prompt_chars",
    "turns",
    "tools",
    "tool_calls",
    "tool_errors",
    "repeated_calls",
    "spinning",
    "context_growth",
    "max_output_tokens",
    "code_share",
    "hour",
    "weekday",
)
FLAGS = ("tool_loop", "side_request", "has_images", "wants_json", "stream")
WORDS = ("phase", "language", "model", "dialect", "tenant", "key")
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "at_least": (operator.ge, "at least"),
    "at_most": (operator.le, "at most"),
    "above": (operator.gt, "above"),
    "below": (operator.lt, "below"),
}

ASKED = "asked"  # stands for the policy, and for the route, where the client named a group or a deployment
UNRANKED = 1_000_000  # rank of a group that the order does not name: it counts as above every one that it does
_REMEMBERED = 512  # policies, and conditions asked about on their own; a configuration has a few dozen


class Asked(Struct, frozen=True, kw_only=True):
    """The client named a group, or a deployment, instead of a policy's model."""

    model: str
    group: str
    deployment: str | None = None
    name: str = ASKED
    hedge: Hedge | None = None  # none: it is a policy that hedges


Selection = Policy | Asked


class Step(Struct, frozen=True, kw_only=True):
    """One route, ready to be tested. `test` is None where the route has no condition."""

    route: Route
    test: Test | None
    rule: ScoreRule | None
    top: int  # the highest rank its bands can lead to


class Ladder(Struct, frozen=True, kw_only=True):
    """A policy made ready: its steps, and the rank of each group, smallest first."""

    steps: tuple[Step, ...]
    rank: Mapping[str, int]
    stays: bool  # some route keeps its requests within its own groups
    sets: bool  # some condition alone leads to a group with request fields of its own, which a tool loop there has too
    chains: Mapping[str, tuple[str, ...]]  # of each group it may lead to: the group and its fallbacks
    pin: Pin  # a policy that says nothing of pins has the default one: a tool loop must never change group


class Check(Struct, frozen=True, kw_only=True):
    """One condition against its signal, in words. `parts` are the members of an `any` or `all`."""

    field: str
    condition: str
    value: str
    held: bool
    parts: tuple[Check, ...] = ()


# --- which policy ----------------------------------------------------------------------------------------


def select(config: Config, model: str) -> Selection:
    """The policy that serves `model`, or the group or deployment of that name. Raises UnknownModel.

    A deployment may be named where a policy that may lead to it says `allow_deployments`.
    """
    found = config.models.get(model)
    if found is not None:
        return found
    if model in config.groups:
        return Asked(model=model, group=model)
    if model in config.deployments:
        for policy in config.policies.values():
            group = _holder(config, policy, model) if policy.allow_deployments else None
            if group is not None:
                return Asked(model=model, group=group, deployment=model)
    raise UnknownModel(f"the model {model[:100]!r} does not exist; GET /v1/models lists those that do", param="model")


def visible_models(config: Config) -> tuple[str, ...]:
    """Every name that `select` accepts: the policies' models, then groups, then deployments that may be named."""
    names = dict.fromkeys(chain(config.models, config.groups))
    for policy in config.policies.values():
        if policy.allow_deployments:
            names.update((d, None) for d in config.deployments if _holder(config, policy, d) is not None)
    return tuple(names)


def _holder(config: Config, policy: Policy, deployment: str) -> str | None:
    for group in reach(policy):
        if group in config.groups and deployment in config.groups[group].deployments:
            return group
    return None


def named_headers(config: Config) -> frozenset[str]:
    """Lower-case names of the request headers that some condition reads; ask once per configuration."""
    whens = [r.when for p in config.policies.values() for r in p.routes if r.when is not None]
    whens += [p.judge.when for p in config.policies.values() if p.judge is not None and p.judge.when is not None]
    return frozenset(name.lower() for when in whens for part in _parts(when) for name in part.headers or {})


def _parts(when: When) -> Iterator[When]:
    yield when
    for part in chain(when.any or (), when.all or ()):
        yield from _parts(part)


# --- groups ----------------------------------------------------------------------------------------------


def leads(route: Route) -> tuple[str, ...]:
    """Groups that a route may lead to, in the order it names them."""
    bands = route.score.bands if route.score is not None else ()
    own = (route.group,) if route.group is not None else ()
    both = (route.cascade.first, route.cascade.then) if route.cascade is not None else ()
    return tuple(dict.fromkeys((*own, *(b.group for b in bands), *both)))


def cascade(policy: Selection, route: str) -> Cascade | None:
    """The cascade of a route, by the route's name."""
    routes = () if isinstance(policy, Asked) else policy.routes
    return next((one.cascade for one in routes if one.name == route), None)


def reach(policy: Policy) -> tuple[str, ...]:
    """Every group that a policy may lead to, fallbacks included, in the order they are named."""
    named = dict.fromkeys(chain(chain.from_iterable(leads(r) for r in policy.routes), (policy.default,)))
    return tuple(dict.fromkeys(chain.from_iterable(_chain(policy, g) for g in named)))


def chain_of(policy: Selection, group: str) -> tuple[str, ...]:
    """`group` and then its fallbacks, nearest first, each once: a cycle ends where it meets itself.

    A group that the client asked for by name has no fallback: something else would not be what was asked.
    """
    if isinstance(policy, Asked):
        return (group,)
    return ladder(policy).chains.get(group) or _chain(policy, group)


def first_groups(policy: Selection, first: str, then: str) -> tuple[str, ...]:
    """Those whose answer a cascade verifies: `first` and its fallbacks, as far as they stand before `then`."""
    return tuple(takewhile(lambda group: group != then, chain_of(policy, first)))


def _chain(policy: Policy, group: str) -> tuple[str, ...]:
    seen = [group]
    for one in seen:  # grows while it is walked: breadth first
        seen.extend(dict.fromkeys(g for g in policy.fallback.get(one, ()) if g not in seen))
    return tuple(seen)


def order(policy: Policy) -> tuple[str, ...]:
    """Groups from smallest to largest: as the policy says, else as bands and cascades name them, then its default."""
    if policy.order:
        return policy.order
    named = chain.from_iterable(leads(r) for r in policy.routes if r.group is None)
    return tuple(dict.fromkeys((*named, policy.default)))


def largest_edge(rule: ScoreRule) -> int | None:
    """The band below the largest group's: its `below` is the threshold. None where all bands have one group."""
    bands = rule.bands
    for index in range(len(bands) - 2, -1, -1):
        if bands[index].group != bands[-1].group:
            return index if bands[index].below is not None else None
    return None


def ladder(policy: Policy) -> Ladder:
    """The policy made ready for `decide`; the same value is returned for the same policy."""
    held = _ladders.get(id(policy))
    if held is None:
        if len(_ladders) >= _REMEMBERED:
            _ladders.clear()
        held = _ladders[id(policy)] = (policy, _ladder(policy))
    return held[1]


_ladders: dict[int, tuple[Policy, Ladder]] = {}


def _ladder(policy: Policy) -> Ladder:
    rank = {group: i for i, group in enumerate(order(policy))}
    steps = tuple(
        Step(
            route=route,
            test=None if route.when is None else compiled(route.when),
            rule=route.score,
            top=max((rank.get(g, UNRANKED) for g in leads(route)), default=UNRANKED),
        )
        for route in policy.routes
    )
    chains = {group: _chain(policy, group) for group in reach(policy)}
    stays = any(route.stay for route in policy.routes)
    sets = any(route.group is not None and route.when is not None and route.set for route in policy.routes)
    return Ladder(steps=steps, rank=rank, stays=stays, sets=sets, chains=chains, pin=policy.pin or Pin())


# --- conditions ------------------------------------------------------------------------------------------


def holds(when: When, signals: Signals) -> bool:
    """Whether every field given in `when` holds; an empty condition does."""
    return compiled(when)(signals)


def compiled(when: When) -> Test:
    """`when` as a closure; the same one is returned for the same value."""
    held = _tests.get(id(when))
    if held is None:
        if len(_tests) >= _REMEMBERED:
            _tests.clear()
        held = _tests[id(when)] = (when, _every(tuple(_tests_of(when))))
    return held[1]


_tests: dict[int, tuple[When, Test]] = {}


def _tests_of(when: When) -> Iterator[Test]:
    # Flags before numbers before words: cheapest first, since the first that fails ends the test.
    for name in (*FLAGS, *NUMBERS, *WORDS):
        want = getattr(when, name)
        if want is not None:
            yield _test(operator.attrgetter(name), want)
    for header, want in (when.headers or {}).items():
        yield _header(header.lower(), want)
    if when.all is not None:
        yield _every(tuple(compiled(part) for part in when.all))
    if when.any is not None:
        yield _some(tuple(compiled(part) for part in when.any))


def _test(get: Callable[[Signals], Any], want: bool | float | str | Range | tuple[str, ...]) -> Test:
    if isinstance(want, tuple | list):
        allowed = frozenset(want)
        return lambda signals: get(signals) in allowed
    if isinstance(want, Range):
        return _every(tuple(_bound(get, *bound) for bound in _bounds(want)))
    return lambda signals: get(signals) == want


def _bound(get: Callable[[Signals], Any], holds_: Callable[[float, float], bool], limit: float) -> Test:
    return lambda signals: holds_(get(signals), limit)


def _bounds(want: Range) -> Iterator[tuple[Callable[[float, float], bool], float]]:
    for name, (compare, _) in _BOUNDS.items():
        limit = getattr(want, name)
        if limit is not None:
            yield compare, limit


def _header(name: str, want: str | tuple[str, ...]) -> Test:
    allowed = frozenset((want,) if isinstance(want, str) else want)
    return lambda signals: signals.headers.get(name) in allowed


def _every(tests: tuple[Test, ...]) -> Test:
    match tests:
        case ():
            return lambda _: True
        case (one,):
            return one
        case (one, two):
            return lambda signals: one(signals) and two(signals)
        case _:
            return lambda signals: all(test(signals) for test in tests)


def _some(tests: tuple[Test, ...]) -> Test:
    return tests[0] if len(tests) == 1 else lambda signals: any(test(signals) for test in tests)


# --- conditions in words ---------------------------------------------------------------------------------


def examine(when: When, signals: Signals) -> tuple[Check, ...]:
    """Every field given in `when` against its signal, for people; agrees with `holds`."""
    checks: list[Check] = []
    for name in (*FLAGS, *NUMBERS, *WORDS):
        want = getattr(when, name)
        if want is not None:
            held = _test(operator.attrgetter(name), want)(signals)
            checks.append(Check(field=name, condition=wording(want), value=wording(getattr(signals, name)), held=held))
    for header, want in (when.headers or {}).items():
        value = wording(signals.headers.get(header.lower(), ""))
        held = _header(header.lower(), want)(signals)
        checks.append(Check(field=f"headers.{header}", condition=wording(want), value=value, held=held))
    kinds: tuple[tuple[Literal["all", "any"], tuple[When, ...] | None], ...] = (("all", when.all), ("any", when.any))
    for kind, members in kinds:
        if members is not None:
            checks.append(_examine_list(kind, members, signals))
    return tuple(checks)


def _examine_list(kind: Literal["any", "all"], members: tuple[When, ...], signals: Signals) -> Check:
    parts = tuple(_examine_member(i, member, signals) for i, member in enumerate(members))
    count = sum(part.held for part in parts)
    held = count == len(parts) if kind == "all" else count > 0
    return Check(field=kind, condition=f"{kind} of {len(parts)}", value=f"{count} held", held=held, parts=parts)


def _examine_member(index: int, member: When, signals: Signals) -> Check:
    parts = examine(member, signals)
    count = sum(part.held for part in parts)
    held = count == len(parts)
    return Check(field=f"[{index}]", condition=f"all of {len(parts)}", value=f"{count} held", held=held, parts=parts)


def wording(want: object) -> str:
    """A condition, or a signal's value, as an operator would read it."""
    if isinstance(want, Range):
        bounds = ((word, getattr(want, name)) for name, (_, word) in _BOUNDS.items())
        return " and ".join(f"{word} {limit:g}" for word, limit in bounds if limit is not None) or "any number"
    if isinstance(want, bool):
        return "yes" if want else "no"
    if isinstance(want, float):
        return f"{want:g}"
    if isinstance(want, tuple | list):
        return " or ".join(map(repr, cast("tuple[object, ...]", want)))
    return repr(want)
