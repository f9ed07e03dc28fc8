"""A decision told to people: each route that was tested and what held, the score and its threshold, the pin, and
every deployment considered. It asks `decide` and `plan` the same questions that production does and writes down
what they answer; it decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from router.balance import claim, room, weights
from router.config import Config, Policy, Route
from router.decide import decide, kept_within, pinned
from router.plan import plan, survey
from router.policy import Asked, Check, Selection, examine, ladder, wording
from router.types import Abstain, Checked, Cut, Decision, Load, NeedScore, Plan, Report, Score, Session, Signals


class Tested(Struct, frozen=True, kw_only=True):
    """One route: whether its condition held (None = not reached), the conditions one by one, where it leads."""

    route: str
    held: bool | None
    checks: tuple[Check, ...] = ()
    leads: str = ""


class Considered(Struct, frozen=True, kw_only=True):
    """One deployment along the fallbacks. `place` counts from 1 in the order to try, None where it was refused."""

    deployment: str
    group: str
    in_flight: int
    place: int | None
    refused: str | None = None
    weight: float | None = None  # how busy it counts as, the least first; None where it was refused
    claim: float | None = None  # on the request's prefix, the highest first; None where that does not matter
    full: bool = False  # so busy, against the others of its group, that its claim is passed over
    report: Report | None = None  # what it, or its own traffic, says of its load


class Explanation(Struct, frozen=True, kw_only=True):
    """Everything that led to a decision, ready for JSON. `decision` is None while a score in `need` is missing."""

    model: str
    policy: str
    signals: Signals
    pin: str
    routes: tuple[Tested, ...]
    scores: Mapping[str, Score | Abstain]
    need: str | None
    decision: Decision | None
    because: str
    plan: Plan | None
    deployments: tuple[Considered, ...]
    checked: Checked | None = None
    features: Mapping[str, Mapping[str, float]] = {}  # by scorer: what moved its score most, and by how much


def plain(told: Explanation) -> dict[str, Any]:
    """As JSON has it, with those members too that have their default."""
    parts = {"signals": told.signals, "decision": told.decision}
    return to_builtins(told) | to_builtins({name: part and asdict(part) for name, part in parts.items()})


def explain(
    config: Config,
    policy: Selection,
    signals: Signals,
    scores: Mapping[str, Score | Abstain],
    session: Session | None,
    load: Load,
    draw: float | None,
    checked: Checked | None = None,
    features: Mapping[str, Mapping[str, float]] = {},
) -> Explanation:
    """Why a request goes where it goes; the decision and plan in it are those of production for these arguments.

    Without a draw nothing is explored, and ties stand as the files name the deployments."""
    answer = decide(policy, signals, scores, session, load, draw, checked)
    need = answer.scorer if isinstance(answer, NeedScore) else None
    decision = None if isinstance(answer, NeedScore) else answer
    made = plan(decision, policy, config, load, signals, draw or 0.0) if decision is not None else None
    return Explanation(
        model=signals.model,
        policy=policy.name,
        signals=signals,
        pin=_pin(policy, signals, session),
        routes=() if isinstance(policy, Asked) else tuple(_tested(policy, signals, session, load)),
        scores=scores,
        need=need,
        decision=decision,
        because=_because(decision, need, scores),
        checked=checked,
        features=features,
        plan=made,
        deployments=tuple(_considered(decision, policy, config, load, signals, made)) if decision and made else (),
    )


def _tested(policy: Policy, signals: Signals, session: Session | None, load: Load) -> Iterator[Tested]:
    """Routes in order, tested up to the first that holds; none where the pin settles it beforehand."""
    within = kept_within(policy, signals)
    held = None if within is not None and session and session.group not in within else pinned(policy, signals, session)
    open_ = held is None or held.above is not None or ladder(policy).sets
    for step in ladder(policy).steps:
        leads = _leads(step.route, load.cuts.get(step.route.name))
        if not open_:
            yield Tested(route=step.route.name, held=None, leads=leads)
            continue
        holds = step.test is None or step.test(signals)
        checks = examine(step.route.when, signals) if step.route.when is not None else ()
        yield Tested(route=step.route.name, held=holds, checks=checks, leads=leads)
        open_ = not holds


def _leads(route: Route, cut: Cut | None) -> str:
    if route.cascade is not None:
        return f"group {route.cascade.first}, verified, else {route.cascade.then}"
    if route.score is None:
        return f"group {route.group}"
    bands = ", ".join(
        f"below {_edge(band.below, cut)} {band.group}" if band.below is not None else f"else {band.group}"
        for band in route.score.bands
    )
    return f"score {route.score.scorer}: {bands}"


def _edge(below: float, cut: Cut | None) -> str:
    if cut is None or cut.base != below:
        return f"{below:g}"
    return f"{cut.at:.4g} ({_moved(cut)})"


def _moved(cut: Cut) -> str:
    """Why a threshold stands where it does: as written, and the target's part."""
    return f"base {cut.base:g}, target {cut.at - cut.base:+.4f}"


def _pin(policy: Selection, signals: Signals, session: Session | None) -> str:
    if isinstance(policy, Asked):
        if policy.deployment is None and session is not None and session.group == policy.group:
            return f"deployment {session.deployment}, which has the conversation's cache; the client named the group"
        return "not used: the client named the group or deployment"
    if session is None or session.group is None:
        return "none: the conversation is new or has no id"
    if signals.side_request:
        return "not used: a side request (title, summary or the like)"
    within = kept_within(policy, signals)
    if within is not None and session.group not in within:
        return f"not used: its route keeps requests in {' or '.join(within)}, and the pin is group {session.group}"
    held = pinned(policy, signals, session)
    if held is None:
        return f"void: the policy does not lead to group {session.group}"
    if held.above is not None and signals.tool_loop:
        return f"group {held.group}, may move up within the tool loop, where a route on signals alone leads there"
    if signals.tool_loop:
        return f"group {held.group}, held: a tool loop never changes group"
    if held.above is None:
        return f"group {held.group}, held: the policy never moves a conversation"
    if held.above < 0:
        return f"group {held.group}, free to move at a user turn"
    return f"group {held.group}, may move up at a user turn"


def _because(decision: Decision | None, need: str | None, scores: Mapping[str, Score | Abstain]) -> str:
    if decision is None:
        return f"the score of {need} is needed first"
    where = f"group {decision.group}"
    match decision.why:
        case "asked":
            return f"the client asked for {decision.deployment or where} by name"
        case "signal":
            return f"{where}: route {decision.route} holds on signals alone"
        case "default":
            return f"{where}: no route holds, so the policy's default"
        case "abstain":
            given = scores.get(decision.scorer or "")
            reason = given.reason if isinstance(given, Abstain) else "no usable score"
            return f"{where}: the scorer {decision.scorer} abstained ({reason}), so the policy's default"
        case "score":
            return f"{where}: {_scored(decision)}"
        case "explore":
            said = f"{_scored(decision)} led to group {decision.other}"
            return f"{where}: {said}, and chance ({decision.propensity:g}) to the other side, for evidence"
        case "cascade":
            return f"{where} first, by route {decision.route}; if its answer does not pass, group {decision.then}"
        case "verified":
            return f"{where}: its answer passed the checks of route {decision.route}"
        case "escalated":
            return f"{where}: the first answer did not pass {decision.check} of route {decision.route}"
        case "pin":
            if decision.scorer is None:
                return f"{where}: the conversation is pinned to it"
            if decision.score is None:
                return f"{where}: the scorer {decision.scorer} abstained, so the conversation stays where it is"
            if decision.threshold is not None and decision.score >= decision.threshold:
                return (
                    f"{where}: the conversation is pinned to it, and a move is not worth its cost ({_scored(decision)})"
                )
            return f"{where}: the conversation is pinned to it and moves only up ({_scored(decision)})"


def _scored(decision: Decision) -> str:
    score = f"score {decision.score:.3f} of {decision.scorer}"
    if decision.threshold is None:
        return score
    if decision.cut is not None:
        return f"{score}, threshold {decision.threshold:.4g} ({_moved(decision.cut)})"
    return f"{score}, threshold {decision.threshold:g}"


def _considered(
    decision: Decision, policy: Selection, config: Config, load: Load, signals: Signals, made: Plan
) -> Iterator[Considered]:
    refused: dict[str, str] = {}
    groups: dict[str, str] = {target.deployment: target.group for target in made.targets}
    for refusal in survey(decision, policy, config, load, signals).refusals:
        refused[refusal.deployment] = refusal.reason
        groups.setdefault(refusal.deployment, refusal.group)
    places = {target.deployment: i for i, target in enumerate(made.targets, 1)}
    weighed: dict[str, float] = {}
    rooms: dict[str, float] = {}  # of the groups in which the prefix matters
    for group in dict.fromkeys(groups.values()):
        able = tuple([name for name in places if groups[name] == group])
        weighed |= (busy := weights(able, load))
        bound = config.groups[group].affinity if group in config.groups else 0.0
        if load.prefix and bound and len(able) > 1:
            rooms[group] = room(busy, bound)
    for name, group in groups.items():
        claims = group in rooms and name in weighed
        yield Considered(
            deployment=name,
            group=group,
            in_flight=max(0, load.in_flight.get(name, 0)),
            place=places.get(name),
            refused=refused.get(name),
            weight=weighed.get(name),
            claim=claim(load.prefix, name) if claims else None,
            full=claims and weighed[name] > rooms[group],
            report=load.reports.get(name),
        )


# --- as text ---------------------------------------------------------------------------------------------


def render(explanation: Explanation) -> str:
    """Plain text for a terminal: what was asked, each route, the decision, the plan."""
    lines = [f"model     {explanation.model}", f"policy    {explanation.policy}", f"pin       {explanation.pin}"]
    lines.append(f"signals   {_signals(explanation.signals)}")
    for tested in explanation.routes:
        mark = {True: "holds", False: "no", None: "not reached"}[tested.held]
        lines.append(f"route     {tested.route}: {mark} -> {tested.leads}")
        lines += (f"            {line}" for check in tested.checks for line in _check(check))
    for name, score in explanation.scores.items():
        said = f"{score.value:.3f}" if isinstance(score, Score) else f"abstained ({score.reason})"
        lines.append(f"score     {name}: {said}")
        effects = ", ".join(f"{one} {effect:+.3f}" for one, effect in explanation.features.get(name, {}).items())
        lines += [f"features  {name}: {effects}"] if effects else []
    if (found := explanation.checked) is not None:
        lines.append("checked   " + " ".join(f"{k}={v}" for k, v in asdict(found).items() if v is not None))
    lines.append(f"decision  {explanation.because}")
    if explanation.decision is not None and explanation.decision.within:
        lines.append("stay      in " + " or ".join(explanation.decision.within) + ", whatever fails")
    if explanation.decision is not None and explanation.decision.set:
        lines.append("set       " + ", ".join(f"{k}={v!r}" for k, v in explanation.decision.set.items()))
    for one in explanation.deployments:
        place = f"{one.place}." if one.place is not None else "-"
        said = f"{one.in_flight} in flight{_reported(one)}{_claimed(one)}" + (f"; {one.refused}" if one.refused else "")
        lines.append(f"plan      {place:<3}{one.deployment} ({one.group}): {said}")
    if explanation.plan is not None and not explanation.plan.targets:
        wait_s = explanation.plan.retry_after_s
        lines.append("plan      none can serve" + (f"; retry after {wait_s:.1f} s" if wait_s is not None else ""))
    return "\n".join(lines)


def _reported(one: Considered) -> str:
    """What is known of a deployment's load beyond the requests in flight from here, and what it weighs with that."""
    if one.report is None:
        return ""
    report = one.report
    said = f", {report.elsewhere:g} from elsewhere" if report.elsewhere else ""
    said += f", {report.waiting:g} waiting" if report.waiting is not None else ""
    said += f", KV {report.kv:.0%}" if report.kv is not None else ""
    said += f", TTFT {report.ttft_s:.2f} s" if report.ttft_s is not None else ""
    return said + (f": weight {one.weight:g}" if one.weight is not None else "")


def _claimed(one: Considered) -> str:
    """What it has to do with the request's prefix."""
    if one.claim is None:
        return ""
    return f"; claim on the prefix {one.claim:.3f}" + (", passed over: it is too busy" if one.full else "")


def _check(check: Check) -> Iterator[str]:
    yield f"{'+' if check.held else '-'} {check.field}: {check.value}, wanted {check.condition}"
    for part in check.parts:
        yield from (f"  {line}" for line in _check(part))


def _signals(signals: Signals) -> str:
    """Those that differ from their defaults, the model apart."""
    plain = Signals()
    given = ((name, getattr(signals, name)) for name in Signals.__struct_fields__ if name not in ("model", "headers"))
    said = [f"{name}={wording(value)}" for name, value in given if value != getattr(plain, name)]
    said += (f"headers.{name}={wording(value)}" for name, value in signals.headers.items())
    return " ".join(said) or "none"
