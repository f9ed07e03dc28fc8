"""Where a threshold goes for its target: on evidence, in small steps, inside its bounds, and otherwise nowhere."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from router.config import Band, Explore, Goal, Limit, Policy, Route, ScoreRule
from router.decide import decide
from router.policy import largest_edge
from router.steer import (
    LEAST_JUDGED,
    LEAST_SCORES,
    MARGIN,
    STEP,
    Judged,
    Rule,
    Seen,
    largest,
    rules,
    seen,
    step,
)
from router.types import Attempt, Cut, Decision, Load, Record, Score, Session, Signals

SHARE = Goal(large_share=Limit(at_most=0.35), bounds=(0.2, 0.8))


def rule(goal: Goal = SHARE, base: float = 0.5) -> Rule:
    low, high = goal.bounds or (0.0, 1.0)
    return Rule(policy="p", route="d", base=base, low=low, high=high, goal=goal)


def scored(count: int, at: float, seed: int | None = None) -> list[Seen]:
    """Requests with scores spread evenly over [0, 1], or drawn from there, decided at a threshold."""
    rng = Random(seed)
    scores = [(i + 0.5) / count if seed is None else rng.random() for i in range(count)]
    return [Seen(route="d", large=s >= at, score=s) for s in scores]


def policy(bands: tuple[Band, ...], goal: Goal | None = SHARE) -> Policy:
    route = Route(name="d", score=ScoreRule(scorer="s", bands=bands))
    return Policy(name="p", models=("auto",), default="large", routes=(route,), target=goal)


TWO = (Band(group="small", below=0.5), Band(group="large"))


# --- which thresholds ------------------------------------------------------------------------------------


def test_the_threshold_that_moves_is_the_one_at_which_the_largest_group_begins():
    thinking = (Band(group="small", below=0.3), Band(group="large", below=0.6, set={"a": 1}), Band(group="large"))
    assert largest_edge(ScoreRule(scorer="s", bands=thinking)) == 0
    assert largest_edge(ScoreRule(scorer="s", bands=TWO)) == 0
    tiers = (Band(group="small", below=0.3), Band(group="large", below=0.6), Band(group="frontier"))
    assert largest_edge(ScoreRule(scorer="s", bands=tiers)) == 1
    assert largest_edge(ScoreRule(scorer="s", bands=(Band(group="a", below=0.5), Band(group="a")))) is None


def test_bounds_never_pass_the_edges_beside_the_threshold():
    thinking = (Band(group="small", below=0.3), Band(group="large", below=0.6, set={"a": 1}), Band(group="large"))
    (found,) = rules(policy(thinking))
    assert (found.base, found.low) == (0.3, 0.2)
    assert 0.59 < found.high < 0.6
    (plain,) = rules(policy(TWO, Goal(large_share=Limit(at_most=0.3))))
    assert (plain.low, plain.high) == (pytest.approx(0.3), pytest.approx(0.7))


def test_a_policy_without_a_target_moves_nothing():
    assert rules(policy(TWO, None)) == ()


# --- share -----------------------------------------------------------------------------------------------


def test_too_few_scores_freeze_the_threshold():
    found = step(rule(), 0.5, scored(LEAST_SCORES - 1, 0.5))
    assert (found.at, found.how) == (0.5, "frozen")
    assert f"{LEAST_SCORES - 1} of the {LEAST_SCORES}" in found.reason


def test_a_share_within_the_margin_moves_nothing():
    found = step(rule(Goal(large_share=Limit(at_most=0.5), bounds=(0.2, 0.8))), 0.5, scored(2000, 0.5))
    assert (found.at, found.how) == (0.5, "stays")


def test_a_share_above_the_limit_raises_the_threshold_and_one_below_lowers_it():
    up, down = step(rule(), 0.5, scored(2000, 0.5)), step(rule(), 0.75, scored(2000, 0.75))
    assert (up.how, down.how) == ("moves", "moves")
    assert 0.5 < up.at <= 0.5 + STEP + 1e-9
    assert 0.75 > down.at >= 0.75 - STEP - 1e-9


def test_the_threshold_settles_where_the_share_is_the_limit_and_stays_there():
    at, still = 0.5, 0
    window: list[Seen] = []
    rng = Random(3)
    for round_ in range(200):
        window = (window + scored(100, at, rng.randrange(10**6)))[-2000:]
        found = step(rule(), at, window)
        still += found.how == "stays" and round_ >= 100
        at = found.at
    assert abs(at - 0.65) < 0.05
    assert still > 20


def test_a_threshold_never_leaves_its_bounds_and_says_that_it_reached_one():
    at, told = 0.5, ""
    narrow = rule(Goal(large_share=Limit(at_most=0.05), bounds=(0.4, 0.6)))
    for _ in range(10):
        found = step(narrow, at, scored(1000, at))
        at, told = found.at, found.reason
        assert 0.4 <= at <= 0.6
    assert at == 0.6
    assert "the upper bound is reached" in told


def test_what_the_threshold_has_no_say_in_counts_against_the_limit():
    """A quarter of the requests goes to the large group by a signal: the score may send a third less."""
    by_signal = [Seen(route="images", large=True)] * 500
    alone = step(rule(), 0.65, scored(1500, 0.65))
    beside = step(rule(), 0.65, by_signal + scored(1500, 0.65))
    assert alone.how == "stays"
    assert beside.how == "moves"
    assert beside.at > 0.65


def test_scores_that_are_all_alike_go_together_and_below_the_limit():
    window = [Seen(route="d", large=True, score=0.6)] * 1000
    at = 0.5
    for _ in range(10):
        at = step(rule(), at, window).at
    assert at > 0.6


# --- cost ------------------------------------------------------------------------------------------------


def priced(count: int, at: float) -> list[Seen]:
    rng = Random(5)
    scores = [rng.random() for _ in range(count)]
    return [Seen(route="d", large=s >= at, score=s, cost=0.010 if s >= at else 0.001) for s in scores]


def test_a_cost_becomes_the_share_that_it_can_pay_for():
    """10 and 1 dollars a thousand: 4 pays for a third."""
    cost = rule(Goal(cost_per_1k=Limit(at_most=4.0), bounds=(0.2, 0.9)))
    at = 0.5
    for _ in range(20):
        at = step(cost, at, priced(2000, at)).at
    assert abs(at - 0.667) < 2 * MARGIN


def test_requests_without_a_cost_are_no_evidence():
    cost = rule(Goal(cost_per_1k=Limit(at_most=4.0), bounds=(0.2, 0.9)))
    assert step(cost, 0.5, scored(2000, 0.5)).how == "frozen"
    same = [Seen(route="d", large=s.large, score=s.score, cost=0.002) for s in scored(2000, 0.5)]
    assert "no more than the others" in step(cost, 0.5, same).reason


# --- quality ---------------------------------------------------------------------------------------------

QUALITY = Goal(quality_loss=Limit(at_most=0.02), bounds=(0.2, 0.8))


def losing(count: int, at: float, slope: float, seed: int = 7) -> list[Judged]:
    """Judged answers below the threshold, whose loss grows with the score."""
    rng = Random(seed)
    return [Judged(score=s, loss=slope * s * s) for s in (rng.random() * at for _ in range(count))]


def test_without_judged_answers_a_quality_target_freezes_the_threshold():
    found = step(rule(QUALITY), 0.5, scored(2000, 0.5), losing(LEAST_JUDGED - 1, 0.5, 1.0))
    assert (found.at, found.how) == (0.5, "frozen")
    assert "judged" in found.reason


def test_a_loss_above_the_limit_lowers_the_threshold_and_a_loss_surely_below_raises_it():
    assert step(rule(QUALITY), 0.5, scored(2000, 0.5), losing(200, 0.5, 1.0)).at < 0.5
    assert step(rule(QUALITY), 0.5, scored(2000, 0.5), losing(200, 0.5, 0.1)).at > 0.5


def test_a_loss_that_may_be_above_the_limit_moves_nothing():
    rng = Random(11)
    noisy = [Judged(score=rng.random() * 0.5, loss=rng.choice((-0.5, 0.55))) for _ in range(40)]
    found = step(rule(QUALITY), 0.5, scored(2000, 0.5), noisy)
    assert found.how == "stays"


# --- what is counted, and what is applied ----------------------------------------------------------------


def record(decision: Decision | None) -> Record:
    return Record(
        id="r", time=0.0, policy="p", digest="", dialect="chat", model="auto", stream=False, signals=None,
        decision=decision, attempts=(Attempt(deployment="a", group="large"),), cost=0.5,
    )  # fmt: skip


def test_only_a_decision_by_the_score_has_a_score_that_a_threshold_could_turn():
    large = largest(policy(TWO))
    by_score = Decision(policy="p", route="d", group="large", why="score", scorer="s", score=0.9)
    pinned = Decision(policy="p", route="pin", group="large", why="pin", scorer="s", score=0.1)
    assert seen(record(by_score), large) == Seen(route="d", large=True, score=0.9, cost=0.5)
    assert seen(record(pinned), large) == Seen(route="pin", large=True, score=None, cost=0.5)
    assert seen(record(None), large) is None


def test_decide_uses_the_cut_in_force_and_says_so():
    scores = {"s": Score(scorer="s", value=0.55)}
    cut = Cut(base=0.5, at=0.6)
    plain = decide(policy(TWO), Signals(), scores, None, Load())
    moved = decide(policy(TWO), Signals(), scores, None, Load(cuts={"d": cut}))
    assert isinstance(plain, Decision)
    assert isinstance(moved, Decision)
    assert (plain.group, plain.threshold, plain.cut) == ("large", 0.5, None)
    assert (moved.group, moved.threshold, moved.cut) == ("small", 0.6, cut)


def test_a_cut_made_for_another_threshold_or_another_route_is_void():
    scores = {"s": Score(scorer="s", value=0.55)}
    for cuts in ({"d": Cut(base=0.4, at=0.6)}, {"other": Cut(base=0.5, at=0.6)}):
        made = decide(policy(TWO), Signals(), scores, None, Load(cuts=cuts))
        assert isinstance(made, Decision)
        assert (made.group, made.threshold, made.cut) == ("large", 0.5, None)


def test_a_pin_keeps_its_group_whatever_the_cut():
    scores = {"s": Score(scorer="s", value=0.55)}
    session = Session(id="c", group="large", deployment="a", route="d")
    made = decide(policy(TWO), Signals(tool_loop=True), scores, session, Load(cuts={"d": Cut(base=0.5, at=0.6)}))
    assert isinstance(made, Decision)
    assert (made.group, made.why) == ("large", "pin")


def test_exploring_looks_at_the_edge_in_force():
    exploring = replace(policy(TWO), fallback={"small": ("large",)}, explore=Explore(share=0.5, within=0.02))
    cut = Cut(base=0.5, at=0.6)
    scores = {"s": Score(scorer="s", value=0.59)}
    made = decide(exploring, Signals(), scores, None, Load(cuts={"d": cut}), 0.0)
    assert isinstance(made, Decision)
    assert (made.why, made.group, made.other, made.threshold, made.cut) == ("explore", "large", "small", 0.6, cut)
    plain = decide(exploring, Signals(), scores, None, Load(), 0.0)
    assert isinstance(plain, Decision)
    assert (plain.why, plain.group) == ("score", "large"), "the edge as written is far off"
