"""From signals, scores and the conversation's pin to a group: one pure function, called by production, `explain`,
replay and the evals alike. Which deployment of the group serves belongs to `plan`; asking a scorer to the caller.

The pin's rules, in one place:
- in a tool loop a conversation stays with its group, and no score is asked for; the request fields that it is sent with
  are those of the first route that holds, where that is one on signals alone and leads to this very group;
- at a user turn it may move to a group that ranks higher, never lower; `upgrade: never` holds it, `free` lets it go;
- `upgrade: any_turn` lets a tool loop move too, up, to where the first route that holds leads by a signal alone: an
  agent that is stuck may have no user turn left to move at;
- a route that can only lead to where the conversation already is, or lower, is not worth its score;
- a scorer's abstention is no evidence and moves nothing;
- a side request (title, summary) neither uses the pin nor moves it.

A policy may explore: by chance, a request that nothing but its score leads to one side of an edge goes to the other.
Nothing that a conversation already holds is touched by it, no tool loop and no side request; and only a group that may
serve in the first one's stead anyway, as its fallback, is explored. The pin then holds a conversation where it went.

A cascade is decided twice: before the first answer it names both groups, and with what was `checked` of that answer
the one that serves. Within a tool loop the pin holds, so nothing is verified there.

State that a request carries is a pin too, whether the policy has one or not (`Session.holds`): signed thoughts under
the rules above; encrypted reasoning at user turns as well; an answer that its maker keeps before everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as replaced
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from router.cascade import concluded
from router.config import Band, Cascade, Explore, Policy, ScoreRule
from router.policy import ASKED, UNRANKED, Asked, Ladder, Selection, Step, ladder, leads
from router.types import Abstain, Checked, Cut, Decision, Load, NeedScore, Score, Session, Signals, Target

Ask = Callable[[str], Score | Abstain | None]

# `plan` settles ties by the first bits of the draw; what comes after these many says whether to explore, so that the
# explored requests spread over deployments as all others do. A draw has 48 bits.
_PLANS = 2.0**24


class Held(Struct, frozen=True, kw_only=True, gc=False):
    """A pin in force: the conversation, and the rank a group must pass to take it (None = no group may)."""

    session: Session
    group: str
    above: int | None


def decide(
    policy: Selection,
    signals: Signals,
    scores: Mapping[str, Score | Abstain],
    session: Session | None,
    load: Load,
    draw: float | None = None,
    checked: Checked | None = None,
    ask: Ask | None = None,
) -> Decision | NeedScore:
    """The group for one request, or which scorer to ask first; call again with its answer in `scores`. `ask` gives an
    answer that is at hand, or None: what it gives is as good as if it had been in `scores`.

    Same arguments, same answer. `draw` in [0, 1) is the request's chance; without it nothing is explored. `session` is
    what the store remembers, None where there is nothing. Of `load` only the cuts in force are looked at: a busy or
    failing group is `plan`'s to pass over. `checked` is what was found of a cascade's first answer, None
    before there is one.
    """
    if not isinstance(policy, Policy):
        return _asked(policy, session)
    steps = ladder(policy)
    within = kept_within(policy, signals) if steps.stays else None
    if within is None:
        return _decide(policy, steps, signals, scores, session, load, draw, checked, ask)
    if session is not None and session.group not in within:
        session = None  # what it remembers is elsewhere, and the request may not go there
    made = _decide(policy, steps, signals, scores, session, load, draw, checked, ask)
    if isinstance(made, NeedScore):
        return made
    if made.group not in within:  # an abstention leads to the default, which may be elsewhere
        made = replace(made, group=within[-1])
    return replace(made, within=within)


def kept_within(policy: Selection, signals: Signals) -> tuple[str, ...] | None:
    """The groups that the first route which holds keeps its requests in; None where it does not."""
    if not isinstance(policy, Policy):
        return None
    steps = ladder(policy)
    if not steps.stays:
        return None
    step = next((step for step in steps.steps if step.test is None or step.test(signals)), None)
    return leads(step.route) if step is not None and step.route.stay else None


def _decide(
    policy: Policy,
    steps: Ladder,
    signals: Signals,
    scores: Mapping[str, Score | Abstain],
    session: Session | None,
    load: Load,
    draw: float | None,
    checked: Checked | None,
    ask: Ask | None,
) -> Decision | NeedScore:
    if session is not None and session.holds == "answer":
        return _kept(policy, session)
    held = pinned(policy, signals, session) if session is not None else None
    if held is not None and (held.above is None or signals.tool_loop):
        if held.above is None and not steps.sets:
            return _stay(policy, held)
        return _within(policy, steps, held, signals)
    for step in steps.steps:
        if step.test is None or step.test(signals):
            if step.rule is not None:
                cut = load.cuts.get(step.route.name) if load.cuts else None
                rule = step.rule if cut is None else in_force(step.rule, cut)
                made = _by_score(policy, steps, step, rule, cut, scores, held, signals, ask)
                if policy.explore is None or session is not None or signals.tool_loop or signals.side_request:
                    return made
                return _explored(steps, policy.explore, step, rule, cut, made, draw)
            if step.route.cascade is not None:
                made = _settle(policy, steps, _by_cascade(policy, step, step.route.cascade, signals), held)
                return made if checked is None or made.then is None else concluded(made, step.route.cascade, checked)
            group = step.route.group or policy.default
            made = Decision(policy=policy.name, route=step.route.name, group=group, why="signal", set=step.route.set)
            return _settle(policy, steps, made, held)
    made = Decision(policy=policy.name, route="default", group=policy.default, why="default")
    return _settle(policy, steps, made, held)


def _asked(asked: Asked, session: Session | None) -> Decision:
    """Where the client said itself to which group or deployment."""
    if session is not None and session.holds == "answer":
        return _kept(asked, session)
    known = session is not None and (session.holds or session.group == asked.group)
    prefers = session.deployment if session is not None and known else None
    return Decision(
        policy=asked.name,
        route=ASKED,
        group=asked.group,
        why="asked",
        deployment=asked.deployment or prefers,
        only=asked.deployment is not None,
    )


def pinned(policy: Selection, signals: Signals, session: Session | None) -> Held | None:
    """The pin that binds this request; None where none does.

    A pin to a group that the policy no longer names is void.
    """
    if not isinstance(policy, Policy) or signals.side_request or session is None or session.group is None:
        return None
    steps = ladder(policy)
    if session.group not in steps.chains:
        return None
    above: int | None
    moves = steps.pin.upgrade
    if moves == "never" or session.holds == "reasoning" or (signals.tool_loop and moves != "any_turn"):
        above = None
    else:
        above = -1 if moves == "free" else steps.rank.get(session.group, UNRANKED)
    return Held(session=session, group=session.group, above=above)


def remember(
    policy: Selection, signals: Signals, decision: Decision, session: Session | None, *, key: str, served: Target
) -> Session | None:
    """What the store should now hold for conversation `key`, served by `served`; None = leave it as it is.

    The group that served is pinned, not the one decided on: a conversation that failed over stays where its state
    and its cache now are. Of a conversation that asks for a group by name it is the deployment that matters.
    """
    if signals.side_request:
        return None
    if not isinstance(policy, Policy):
        return (
            None if policy.deployment is not None else Session(id=key, group=served.group, deployment=served.deployment)
        )
    route = session.route if decision.why == "pin" and session is not None else decision.route
    return Session(key, served.group, served.deployment, route)


# --- the steps -------------------------------------------------------------------------------------------


def _by_score(
    policy: Policy,
    steps: Ladder,
    step: Step,
    rule: ScoreRule,
    cut: Cut | None,
    scores: Mapping[str, Score | Abstain],
    held: Held | None,
    signals: Signals,
    ask: Ask | None,
) -> Decision | NeedScore:
    if held is not None and held.above is not None and step.top <= held.above:
        return _stay(policy, held)
    given = scores.get(rule.scorer)
    if given is None and (ask is None or (given := ask(rule.scorer)) is None):
        return NeedScore(scorer=rule.scorer)
    if not isinstance(given, Score) or not 0.0 <= given.value <= 1.0 or not rule.bands:
        if held is not None:
            return replace(_stay(policy, held), scorer=rule.scorer)
        return Decision(policy=policy.name, route="default", group=policy.default, why="abstain", scorer=rule.scorer)
    band, threshold = band_of(rule.bands, given.value)
    if held is not None and steps.pin.move_cost:
        cost = steps.pin.move_cost * signals.input_tokens / 10_000
        found = _worth(rule.bands, given.value, cost, held.group, steps.rank)
        if found is None:
            return replace(_stay(policy, held), scorer=rule.scorer, score=given.value, threshold=threshold)
        band, threshold = found
    route = step.route
    made = Decision(  # by place: every scored request comes here
        policy.name,
        route.name,
        band.group,
        "score",
        rule.scorer,
        given.value,
        threshold,
        None if cut is None else _at(cut, threshold),
        _merged(route.set, band.set) if band.set else route.set,
    )
    return made if held is None else _settle(policy, steps, made, held)


def _worth(
    bands: tuple[Band, ...], value: float, cost: float, held: str, rank: Mapping[str, int]
) -> tuple[Band, float | None] | None:
    """Where a pinned conversation goes once its score has paid for the prompt that another group has to read anew;
    None where a move would not be worth that."""
    plain = band_of(bands, value)
    here, wanted = rank.get(held, UNRANKED), rank.get(plain[0].group, UNRANKED)
    if plain[0].group == held:
        return plain
    found = band_of(bands, value - cost if wanted > here else value + cost)
    there = rank.get(found[0].group, UNRANKED)
    return found if (there > here if wanted > here else there < here) else None


def _explored(
    steps: Ladder,
    explore: Explore,
    step: Step,
    rule: ScoreRule,
    cut: Cut | None,
    made: Decision | NeedScore,
    draw: float | None,
) -> Decision | NeedScore:
    """`made`, with the chance that its group had; or, where chance wants it, the group across the nearest edge."""
    if isinstance(made, NeedScore) or made.why != "score" or made.score is None:
        return made
    band = band_of(rule.bands, made.score)[0]
    across = _across(rule.bands, made.score, explore.within)
    if across is None or across[0].group == band.group:
        return made
    other, edge = across
    if other.group not in steps.chains.get(band.group, ()):
        return made
    if draw is None or (draw * _PLANS) % 1.0 >= explore.share:
        return replace(made, propensity=1.0 - explore.share, other=other.group)
    return replace(
        made,
        group=other.group,
        why="explore",
        threshold=edge,
        cut=_at(cut, edge),
        set=_merged(step.route.set, other.set),
        propensity=explore.share,
        other=band.group,
    )


def _across(bands: tuple[Band, ...], value: float, within: float) -> tuple[Band, float] | None:
    """The band on the other side of the edge nearest to `value`, and that edge; None where none is near."""
    nearest: tuple[Band, float] | None = None
    for below, above in pairwise(bands):
        edge = below.below
        if edge is not None and abs(value - edge) <= within:
            within = abs(value - edge)
            nearest = (above if value < edge else below, edge)
    return nearest


def _by_cascade(policy: Policy, step: Step, cascade: Cascade, signals: Signals) -> Decision:
    """To the first group; embeddings hold nothing to verify, so there it is as if the route named that group."""
    verified = signals.dialect != "embeddings"
    return Decision(
        policy=policy.name,
        route=step.route.name,
        group=cascade.first,
        why="cascade" if verified else "signal",
        set=step.route.set,
        then=cascade.then if verified else None,
    )


def in_force(rule: ScoreRule, cut: Cut) -> ScoreRule:
    """`rule` with the edge that the cut was made for where the cut has it; a cut for another edge is void."""
    bands = (replaced(band, below=cut.at) if band.below == cut.base else band for band in rule.bands)
    return replaced(rule, bands=tuple(bands))


def _at(cut: Cut | None, threshold: float | None) -> Cut | None:
    """The cut, where it is why the threshold is what it is."""
    return cut if cut is not None and cut.at == threshold else None


def band_of(bands: tuple[Band, ...], value: float) -> tuple[Band, float | None]:
    """The first band that `value` lies below the edge of, and that edge; for the last band its lower edge."""
    edge: float | None = None
    for band in bands:
        if band.below is None:
            return band, edge
        edge = band.below
        if value < edge:
            return band, edge
    return bands[-1], edge


def _settle(policy: Policy, steps: Ladder, made: Decision, held: Held | None) -> Decision:
    """`made`, unless the pin forbids the move; staying in the group prefers the deployment with the warm cache."""
    if held is None:
        return made
    if made.group == held.group:
        return replace(made, deployment=held.session.deployment)
    if held.above is not None and steps.rank.get(made.group, UNRANKED) > held.above:
        return made
    return replace(_stay(policy, held), scorer=made.scorer, score=made.score, threshold=made.threshold, cut=made.cut)


def _kept(policy: Selection, session: Session) -> Decision:
    """To the deployment that keeps the answer which is continued: no other has it."""
    group = session.group or ""
    asked = isinstance(policy, Asked)
    return Decision(
        policy=policy.name,
        route="pin",
        group=group,
        why="pin",
        deployment=session.deployment,
        only=True,
        set={} if asked else _set_of(policy, Held(session=session, group=group, above=None)),
    )


def _stay(policy: Policy, held: Held) -> Decision:
    return Decision(
        policy=policy.name,
        route="pin",
        group=held.group,
        why="pin",
        deployment=held.session.deployment,
        set=_set_of(policy, held),
    )


def _within(policy: Policy, steps: Ladder, held: Held, signals: Signals) -> Decision:
    """Where a conversation goes that no score moves.

    It stays, with the fields of the first route that holds where that one leads by a signal alone to where the
    conversation is anyway; or goes to where that one leads, where the pin allows it so high.
    """
    route = next((step.route for step in steps.steps if step.test is None or step.test(signals)), None)
    if route is None or route.group is None:
        return _stay(policy, held)
    if route.group == held.group:
        return replace(_stay(policy, held), set=route.set)
    if held.above is not None and steps.rank.get(route.group, UNRANKED) > held.above:
        return Decision(policy=policy.name, route=route.name, group=route.group, why="signal", set=route.set)
    return _stay(policy, held)


def _set_of(policy: Policy, held: Held) -> Mapping[str, Any]:
    """The fields that the pinning route sets, so that they do not come and go within a conversation.

    Which of several bands of one group it was is not remembered: the last, which thinks most, is taken.
    """
    for route in policy.routes:
        if route.name == held.session.route:
            if route.score is not None:
                band = next((b for b in reversed(route.score.bands) if b.group == held.group), None)
                return _merged(route.set, band.set) if band is not None else {}
            cascade = route.cascade
            led = (route.group,) if cascade is None else (cascade.first, cascade.then)
            return route.set if held.group in led else {}
    return {}


def _merged(route: Mapping[str, Any], band: Mapping[str, Any]) -> Mapping[str, Any]:
    if not band:
        return route
    return {**route, **band} if route else band
