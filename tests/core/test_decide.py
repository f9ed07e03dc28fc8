"""Decisions: routes in order, scores only when reached, and the pin's promises to a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config import Band, Explore, Pin, Policy, Range, Route, ScoreRule, When
from router.decide import decide, remember
from router.policy import Asked, order
from router.service import draw_of
from router.types import Abstain, Decision, Load, NeedScore, Score, Session, Signals, Target

BANDS = (Band(group="small", below=0.42), Band(group="large", set={"reasoning_effort": "high"}))
POLICY = Policy(
    name="agents",
    models=("auto",),
    routes=(
        Route(name="images", when=When(has_images=True), group="vision"),
        Route(name="stuck", when=When(tool_errors=Range(at_least=2)), group="large", set={"temperature": 0}),
        Route(name="difficulty", score=ScoreRule(scorer="d", bands=BANDS), set={"seed": 1}),
    ),
    default="large",
    fallback={"small": ("large",)},
)
NOW = Load()
PLAIN = Signals()
Scores = Mapping[str, Score | Abstain]


def score(value: float) -> Scores:
    return {"d": Score(scorer="d", value=value)}


def abstain(reason: Literal["timeout", "error", "unsure"] = "timeout") -> Scores:
    return {"d": Abstain(scorer="d", reason=reason)}


def decided(
    policy: Policy | Asked = POLICY,
    signals: Signals = PLAIN,
    scores: Scores | None = None,
    session: Session | None = None,
) -> Decision:
    answer = decide(policy, signals, scores or {}, session, NOW)
    assert isinstance(answer, Decision)
    return answer


def pinned(group: str, route: str = "difficulty") -> Session:
    return Session(id="c", group=group, deployment=f"{group}-a", route=route)


# --- exploring -------------------------------------------------------------------------------------------

EXPLORING = replace(POLICY, explore=Explore(share=0.1, within=0.1), fallback={"small": ("large",), "large": ("small",)})


def explored(value: float, draw: float | None, policy: Policy = EXPLORING, signals: Signals = PLAIN, **more: Any):
    made = decide(policy, signals, score(value), more.get("session"), NOW, draw)
    assert isinstance(made, Decision)
    return made


def later_bits(share: float) -> float:
    """A draw whose bits after the first 24 say `share`."""
    return 0.5 + share / 2**24


def test_chance_sends_a_share_across_the_edge_and_the_decision_says_how_likely_that_was():
    there = explored(0.4, later_bits(0.05))
    assert (there.why, there.route, there.group, there.other, there.propensity) == (
        "explore", "difficulty", "large", "small", 0.1,
    )  # fmt: skip
    assert there.set == {"seed": 1, "reasoning_effort": "high"}
    back = explored(0.45, later_bits(0.05))
    assert (back.why, back.group, back.other, back.set) == ("explore", "small", "large", {"seed": 1})
    stayed = explored(0.4, later_bits(0.11))
    assert (stayed.why, stayed.group, stayed.other, stayed.propensity) == ("score", "small", "large", 0.9)


def test_without_a_draw_nothing_is_explored_but_the_chances_are_told():
    made = explored(0.4, None)
    assert (made.why, made.group, made.propensity) == ("score", "small", 0.9)


def test_a_policy_that_does_not_explore_decides_as_if_there_were_no_chance():
    assert explored(0.4, later_bits(0.0), POLICY) == decided(scores=score(0.4))
    assert decided(scores=score(0.4)).propensity == 1.0


@pytest.mark.parametrize("value", [0.31, 0.53, 0.9, 0.0])
def test_a_score_far_from_the_edge_is_not_explored(value: float):
    assert explored(value, later_bits(0.0)) == decided(scores=score(value))


def test_nothing_is_explored_in_a_tool_loop_a_side_request_or_a_conversation_that_is_remembered():
    for signals in (Signals(tool_loop=True), Signals(side_request=True)):
        assert explored(0.4, later_bits(0.0), signals=signals).propensity == 1.0
    for session in (pinned("small"), pinned("gone"), Session(id="c")):
        assert explored(0.4, later_bits(0.0), session=session).propensity == 1.0


def test_a_signal_an_abstention_and_a_name_are_not_left_to_chance():
    for signals, scores in ((Signals(has_images=True), {}), (PLAIN, abstain())):
        made = decide(EXPLORING, signals, scores, None, NOW, later_bits(0.0))
        assert isinstance(made, Decision)
        assert made.propensity == 1.0


def test_only_a_groups_own_fallback_is_explored():
    """Where no failure may lead a request, as out of a region, chance leads none."""
    one_way = replace(EXPLORING, fallback={"small": ("large",)})
    assert explored(0.4, later_bits(0.0), one_way).group == "large"
    assert explored(0.45, later_bits(0.0), one_way) == decided(one_way, scores=score(0.45))


def test_the_explored_share_is_the_share_that_was_asked_for_and_spreads_over_deployments():
    draws = [draw_of(f"request-{i}") for i in range(20_000)]
    there = [draw for draw in draws if explored(0.4, draw).why == "explore"]
    assert len(there) / len(draws) == pytest.approx(0.1, abs=0.01)
    assert sum(draw < 0.5 for draw in there) / len(there) == pytest.approx(0.5, abs=0.05)


# --- routes and scores -----------------------------------------------------------------------------------


def test_the_first_route_that_holds_wins_and_costs_no_score():
    made = decided(signals=Signals(has_images=True, tool_errors=5))
    assert (made.policy, made.route, made.group, made.why) == ("agents", "images", "vision", "signal")
    assert decided(signals=Signals(tool_errors=2)).set == {"temperature": 0}


def test_a_score_is_asked_for_only_when_its_route_is_reached():
    assert decide(POLICY, Signals(), {}, None, NOW) == NeedScore(scorer="d")


@pytest.mark.parametrize(
    ("value", "group", "threshold"),
    [(0.0, "small", 0.42), (0.4199, "small", 0.42), (0.42, "large", 0.42), (1.0, "large", 0.42)],
)
def test_a_score_at_or_above_the_threshold_goes_to_the_larger_group(value: float, group: str, threshold: float):
    made = decided(scores=score(value))
    assert (made.group, made.why, made.route, made.scorer) == (group, "score", "difficulty", "d")
    assert (made.score, made.threshold) == (value, threshold)


def test_three_bands_name_the_edge_that_was_taken():
    bands = (Band(group="s", below=0.2), Band(group="m", below=0.7), Band(group="l"))
    three = replace(POLICY, routes=(Route(name="d", score=ScoreRule(scorer="d", bands=bands)),), default="l")
    taken = [
        (decided(three, scores=score(v)).group, decided(three, scores=score(v)).threshold) for v in (0.1, 0.2, 0.9)
    ]
    assert taken == [("s", 0.2), ("m", 0.7), ("l", 0.7)]


def test_what_a_band_sets_goes_over_what_its_route_sets():
    assert decided(scores=score(0.1)).set == {"seed": 1}
    assert decided(scores=score(0.9)).set == {"seed": 1, "reasoning_effort": "high"}


def test_K01_an_abstention_leads_to_the_default_and_names_its_scorer():
    made = decided(scores=abstain())
    assert (made.route, made.group, made.why, made.scorer, made.score) == ("default", "large", "abstain", "d", None)


@pytest.mark.parametrize("value", [float("nan"), -0.1, 1.1, float("inf")])
def test_a_score_outside_its_range_counts_as_an_abstention(value: float):
    assert decided(scores=score(value)).why == "abstain"


def test_where_no_route_holds_the_default_serves():
    made = decided(replace(POLICY, routes=()))
    assert (made.route, made.group, made.why) == ("default", "large", "default")


def test_K10_a_group_asked_for_by_name_is_served_by_it_and_nothing_is_scored():
    made = decided(Asked(model="small", group="small"), session=pinned("large"))
    assert (made.policy, made.route, made.group, made.why, made.only) == ("asked", "asked", "small", "asked", False)


def test_a_deployment_asked_for_by_name_is_the_only_one():
    made = decided(Asked(model="l2", group="large", deployment="l2"))
    assert (made.group, made.deployment, made.only) == ("large", "l2", True)


# --- pins ------------------------------------------------------------------------------------------------


def test_a_tool_loop_stays_with_its_group_and_asks_for_no_score():
    made = decided(signals=Signals(tool_loop=True, tool_errors=9, has_images=True), session=pinned("small"))
    assert (made.route, made.group, made.why, made.deployment) == ("pin", "small", "pin", "small-a")


def test_at_a_user_turn_a_conversation_may_move_up():
    made = decided(signals=Signals(turns=2), scores=score(0.9), session=pinned("small"))
    assert (made.group, made.why, made.deployment) == ("large", "score", None)
    assert decided(signals=Signals(turns=2, tool_errors=2), session=pinned("small")).group == "large"


def test_at_a_user_turn_a_conversation_in_the_top_group_asks_for_no_score():
    made = decided(signals=Signals(turns=2), session=pinned("large"))
    assert (made.group, made.why, made.score) == ("large", "pin", None)


def test_a_conversation_that_stays_by_its_score_keeps_its_deployment():
    made = decided(scores=score(0.1), session=pinned("small"))
    assert (made.group, made.why, made.score, made.deployment) == ("small", "score", 0.1, "small-a")


def test_a_score_that_would_move_a_conversation_down_is_told_but_not_followed():
    bands = (Band(group="small", below=0.3), Band(group="medium", below=0.6), Band(group="large"))
    three = replace(POLICY, routes=(Route(name="d", score=ScoreRule(scorer="d", bands=bands)),))
    made = decided(three, scores=score(0.1), session=pinned("medium"))
    assert (made.group, made.why, made.score, made.threshold) == ("medium", "pin", 0.1, 0.3)
    assert decided(three, scores=score(0.9), session=pinned("medium")).group == "large"


def test_an_abstention_moves_no_conversation():
    made = decided(scores=abstain(), session=pinned("small"))
    assert (made.group, made.why, made.scorer) == ("small", "pin", "d")


def test_a_group_that_the_order_does_not_name_may_be_taken_and_is_not_left():
    assert decided(signals=Signals(has_images=True), session=pinned("large")).group == "vision"
    assert decided(signals=Signals(tool_errors=3), session=pinned("vision")).group == "vision"


def test_between_groups_that_the_order_does_not_name_nothing_is_up():
    audio = replace(POLICY, routes=(Route(name="audio", when=When(tools=1), group="audio"), *POLICY.routes))
    assert decided(audio, Signals(tools=1), session=pinned("vision")).group == "vision"


def test_upgrade_never_holds_a_conversation_at_user_turns_too():
    held = replace(POLICY, pin=Pin(upgrade="never"))
    assert decided(held, Signals(tool_errors=2), session=pinned("small")).group == "small"


def test_upgrade_free_lets_a_conversation_move_down_but_not_within_a_tool_loop():
    free = replace(POLICY, pin=Pin(upgrade="free"))
    assert decided(free, scores=score(0.1), session=pinned("large")).group == "small"
    assert decided(free, Signals(tool_loop=True), scores=score(0.1), session=pinned("large")).group == "large"


def test_a_pin_to_a_group_that_the_policy_no_longer_names_is_void():
    assert decided(signals=Signals(tool_loop=True), scores=score(0.1), session=pinned("gone")).group == "small"


def test_what_the_pinning_route_set_stays_set():
    assert decided(session=pinned("large"), signals=Signals(tool_loop=True)).set == {
        "seed": 1,
        "reasoning_effort": "high",
    }
    assert decided(session=pinned("large", "stuck"), signals=Signals(tool_loop=True)).set == {"temperature": 0}
    assert decided(session=pinned("small", "stuck"), signals=Signals(tool_loop=True)).set == {}
    assert decided(session=pinned("small", "gone"), signals=Signals(tool_loop=True)).set == {}


def test_in_a_tool_loop_a_route_on_signals_that_leads_to_the_same_group_says_how():
    relay = Route(
        name="relay", when=When(tool_loop=True, tool_errors=0), group="large", set={"reasoning_effort": "none"}
    )
    policy = replace(POLICY, routes=(relay, *POLICY.routes))
    assert decided(policy, Signals(tool_loop=True), session=pinned("large")).set == {"reasoning_effort": "none"}
    assert decided(policy, Signals(tool_loop=True), session=pinned("large")).route == "pin"
    assert decided(policy, Signals(tool_loop=True), session=pinned("small")).set == {"seed": 1}
    failing = Signals(tool_loop=True, tool_errors=1)
    assert decided(policy, failing, session=pinned("large")).set == {"seed": 1, "reasoning_effort": "high"}


def test_a_side_request_neither_uses_nor_moves_the_pin():
    side = Signals(side_request=True)
    made = decided(signals=side, scores=score(0.1), session=pinned("large"))
    assert (made.group, made.why) == ("small", "score")
    assert remember(POLICY, side, made, pinned("large"), key="c", served=Target(deployment="s", group="small")) is None


def test_what_is_remembered_is_who_served_and_the_route_that_led_there():
    made = decided(scores=score(0.1))
    served = Target(deployment="l2", group="large")  # failed over
    first = remember(POLICY, Signals(), made, None, key="c", served=served)
    assert first == Session(id="c", group="large", deployment="l2", route="difficulty")
    loop = Signals(tool_loop=True)
    assert remember(POLICY, loop, decided(signals=loop, session=first), first, key="c", served=served) == first


def test_a_conversation_with_a_group_asked_for_by_name_goes_back_to_its_deployment():
    asked = Asked(model="small", group="small")
    made = decided(asked, session=pinned("large"))
    assert (made.group, made.deployment) == ("small", None)
    served = Target(deployment="s", group="small")
    known = remember(asked, Signals(), made, None, key="c", served=served)
    assert known == Session(id="c", group="small", deployment="s")
    assert decided(asked, session=known).deployment == "s"
    assert remember(asked, Signals(side_request=True), made, known, key="c", served=served) is None
    named = Asked(model="s2", group="small", deployment="s2")
    assert remember(named, Signals(), made, known, key="c", served=served) is None


# --- invariants ------------------------------------------------------------------------------------------

turns = st.builds(
    Signals,
    tool_loop=st.booleans(),
    side_request=st.booleans(),
    has_images=st.booleans(),
    tool_errors=st.integers(0, 3),
    turns=st.integers(1, 5),
)
answers = st.one_of(
    st.floats(0, 1).map(lambda value: Score(scorer="d", value=value)), st.just(Abstain(scorer="d", reason="timeout"))
)
sessions = st.none() | st.builds(
    Session,
    id=st.just("c"),
    group=st.sampled_from([None, "small", "large", "vision", "gone"]),
    deployment=st.sampled_from([None, "x"]),
    route=st.sampled_from([None, "difficulty", "stuck", "pin"]),
)
policies = st.builds(
    lambda pin, order, routes: replace(POLICY, pin=pin, order=order, routes=routes),
    st.sampled_from([None, Pin(), Pin(upgrade="never")]),
    st.sampled_from([(), ("small", "large"), ("small", "large", "vision"), ("vision", "small", "large")]),
    st.permutations(POLICY.routes).map(tuple),
)


def drive(policy: Policy, signals: Signals, answer: Score | Abstain, session: Session | None) -> Decision:
    """The production driver: asks the scorer when it is needed."""
    made = decide(policy, signals, {}, session, NOW)
    if isinstance(made, NeedScore):
        made = decide(policy, signals, {made.scorer: answer}, session, NOW)
    assert isinstance(made, Decision)
    return made


@given(policies, turns, answers, sessions)
def test_replay_equals_production(policy: Policy, signals: Signals, answer: Score | Abstain, session: Session | None):
    recorded = msgspec.json.encode((drive(policy, signals, answer, session), signals, session))
    decision, signals_, session_ = msgspec.json.decode(recorded, type=tuple[Decision, Signals, Session | None])
    scores = {} if decision.scorer is None else {decision.scorer: answer}
    assert decide(policy, signals_, scores, session_, NOW) == decision
    assert decide(replace(policy), signals_, scores, session_, NOW) == decision


@given(policies, turns, answers, sessions)
def test_a_score_once_given_is_never_asked_for_again(
    policy: Policy, signals: Signals, answer: Score | Abstain, session: Session | None
):
    assert isinstance(decide(policy, signals, {"d": answer}, session, NOW), Decision)


@given(policies, st.lists(st.tuples(turns, answers), min_size=1, max_size=12))
def test_K06_no_tool_loop_changes_group_and_user_turns_move_only_upwards(
    policy: Policy, conversation: list[tuple[Signals, Score | Abstain]]
):
    ranks = {group: i for i, group in enumerate(order(policy))}
    session: Session | None = None
    for signals, answer in conversation:
        made = drive(policy, signals, answer, session)
        after = remember(
            policy, signals, made, session, key="c", served=Target(deployment=f"{made.group}-a", group=made.group)
        )
        if signals.side_request:
            assert after is None
            continue
        if session is not None and session.group is not None and made.group != session.group:
            assert not signals.tool_loop
            assert (policy.pin or Pin()).upgrade == "user_turn"
            assert ranks.get(made.group, 99) > ranks.get(session.group, 99)
        session = after


def test_K06_ten_turns_of_mixed_intent_flip_nothing_within_tool_loops():
    session: Session | None = None
    groups: list[str] = []
    for turn in range(10):
        hard = turn >= 4
        for step in range(4):
            signals = Signals(turns=turn + 1, tool_loop=step > 0, tool_errors=step)
            made = drive(POLICY, signals, Score(scorer="d", value=0.9 if hard and step == 0 else 0.1), session)
            served = Target(deployment="x", group=made.group)
            session = remember(POLICY, signals, made, session, key="c", served=served)
            groups.append(made.group)
    assert groups == ["small"] * 16 + ["large"] * 24


ANY_TURN = replace(POLICY, pin=Pin(upgrade="any_turn"), order=("small", "large"))


@given(st.permutations(POLICY.routes).map(tuple), st.lists(st.tuples(turns, answers), min_size=1, max_size=12))
def test_any_turn_moves_a_tool_loop_up_by_a_signal_alone_and_never_by_a_score_or_down(
    routes: tuple[Route, ...], conversation: list[tuple[Signals, Score | Abstain]]
):
    policy = replace(ANY_TURN, routes=routes)
    rank = {"small": 0, "large": 1, "vision": 2}
    session: Session | None = None
    for signals, answer in conversation:
        made = drive(policy, signals, answer, session)
        if signals.side_request:
            continue
        if session is not None and session.group is not None and made.group != session.group:
            assert rank[made.group] > rank[session.group]
            assert made.why == "signal" or not signals.tool_loop
        served = Target(deployment=f"{made.group}-a", group=made.group)
        session = remember(policy, signals, made, session, key="c", served=served)


def test_an_agent_that_is_stuck_moves_up_within_its_tool_loop_where_the_policy_says_any_turn():
    session = Session(id="c", group="small", deployment="small-a", route="difficulty")
    stuck = Signals(tool_loop=True, tool_errors=3)
    moved, held = drive(ANY_TURN, stuck, score(0.1)["d"], session), drive(POLICY, stuck, score(0.1)["d"], session)
    assert (moved.group, moved.route, moved.why) == ("large", "stuck", "signal")
    assert (held.group, held.why) == ("small", "pin")
    calm = decide(ANY_TURN, Signals(tool_loop=True), {}, session, NOW)
    assert isinstance(calm, Decision), "no score is asked for within a loop"
    assert (calm.group, calm.deployment, calm.why) == ("small", "small-a", "pin")


def test_reasoning_that_only_its_maker_can_read_is_not_left_within_a_loop_at_any_turn():
    made = drive(ANY_TURN, Signals(tool_loop=True, tool_errors=3), score(0.9)["d"], holds("reasoning"))
    assert (made.group, made.why) == ("small", "pin")


# --- state that a request carries (R05) --------------------------------------------------------------------


def holds(what: Literal["thoughts", "reasoning", "answer"], group: str = "small") -> Session:
    return Session(id="s", group=group, deployment="maker", route="difficulty", holds=what)


def test_R05_an_answer_that_is_kept_is_continued_where_it_is_kept_whatever_is_asked_and_scored():
    for policy in (POLICY, Asked(model="large", group="large")):
        for signals in (PLAIN, Signals(side_request=True), Signals(has_images=True)):
            made = decide(policy, signals, {}, holds("answer"), NOW)
            assert isinstance(made, Decision)
            assert (made.group, made.deployment, made.only, made.why) == ("small", "maker", True, "pin")


def test_R05_encrypted_reasoning_stays_with_its_maker_at_a_user_turn_and_costs_no_score():
    made = decide(POLICY, PLAIN, {}, holds("reasoning"), NOW)
    assert isinstance(made, Decision)
    assert (made.group, made.deployment, made.only) == ("small", "maker", False)


def test_T08_signed_thoughts_follow_the_pins_rules():
    assert decide(POLICY, PLAIN, {}, holds("thoughts"), NOW) == NeedScore(scorer="d")
    up = decide(POLICY, PLAIN, score(0.9), holds("thoughts"), NOW)
    loop = decide(POLICY, Signals(tool_loop=True), {}, holds("thoughts"), NOW)
    assert isinstance(up, Decision)
    assert isinstance(loop, Decision)
    assert (up.group, loop.group, loop.deployment) == ("large", "small", "maker")


def test_state_is_preferred_by_a_client_that_names_the_group():
    made = decide(Asked(model="small", group="small"), PLAIN, {}, holds("thoughts"), NOW)
    assert isinstance(made, Decision)
    assert (made.deployment, made.only, made.why) == ("maker", False, "asked")


# --- routes that stay, moves that cost -------------------------------------------------------------------

RESIDENT = Policy(
    name="p",
    models=("auto",),
    default="large",
    routes=(
        Route(name="stuck", when=When(tool_errors=Range(at_least=9)), group="large"),
        Route(name="resident", when=When(tenant="clinic"), group="eu", stay=True),
        Route(
            name="graded",
            when=When(tenant="court"),
            score=ScoreRule(scorer="s", bands=(Band(group="eu", below=0.5), Band(group="eu-large"))),
            stay=True,
        ),
    ),
    fallback={"eu": ("large",), "eu-large": ("eu", "large")},
)


def resident(signals: Signals, scores: Any = None, session: Session | None = None) -> Decision:
    made = decide(RESIDENT, signals, scores or {}, session, Load())
    assert isinstance(made, Decision)
    return made


def test_a_route_that_stays_says_so_and_others_do_not():
    assert resident(Signals(tenant="clinic")).within == ("eu",)
    assert resident(Signals(tenant="other")).within == ()
    assert resident(Signals(tenant="clinic", tool_errors=9)).within == (), "an earlier route decides"


@pytest.mark.parametrize("holds", ["", "thoughts", "reasoning", "answer"])
@pytest.mark.parametrize("loop", [False, True])
def test_no_pin_and_no_state_leads_a_request_out_of_a_route_that_stays(holds: Any, loop: bool):
    session = Session(id="c", group="large", deployment="large-a", route="default", holds=holds)
    made = resident(Signals(tenant="clinic", tool_loop=loop), None, session)
    assert (made.group, made.within, made.deployment, made.only) == ("eu", ("eu",), None, False)


def test_a_pin_inside_a_route_that_stays_holds_as_ever():
    session = Session(id="c", group="eu-large", deployment="x", route="graded")
    made = resident(Signals(tenant="court", tool_loop=True), None, session)
    assert (made.group, made.why, made.within) == ("eu-large", "pin", ("eu", "eu-large"))


def test_an_abstention_leads_to_the_last_group_of_a_route_that_stays():
    made = resident(Signals(tenant="court"), {"s": Abstain(scorer="s", reason="timeout")})
    assert (made.group, made.why) == ("eu-large", "abstain")


def moving(score: float, tokens: int, cost: float = 0.02, group: str = "small", upgrade: Any = "user_turn") -> Decision:
    bands = (Band(group="small", below=0.5), Band(group="large", below=0.8), Band(group="frontier"))
    priced = Policy(
        name="p",
        models=("auto",),
        default="small",
        routes=(Route(name="d", score=ScoreRule(scorer="s", bands=bands)),),
        pin=Pin(move_cost=cost, upgrade=upgrade),
    )
    session = Session(id="c", group=group, deployment="x", route="d")
    made = decide(priced, Signals(input_tokens=tokens), {"s": Score(scorer="s", value=score)}, session, Load())
    assert isinstance(made, Decision)
    return made


def test_a_pinned_conversation_moves_only_where_its_score_pays_for_the_prompt():
    assert (moving(0.55, 50_000).group, moving(0.55, 50_000).why) == ("small", "pin")
    assert moving(0.61, 50_000).group == "large"
    assert moving(0.55, 1_000).group == "large"
    assert moving(0.55, 50_000, cost=0.0).group == "large"
    assert moving(0.85, 50_000).group == "large", "what is left after the cost is for the middle group"
    assert moving(0.95, 50_000).group == "frontier"
    assert moving(0.45, 50_000, group="large", upgrade="free").group == "large"
    assert moving(0.35, 50_000, group="large", upgrade="free").group == "small"
    assert moving(0.55, 50_000).score == 0.55
