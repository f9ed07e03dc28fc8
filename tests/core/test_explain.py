"""Explanations: the trace of a decision agrees with the decision, and reads as text."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from router.config import Band, Config, Deployment, Explore, Group, Policy, Range, Route, ScoreRule, When
from router.decide import decide
from router.explain import explain, render
from router.plan import plan
from router.policy import Asked
from router.types import Abstain, Decision, Load, Report, Score, Session, Signals

BANDS = (Band(group="small", below=0.42), Band(group="large", set={"reasoning_effort": "high"}))
POLICY = Policy(
    name="agents",
    models=("auto",),
    routes=(
        Route(name="vip", when=When(any=(When(tenant="a"), When(tools=Range(at_least=9)))), group="large"),
        Route(name="stuck", when=When(tool_errors=Range(at_least=2), tool_loop=True), group="large"),
        Route(name="difficulty", score=ScoreRule(scorer="d", bands=BANDS)),
        Route(name="never", group="small"),
    ),
    default="large",
    fallback={"small": ("large",)},
)
CONFIG = Config(
    policies={"agents": POLICY},
    models={"auto": POLICY},
    groups={"small": Group(name="small", deployments=("s1",)), "large": Group(name="large", deployments=("l1", "l2"))},
    deployments={name: Deployment(name=name, upstream="scripted") for name in ("s1", "l1", "l2")},
    scorers={},
    digest="d",
)
SCORED = {"d": Score(scorer="d", value=0.3)}
NOW = Load()


def test_each_route_is_told_with_what_held_and_what_did_not():
    told = explain(CONFIG, POLICY, Signals(model="auto", tool_errors=3), SCORED, None, NOW, 0.2)
    assert [(r.route, r.held) for r in told.routes] == [
        ("vip", False),
        ("stuck", False),
        ("difficulty", True),
        ("never", None),
    ]
    assert [(c.field, c.held) for c in told.routes[1].checks] == [("tool_loop", False), ("tool_errors", True)]
    assert [part.held for part in told.routes[0].checks[0].parts] == [False, False]
    assert told.because == "group small: score 0.300 of d, threshold 0.42"


def test_the_text_shows_routes_score_pin_and_every_deployment():
    load = Load(in_flight={"l1": 3}, cooling={"s1": 9.0})
    text = render(explain(CONFIG, POLICY, Signals(model="auto", turns=1), SCORED, None, load, 0.2))
    assert text.splitlines() == [
        "model     auto",
        "policy    agents",
        "pin       none: the conversation is new or has no id",
        "signals   turns=1",
        "route     vip: no -> group large",
        "            - any: 0 held, wanted any of 2",
        "              - [0]: 0 held, wanted all of 1",
        "                - tenant: '', wanted 'a'",
        "              - [1]: 0 held, wanted all of 1",
        "                - tools: 0, wanted at least 9",
        "route     stuck: no -> group large",
        "            - tool_loop: no, wanted yes",
        "            - tool_errors: 0, wanted at least 2",
        "route     difficulty: holds -> score d: below 0.42 small, else large",
        "route     never: not reached -> group small",
        "score     d: 0.300",
        "decision  group small: score 0.300 of d, threshold 0.42",
        "plan      1. l2 (large): 0 in flight",
        "plan      2. l1 (large): 3 in flight",
        "plan      -  s1 (small): 0 in flight; it failed and is cooling for another 9.0 s",
    ]


def test_the_plan_tells_what_each_deployment_reports_and_weighs():
    busy = Report(running=4.0, waiting=2.0, kv=0.93, elsewhere=1.0, ttft_s=0.5)
    load = Load(in_flight={"l1": 3}, reports={"l1": busy, "l2": Report(ttft_s=0.4)})
    told = explain(CONFIG, POLICY, Signals(model="auto", tools=9), SCORED, None, load, 0.2)
    lines = [line for line in render(told).splitlines() if line.startswith("plan")]
    assert lines[:2] == [
        "plan      1. l2 (large): 0 in flight, TTFT 0.40 s: weight 1",
        "plan      2. l1 (large): 3 in flight, 1 from elsewhere, 2 waiting, KV 93%, TTFT 0.50 s: weight 14",
    ]
    assert [one.weight for one in told.deployments][:2] == [1.0, 14.0]


def test_a_missing_score_is_named():
    told = explain(CONFIG, POLICY, Signals(), {}, None, NOW, 0.2)
    assert (told.decision, told.plan, told.need) == (None, None, "d")
    assert "decision  the score of d is needed first" in render(told)


def test_an_abstention_and_a_pin_are_told():
    abstained = {"d": Abstain(scorer="d", reason="timeout")}
    told = explain(CONFIG, POLICY, Signals(), abstained, None, NOW, 0.2)
    assert told.because == "group large: the scorer d abstained (timeout), so the policy's default"
    assert "score     d: abstained (timeout)" in render(told)

    session = Session(id="c", group="large", deployment="l2", route="difficulty")
    told = explain(CONFIG, POLICY, Signals(tool_loop=True), {}, session, NOW, 0.2)
    assert told.pin == "group large, held: a tool loop never changes group"
    assert told.because == "group large: the conversation is pinned to it"
    assert {r.held for r in told.routes} == {None}
    assert told.deployments[0].deployment == "l2"
    assert "set       reasoning_effort='high'" in render(told)


def test_a_direct_ask_is_told():
    asked = Asked(model="large", group="large")
    told = explain(CONFIG, asked, Signals(model="large"), {}, None, NOW, 0.2)
    assert told.because == "the client asked for group large by name"
    assert told.routes == ()


def test_a_pin_is_told_in_each_of_its_states():
    pinned = Session(id="c", group="small", deployment="s1", route="difficulty")
    tell = {
        "side": explain(CONFIG, POLICY, Signals(side_request=True), SCORED, pinned, NOW, 0.2).pin,
        "up": explain(CONFIG, POLICY, Signals(), SCORED, pinned, NOW, 0.2).pin,
        "void": explain(CONFIG, POLICY, Signals(), SCORED, Session(id="c", group="gone"), NOW, 0.2).pin,
    }
    assert tell == {
        "side": "not used: a side request (title, summary or the like)",
        "up": "group small, may move up at a user turn",
        "void": "void: the policy does not lead to group gone",
    }


def test_nothing_to_serve_is_told_with_the_time_to_come_back():
    load = Load(cooling={"s1": 30.0, "l1": 20.0, "l2": 40.0})
    text = render(explain(CONFIG, POLICY, Signals(), SCORED, None, load, 0.2))
    assert text.endswith("plan      none can serve; retry after 20.0 s")


some_signals = st.builds(
    Signals,
    tool_loop=st.booleans(),
    side_request=st.booleans(),
    tool_errors=st.integers(0, 3),
    tools=st.sampled_from([0, 9]),
    tenant=st.sampled_from(["", "a"]),
)
sessions = st.none() | st.builds(
    Session, id=st.just("c"), group=st.sampled_from([None, "small", "large", "gone"]), route=st.none()
)
loads = st.builds(Load, cooling=st.dictionaries(st.sampled_from(["s1", "l1", "l2"]), st.floats(0, 30)))
scores = st.sampled_from([{}, SCORED, {"d": Score(scorer="d", value=0.9)}, {"d": Abstain(scorer="d", reason="unsure")}])


@given(some_signals, scores, sessions, loads, st.floats(0, 1, exclude_max=True))
def test_what_is_explained_is_what_production_does(
    signals: Signals, given_: dict[str, Score | Abstain], session: Session | None, load: Load, draw: float
):
    told = explain(CONFIG, POLICY, signals, given_, session, load, draw)
    made = decide(POLICY, signals, given_, session, load)
    if isinstance(made, Decision):
        assert told.decision == made
        assert told.plan == plan(made, POLICY, CONFIG, load, signals, draw)
        if made.why in ("signal", "score"):
            assert [r.route for r in told.routes if r.held] == [made.route]
    else:
        assert (told.decision, told.need) == (None, made.scorer)
    for tested in told.routes:
        if tested.held is not None:
            assert tested.held == all(check.held for check in tested.checks)
    assert render(told)
    assert msgspec.json.decode(msgspec.json.encode(told))["policy"] == "agents"


def test_a_copy_of_the_policy_explains_the_same():
    copy = replace(POLICY)
    assert explain(CONFIG, copy, Signals(), SCORED, None, NOW, 0.2) == explain(
        CONFIG, POLICY, Signals(), SCORED, None, NOW, 0.2
    )


def test_an_explored_request_says_where_its_score_led_and_that_chance_sent_it_elsewhere():
    exploring = replace(POLICY, explore=Explore(share=0.02))
    near = {"d": Score(scorer="d", value=0.4)}
    told = explain(CONFIG, exploring, Signals(model="auto"), near, None, NOW, 0.5)
    assert told.decision is not None
    assert (told.decision.why, told.decision.group) == ("explore", "large")
    assert told.because == (
        "group large: score 0.400 of d, threshold 0.42 led to group small, "
        "and chance (0.02) to the other side, for evidence"
    )
    without = explain(CONFIG, exploring, Signals(model="auto"), near, None, NOW, None)
    assert without.decision is not None
    assert without.decision.group == "small"
